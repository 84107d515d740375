"""Kernels written in Python, compiled by kernel-compile, run and compared with numpy.

Every case runs with its parallel loops in one piece, in several, and in reversed order: the bits must be
the same. So must those of a second compilation. --reference compiles plain scalar loops; --chip those of a device
(device_testing), whose threads the emulator runs in an order of its own in each run."""
import argparse
import ctypes
import os
import subprocess
import sys
import tempfile

import numpy as np

from device_testing import DeviceProgram

DTYPES = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32, "i16": np.int16,
          "i8": np.int8, "i1": np.bool_, "f16": np.float16, "bf16": np.uint16}


def tensor(shape, dtype):
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


class Value:
    def __init__(self, name, shape, dtype):
        self.name, self.shape, self.dtype = name, tuple(shape), dtype
        self.type = tensor(shape, dtype)


class Kernel:
    """Collects the text of one memopt.kernel."""

    def __init__(self, *arguments):
        self.arguments = [Value(f"%arg{i}", *argument) for i, argument in enumerate(arguments)]
        self.lines, self.count, self.results = [], 0, []

    def fresh(self):
        self.count += 1
        return f"%value{self.count}"

    def view(self, op, shape, dtype):
        """`op` is the text of an operation up to its types, which it includes."""
        value = Value(self.fresh(), shape, dtype)
        self.lines.append(f"{value.name} = {op}")
        return value

    def constant(self, text, dtype):
        name = self.fresh()
        self.lines.append(f"{name} = arith.constant {text} : {dtype}")
        return name

    def generic(self, ins, outs, iterators, body):
        """ins: (value, "(d0, d1) -> (d0)")...; outs: (shape, dtype, map, initial or None)...;
        the body reads %a0.. and accumulators %o0.. and ends in linalg.yield."""
        inits, results = [], []
        for shape, dtype, _, initial in outs:
            type = tensor(shape, dtype)
            empty = self.fresh()
            self.lines.append(f"{empty} = tensor.empty() : {type}")
            if initial is not None:
                filled, constant = self.fresh(), self.constant(initial, dtype)
                self.lines.append(f"{filled} = linalg.fill ins({constant} : {dtype}) outs({empty} : {type}) -> {type}")
                empty = filled
            inits.append(empty)
            results.append(Value(self.fresh(), shape, dtype))
        maps = ", ".join(f"affine_map<{text}>" for text in [m for _, m in ins] + [out[2] for out in outs])
        kinds = ", ".join({"p": '"parallel"', "r": '"reduction"'}[kind] for kind in iterators)
        types = ", ".join(tensor(out[0], out[1]) for out in outs)
        block = ", ".join([f"%a{i}: {value.dtype}" for i, (value, _) in enumerate(ins)]
                          + [f"%o{i}: {out[1]}" for i, out in enumerate(outs)])
        reads = ""
        if ins:
            reads = (f" ins({', '.join(value.name for value, _ in ins)} : "
                     f"{', '.join(value.type for value, _ in ins)})")
        name = self.fresh() if len(outs) > 1 else results[0].name
        lhs = f"{name}:{len(outs)}" if len(outs) > 1 else name
        if len(outs) > 1:
            for i, result in enumerate(results):
                result.name = f"{name}#{i}"
        self.lines.append(f"{lhs} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}{reads} "
                          f"outs({', '.join(inits)} : {types}) {{\n^bb0({block}):\n{body}\n}} -> "
                          f"{'(' + types + ')' if len(outs) > 1 else types}")
        return results if len(outs) > 1 else results[0]

    def pointwise(self, ins, dtype, body, shape=None):
        """All values of one shape; a plain value means the identity map."""
        shape = shape if shape is not None else next(v for v in ins if isinstance(v, Value)).shape
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        identity = f"({dims}) -> ({dims})"
        reads = [(v, identity) if isinstance(v, Value) else v for v in ins]
        return self.generic(reads, [(shape, dtype, identity, None)], "p" * len(shape), body)

    def reduce(self, ins, result, iterators, initial, body, dtype="f32"):
        """One accumulator; `result` is (shape, map)."""
        return self.generic(ins, [(result[0], dtype, result[1], initial)], iterators, body)

    def yields(self, *values):
        self.results = list(values)
        return self

    def text(self, name, result_buffers):
        outer = ", ".join(f"%in{i}: {value.type}" for i, value in enumerate(self.arguments))
        bound = ", ".join(f"{value.name} = %in{i} : {value.type}" for i, value in enumerate(self.arguments))
        types = ", ".join(value.type for value in self.results)
        lines = "\n".join(self.lines)
        attribute = ""
        if result_buffers:
            attribute = f" attributes {{test.result_buffers = array<i64: {', '.join(map(str, result_buffers))}>}}"
        return (f"func.func @{name}({outer}){attribute} {{\n"
                f"%k{':' + str(len(self.results)) if len(self.results) > 1 else ''} = memopt.kernel ({bound}) -> "
                f"({types}) {{\n{lines}\nmemopt.yield {', '.join(v.name for v in self.results)} : {types}\n}}\n"
                f"return\n}}\n")


class Case:
    def __init__(self, name, kernel, inputs, expected, tolerance=2e-6, result_buffers=None, faults=None):
        """expected: arrays, in float64 where the results are floats. The tolerance is relative to the
        largest element of a result; 0 means equal bits. bf16 arrays hold the bits. `faults`: what a kernel
        that checks leaves in the word for reports, which begins as all ones."""
        self.faults = faults
        self.name, self.kernel, self.inputs = name, kernel, [np.ascontiguousarray(x) for x in inputs]
        self.expected, self.tolerance, self.result_buffers = expected, tolerance, result_buffers


