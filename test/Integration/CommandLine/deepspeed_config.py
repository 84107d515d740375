#!/usr/bin/env python3
"""deepspeed_config.py MODEL: a configuration of DeepSpeed compiles to the same manifest as options by our own names; what
is without effect is listed once, and what cannot be followed is an error that names its key."""
import json
import pathlib
import subprocess
import sys
import tempfile

ADAM = {"type": "Adam", "params": {"lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1, "torch_adam": True}}
# Configurations, ours, and ranks.
SAME = [
    ({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 0.5, "optimizer": ADAM,
      "zero_optimization": {"stage": 2}}, 4,
     ["--batch=8", "--accumulative-counts=2", "--max-grad-norm=0.5", "--optimizer=adamw", "--lr=3e-4", "--betas=0.8,0.95", "--eps=1e-6",
      "--weight-decay=0.1", "--zero-stage=2"]),
    ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "SGD", "params": {"momentum": 0.9, "nesterov": True}}}, 2,
     ["--batch=8", "--accumulative-counts=4", "--optimizer=sgd", "--momentum=0.9", "--nesterov"]),
    ({"train_batch_size": 16, "optimizer": {"type": "Adam", "params": {"adam_w_mode": False}}}, 2,
     ["--batch=8", "--optimizer=adam", "--weight-decay=0"]),
    # Their AdamW decays nothing by itself, ours a hundredth.
    ({"train_batch_size": 32, "gradient_accumulation_steps": 2, "optimizer": {"type": "AdamW"}, "bf16": {"enabled": True}}, 1,
     ["--batch=16", "--accumulative-counts=2", "--optimizer=adamw", "--weight-decay=0", "--precision=bf16"]),
    ({"fp16": {"enabled": True, "initial_scale_power": 10, "hysteresis": 1}, "data_types": {"grad_accum_dtype": "fp32"}}, 1,
     ["--precision=fp16", "--init-scale=1024", "--growth-interval=1000", "--accumulate-dtype=fp32"]),
    ({"fp16": {"enabled": True, "loss_scale": 128}}, 1, ["--precision=fp16", "--loss-scale=128"]),
    ({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}}, 2,
     ["--zero-stage=1", "--offload-optimizer=cpu", "--offload-param=cpu"]),
]
NOTED = {"steps_per_print": 10, "wall_clock_breakdown": False, "fp16": {"enabled": False}, "flops_profiler": {"enabled": False},
         "zero_optimization": {"stage": 0, "overlap_comm": True, "reduce_bucket_size": 5e8, "offload_param": {"device": "none", "nvme_path": "/x"}},
         "activation_checkpointing": {"partition_activations": False}}
