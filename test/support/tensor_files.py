# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""safetensors files as numpy arrays by name, and, of types that numpy lacks, as bytes."""

import json
import pathlib

import numpy as np

TYPES = {"F64": "f8", "F32": "f4", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
NAMES = {np.dtype(code): name for name, code in TYPES.items()}


def read_entries(path):
    """(type, shape, bytes) by name, of any type."""
    data = memoryview(pathlib.Path(path).read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:begin]))
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[begin:][slice(*entry["data_offsets"])]) for name, entry in header.items()}


def read_safetensors(path):
    return {name: np.frombuffer(content, TYPES[dtype]).reshape(shape) for name, (dtype, shape, content) in read_entries(path).items()}


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, values in tensors.items():
        data = np.ascontiguousarray(values).tobytes()
        header[name] = {"dtype": NAMES[values.dtype], "shape": list(values.shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + body)


def rebatch(data, rows, axis=0):
    """The same samples, which lie along an axis, in their order, in batches of another size."""
    names = {name.split(".", 1)[1] for name in data}
    steps = len(data) // len(names)
    result = {}
    for name in names:
        column = np.moveaxis(np.concatenate([data[f"step{i}.{name}"] for i in range(steps)], axis), axis, 0)
        for i in range(len(column) // rows):
            result[f"step{i}.{name}"] = np.ascontiguousarray(np.moveaxis(column[i * rows:(i + 1) * rows], 0, axis))
    return result
