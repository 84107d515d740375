; Products of matrices of 16-bit numbers, c = a b, on one warp: 16 x 16 numbers of a, and 16 x 16 of b, whose lower half
; is not copied and counts as zeros. How b lies: its columns one after the other, and then the halves of columns are left
; and right (`multiply`), or its rows (`multiply_rows`). What `waits` and `meets` leave out is a race.
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

@tiles = internal addrspace(3) global [1024 x i8] undef, align 16

define internal void @copy(ptr %a, ptr %b, i32 %waits, i32 %meets) alwaysinline {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %wide = zext i32 %lane to i64
  %at = mul i64 %wide, 16
  %a.shared = getelementptr i8, ptr addrspace(3) @tiles, i64 %at
  %b.shared = getelementptr i8, ptr addrspace(3) %a.shared, i64 512
  %a.one = getelementptr i8, ptr %a, i64 %at
  %b.one = getelementptr i8, ptr %b, i64 %at
  %a.global = addrspacecast ptr %a.one to ptr addrspace(1)
  %b.global = addrspacecast ptr %b.one to ptr addrspace(1)
  %there = icmp ult i32 %lane, 16
  %valid = select i1 %there, i32 16, i32 0
  call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %a.shared, ptr addrspace(1) %a.global)
  call void @llvm.nvvm.cp.async.commit.group()
  call void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr addrspace(3) %b.shared, ptr addrspace(1) %b.global, i32 %valid)
  call void @llvm.nvvm.cp.async.commit.group()
  switch i32 %waits, label %waited [ i32 1, label %one
                                     i32 2, label %all ]
one:
  call void @llvm.nvvm.cp.async.wait.group(i32 1)
  br label %waited
all:
  call void @llvm.nvvm.cp.async.wait.group(i32 0)
  br label %waited
waited:
  %meet = icmp ne i32 %meets, 0
  br i1 %meet, label %barrier, label %end
barrier:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %end
end:
  ret void
}

define internal ptr addrspace(3) @row(i32 %row, i32 %piece, i32 %begin) alwaysinline {
  %line = mul i32 %row, 32
  %byte = mul i32 %piece, 16
  %in = add i32 %line, %byte
  %at = add i32 %in, %begin
  %wide = zext i32 %at to i64
  %address = getelementptr i8, ptr addrspace(3) @tiles, i64 %wide
  ret ptr addrspace(3) %address
}

define internal void @store(ptr %c, i64 %place, { float, float, float, float } %d) alwaysinline {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %wide = zext i32 %lane to i64
  %first = mul i64 %wide, 8
  %at = add i64 %first, %place
  %c0 = getelementptr float, ptr %c, i64 %at
  %c1 = getelementptr float, ptr %c0, i64 1
  %c2 = getelementptr float, ptr %c0, i64 2
  %c3 = getelementptr float, ptr %c0, i64 3
  %d0 = extractvalue { float, float, float, float } %d, 0
  %d1 = extractvalue { float, float, float, float } %d, 1
  %d2 = extractvalue { float, float, float, float } %d, 2
  %d3 = extractvalue { float, float, float, float } %d, 3
  store float %d0, ptr %c0
  store float %d1, ptr %c1
  store float %d2, ptr %c2
  store float %d3, ptr %c3
  ret void
}

define internal { i32, i32, i32, i32 } @left() alwaysinline {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %row = and i32 %lane, 15
  %piece = lshr i32 %lane, 4
  %address = call ptr addrspace(3) @row(i32 %row, i32 %piece, i32 0)
  %words = call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %address)
  ret { i32, i32, i32, i32 } %words
}

