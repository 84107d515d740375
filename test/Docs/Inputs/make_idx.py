# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes images.idx and labels.idx into a folder: 130 images of 28 x 28, each a bright band whose place is its label."""

import pathlib
import struct
import sys

folder, count = pathlib.Path(sys.argv[1]), 130
folder.mkdir(parents=True, exist_ok=True)
labels = bytes(i * 7 % 10 for i in range(count))
images = b"".join(bytes(255 if row // 2 == label else 16 for row in range(28) for _ in range(28)) for label in labels)
(folder / "images.idx").write_bytes(struct.pack(">HBB3I", 0, 8, 3, count, 28, 28) + images)
(folder / "labels.idx").write_bytes(struct.pack(">HBBI", 0, 8, 1, count) + labels)
