# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_readme.py README.md: its first example runs as it is printed, and prints what stands there, numbers within 5 %."""

import contextlib
import io
import pathlib
import re
import sys

page = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
example, expected = re.search(r"```python\n(.*?)```\n\nprints\n\n    (.*?)\n\n", page, re.DOTALL).groups()
assert example.count("\n") <= 12, "it is to be a short one"
number = re.compile(r"\d+(?:\.\d+)?")
with contextlib.redirect_stdout(io.StringIO()) as out:
    exec(compile(example, sys.argv[1], "exec"))
printed = out.getvalue().strip()
assert number.sub("N", printed) == number.sub("N", expected), (printed, expected)
for ours, theirs in zip(map(float, number.findall(printed)), map(float, number.findall(expected)), strict=True):
    assert abs(ours - theirs) <= 0.05 * theirs + 0.01, (printed, expected)
print(printed, "by", sys.modules["memopt"].__file__)
