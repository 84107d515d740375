#!/usr/bin/env python3
"""option_rules.py INPUTS: an option that would have no effect is refused, and the message says what it needs.

Every option that the tools list is in one of the tables: either some command line leaves it without effect, or none does.
"""
import pathlib
import re
import subprocess
import sys

# Options of memopt-run without what they need, and the message.
RUN = {
    "--shuffle": (["--shuffle=on"], "--shuffle needs --data=SOURCE"),
    "--data-scale": (["--data-scale=1"], "--data-scale needs --data=SOURCE"),
    "--data-mean": (["--data-mean=1"], "--data-mean needs --data=SOURCE"),
    "--data-std": (["--data-std=1"], "--data-std needs --data=SOURCE"),
    "--data-augment": (["--data-augment=flip"], "--data-augment needs --data=SOURCE"),
    "--data-stride": (["--data=x.safetensors", "--data-stride=4"], "--data-stride needs a text, --data=bytes:TEXTFILE or"),
    "--data-buckets": (["--data-buckets=8,16"], "--data-buckets needs --data=lines:TEXTFILE or"),
    "--alternate": (["--alternate=a:1"], "--alternate needs --data=SOURCE"),
    "--averaged": (["--averaged"], "--averaged needs --eval-data=SOURCE"),
    "--eval-data": (["--mode=eval", "--eval-data=x"], "--eval-data belongs to training; give --data with --mode=eval"),
    "--eval-every": (["--eval-every=2"], "--eval-every needs --eval-data=SOURCE"),
    "--eval-package": (["--eval-package=x.memopt"], "--eval-package needs --eval-data=SOURCE"),
    "--patience": (["--patience=2"], "--patience needs --eval-data=SOURCE"),
    "--save-best": (["--save-best", "--eval-data=x"], "--save-best needs --save=DIR"),
    "--save-every": (["--save-every=2"], "--save-every needs --save=DIR"),
    "--names": (["--names=model"], "--names needs --save=DIR"),
    "--keep": (["--save=x", "--keep=2"], "--keep needs --save-every=N"),
    "--schedule-steps": (["--schedule-steps=9"], "--schedule-steps needs --lr-schedule=linear, cosine, polynomial or one-cycle"),
    "--lr-min": (["--lr-min=0.1", "--lr-schedule=step"], "--lr-min needs --lr-schedule=linear, cosine or polynomial"),
    "--lr-step-size": (["--lr-step-size=2"], "--lr-step-size needs --lr-schedule=step"),
    "--lr-gamma": (["--lr-gamma=2", "--lr-schedule=cosine"], "--lr-gamma needs --lr-schedule=step, multi-step or exponential"),
    "--lr-milestones": (["--lr-milestones=2"], "--lr-milestones needs --lr-schedule=multi-step"),
    "--lr-power": (["--lr-power=2"], "--lr-power needs --lr-schedule=polynomial"),
    "--lr-pct-start": (["--lr-pct-start=0.5"], "--lr-pct-start needs --lr-schedule=one-cycle"),
    "--lr-div-factor": (["--lr-div-factor=2"], "--lr-div-factor needs --lr-schedule=one-cycle"),
    "--lr-final-div-factor": (["--lr-final-div-factor=2"], "--lr-final-div-factor needs --lr-schedule=one-cycle"),
    "--lr-schedule": (["--lr-schedule=multi-step"], "--lr-schedule=multi-step needs --lr-milestones=A,B,..."),
    "--rank-timeout": (["--rank-timeout=5"], "--rank-timeout needs --ranks=N, or processes that a launcher starts"),
    "--cuda-graph": (["--cuda-graph=off"], "--cuda-graph needs --device=cuda"),
    "--flush-denormals": (["--device=cuda", "--flush-denormals=on"], "--flush-denormals needs --device=cpu"),
    "--transport": (["--transport=mpi"], "--transport=mpi is for ranks that mpirun or srun started, and there are none"),
    **{option: (["--mode=eval", f"{option}{value}"], f"{option} belongs to training, the package is of mode 'eval'")
       for option, value in (("--save", "=x"), ("--save-gradients", "=x"), ("--log", "=x.csv"), ("--stop-on-nan", "=off"),
                             ("--lr", "=1"), ("--warmup-steps", "=3"))},
    "--epochs": (["--epochs=1", "--steps=1"], "--steps and --epochs both say how long; give one"),
    "--progress": (["--progress=epoch", "--quiet"], "--quiet leaves out the lines of --progress; give one"),
    "--weights": (["--weights=x", "--load=y"], "--weights and --load both give first values; give one"),
    "--init": (["--init=random", "--load=y"], "--init=random and --load both give first values; give one"),
    "--describe-device": (["--describe-device=x"], "--describe-device runs nothing; leave out 'model.pt2'"),
    "--describe-network": (["--describe-network=x"], "--describe-network runs nothing; leave out 'model.pt2'"),
}
RUN_ALWAYS = {"--data", "--steps", "--mode", "--device", "--seed", "--load", "--ranks", "--check-memory", "--report", "--trace",
              "--quiet", "--help", "--version", "--disk-folder", "--launcher", "-o"}  # the last: refused for a package with nothing on disk, by disk.py

