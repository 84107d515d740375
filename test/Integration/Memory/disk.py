#!/usr/bin/env python3
"""disk.py FOLDER: a step whose optimizer state, parameters or activations lie on disk leaves what one that has all on the
device leaves, to the last byte: losses, gradients, the files of checkpoints; on one rank and on two. Used bytes are those
predicted in each space, the disk included, and nothing stays behind in its folder. Budgets choose the disk, checkpoints go
on from any tier to any other, and a disk that cannot do its part ends a run with exit code 3 and the last checkpoint
whole."""
import os
import pathlib
import resource
import sys
import tempfile

import processes
from offload import KEPT, find_smallest, run, train

NONE, ROOM = [], "1GiB"
TIERS = {name: [f"--offload-{what}=nvme" for what in parts.split()] for name, parts in
         {"optimizer": "optimizer", "param": "param", "both": "optimizer param", "activation": "activation",
          "all": "optimizer param activation"}.items()}


def on_disk(disk, tier):
    return [*TIERS[tier], f"--disk={disk}:{ROOM}"]


def train_on_disk(model, options, folder, disk, steps=3):
    kept, used = train(model, options, folder, steps)
    assert not list(disk.iterdir()), list(disk.iterdir())
    return kept, used


def check_bits(inputs, work, disk):
    mlp, gpt = (inputs / name / "model.pt2" for name in ("mlp", "gpt2"))
    adamw = "--optimizer=adamw"
    cases = [(mlp, [adamw], ("optimizer", "param", "both")),
             (mlp, ["--momentum=0.9", "--max-grad-norm=0.1"], ("optimizer", "param")),
             (mlp, [adamw, "--micro-batches=4"], ("optimizer", "both")),
             (mlp, [adamw, "--precision=bf16", "--micro-batches=2"], ("both",)),
             (mlp, [adamw, "--optim-bits=8", "--min-8bit-size=0"], ("both",)),
             (mlp, ["--optimizer=adafactor"], ("optimizer",)),
             (gpt, [adamw], ("activation", "all"))]
    for number, (model, options, tiers) in enumerate(cases):
        plain, plain_bytes = train(model, options, work / f"plain {number}")
        assert plain_bytes["disk"] == 0, plain_bytes
        for tier in tiers:
            kept, used = train_on_disk(model, [*options, *on_disk(disk, tier)], work / f"case {number} {tier}", disk)
            different = [name for name, one, other in zip(KEPT, plain, kept) if one != other]
            assert not different, (model, options, tier, different)
            assert used["disk"] > 0 and used["disk"] % 4096 == 0 and used["device"] <= plain_bytes["device"], (options, tier, used)


def check_mixed(inputs, work, disk):
    """Parameters on the host, with their state on disk: fewer bytes on disk, the same bits."""
    model = inputs / "mlp" / "model.pt2"
    plain, _ = train(model, ["--optimizer=adamw"], work / "plain")
    _, whole = train_on_disk(model, ["--optimizer=adamw", *on_disk(disk, "optimizer")], work / "whole", disk)
    kept, used = train_on_disk(model, ["--optimizer=adamw", *on_disk(disk, "optimizer"), "--offload-param=cpu"], work / "mixed", disk)
    assert kept == plain and 0 < used["disk"] < whole["disk"], (whole, used)


def check_ranks(inputs, work, disk):
    """A file for each rank, with its part of the state."""
    model = inputs / "mlp" / "model.pt2"
    for stage in (0, 2, 3):
        options = ["--optimizer=adamw", "--ranks=2", f"--zero-stage={stage}"]
        plain, _ = train(model, options, work / f"stage {stage} plain", steps=2)
        for tier in ("optimizer", "both") if stage == 3 else ("optimizer",):
            kept, used = train_on_disk(model, [*options, *on_disk(disk, tier)], work / f"stage {stage} {tier}", disk, steps=2)
            different = [name for name, one, other in zip(KEPT, plain, kept) if one != other]
            assert not different and used["disk"] > 0, (stage, tier, different, used)


def check_budgets(inputs, work, disk):
    """Under a budget of the device at which the plain step is refused the planner takes the disk; the disk's own holds."""
    model, options = inputs / "mlp" / "model.pt2", ["--optimizer=adamw"]
    plain, _ = train(model, options, work / "unlimited")
    least = find_smallest(model, options, work / "plain")
    device = (find_smallest(model, [*options, *on_disk(disk, "both")], work / "smallest") + least) // 2
    kept, used = train_on_disk(model, [*options, f"--device-memory={device}", f"--disk={disk}:{ROOM}"], work / "chosen", disk)
    assert kept == plain and used["disk"] > 0 and used["device"] <= device < least, (least, device, used)
    refused = run(model, [*options, *TIERS["optimizer"], f"--disk={disk}:4096"], work / "small")
    assert refused.returncode == 2 and "bytes of disk memory, the budget is 4096; the smallest" in refused.stderr, refused.stderr


def check_resume(inputs, work, disk):
    """Where state lies is not part of a checkpoint."""
    model, options = inputs / "mlp" / "model.pt2", ["--optimizer=adamw"]
    whole, _ = train(model, options, work / "whole", steps=4)
    for first, second in ((NONE, on_disk(disk, "optimizer")), (on_disk(disk, "both"), NONE),
                          (on_disk(disk, "optimizer"), ["--offload-optimizer=cpu"])):
        name = f"resumed {len(first)} {len(second)}"
        train(model, [*options, *first], work / f"{name} first", steps=2)
        kept, _ = train(model, [*options, *second, f"--load={work / f'{name} first' / 'checkpoint'}"], work / name, steps=2)
        assert kept[2:] == whole[2:] and kept[0] == whole[0][2:], (first, second)


def check_failures(inputs, work, disk):
    """What lacks is said before the first step, with the checkpoint before as it was."""
    model, options = inputs / "mlp" / "model.pt2", ["--optimizer=adamw", *TIERS["optimizer"]]
    missing = run(model, [*options, f"--disk={work}/nowhere:{ROOM}"], work / "missing")
    assert missing.returncode == 3 and "nowhere" in missing.stderr and "No such file" in missing.stderr, missing.stderr
    train_on_disk(model, [*options, f"--disk={disk}:{ROOM}"], work / "full", disk)
    before = {file.name: file.read_bytes() for file in (work / "full" / "checkpoint").iterdir()}
    package = work / "model.memopt"
    processes.run("memopt-compile", model, *options, f"--disk={disk}:{ROOM}", "--quiet", "-o", package)
    command = ["memopt-run", package, f"--data={model.parent / 'inputs.safetensors'}", "--steps=3", f"--save={work}/full/checkpoint"]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    full = processes.run(*command, code=3, preexec_fn=limit)
    assert f"bytes of disk in '{disk}'" in full.stderr, full.stderr
    assert before == {file.name: file.read_bytes() for file in (work / "full" / "checkpoint").iterdir()}
    processes.run(*command, f"--disk-folder={work}")
    os.rmdir(disk)
    gone = processes.run(*command, code=3)
    assert str(disk) in gone.stderr, gone.stderr
    nothing = processes.run("memopt-run", inputs / "mlp" / "model.pt2", f"--disk-folder={disk}", "--quiet", code=1)
    assert "--disk-folder is for what lies on disk" in nothing.stderr, nothing.stderr


def main():
    inputs = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        for check in (check_bits, check_mixed, check_ranks, check_budgets, check_resume, check_failures):
            work = pathlib.Path(folder) / check.__name__
            disk = work / "the disk"
            disk.mkdir(parents=True)
            check(inputs, work, disk)


main()
