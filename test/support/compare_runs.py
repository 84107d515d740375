#!/usr/bin/env python3
"""compare_runs.py A.json B.json [--budget=N]: two run reports have equal losses to the last bit, and B used what was
predicted for it, at most N bytes."""
import json
import sys

first, second = (json.load(open(path)) for path in sys.argv[1:3])
budget = next((int(text.split("=")[1]) for text in sys.argv[3:]), None)
assert first["losses"] == second["losses"], f"losses {first['losses']} and {second['losses']}"
assert second["used_peak_bytes"] == second["predicted_peak_bytes"], second
assert budget is None or second["used_peak_bytes"]["device"] <= budget, second
assert second["hot_path_allocations"] == 0, second