# Configurations, other options, and parts of the message.
REFUSED = [
    ({"compression_training": {"weight_quantization": {"x": 1}}}, [], "'compression_training' is not supported"),
    ({"zero_optimization": {"stage": 1, "zero_hpz_partition_size": 8}}, [], "'zero_optimization.zero_hpz_partition_size' is not supported"),
    ({"zero_optimization": {"offload_optimizer": {"device": "cpu", "ratio": 0.5}}}, [], "'zero_optimization.offload_optimizer.ratio' is not supported"),
    ({"zero_optimization": {"stage": 7}}, [], "--zero-stage expects 0, 1, 2 or 3, found '7'"),
    ({"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/x"}}}, [], "--offload-param=nvme needs --disk=DIR:BYTES"),
    ({"activation_checkpointing": {"cpu_checkpointing": True}}, [], "'activation_checkpointing.cpu_checkpointing' is not supported"),
    ({"scheduler": {"type": "WarmupLR"}}, [], "'scheduler.type' is \"WarmupLR\"", "two steps at its lowest rate",
     "nearest is memopt-run --lr=0.001 --warmup-steps=1000"),
    ({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 3e-4, "warmup_num_steps": 100, "total_num_steps": 5000}}}, [],
     "memopt-run --lr=0.0003 --lr-schedule=linear --warmup-steps=100 --schedule-steps=5000"),
    ({"optimizer": {"type": "Adam", "params": {"lr": 0.25}},
      "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 5000, "cos_min_ratio": 0.5}}}, [],
     "memopt-run --lr=0.25 --lr-schedule=cosine --warmup-steps=1000 --schedule-steps=5000 --lr-min=0.125"),
    ({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.25, "cycle_max_lr": 0.5, "cycle_first_step_size": 100,
                                                   "cycle_second_step_size": 300}}}, [], "in straight lines",
     "--lr-schedule=one-cycle --lr=0.5 --lr-pct-start=0.25 --lr-div-factor=2 --lr-final-div-factor=1 --schedule-steps=400"),
    ({"scheduler": {"type": "OneCycle", "params": {"cycle_max_lr": 0.5}}}, [], "'scheduler.params' of a OneCycle should have"),
    ({"scheduler": {"type": "LRRangeTest"}}, [], "a search for a rate"),
    ({"scheduler": {"type": "StepLR"}}, [], "'scheduler.type' is \"StepLR\", which is no schedule of DeepSpeed's"),
    ({"scheduler": "WarmupLR"}, [], "'scheduler' is not supported"),
    ({"": None}, [], "'' is a key without a name"),
    ({"optimizer": {"type": "SGD", "params": {"lr": 0.1, "": 7}}}, [], "'' is a key without a name"),
    ({"optimizer": {"type": "Lamb"}}, [], "'optimizer.type' is \"Lamb\", which is no optimizer of ours"),
    ({"optimizer": {"type": "Adam", "params": {"freeze_step": 3}}}, [], "'optimizer.params.freeze_step' is no hyperparameter"),
    ({"optimizer": {"type": "Adam", "params": {"ranks": 3}}}, [], "'optimizer.params.ranks' is no hyperparameter"),
    ({"optimizer": {"type": "Adam", "params": {"momentum": 0.9}}}, [], "momentum"),
    ({"optimizer": {"type": "Adam", "params": {"lr": "auto"}}}, [], "'optimizer.params.lr' is \"auto\""),
    ({"train_batch_size": "auto"}, [], "'train_batch_size' is \"auto\""),
    ({"train_batch_size": 30, "train_micro_batch_size_per_gpu": 8}, ["--ranks=2"], "'train_batch_size' is 30, expected a multiple of 16"),
    ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2}, ["--ranks=2"], "is 64, expected 32"),
    ({"gradient_accumulation_steps": 0}, [], "'gradient_accumulation_steps' should be an integer of at least 1"),
    ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, [], "'bf16' and 'fp16' are both enabled"),
    ({"fp16": {"enabled": True, "hysteresis": 2}}, [], "'fp16.hysteresis' should be 1"),
    ({"gradient_clipping": 1.0}, ["--max-grad-norm=2"], "'gradient_clipping' says what --max-grad-norm says too: give one"),
]


def compile_model(model, folder, options):
    run = subprocess.run(["memopt-compile", model, "-o", folder / "p.memopt", *options], capture_output=True, text=True)
    manifest = json.loads((folder / "p.memopt" / "manifest.json").read_text()) if run.returncode == 0 else None
    return run, manifest


def main():
    model = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        file = folder / "ds.json"
        for config, ranks, ours in SAME:
            file.write_text(json.dumps(config))
            run, theirs = compile_model(model, folder, [f"--deepspeed-config={file}", f"--ranks={ranks}"])
            assert theirs, run.stderr
            assert ("before 0.19.3" in run.stderr) == ("gradient_clipping" not in config), run.stderr
            expected_run, expected = compile_model(model, folder, [*ours, f"--ranks={ranks}"])
            assert expected, expected_run.stderr
            assert theirs == expected, config
        file.write_text(json.dumps(NOTED))
        run, manifest = compile_model(model, folder, [f"--deepspeed-config={file}"])
        assert manifest, run.stderr
        assert sum("gradients are not clipped, which is the default of DeepSpeed before 0.19.3" in line for line in run.stderr.splitlines()) == 1
        notes = [line for line in run.stderr.splitlines() if "without effect here: " in line]
        assert len(notes) == 1 and notes[0].split("without effect here: ")[1].split(", ") == [
            "activation_checkpointing.partition_activations", "flops_profiler", "fp16", "steps_per_print", "wall_clock_breakdown",
            "zero_optimization.offload_param.nvme_path", "zero_optimization.overlap_comm", "zero_optimization.reduce_bucket_size"], run.stderr
        for config, options, *parts in REFUSED:
            file.write_text(json.dumps(config))
            run, _ = compile_model(model, folder, [f"--deepspeed-config={file}", *options])
            assert run.returncode == 1, (config, run)
            for part in parts:
                assert part in run.stderr.splitlines()[-1], (config, part, run.stderr)
        file.write_text("[1]")
        run, _ = compile_model(model, folder, [f"--deepspeed-config={file}"])
        assert run.returncode == 1 and "expected an object" in run.stderr, run.stderr


main()
