"""Trains a package under settings that give it other numbers of threads, and compares the checkpoints.

    run_threads.py PACKAGE DATA FOLDER [SETTING...]"""
import filecmp
import os
import pathlib
import subprocess
import sys

SETTINGS = ["", "OMP_NUM_THREADS=1", "OMP_NUM_THREADS=8", "OMP_NUM_THREADS=2,1", "OMP_THREAD_LIMIT=1",
            "OMP_MAX_ACTIVE_LEVELS=0", "OMP_DYNAMIC=true", "OMP_WAIT_POLICY=passive", "one processor",
            "one processor OMP_NUM_THREADS=4"]


def train(package, data, setting, checkpoint):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    environment.update(word.split("=", 1) for word in setting.split() if "=" in word)
    processors = os.sched_getaffinity(0)
    limit = {min(processors)} if setting.startswith("one processor") else processors
    # The steps check memory: what is read before it was written is poison.
    subprocess.run(["memopt-run", package, f"--data={data}", "--steps=3", "--quiet", "--check-memory",
                    f"--save={checkpoint}"], env=environment, check=True, stdout=subprocess.DEVNULL,
                   preexec_fn=lambda: os.sched_setaffinity(0, limit))


def main():
    package, data, folder, *settings = sys.argv[1:]
    name = pathlib.Path(package).stem
    for number, setting in enumerate(["", *settings] if settings else SETTINGS):
        checkpoint = pathlib.Path(folder) / f"{name}-{number}"
        train(package, data, setting, checkpoint)
        if setting:
            first = pathlib.Path(folder) / f"{name}-0"
            files = ["model.safetensors", "optimizer.safetensors"]
            _, different, missing = filecmp.cmpfiles(first, checkpoint, files, shallow=False)
            print(f"{setting}: {'differ' if different or missing else 'equal'}")


main()
