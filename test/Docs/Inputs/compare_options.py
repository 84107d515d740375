# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""compare_options.py TOOL PAGE.md: the options in the page's tables are those of TOOL --help, and their other names stand
there."""

import re
import subprocess
import sys

tool, page = sys.argv[1:]
text = subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout
known = set(re.findall(r"^  (--?[a-z][a-z-]*)", text, re.MULTILINE))
with open(page, encoding="utf-8") as file:
    rows = [line.split(" | ")[0] for line in file if line.startswith("| `-")]
told = {name for row in rows for name in re.findall(r"`(--?[a-z][a-z-]*)", row)}
others = {name for names in re.findall(r"\(also ([^)]*)\)", " ".join(text.split())) for name in names.split(", ")}
with open(page, encoding="utf-8") as file:
    whole = file.read()
if unnamed := sorted(name for name in others if f"`{name}`" not in whole):
    sys.exit(f"{page}: other names {' '.join(unnamed)} are not in the page")
for names, message in ((known - told, "are not in the page"), (told - known, "are not options")):
    if names:
        sys.exit(f"{page}: {' '.join(sorted(names))} {message}")
