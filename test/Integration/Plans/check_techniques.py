"""check_techniques.py REPORT.json MODEL OPTION...: rows of a comparison are the bytes of such compilations."""

import json
import subprocess
import sys
import tempfile

report, model, given = json.load(open(sys.argv[1])), sys.argv[2], sys.argv[3:]


def compile_with(options):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run(["memopt-compile", model, *options, "--emit=planned", f"--report={out.name}"], check=True,
                       stdout=subprocess.DEVNULL)
        return json.load(open(out.name))["predicted_peak_bytes"]["device"]


asked = compile_with(given)
rows = {row["option"]: row for row in report["techniques"]}
for option in ("--micro-batches=2", "--activation-dtype=bf16", "--offload-optimizer=cpu"):
    expected = compile_with([*given, option])
    assert rows[option] == {**rows[option], "on": False, "bytes": expected, "saved": asked - expected}, (rows[option], expected)
without = compile_with([option for option in given if not option.startswith("--precision")])
assert rows["--precision=bf16"] == {**rows["--precision=bf16"], "on": True, "bytes": without, "saved": without - asked}
assert rows["--device-memory=BYTES"]["bytes"] <= report["predicted_peak_bytes"]["device"]
