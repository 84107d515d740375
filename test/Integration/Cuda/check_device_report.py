"""check_device_report.py REPORT: whether a run of several programs on a device used what was predicted for each and for all."""
import json
import sys

report = json.load(open(sys.argv[1]))
programs = report["programs"]
for program in programs:
    assert program["used_peak_bytes"] == program["predicted_peak_bytes"], program
largest = max(program["predicted_peak_bytes"]["device"] for program in programs)
assert report["predicted_peak_bytes"]["device"] == report["used_peak_bytes"]["device"] == largest, report
overhead = report["device_overhead_bytes"]
assert overhead["steps"] == 0 and overhead["graphs"] > 0, overhead
print(", ".join(f"{program['name']} {program['steps']} steps" for program in programs) + ", as predicted")