; bf16; columns of b.
define ptx_kernel void @multiply(ptr %a, ptr %b, ptr %c, i32 %waits, i32 %meets) {
  call void @copy(ptr %a, ptr %b, i32 %waits, i32 %meets)
  %left = call { i32, i32, i32, i32 } @left()
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %low = and i32 %lane, 7
  %upper = lshr i32 %lane, 4
  %eight = shl i32 %upper, 3
  %row = add i32 %low, %eight
  %half = lshr i32 %lane, 3
  %piece = and i32 %half, 1
  %address = call ptr addrspace(3) @row(i32 %row, i32 %piece, i32 512)
  %right = call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %address)
  %a0 = extractvalue { i32, i32, i32, i32 } %left, 0
  %a1 = extractvalue { i32, i32, i32, i32 } %left, 1
  %a2 = extractvalue { i32, i32, i32, i32 } %left, 2
  %a3 = extractvalue { i32, i32, i32, i32 } %left, 3
  %b0 = extractvalue { i32, i32, i32, i32 } %right, 0
  %b1 = extractvalue { i32, i32, i32, i32 } %right, 1
  %b2 = extractvalue { i32, i32, i32, i32 } %right, 2
  %b3 = extractvalue { i32, i32, i32, i32 } %right, 3
  %d = call { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.bf16(i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, i32 %b1, float 1.0, float 1.0, float 1.0, float 1.0)
  %e = call { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.bf16(i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b2, i32 %b3, float 1.0, float 1.0, float 1.0, float 1.0)
  call void @store(ptr %c, i64 0, { float, float, float, float } %d)
  call void @store(ptr %c, i64 4, { float, float, float, float } %e)
  ret void
}

; f16; rows of b.
define ptx_kernel void @multiply_rows(ptr %a, ptr %b, ptr %c, i32 %waits, i32 %meets) {
  call void @copy(ptr %a, ptr %b, i32 %waits, i32 %meets)
  %left = call { i32, i32, i32, i32 } @left()
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %row = and i32 %lane, 15
  %piece = lshr i32 %lane, 4
  %address = call ptr addrspace(3) @row(i32 %row, i32 %piece, i32 512)
  %right = call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3) %address)
  %l0 = extractvalue { i32, i32, i32, i32 } %left, 0
  %l1 = extractvalue { i32, i32, i32, i32 } %left, 1
  %l2 = extractvalue { i32, i32, i32, i32 } %left, 2
  %l3 = extractvalue { i32, i32, i32, i32 } %left, 3
  %r0 = extractvalue { i32, i32, i32, i32 } %right, 0
  %r1 = extractvalue { i32, i32, i32, i32 } %right, 1
  %r2 = extractvalue { i32, i32, i32, i32 } %right, 2
  %r3 = extractvalue { i32, i32, i32, i32 } %right, 3
  %a0 = bitcast i32 %l0 to <2 x half>
  %a1 = bitcast i32 %l1 to <2 x half>
  %a2 = bitcast i32 %l2 to <2 x half>
  %a3 = bitcast i32 %l3 to <2 x half>
  %b0 = bitcast i32 %r0 to <2 x half>
  %b1 = bitcast i32 %r1 to <2 x half>
  %b2 = bitcast i32 %r2 to <2 x half>
  %b3 = bitcast i32 %r3 to <2 x half>
  %d = call { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.f32.f32(<2 x half> %a0, <2 x half> %a1, <2 x half> %a2, <2 x half> %a3, <2 x half> %b0, <2 x half> %b1, float 1.0, float 1.0, float 1.0, float 1.0)
  %e = call { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.f32.f32(<2 x half> %a0, <2 x half> %a1, <2 x half> %a2, <2 x half> %a3, <2 x half> %b2, <2 x half> %b3, float 1.0, float 1.0, float 1.0, float 1.0)
  call void @store(ptr %c, i64 0, { float, float, float, float } %d)
  call void @store(ptr %c, i64 4, { float, float, float, float } %e)
  ret void
}

declare void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3), ptr addrspace(1))
declare void @llvm.nvvm.cp.async.cg.shared.global.16.s(ptr addrspace(3), ptr addrspace(1), i32)
declare void @llvm.nvvm.cp.async.commit.group()
declare void @llvm.nvvm.cp.async.wait.group(i32)
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3))
declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3))
declare { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.bf16(i32, i32, i32, i32, i32, i32, float, float, float, float)
declare { float, float, float, float } @llvm.nvvm.mma.m16n8k16.row.col.f32.f32(<2 x half>, <2 x half>, <2 x half>, <2 x half>, <2 x half>, <2 x half>, float, float, float, float)
