"""Kernels of a device, compiled by kernel-compile to bitcode and run by the libcuda.so.1 at hand, which is the emulator's
under memopt-emulate.

A program has the interface of kernel_testing.Program: run(case, pieces) gives the results. Every buffer is an allocation
of its own, with poison and guards around a result."""
import ctypes
import re

import numpy as np


class Driver:
    """The first device, on its primary context and the default stream."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} answers {code}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def copy(self, target, source, size):
        self.call("cuMemcpyAsync", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size), self.stream)


class Buffer:
    """An array on the device, whose first element is aligned as those of an arena are."""

    GUARD = 256

    def __init__(self, driver, array):
        self.driver, self.array = driver, array
        size = array.nbytes + 2 * self.GUARD
        self.whole = np.full(size, 0xA5, np.uint8)
        self.whole[self.GUARD:self.GUARD + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        self.base = driver.allocate(size)
        driver.copy(self.base, self.whole.ctypes.data, size)

    def address(self, element):
        return self.base + self.GUARD + element * self.array.itemsize

    def read(self, name):
        self.driver.copy(self.whole.ctypes.data, self.base, self.whole.nbytes)
        self.driver.call("cuStreamSynchronize", self.driver.stream)
        inner = self.whole[self.GUARD:self.GUARD + self.array.nbytes]
        assert (self.whole[:self.GUARD] == 0xA5).all() and (self.whole[self.GUARD + self.array.nbytes:] == 0xA5).all(), \
            f"{name} writes outside a buffer"
        return inner.view(self.array.dtype).reshape(self.array.shape).copy()

    def free(self):
        self.driver.call("cuMemFree_v2", ctypes.c_uint64(self.base))


class DeviceProgram:
    def __init__(self, path, schedules, dtypes):
        """`schedules` is what kernel-compile --print-schedule printed."""
        self.driver, self.dtypes, self.launches = Driver(), dtypes, {}
        module = ctypes.c_void_p()
        self.driver.call("cuModuleLoad", ctypes.byref(module), path.encode())
        for line in re.finditer(r"^launch (\S+) for (\S+): (\d+) blocks of (\d+)([ \d]*)(.*)$", schedules, re.M):
            function = ctypes.c_void_p()
            self.driver.call("cuModuleGetFunction", ctypes.byref(function), module, line[1].encode())
            offsets, ids = [int(word) for word in line[5].split()], [int(word) for word in line[6].split()[1::2]]
            self.launches.setdefault(line[2], []).append((function, int(line[3]), int(line[4]), offsets, ids))

    def run(self, case, pieces):
        arrays = list(case.inputs)
        results = []
        for i, value in enumerate(case.kernel.results):
            number = case.result_buffers[i] if case.result_buffers else -1
            if number < 0:
                number = len(arrays)
                count = int(np.prod(value.shape, dtype=np.int64))
                dtype = np.dtype(self.dtypes[value.dtype])
                arrays.append(np.full(count * dtype.itemsize, 0xA5, np.uint8).view(dtype).reshape(value.shape))
            results.append(number)
        order = list(range(len(case.inputs))) + results
        if case.faults is not None:
            order.append(len(arrays))
            arrays.append(np.full(1, 2**64 - 1, np.uint64))
        buffers = [Buffer(self.driver, array) for array in arrays]
        for function, blocks, threads, offsets, ids in self.launches[case.name]:
            offsets = offsets + [0] * (len(order) - len(offsets))
            values = [ctypes.c_uint64(buffers[number].address(offset)) for number, offset in zip(order, offsets)]
            values += [ctypes.c_uint64(number) for number in ids]
            parameters = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
            self.driver.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, self.driver.stream, parameters, None)
        read = [buffer.read(case.name) for buffer in buffers]
        for buffer in buffers:
            buffer.free()
        if case.faults is not None:
            assert read[-1][0] == case.faults, f"{case.name} reports {read[-1][0]:#x}, expected {case.faults:#x}"
        return [read[number] for number in results]