COMPILE = {
    "--programs": (["--programs=x.json"], "--programs names the models, found"),
    "--state": (["--state=x.memopt", "--emit=graph"], "a package of several programs is written whole"),
    "--dim": (["--dim=a=1,2", "--emit=graph"], "a package of several programs is written whole"),
    "--ema-warmup": (["--ema-warmup"], "--ema-warmup needs --ema-decay=X"),
    "--ema-start": (["--ema-start=2"], "--ema-start=N is of an average of the weights"),
    "--ema-every": (["--ema-every=2"], "--ema-every=N is of an average of the weights"),
    "-o": (["-o", "x.memopt", "--emit=graph"], "-o names a package, and --emit, --estimate and --frontier write none"),
    "--report": (["--report=x.json", "--emit=graph"], "--report is of a plan, and --emit stops before there is one"),
    "--html": (["--html=x.html", "--emit=joint"], "--html is of a plan, and --emit and --estimate stop before there is one"),
    "--explain": (["--explain", "--estimate"], "--explain is of a plan, and --emit and --estimate stop before there is one"),
    "--device-memory": (["--device-memory=1MiB", "--estimate"], "--device-memory bounds a plan, and --estimate makes none"),
    "--host-memory": (["--host-memory=1MiB"], "--host-memory needs --device-memory, or an --offload option"),
    "--disk": (["--disk=/tmp:1MiB"], "--disk needs --device-memory, or an --offload option that says nvme"),
    "--activation-dtype": (["--mode=eval", "--activation-dtype=bf16"], "--activation-dtype=bf16 is of what waits for the backward pass"),
    "--frozen-scales": (["--frozen-scales=int8"], "--frozen-scales=int8 is of the scales of --frozen-weights=nf4"),
    "--frontier": (["--frontier=3", "--emit=graph"], "--frontier and --emit print different things; give one"),
    "--frontier-output": (["--frontier-output=x"], "--frontier-output needs --frontier=N"),
    "--zero-stage": (["--zero-stage=2"], "--zero-stage needs --ranks=N"),
    "--reduce": (["--reduce=nccl"], "--reduce needs --ranks=N"),
    "--network": (["--network=x.json"], "--network needs --ranks=N, whom it connects"),
    "--overlap-collectives": (["--overlap-collectives=off"], "--overlap-collectives needs --ranks=N"),
    "--matmul-precision": (["--matmul-precision=high"], "--matmul-precision is for --target=cuda"),
    "--conv-precision": (["--conv-precision=highest"], "--conv-precision is for --target=cuda"),
    "--sync-batch-norm": (["--sync-batch-norm"], "--sync-batch-norm needs --ranks=N"),
    "--accumulate-dtype": (["--accumulate-dtype=bf16"], "it needs --accumulative-counts=K or --micro-batches=K"),
    "--dampening": (["--dampening=0.1"], "--dampening needs --momentum=X"),
    "--nesterov": (["--nesterov"], "--nesterov needs a momentum"),
    "--auto": (["--auto=recompute,accumulate"], "--auto needs --device-memory"),
    "--master-weights": (["--master-weights=none"], "--master-weights=none needs --precision=bf16"),
    "--min-8bit-size": (["--min-8bit-size=1"], "--min-8bit-size needs --optim-bits=8 or 4"),
    "--loss-scale": (["--loss-scale=8"], "--loss-scale is for --precision=fp16"),
    **{option: ([f"{option}=8"], f"{option} is for --precision=fp16 with --loss-scale=dynamic")
       for option in ("--init-scale", "--growth-factor", "--backoff-factor", "--growth-interval")},
    **{option: ([f"{option}={value}", "--optimizer=adam"], f"{option} is an option of")
       for option, value in (("--momentum", 0.9), ("--alpha", 0.5), ("--centered", "on"), ("--lr-decay", 0.1), ("--rho", 0.5),
                             ("--initial-accumulator-value", 0.1), ("--momentum-decay", 0.1), ("--lambd", 0.1), ("--t0", 5),
                             ("--decoupled-weight-decay", "on"), ("--beta2-decay", -0.5), ("--d", 2), ("--ns-steps", 2),
                             ("--adjust-lr-fn", "original"), ("--n-heads", 2), ("--rank", 2), ("--update-proj-gap", 2),
                             ("--apollo-scale", 2), ("--etas", "0.5,1.2"), ("--step-sizes", "0.1,1"))},
    **{option: ([f"{option}={value}", "--optimizer=sgd"], f"{option} is an option of")
       for option, value in (("--betas", "0.5,0.6"), ("--eps", 0.1), ("--amsgrad", "on"))},
    **{option: (["--mode=eval", f"{option}={value}"], f"{option} is for training, not for --mode=eval")
       for option, value in (("--max-grad-norm", 1), ("--accumulative-counts", 2),
                             ("--micro-batches", 2), ("--ranks", 2), ("--offload-optimizer", "cpu"), ("--offload-activation", "cpu"),
                             ("--activation-checkpointing", "segments:2"), ("--optimizer", "adam"), ("--lr", 1),
                             ("--weight-decay", 1), ("--optim-bits", 16), ("--param-group", "a:lr=1"), ("--norm-decay-mult", 0),
                             ("--bias-decay-mult", 0), ("--flat-decay-mult", 0), ("--ema-decay", 0.9), ("--ema-uniform", "on"),
                             ("--maximize", "on"), ("--step-count", "own"))},
    "--machine-profile": (["--machine-profile=x", "--target=cuda", "--target-features=h100"], "--machine-profile is for --target=cpu"),
    "--reference": (["--reference", "--target=cuda", "--target-features=h100"], "--reference is for --target=cpu"),
    "--run-threads": (["--run-threads=1", "--target=cuda", "--target-features=h100"], "--run-threads is for --target=cpu"),
    "--batch": (["--batch=max"], "--batch=max needs --device-memory"),
    "--estimate": (["--estimate", "--frontier=3"], "--estimate"),
    "--dropout": (["--calibrate", "--dropout=off"], "--dropout is of compiling a model, and --calibrate compiles none of yours"),
}
COMPILE_ALWAYS = {"--c-sources", "--target", "--target-features", "--mode", "--loss", "--deepspeed-config", "--offload-param", "--frozen-weights",
                  "--efficient-conv-bn-eval", "--tile", "--hyperparameters", "--precision", "--emit", "--calibrate", "--quiet", "--time-report", "--cache",
                  "--instrument", "--threads", "--help", "--version"}

