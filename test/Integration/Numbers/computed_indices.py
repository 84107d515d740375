"""computed_indices.py MODEL.pt2 DATA.safetensors BATCH...: a table of 10 rows, read at x + 1 and at x / y; and batches.

Batch `good` is good. In `above` x + 1 is 10, in `below` it is -3, in `zero` a y is 0.
"""
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "Import" / "Inputs"))
from archive import Model  # noqa: E402
from tensor_files import write_safetensors  # noqa: E402

model = Model()
table = model.parameter("net.rows.weight", [10, 2], numbers=[float(i) for i in range(20)])
x, y = model.input("x", "i64", [4]), model.input("y", "i64", [4])
shifted = model.op("aten.add.Tensor", ("shifted", "i64", [4]), "net", self_=x, other=1)
first = model.op("aten.embedding.default", ("first", "f32", [4, 2]), "net.rows", weight=table, indices=shifted)
share = model.op("aten.div.Tensor_mode", ("share", "i64", [4]), "net.share", self_=x, other=y, rounding_mode="floor")
place = model.op("aten.remainder.Scalar", ("place", "i64", [4]), "net.share", self_=share, other=10)
second = model.op("aten.embedding.default", ("second", "f32", [4, 2]), "net.rows", weight=table, indices=place)
both = model.op("aten.mul.Tensor", ("both", "f32", [4, 2]), self_=first, other=second)
model.output(model.op("aten.sum.default", ("loss", "f32", []), self_=both))
model.save(pathlib.Path(sys.argv[1]))
batches = {"good": ([0, 3, 8, 1], [1, 2, 3, 4]), "above": ([0, 9, 8, 1], [1, 2, 3, 4]), "below": ([0, 3, -4, 1], [1, 2, 3, 4]),
           "zero": ([0, 3, 8, 1], [1, 0, 3, 4])}
write_safetensors(sys.argv[2], {f"step{i}.{name}": np.array(values) for i, batch in enumerate(sys.argv[3:])
                                for name, values in zip("xy", batches[batch])})
