# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_links.py ROOT: relative links of README.md, docs and tools lead to files."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
pages = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("tools/**/*.md")]
broken = [
    f"{page.relative_to(root)}: {link}"
    for page in pages
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    if not (page.parent / link).exists()
]
if broken:
    sys.exit("\n".join(broken))
