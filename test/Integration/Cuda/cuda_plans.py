"""cuda_plans.py PACKAGE [reserved]: counts the library calls of a package by kind, by what they are made of and by who
planned them, and checks each. With `reserved` gradients of filters must have room for the parts of their sums."""
import collections
import json
import math
import sys

manifest = json.load(open(sys.argv[1] + "/manifest.json"))
counts = collections.Counter()
for call in manifest["library_calls"]:
    if call.get("launched"):
        counts[call["kind"], None, "launched"] += 1
        continue
    plan = call.get("plan")
    who = "without a plan"
    if plan:
        who = f"planned by {plan['cudnn']} for {plan['sms']} multiprocessors"
        # What cuDNN writes of a plan holds the operations that it is for.
        text = json.loads(plan["text"])
        assert text["operationGraph"]["nodes"], text
        extents = [tensor["dim"] for tensor in text["operationGraph"]["tensors"]]
        assert call["weight"] in extents and call["input"] in extents, (call, extents)
    assert call["workspace_bytes"] <= 32 << 20, call
    is_filter = call["kind"] == "convolution_backward_weights"
    if plan and is_filter and "reserved" in sys.argv and '"engineId": 0' not in json.dumps(text):
        counts["reserved"] += 1
        parts = min(64 * 4 * math.prod(call["weight"]), 2 * plan["sms"] * 128 * 128 * 4)
        assert call["workspace_bytes"] >= parts, (call["workspace_bytes"], parts)
    assert all(bytes & (bytes - 1) == 0 for bytes in call["operand_alignments"]), call
    counts[call["kind"], call["precision"], who] += 1
if "reserved" in sys.argv:
    assert counts.pop("reserved")
for (kind, precision, who), count in sorted(counts.items(), key=str):
    print(f"{kind} of {precision}: {count} {who}" if precision else f"{kind}: {count} {who}")
