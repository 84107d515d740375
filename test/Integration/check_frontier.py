#!/usr/bin/env python3
"""check_frontier.py FRONTIER.json: bytes rise, seconds fall, and the last point recomputes nothing."""
import json
import sys

points = json.load(open(sys.argv[1]))["points"]
assert points and points[-1]["recomputed"] == 0, points
for smaller, larger in zip(points, points[1:]):
    assert smaller["bytes"] < larger["bytes"] and smaller["seconds"] > larger["seconds"], (smaller, larger)
