#!/usr/bin/env python3
"""offload.py FOLDER: a step whose optimizer state, parameters or activations lie on the host leaves what one that has all
on the device leaves, to the last byte: losses, gradients, the files of checkpoints. Used bytes are those predicted in each space. Budgets of
the device at which the plain step is refused are met, and a checkpoint of either goes on as the other."""
import pathlib
import sys
import tempfile

import processes
from reports import read_report
from tensor_files import read_entries

KEPT = ("losses", "gradients", "model.safetensors", "optimizer.safetensors")
OPTIMIZER, PARAM, ACTIVATION = (f"--offload-{what}=cpu" for what in ("optimizer", "param", "activation"))


def run(model, options, folder, steps=3):
    folder.mkdir()
    data = model.parent / "inputs.safetensors"
    command = ["memopt-run", model, f"--data={data}", "--check-memory", "--quiet", f"--steps={steps}", f"--report={folder}/report.json",
               f"--save={folder}/checkpoint", f"--save-gradients={folder}/gradients.safetensors", *options]
    return processes.run(*command, code=None)


def train(model, options, folder, steps=3):
    """What is kept of a run; bytes predicted in each space, which are those used on every rank."""
    done = run(model, options, folder, steps)
    assert done.returncode == 0, (options, done.stderr)
    report = read_report(folder / "report.json")
    # Gradients by name: they are saved in the order in which they are made.
    kept = [report["losses"], read_entries(folder / "gradients.safetensors"),
            *((folder / "checkpoint" / name).read_bytes() for name in KEPT[2:])]
    return kept, report["predicted_peak_bytes"]


def check_bits(inputs, work):
    mlp, resnet, gpt = (inputs / name / "model.pt2" for name in ("mlp", "resnet18", "gpt2"))
    adamw, momentum = "--optimizer=adamw", "--momentum=0.9"
    cases = [(mlp, [adamw], [[OPTIMIZER], [PARAM], [OPTIMIZER, PARAM]]),
             (mlp, ["--optimizer=sgd"], [[OPTIMIZER]]),
             (mlp, [momentum, "--max-grad-norm=0.1"], [[OPTIMIZER], [PARAM]]),
             (mlp, [adamw, "--micro-batches=4"], [[OPTIMIZER], [OPTIMIZER, PARAM]]),
             (mlp, [adamw, "--precision=bf16", "--micro-batches=2"], [[OPTIMIZER], [OPTIMIZER, PARAM]]),
             (mlp, [adamw, "--precision=bf16", "--master-weights=none"], [[OPTIMIZER]]),
             (mlp, [adamw, "--precision=fp16"], [[OPTIMIZER]]),
             (mlp, [adamw, "--optim-bits=8", "--min-8bit-size=0"], [[OPTIMIZER, PARAM]]),
             (mlp, ["--optimizer=muon", "--param-group=*bias:lr=0.5,optimizer=sgd"], [[OPTIMIZER]]),
             (mlp, ["--optimizer=adafactor"], [[OPTIMIZER, PARAM]]),
             (resnet, [momentum, "--activation-checkpointing=segments:2"], [[OPTIMIZER], [OPTIMIZER, PARAM]]),
             (gpt, [adamw], [[ACTIVATION], [OPTIMIZER, PARAM, ACTIVATION]])]
    for number, (model, options, variants) in enumerate(cases):
        plain, plain_bytes = train(model, options, work / f"plain {number}")
        assert plain_bytes["host"] == 0, plain_bytes
        for variant in variants:
            kept, used = train(model, [*options, *variant], work / f"case {number} {' '.join(variant)}")
            different = [name for name, one, other in zip(KEPT, plain, kept) if one != other]
            assert not different, (model, options, variant, different)
            assert used["host"] > 0 and used["device"] <= plain_bytes["device"], (options, variant, plain_bytes, used)


def check_ranks(inputs, work):
    """Each stage of sharing state out, with what is shared on the host: the bits of the same stage without."""
    model = inputs / "mlp" / "model.pt2"
    for stage in range(4):
        options = ["--optimizer=adamw", "--ranks=2", f"--zero-stage={stage}"]
        plain, _ = train(model, options, work / f"stage {stage} plain", steps=2)
        for variant in ([OPTIMIZER], [OPTIMIZER, PARAM]) if stage in (0, 3) else ([OPTIMIZER],):
            kept, used = train(model, [*options, *variant], work / f"stage {stage} {len(variant)}", steps=2)
            different = [name for name, one, other in zip(KEPT, plain, kept) if one != other]
            assert not different and used["host"] > 0, (stage, variant, different, used)


def find_smallest(model, options, folder):
    """The smallest budget of the device that a plan was found for."""
    refused = run(model, [*options, "--device-memory=1"], folder)
    assert refused.returncode == 2, refused.stderr
    return int(refused.stderr.split("the smallest budget that would do is ")[1].split(",")[0])


def check_budget(inputs, work):
    """Budgets at which the plain step is refused, recomputation for both; by hand, and as budgets of both spaces choose."""
    model, options = inputs / "mlp" / "model.pt2", ["--optimizer=adamw"]
    plain, _ = train(model, options, work / "unlimited")
    smallest = find_smallest(model, options, work / "plain")
    for variant in ([OPTIMIZER], [OPTIMIZER, PARAM]):
        less = find_smallest(model, [*options, *variant], work / f"smallest {len(variant)}")
        assert less < 0.7 * smallest, (variant, smallest, less)
        kept, used = train(model, [*options, *variant, f"--device-memory={less}"], work / f"less {len(variant)}")
        assert kept == plain and used["device"] <= less, (variant, less, used)
    device = (less + smallest) // 2
    kept, used = train(model, [*options, f"--device-memory={device}", "--host-memory=1GiB"], work / "chosen")
    assert kept == plain and used["device"] <= device and used["host"] > 0, used


def check_host_budget(inputs, work):
    model, options = inputs / "mlp" / "model.pt2", ["--optimizer=adamw", OPTIMIZER]
    refused = run(model, [*options, "--host-memory=1000"], work / "no room")
    assert refused.returncode == 2 and "bytes of host memory, the budget is 1000; the smallest" in refused.stderr, refused.stderr
    smallest = int(refused.stderr.split("the smallest budget that would do is ")[1].split()[0])
    _, used = train(model, [*options, f"--host-memory={smallest}"], work / "room")
    assert used["host"] <= smallest, (smallest, used)


def check_resume(inputs, work):
    """Where state lies is not part of a checkpoint."""
    model, options = inputs / "mlp" / "model.pt2", ["--optimizer=adamw"]
    whole, _ = train(model, options, work / "whole", steps=4)
    for first, second in (([], [OPTIMIZER]), ([OPTIMIZER, PARAM], [])):
        name = f"resumed {len(first)}"
        train(model, [*options, *first], work / f"{name} first", steps=2)
        kept, _ = train(model, [*options, *second, f"--load={work / f'{name} first' / 'checkpoint'}"], work / name, steps=2)
        assert kept[2:] == whole[2:], (first, second)
        assert kept[0] == whole[0][2:], (first, second)


def main():
    inputs = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for check in (check_bits, check_ranks, check_budget, check_host_budget, check_resume):
            check(inputs, work)


if __name__ == "__main__":
    main()
