#!/usr/bin/env python3
"""check_frontier.py FRONTIER.json MODEL: bytes rise, seconds fall, and the last point recomputes nothing. A compilation
whose budget lies between two points takes the lower one, so that more bytes are never slower from one compilation to
the next either."""
import json
import subprocess
import sys
import tempfile

points = json.load(open(sys.argv[1]))["points"]
assert len(points) > 2 and points[-1]["recomputed"] == 0, points
for smaller, larger in zip(points, points[1:]):
    assert smaller["bytes"] < larger["bytes"] and smaller["seconds"] > larger["seconds"], (smaller, larger)


def compiled(budget):
    """Bytes of the arena of a plan for `budget`."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        subprocess.run(["memopt-compile", sys.argv[2], f"--device-memory={budget}", "--emit=planned",
                        f"--report={report.name}"], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(report.name))["predicted_peak_bytes"]["device"]


point = points[len(points) // 2]
exact, below = compiled(point["bytes"]), compiled(point["bytes"] - 1)
assert exact == point["bytes"], (exact, point)
assert points[0]["bytes"] <= below < point["bytes"], (below, point)
