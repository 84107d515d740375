#!/usr/bin/env python3
"""full_disks.py FIXTURE FOLDER [CASE...]: what runs and compilations do on file systems that are full or become full.

FIXTURE is a folder with model.pt2 and inputs.safetensors, FOLDER where to work. Small file systems are mounted for each case (a
function of this file) in a mount namespace of this process, which ends with it. Where no mount is allowed it says so. Each case
says its seconds."""
import atexit
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import processes

FIXTURE, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
DATA = f"--data={FIXTURE}/inputs.safetensors"
DISK = FOLDER / "disk"
TENSORS = ("model.safetensors", "optimizer.safetensors")
KIB = 1024
CHECKPOINT = 604 * KIB  # about what one takes
PATIENCE = 60  # seconds, for each thing that is waited for
WITHOUT_MOUNTS = "no mount is allowed here"


def enter_namespace():
    """Starts this script again where what it mounts is its own: as root, or as root of a user namespace."""
    if os.environ.get("FULL_DISKS_NAMESPACE"):
        return
    for words in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        probe = ["sh", "-c", f"mkdir -p {DISK} && mount -t tmpfs -o size=64k none {DISK}"]
        if shutil.which("unshare") and subprocess.run([*words, *probe], capture_output=True).returncode == 0:
            os.execvpe(words[0], [*words, sys.executable, *sys.argv], {**os.environ, "FULL_DISKS_NAMESPACE": "1"})
    print(WITHOUT_MOUNTS)
    sys.exit()


def mount(size, **options):
    """An empty file system of so many bytes in place of the last one."""
    subprocess.run(["umount", "--lazy", DISK], capture_output=True)
    words = ",".join([f"size={size}", *(f"{name}={value}" for name, value in options.items())])
    subprocess.run(["mount", "-t", "tmpfs", "-o", words, "none", DISK], check=True)


def fill(but=0):
    """Takes all room that is left but so much."""
    with open(DISK / "filler", "ab", buffering=0) as file:
        try:
            while file.write(bytes(4 * KIB)):
                pass
        except OSError:
            pass
        file.truncate(max(0, os.fstat(file.fileno()).st_size - but))


def compile_package(path, *options, code=0):
    return processes.run("memopt-compile", FIXTURE / "model.pt2", "-o", path, "--quiet", *options, code=code, timeout=2 * PATIENCE)


def train(*options, steps=3, package="train.memopt", code=0, **more):
    return processes.run("memopt-run", FOLDER / package, DATA, f"--steps={steps}", *options, code=code, timeout=2 * PATIENCE, **more)


def contents(folder):
    return [(folder / name).read_bytes() for name in TENSORS]


def state(folder):
    return json.loads((folder / "state.json").read_text())


def expect_step(folder, steps):
    """A checkpoint of so many steps, with the bits of a run that met nothing, and nothing beside it."""
    assert state(folder)["step"] == steps, (state(folder)["step"], steps)
    clean = FOLDER / "clean"
    shutil.rmtree(clean, ignore_errors=True)
    train(f"--save={clean}", "--quiet", steps=steps)
    assert contents(folder) == contents(clean), steps
    assert not [path for path in folder.iterdir() if path.name.startswith(".saving")], list(folder.iterdir())


def wait_until(holds, what):
    """For what takes a moment; `what()` names it."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"{PATIENCE} s have passed: {what()}"
        time.sleep(0.01)


class LongRun:
    """A run that goes on until it is stopped, or too many steps are done: a clean run has to repeat them. Its words are read
    as they come."""
    STEPS = 50000

    def __init__(self, *options):
        command = ["memopt-run", FOLDER / "train.memopt", DATA, f"--steps={self.STEPS}", *options]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        self.said = ""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.said += line

    def wait_for(self, words, meanwhile=lambda: None):
        """What is done `meanwhile` is done again until the words are there."""
        def are_said():
            assert self.reader.is_alive(), f"the run ended without '{words}': {self.said[-2000:]}"
            meanwhile()
            return words in self.said
        wait_until(are_said, lambda: f"the run has not said '{words}' but: {self.said[-2000:]}")

    def stop(self):
        """Its exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.reader.join(PATIENCE)
        assert not self.reader.is_alive(), f"{PATIENCE} s behind SIGTERM the run goes on: {self.said[-2000:]}"
        return self.process.wait(PATIENCE)


# ----------------------------------------------------------------------------------------------------------
# Checkpoints
# ----------------------------------------------------------------------------------------------------------