# What is given with the value that it has anyway, or by who has it from a list of his own, is let be.
QUIET = ["--zero-stage=0", "--micro-batches=1", "--accumulate-dtype=fp32", "--master-weights=fp32", "--auto=recompute --device-memory=1MiB",
         "--zero-stage=2 --ranks=1", "--dampening=0.5 --momentum=0", "--mode=eval --micro-batches=1"]


def list_options(tool):
    text = subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (--?[a-z0-9-]+)", text, re.MULTILINE))


def refuse(command, message):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr.strip().splitlines()[-1], (command, message, done)


def main():
    inputs = pathlib.Path(sys.argv[1])
    for tool, rules, always in (("memopt-run", RUN, RUN_ALWAYS), ("memopt-compile", COMPILE, COMPILE_ALWAYS)):
        known = set(rules) | always
        assert list_options(tool) == known, (tool, list_options(tool) ^ known)
        for options, message in rules.values():
            model = "model.pt2" if tool == "memopt-run" else inputs / "mlp" / "model.pt2"
            refuse([tool, *([] if "--calibrate" in options else [model]), *options], message)
    refuse(["memopt-run", "--describe-device=x", "--steps=3"], "--describe-device runs nothing; leave out --steps")
    refuse(["memopt-run", "model.pt2", "--frontier=4"], "--frontier makes no package to run; use memopt-compile")
    # A slip is told by the program that has the option.
    refuse(["memopt-run", inputs / "mlp" / "model.pt2", "--stpes", "3"], "option '--stpes' is unknown, did you mean '--steps'?")
    refuse(["memopt-run", inputs / "mlp" / "model.pt2", "--optimzer=adam"], "did you mean '--optimizer'?")
    for options in QUIET:
        subprocess.run(["memopt-compile", inputs / "mlp" / "model.pt2", "--emit=planned", *options.split()], check=True,
                       stdout=subprocess.DEVNULL)


main()
