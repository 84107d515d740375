#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What tools/gpu-check.sh does once there is a device: measures, compares, writes the report. Standard library only.

Each part of the report stands by itself: one that fails says why, and the others go on.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
WORST = 10  # kernels that are shown of each model
SANITIZERS = ["memcheck", "racecheck", "initcheck"]
# What the libraries themselves say of a call that fails.
LOGS = {"CUBLASLT_LOG_LEVEL": "1", "CUDNN_LOGERR_DBG": "1", "CUDNN_LOGDEST_DBG": "stderr", "NCCL_DEBUG": "WARN"}
LOG_LINES = 5
# Helpers of the tests that are run here.
PYTHON_PATH = os.pathsep.join(filter(None, [str(SOURCE / "test/support"), os.environ.get("PYTHONPATH")]))


class Failed(Exception):
    """Something ended with an error; the message is its last line."""


def find_reason(said):
    """The last line that says what failed, else the last line."""
    lines = said.strip().splitlines() or [""]
    return next((line for line in reversed(lines) if "error:" in line or "failed" in line.lower()), lines[-1])


def execute(command, limit=3600):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit, check=False,
                          env={**LOGS, **os.environ, "PYTHONPATH": PYTHON_PATH})
    if done.returncode:
        logged = [line for line in done.stderr.splitlines() if re.search(r"cublas|cudnn|nccl", line, re.IGNORECASE)]
        raise Failed("\n".join([f"{pathlib.Path(str(command[0])).name} ends with {done.returncode}: "
                                f"{find_reason(done.stderr) or find_reason(done.stdout)}", *logged[-LOG_LINES:]]))
    return done.stdout


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def milliseconds(seconds):
    return f"{seconds * 1e3:.3f}"


def median_step(report):
    """The first step brings everything to life."""
    return statistics.median(report["step_seconds"][1:] or report["step_seconds"])