def no_room_is_said_before_the_first_step():
    for size, options in ((CHECKPOINT // 2, []), (CHECKPOINT * 3 // 2, ["--save-every=1"]), (CHECKPOINT * 5 // 2, ["--save-every=1", "--keep=3"])):
        mount(size)
        done = train(f"--save={DISK}/run", *options, code=3)
        assert not done.stdout and "checkpoint" in done.stderr and not list(DISK.iterdir()), (done, list(DISK.iterdir()))
    mount(CHECKPOINT * 5 // 2)
    train(f"--save={DISK}/run", "--save-every=1", "--quiet")
    expect_step(DISK / "run", 3)


def has_step(folder, step):
    try:
        return state(folder)["step"] >= step
    except FileNotFoundError:  # before the first, and between two
        return False


def a_disk_becomes_full():
    """Training goes on. Where there is room again, nothing is lost, else the last whole checkpoint stays."""
    log = FOLDER / "log.csv"
    for isRoomAgain in (True, False):
        mount(4 * CHECKPOINT)
        log.unlink(missing_ok=True)
        run = LongRun(f"--save={DISK}/run", "--save-every=1", f"--log={log}")
        wait_until(lambda: has_step(DISK / "run", 3), lambda: f"no checkpoint of step 3, but the run said: {run.said}")
        # Filled beside a save, the disk has the room of the checkpoint that the save replaces: one time is not enough.
        run.wait_for("No space left on device; training goes on, and it is tried again behind step ", meanwhile=fill)
        if isRoomAgain:
            (DISK / "filler").unlink()
            run.wait_for(" is written")
        else:
            fill()
        code = run.stop()
        (DISK / "filler").unlink(missing_ok=True)
        steps = int(log.read_text().splitlines()[-1].split(",")[0])
        if isRoomAgain:
            assert code == 5, (code, run.said)
        else:
            assert code == 3 and "No space left on device" in run.said.splitlines()[-1], (code, run.said)
            assert 3 <= state(DISK / "run")["step"] < steps, (state(DISK / "run"), steps)
            steps = state(DISK / "run")["step"]
        expect_step(DISK / "run", steps)


def a_disk_has_no_more_names():
    """As many files as it may have, though there is room."""
    mount(8 * CHECKPOINT, nr_inodes=6)
    done = train(f"--save={DISK}/run", "--save-every=1", "--keep=2", code=3, steps=5)
    assert "step 5/5" in done.stdout and "No space left on device" in done.stderr.splitlines()[-1], done
    assert not (DISK / "run").exists() or state(DISK / "run")["step"] < 5, list(DISK.rglob("*"))


def ranks_share_a_full_disk():
    mount(4 * CHECKPOINT)
    fill(but=CHECKPOINT // 2)
    done = train("--ranks=2", f"--save={DISK}/run", package="ranks.memopt", code=3)
    assert not done.stdout and "checkpoint" in done.stderr, done
    (DISK / "filler").unlink()
    train("--ranks=2", f"--save={DISK}/run", "--quiet", package="ranks.memopt")
    assert state(DISK / "run")["step"] == 3


# ----------------------------------------------------------------------------------------------------------
# Other outputs
# ----------------------------------------------------------------------------------------------------------

def side_outputs_have_no_room():
    """The run trains to its end and its checkpoint is whole; each file that is not is named."""
    mount(64 * KIB)
    fill()
    folder = FOLDER / "run"
    for option, name in (("--log", "l.csv"), ("--log", "l.jsonl"), ("--log", "tensorboard:board"), ("--trace", "t.json"), ("--report", "r.json"),
                         ("--save-gradients", "g.safetensors")):
        shutil.rmtree(folder, ignore_errors=True)
        kind, path = name.split(":") if ":" in name else ("", name)
        done = train(f"{option}={kind + ':' if kind else ''}{DISK}/{path}", f"--save={folder}", code=3)
        assert f"'{DISK}/{path}" in done.stderr and "No space left on device" in done.stderr, (option, name, done)
        if kind:  # its head comes before the first step
            assert not done.stdout, done
            continue
        assert "step 3/3" in done.stdout, done
        expect_step(folder, 3)


def a_log_has_room_again():
    mount(32 * KIB * KIB)
    fill()
    run = LongRun(f"--log={DISK}/l.csv", f"--save={FOLDER}/run")
    run.wait_for("training goes on, and what is missing is added")
    (DISK / "filler").unlink()
    run.wait_for("what was missing is added")
    assert run.stop() == 5, run.said
    rows = [int(row.split(",")[0]) for row in (DISK / "l.csv").read_text().splitlines()[1:]]
    assert rows == list(range(1, state(FOLDER / "run")["step"] + 1)), (len(rows), rows[-1:])
    expect_step(FOLDER / "run", state(FOLDER / "run")["step"])


# ----------------------------------------------------------------------------------------------------------
# Packages, caches and values on disk
# ----------------------------------------------------------------------------------------------------------

def a_package_has_no_room():
    """The old one stays and runs, with nothing beside it."""
    mount(1024 * KIB)
    compile_package(DISK / "p.memopt", "--optimizer=sgd")
    before = {path.name: path.read_bytes() for path in (DISK / "p.memopt").iterdir()}
    for room in (0, 16 * KIB, 64 * KIB, 128 * KIB):
        fill(but=room)
        done = compile_package(DISK / "p.memopt", "--optimizer=adamw", code=3)
        assert "No space left on device" in done.stderr, done.stderr
        (DISK / "filler").unlink()
        assert {path.name: path.read_bytes() for path in (DISK / "p.memopt").iterdir()} == before, room
        assert os.listdir(DISK) == ["p.memopt"], os.listdir(DISK)
    train(package=DISK / "p.memopt")
    processes.run("memopt-run", FIXTURE / "model.pt2", DATA, "--steps=1", "-o", DISK / "p.memopt", "--quiet")
    assert os.listdir(DISK) == ["p.memopt"], os.listdir(DISK)


def a_report_has_no_room():
    """The package is there, whole; so it is of several programs."""
    mount(64 * KIB)
    fill()
    package, listed = FOLDER / "reported.memopt", FOLDER / "programs.json"
    listed.write_text(json.dumps({"programs": [{"name": name, "model": f"{FIXTURE}/model.pt2", "options": [f"--batch-size={size}"]}
                                               for name, size in (("a", 32), ("b", 8))]}))
    for option in (f"--report={DISK}/r.json", f"--html={DISK}/p.html"):
        for source in (FIXTURE / "model.pt2", f"--programs={listed}"):
            shutil.rmtree(package, ignore_errors=True)
            done = processes.run("memopt-compile", source, "-o", package, "--quiet", "--optimizer=adamw", option, code=3)
            assert "No space left on device" in done.stderr and str(DISK) in done.stderr, done.stderr
            assert os.listdir(DISK) == ["filler"], os.listdir(DISK)
            train(package=package)


def a_temporary_folder_has_no_room():
    mount(64 * KIB)
    fill()
    done = processes.run("memopt-run", FIXTURE / "model.pt2", DATA, "--steps=1", "--quiet", env={**os.environ, "TMPDIR": str(DISK)}, code=3)
    assert "No space left on device" in done.stderr, done.stderr
    assert os.listdir(DISK) == ["filler"], os.listdir(DISK)


def a_cache_has_no_room():
    """It is no more than a cache."""
    mount(64 * KIB)
    fill()
    done = compile_package(FOLDER / "p.memopt", "--optimizer=adamw", f"--cache={DISK}/cache")
    assert "cannot be written: No space left on device" in done.stderr, done.stderr
    train(package="p.memopt")


def values_on_disk_have_no_room():
    mount(64 * KIB)
    done = train(f"--disk-folder={DISK}", f"--save={FOLDER}/run", package="disk.memopt", code=3)
    assert not done.stdout and str(DISK) in done.stderr, done
    assert not os.listdir(DISK), os.listdir(DISK)
    mount(4096 * KIB)
    train(f"--disk-folder={DISK}", f"--save={FOLDER}/run", "--quiet", package="disk.memopt")
    assert contents(FOLDER / "run") == contents(FOLDER / "clean3"), "another state"


def main():
    enter_namespace()
    FOLDER.mkdir(exist_ok=True)
    for name, options in (("train", []), ("ranks", ["--ranks=2"]), ("disk", ["--offload-optimizer=nvme", f"--disk={FOLDER}:1GiB"])):
        compile_package(FOLDER / f"{name}.memopt", "--optimizer=adamw", *options)
    train(f"--save={FOLDER}/clean3", "--quiet")
    cases = [no_room_is_said_before_the_first_step, a_disk_becomes_full, a_disk_has_no_more_names,
             ranks_share_a_full_disk, side_outputs_have_no_room, a_log_has_room_again, a_package_has_no_room, a_report_has_no_room, a_temporary_folder_has_no_room,
             a_cache_has_no_room, values_on_disk_have_no_room]
    for case in cases:
        if len(sys.argv) < 4 or case.__name__ in sys.argv[3:]:
            begin = time.monotonic()
            case()
            print(f"{case.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    print(len(cases), "cases")


main()
