# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports of memopt-run."""

import json
import pathlib


def read_report(path):
    """The report of a run with --check-memory, in which every rank used what was predicted and no step allocated."""
    report = json.loads(pathlib.Path(path).read_text())
    for rank in report.get("per_rank", [report]):
        assert rank["used_peak_bytes"] == rank["predicted_peak_bytes"], report
        assert rank["hot_path_allocations"] == 0, report
    return report