class Program:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        body_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.pieces, self.launches = 1, 0

        def parallel_for(session, count, grain, body, closure):
            self.launches += 1
            function = body_type(body)
            bounds = [count * i // abs(self.pieces) for i in range(abs(self.pieces) + 1)]
            cuts = [cut for cut in zip(bounds, bounds[1:]) if cut[0] < cut[1]]
            for begin, end in cuts if self.pieces > 0 else reversed(cuts):
                function(closure, begin, end)

        self.callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                         ctypes.c_void_p, ctypes.c_void_p)(parallel_for)
        # As in ProgramInterface.h: version and size, then parallel_for; session, then the table.
        self.table = (ctypes.c_void_p * 2)(0, ctypes.cast(self.callback, ctypes.c_void_p).value)
        self.step = (ctypes.c_void_p * 4)(0, ctypes.addressof(self.table), 0, 0)

    def run(self, case, pieces):
        self.pieces = pieces
        inputs = [x.copy() for x in case.inputs]
        results = []
        for i, value in enumerate(case.kernel.results):
            buffer = case.result_buffers[i] if case.result_buffers else -1
            # Poison, and guards on both sides.
            results.append(guarded(value) if buffer < 0 else (inputs[buffer], None))
        buffers = inputs + [result for result, _ in results]
        if case.faults is not None:
            buffers.append(np.full(1, 2**64 - 1, np.uint64))
        getattr(self.library, case.name)(ctypes.byref(self.step),
                                         *[ctypes.c_void_p(x.ctypes.data) for x in buffers])
        for result, whole in results:
            if whole is not None:
                size = (whole.size - result.nbytes) // 2
                assert (whole[:size] == 0xA5).all() and (whole[size + result.nbytes:] == 0xA5).all(), \
                    f"{case.name} writes outside a result"
        if case.faults is not None:
            assert buffers[-1][0] == case.faults, f"{case.name} reports {buffers[-1][0]:#x}, expected {case.faults:#x}"
        return [result.copy() for result, _ in results]


def guarded(value, guard=256):
    dtype = np.dtype(DTYPES[value.dtype])
    count = int(np.prod(value.shape, dtype=np.int64))
    whole = np.full(count * dtype.itemsize + 2 * guard, 0xA5, np.uint8)
    return whole[guard:guard + count * dtype.itemsize].view(dtype).reshape(value.shape), whole


def check(case, results):
    for number, (got, expected) in enumerate(zip(results, case.expected)):
        expected = np.asarray(expected)
        if case.tolerance == 0 or got.dtype.kind in "biu":
            same = np.array_equal(got, expected.astype(got.dtype), equal_nan=got.dtype.kind == "f")
            error = 0 if same else float("inf")
        else:
            finite = np.isfinite(expected)
            if not np.array_equal(np.where(finite, 0, got), np.where(finite, 0, expected), equal_nan=True):
                error = float("inf")
            else:
                scale = max(np.abs(expected[finite]).max(initial=0), 1e-30)
                error = np.abs(got[finite].astype(np.float64) - expected[finite]).max(initial=0) / scale
        if error > case.tolerance:
            bad = np.argwhere(~np.isclose(got, expected, rtol=1e-4, atol=1e-5))[:3].tolist()
            return f"result {number}: error {error:.3g}, allowed {case.tolerance:.3g}, first at {bad}"
    return None


def main(cases):
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--print-schedule", action="store_true")
    parser.add_argument("--processor", default="native")
    parser.add_argument("--chip", default="")
    arguments = parser.parse_args()
    cases = [case for case in cases if arguments.only in case.name]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "kernels.mlir")
        with open(source, "w") as file:
            file.write("".join(case.kernel.text(case.name, case.result_buffers) for case in cases))
        outputs = []
        for jobs in (1, 2):
            outputs.append(os.path.join(folder, f"kernels{jobs}.so"))
            command = ["kernel-compile", source, "-o", outputs[-1], f"--jobs={jobs}", "--always-parallel",
                       f"--processor={arguments.processor}"]
            if arguments.reference:
                command.append("--reference")
            if arguments.chip:
                # Few multiprocessors: threads go through several iterations.
                command += [f"--chip={arguments.chip}", "--sms=3", "--bitcode"]
            if arguments.print_schedule or arguments.chip:
                command.append("--print-schedule")
            compiled = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if arguments.print_schedule and jobs == 1:
                print(compiled.stdout, end="")
            if compiled.returncode:
                if os.environ.get("KEEP"):
                    os.system(f"cp {source} {os.environ['KEEP']}")
                sys.exit("kernel-compile failed")
        if open(outputs[0], "rb").read() != open(outputs[1], "rb").read():
            failures += 1
            print("FAIL: one and two compiler threads give different objects")
        program = DeviceProgram(outputs[0], compiled.stdout, DTYPES) if arguments.chip else Program(outputs[0])
        for case in cases:
            results = program.run(case, 1)
            problem = check(case, results)
            for pieces in (2,) if arguments.chip else (2, 3, -7):
                if not all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) if a.ndim else a.tobytes() == b.tobytes()
                           for a, b in zip(results, program.run(case, pieces))):
                    problem = problem or f"bits change when loops are cut into {pieces} pieces"
            if problem:
                failures += 1
                print(f"FAIL {case.name}: {problem}")
    print(f"{len(cases)} cases, {failures} failures")
    sys.exit(failures != 0)
