#!/usr/bin/env python3
"""Trains a recorded model with memopt-run and compares with PyTorch's numbers.

    pytorch_numbers.py FOLDER [--model model.pt2] [--optimizer sgd|adamw] [options of memopt-compile ...]

The yardstick is PyTorch's own float32 error e against float64 (own_error.* in the reference); scale is a tensor's
largest value, group that of all tensors of its kind:
  losses and gradients      |ours - float64| <= 2 e + 2e-6 scale + 1e-7 group
  parameters and buffers    |ours - float32| <= 3 e + 2e-6 scale + 1e-7 group, integers exactly; those that float32 does
                            not settle within 2 lr steps
  memory                    used = predicted in every space, no allocation during steps
Prints one line; exits 1 naming what is off.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from tensor_files import read_safetensors



def largest(array):
    return float(np.max(np.abs(array.astype("f8")))) if array.size else 0.0


class Comparison:
    def __init__(self, folder, optimizer):
        self.about = json.loads((folder / "fixture.json").read_text())
        self.reference = read_safetensors(folder / "reference.safetensors")
        self.optimizer, self.wrong, self.count = optimizer, [], 0

    def check(self, good, text):
        self.count += 1
        if not good:
            self.wrong.append(text)

    def check_near(self, name, ours, expected, key, group, factor, slack=0.0):
        error = largest(ours - expected) if ours.shape == expected.shape and np.all(np.isfinite(ours)) else float("inf")
        bound = factor * float(np.max(self.reference["own_error." + key])) + 2e-6 * largest(expected) + 1e-7 * group
        self.check(error <= max(bound, slack), f"{name}: error {error:.3g}, at most {max(bound, slack):.3g}")

    def check_report(self, report):
        double = self.reference[f"f64.{self.optimizer}.loss"]
        self.check_near("losses", np.array(report["losses"]), double, f"{self.optimizer}.loss", largest(double), 2)
        self.check(report["used_peak_bytes"] == report["predicted_peak_bytes"], f"memory: {report}")
        self.check(report["hot_path_allocations"] == 0, f"{report['hot_path_allocations']} allocations during steps")

    def check_gradients(self, ours):
        for alias, name in self.about["tied"].items():
            ours.update({n: ours[o] for n, o in ((name, alias), (alias, name)) if n not in ours and o in ours})
        names = [key[len("f64.grad."):] for key in self.reference if key.startswith("f64.grad.")]
        group = max(largest(self.reference["f64.grad." + name]) for name in names)
        for name in names:
            self.check_near(f"gradient {name}", ours.get(name, np.empty(0)), self.reference["f64.grad." + name],
                            "grad." + name, group, 2)

    def check_finals(self, ours):
        unsettled = self.about["pytorch_float32_error"][f"{self.optimizer}.unsettled"]
        drift = 2 * self.about[self.optimizer]["lr"] * self.about["steps"]
        finals = {}
        for key, value in self.reference.items():
            for kind in ("final.", "final_head."):
                prefix = f"{self.optimizer}.{kind}"
                if key.startswith(prefix):
                    finals[key[len(prefix):]] = (value, kind == "final_head.")
        group = max(largest(value) for value, _ in finals.values() if value.dtype.kind == "f")
        for name, (value, is_head) in finals.items():
            mine = ours.get(name, np.empty(0, value.dtype))
            mine = mine.reshape(-1)[: value.size].reshape(-1) if is_head else mine
            if value.dtype.kind != "f":
                self.check(np.array_equal(mine, value), f"final {name}: {mine}, expected {value}")
            else:
                self.check_near(f"final {name}", mine, value.reshape(mine.shape) if mine.size == value.size else value,
                                f"{self.optimizer}.final.{name}", group, 3, drift if name in unsettled else 0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", default="model.pt2")
    parser.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))
    arguments, options = parser.parse_known_args()
    comparison = Comparison(arguments.folder, arguments.optimizer)
    settings = comparison.about[arguments.optimizer]
    with tempfile.TemporaryDirectory() as out:
        out = pathlib.Path(out)
        command = ["memopt-run", arguments.folder / arguments.model, "-o", out / "model.memopt", "--quiet",
                   f"--data={arguments.folder / 'inputs.safetensors'}", f"--steps={comparison.about['steps']}",
                   f"--optimizer={arguments.optimizer}", f"--lr={settings['lr']}",
                   f"--weight-decay={settings['weight_decay']}", "--check-memory", f"--report={out / 'report.json'}",
                   f"--save={out / 'checkpoint'}", f"--save-gradients={out / 'gradients.safetensors'}", *options]
        if arguments.optimizer == "sgd":
            command.append(f"--momentum={settings['momentum']}")
        else:
            command += [f"--betas={settings['betas'][0]},{settings['betas'][1]}", f"--eps={settings['eps']}"]
        subprocess.run(list(map(str, command)), check=True)
        report = json.loads((out / "report.json").read_text())
        comparison.check_report(report)
        comparison.check_gradients(read_safetensors(out / "gradients.safetensors"))
        comparison.check_finals(read_safetensors(out / "checkpoint" / "model.safetensors"))
    peak = report["predicted_peak_bytes"]["device"]
    print(f"{arguments.folder.name} {arguments.optimizer}: {comparison.count - len(comparison.wrong)} of "
          f"{comparison.count} checks, peak {peak / comparison.about['eager_peak_bytes']:.2f} of eager")
    for text in comparison.wrong[:20]:
        print("  " + text)
    sys.exit(bool(comparison.wrong))


if __name__ == "__main__":
    main()
