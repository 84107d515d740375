# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""run_example.py PAGE.md: runs the first Python example of a page as it is printed."""

import pathlib
import re
import sys

(example, *_) = re.findall(r"```python\n(.*?)```", pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), re.DOTALL)
assert example.count("\n") < 20, "it is to be a short one"
exec(compile(example, sys.argv[1], "exec"))
