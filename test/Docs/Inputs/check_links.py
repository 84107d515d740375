# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_links.py ROOT: relative links of README.md, docs and tools lead to files."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])


def read_prose(page):
    """The page without its code, in which brackets are no links."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.sub(r"^    .*$", "", text, flags=re.M)


pages = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("tools/**/*.md")]
broken = [
    f"{page.relative_to(root)}: {link}"
    for page in pages
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", read_prose(page))
    if not (page.parent / link).exists()
]
if broken:
    sys.exit("\n".join(broken))