class Check:
    def __init__(self, options):
        self.options, self.parts, self.failures = options, [], []

    def part(self, title, write):
        """A part of the report, by a function that gives its text."""
        print(f"gpu-check: {title}", file=sys.stderr, flush=True)
        try:
            text = write()
        except (Failed, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as failure:
            text = self.fail(f"{title}: {failure}")
        self.parts.append(f"## {title}\n\n{text}\n")

    def fail(self, text):
        self.failures.append(text)
        return f"**Failed.** {text}"

    # The device

    def describe(self):
        device = json.loads(pathlib.Path(self.options.described).read_text())
        properties = device["properties"]
        rows = [("device", properties["deviceName"]), ("chip", device["chip"]),
                ("multiprocessors", properties["multiProcessorCount"]), ("memory, bytes", properties["totalGlobalMem"]),
                ("driver's CUDA version", properties["driverVer"]), ("kernels as", device["image"])]
        return table(["what", "found"], rows)

    def conformance(self):
        tests = self.options.bin.parent / "test/Unit/RuntimeTests"
        if not tests.exists():
            return "Not built: `test/Unit/RuntimeTests` lies in the build folder when tests are."
        said = execute([tests, "--gtest_filter=Cuda/*:CudaSessionTest*.*"])
        counts = {word: int((re.search(rf"\[  {word} +\] (\d+) test", said) or [0, 0])[1])
                  for word in ("PASSED", "SKIPPED")}
        if not counts["PASSED"]:
            raise Failed("no test ran")
        return f"{counts['PASSED']} tests passed, {counts['SKIPPED']} were skipped (their kernels are LLVM IR)."

    def calibrate(self):
        said = execute([self.options.bin / "memopt-compile", "--target=cuda", f"--calibrate={self.options.device}"])
        guessed = json.loads(pathlib.Path(self.options.described).read_text())["rates"]
        measured = json.loads(self.options.device.read_text())
        # Those of 16-bit products may be missing, and are the shipped ones then.
        rows = [(key, f"{guessed[key]:.3g}" if key in guessed else "shipped", f"{rate:.3g}")
                for key, rate in sorted(measured["rates"].items())]
        fit = [line for line in said.splitlines() if "predictions are off" in line]
        return table(["rate", "guessed from clocks", "measured"], rows) + "\n\n" + "\n".join(fit)

    # Models

    def train(self, package, scratch, name, *options):
        path = scratch / f"{name}.json"
        execute([self.options.bin / "memopt-run", package, "--device=cuda", "--quiet", f"--report={path}",
                 f"--data={self.folder / 'inputs.safetensors'}", "--shuffle=off", f"--steps={self.options.steps}",
                 *options])
        return json.loads(path.read_text())

    def check_model(self):
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            package = scratch / "model.memopt"
            execute([self.options.bin / "memopt-compile", self.folder / "model.pt2", "--target=cuda", "--optimizer=sgd",
                     f"--target-features={self.target()}", *self.options.option, "-o", package])
            manifest = json.loads((package / "manifest.json").read_text())
            checked = self.train(package, scratch, "checked", "--check-memory")
            replayed = self.train(package, scratch, "replayed")
            plain = self.train(package, scratch, "plain", "--cuda-graph=off")
            timed = self.train(package, scratch, "timed", f"--trace={scratch / 'trace.json'}")
            text = self.tell_memory(checked) + "\n\n" + self.tell_steps(manifest, replayed, plain)
            if checked["losses"] != replayed["losses"]:
                text += "\n\n" + self.fail(f"{self.folder.name}: a step whose memory is checked has other losses")
            if timed["losses"] != replayed["losses"]:
                text += "\n\n" + self.fail(f"{self.folder.name}: a watched step has other losses")
            return text + "\n\n" + self.tell_kernels(manifest, scratch / "trace.json")

    def target(self):
        """The description with measured rates, unless measuring failed."""
        return self.options.device if self.options.device.exists() else self.options.described

    def tell_memory(self, report):
        predicted, used = report["predicted_peak_bytes"], report["used_peak_bytes"]
        overhead = report["device_overhead_bytes"]
        text = table(["device bytes", ""], [("predicted", predicted["device"]), ("used", used["device"]),
                                            *((f"beside the arena: {key}", value) for key, value in overhead.items())])
        if used != predicted or overhead["steps"] or report["hot_path_allocations"]:
            text += "\n\n" + self.fail(f"{self.folder.name}: memory: predicted {predicted}, used {used}, taken in steps "
                                       f"{overhead['steps']}, allocations {report['hot_path_allocations']}")
        return text

    def tell_steps(self, manifest, replayed, plain):
        predicted = sum(entry.get("predicted_seconds", 0) for entry in manifest["instructions"])
        rows = [("predicted", milliseconds(predicted)), ("replayed from graphs", milliseconds(median_step(replayed))),
                ("launched one by one", milliseconds(median_step(plain)))]
        text = self.compare_with_pytorch(replayed, rows) if self.options.pytorch else ""
        if replayed["losses"] != plain["losses"]:
            text += "\n\n" + self.fail(f"{self.folder.name}: graphs change losses: {replayed['losses']} and "
                                       f"{plain['losses']}")
        return table(["a step", "ms"], rows) + text

    def compare_with_pytorch(self, replayed, rows):
        """Adds PyTorch's row, and says how far the first losses are from each other."""
        try:
            found = json.loads(execute([self.options.pytorch, SOURCE / "tools/gpu_check_pytorch.py", self.folder,
                                        f"--steps={self.options.steps}", f"--device={self.options.pytorch_device}"]))
        except Failed as failure:
            return f"\n\nPyTorch does not train this: {failure}"
        rows.append((f"PyTorch {found['version']} on {self.options.pytorch_device}, eager, {found['peak_bytes']} bytes at "
                     "most", milliseconds(median_step(found))))
        far = abs(found["losses"][0] / replayed["losses"][0] - 1)
        if far < 1e-2:
            return f"\n\nThe first loss is {far:.1e} from PyTorch's."
        return "\n\n" + self.fail(f"{self.folder.name}: losses {replayed['losses']}, PyTorch has {found['losses']}")

    def tell_kernels(self, manifest, trace):
        instructions = manifest["instructions"]
        events = [event["dur"] * 1e-6 for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
        if not events or len(events) % len(instructions):
            return f"No kernels are shown: the step has repeats ({len(events)} events, {len(instructions)} instructions)."
        steps = [events[at:at + len(instructions)] for at in range(0, len(events), len(instructions))]
        measured = [statistics.median(times) for times in zip(*(steps[1:] or steps))]
        rows = sorted(((entry["name"], entry.get("module", ""), entry.get("predicted_seconds", 0), seconds)
                       for entry, seconds in zip(instructions, measured)), key=lambda row: -row[3])
        return table(["hottest, each awaited by the host", "module", "predicted ms", "measured ms"],
                     [(name, module, milliseconds(predicted), milliseconds(seconds))
                      for name, module, predicted, seconds in rows[:WORST]])

    def sanitize(self):
        """Two steps under each tool of NVIDIA's compute-sanitizer; what it finds is an error here."""
        if self.described_image() != "cubin" or not shutil.which("compute-sanitizer"):
            return "Not run: `compute-sanitizer` of the CUDA toolkit is not on PATH, or kernels are no machine code."
        with tempfile.TemporaryDirectory() as scratch:
            package = pathlib.Path(scratch) / "model.memopt"
            execute([self.options.bin / "memopt-compile", self.folder / "model.pt2", "--target=cuda", "--optimizer=sgd",
                     f"--target-features={self.target()}", *self.options.option, "-o", package])
            rows = []
            for tool in SANITIZERS:
                said = execute(["compute-sanitizer", "--tool", tool, "--error-exitcode=9", "--report-api-errors=no",
                                self.options.bin / "memopt-run", package, "--device=cuda", "--quiet", "--steps=2",
                                "--cuda-graph=off", f"--data={self.folder / 'inputs.safetensors'}"])
                rows.append((tool, [line for line in said.splitlines() if "SUMMARY" in line][-1].strip("= ")))
        return table(["tool", "of two steps"], rows)

    def described_image(self):
        return json.loads(pathlib.Path(self.options.described).read_text())["image"]

    def judge(self):
        said = execute([sys.executable, SOURCE / "test/Integration/Numbers/pytorch_numbers.py", self.folder, "--optimizer=sgd",
                        "--target=cuda", f"--target-features={self.target()}", "--device=cuda",
                        # The reference is made of f32; TF32, the default, keeps ten bits of each factor.
                        "--conv-precision=highest"])
        return "`" + said.strip().splitlines()[-1] + "`"

    def run(self):
        self.part("The device", self.describe)
        self.part("Conformance", self.conformance)
        self.part("Measured rates", self.calibrate)
        for self.folder in self.options.folders:
            self.part(f"{self.folder.name}: memory, steps, kernels", self.check_model)
            self.part(f"{self.folder.name}: under compute-sanitizer", self.sanitize)
            if (self.folder / "reference.safetensors").exists() and not self.options.option:
                self.part(f"{self.folder.name}: numbers against float64", self.judge)
        verdict = "Everything agreed." if not self.failures else "\n".join(f"- {text}" for text in self.failures)
        text = "# memopt on this GPU\n\n" + verdict + "\n\n" + "\n".join(self.parts)
        self.options.report.parent.mkdir(parents=True, exist_ok=True)
        self.options.report.write_text(text)
        print(f"gpu-check: wrote {self.options.report}: "
              f"{'everything agreed' if not self.failures else f'{len(self.failures)} things did not agree'}")
        return bool(self.failures)


def main():
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--described", required=True)
    parser.add_argument("--report", type=pathlib.Path, default=SOURCE / "build/gpu-check.md")
    parser.add_argument("--device", type=pathlib.Path, default=SOURCE / "build/gpu-check.json")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--pytorch")
    parser.add_argument("--pytorch-device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    options.folders = options.folders or sorted(
        model.parent for model in (SOURCE / "test/Integration/Inputs").glob("*/model.pt2")
        if (model.parent / "inputs.safetensors").exists())
    for folder in options.folders:
        for file in ("model.pt2", "inputs.safetensors"):
            if not (folder / file).exists():
                parser.error(f"'{folder}' has no {file}")
    if options.pytorch and not shutil.which(options.pytorch):
        parser.error(f"--pytorch: there is no '{options.pytorch}'")
    options.device.parent.mkdir(parents=True, exist_ok=True)
    options.device.unlink(missing_ok=True)  # of another time
    return Check(options).run()


if __name__ == "__main__":
    sys.exit(main())
