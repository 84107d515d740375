"""check_plan_page.py PAGE.html REPORT.json: what the page draws adds up to the report."""

import json
import pathlib
import re
import sys

page, report = pathlib.Path(sys.argv[1]).read_text(), json.loads(pathlib.Path(sys.argv[2]).read_text())
assert not re.search(r"(src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)", page), "the page asks for other files"
line = next(line for line in page.splitlines() if line.startswith("const page = "))
plan = json.loads(line.removeprefix("const page = ").removesuffix(";"))["programs"][0]
assert plan["report"] == report
assert plan["budgets"] == {"device": 8 << 20}

arena, end = report["predicted_peak_bytes"]["device"], len(plan["instructions"]) + 2
live, kinds = [0] * (end + 1), [{} for _ in range(end + 1)]
for buffer in plan["buffers"]:
    if buffer["space"] != "device" or not buffer["bytes"]:
        continue
    assert 0 <= buffer["offset"] and buffer["offset"] + buffer["bytes"] <= arena, buffer
    for time in range(buffer["counted_from"], min(buffer["end"], end)):
        live[time] += buffer["bytes"]
    for time in range(buffer["begin"], min(buffer["end"], end)):
        kinds[time][buffer["kind"]] = kinds[time].get(buffer["kind"], 0) + buffer["bytes"]
peak = live.index(max(live))
assert max(live) <= arena, (max(live), arena)
assert kinds[peak] == report["peak_bytes_by_kind"], (kinds[peak], report["peak_bytes_by_kind"])
assert sum(op["clone"] for op in plan["instructions"]) == report["recomputed_instructions"] > 0
total = sum(op["seconds"] * op["runs"] for op in plan["instructions"])
assert abs(total - report["predicted_seconds"]) < 1e-6 * total, (total, report["predicted_seconds"])
