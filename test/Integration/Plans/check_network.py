"""check_network.py REPORT SIMULATION WORDS: whether the step that a plan predicts is the one that WORDS stand behind."""
import json
import re
import sys

report, simulation, words = json.load(open(sys.argv[1])), open(sys.argv[2]).read(), sys.argv[3]
line = next(line for line in simulation.splitlines() if words in line)
simulated = float(re.match(r"step ([\d.]+) s", line)[1])
predicted = report["predicted_seconds"]
assert simulated > 0.05, f"nothing is sent over the slow link: {line}"
assert abs(predicted - simulated) <= 0.001 * simulated, f"predicted {predicted}, simulated {simulated}"
print(f"the same step, {predicted:.3f} s")
