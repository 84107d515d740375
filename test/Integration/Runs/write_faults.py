#!/usr/bin/env python3
"""write_faults.py FIXTURE SHIMS FOLDER [CASE...]: every command that writes, with every call that may fail failing in turn.

FIXTURE is a folder with model.pt2 and inputs.safetensors, SHIMS that of the libraries which let calls fail, FOLDER where to
work. Each command runs once as it is, and then again and again over what that has left: the first call of a kind that would
change a file fails, then the second, and so on, until there is none left. Whatever fails, the command ends by itself with an exit code
that it knows and says why where that is not 0, and each of its files is whole: the old one or the new one. An interrupted
call is none that fails. Then each command runs in less and less memory. The first case that is off ends it with what was seen; the last line counts."""
import csv
import html.parser
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

from tensor_files import read_safetensors

FIXTURE, SHIMS, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
DATA = f"--data={FIXTURE}/inputs.safetensors"
OUT = FOLDER / "out"
FULL, BROKEN, STALE, MANY = 28, 5, 116, 24
CALLS = {"open": MANY, "write": FULL, "pwrite": FULL, "fallocate": FULL, "ftruncate": FULL, "fsync": BROKEN, "mkdir": FULL, "rename": STALE,
         "unlink": BROKEN, "rmdir": BROKEN}

COMMANDS = {
    "compile": ["memopt-compile", FIXTURE / "model.pt2", "-o", OUT / "p.memopt", f"--report={OUT}/r.json", f"--html={OUT}/p.html", "--quiet",
                "--optimizer=adamw"],
    "frontier": ["memopt-compile", FIXTURE / "model.pt2", "--frontier=3", f"--frontier-output={OUT}/f", "--optimizer=sgd"],
    "cache": ["memopt-compile", FIXTURE / "model.pt2", "-o", OUT / "p.memopt", f"--cache={OUT}/.cache", "--quiet", "--optimizer=sgd"],
    "model": ["memopt-run", FIXTURE / "model.pt2", DATA, "-o", OUT / "p.memopt", "--optimizer=adamw", "--steps=1", "--quiet", f"--save={OUT}/run"],
    "plan": ["memopt-plan", "arena", FOLDER / "problem.csv", "-o", OUT / "answer.csv"],
    "train": ["memopt-run", FOLDER / "train.memopt", DATA, "--steps=3", "--quiet", f"--save={OUT}/run", "--save-every=1", "--keep=2",
              f"--report={OUT}/r.json", f"--trace={OUT}/t.json", f"--save-gradients={OUT}/g.safetensors", f"--log={OUT}/l.csv"],
    "ranks": ["memopt-run", FOLDER / "ranks.memopt", DATA, "--ranks=2", "--steps=2", "--quiet", f"--save={OUT}/run", f"--log={OUT}/l.jsonl"],
    "evaluate": ["memopt-run", FOLDER / "train.memopt", DATA, f"--eval-package={FOLDER}/eval.memopt", f"--eval-data={FIXTURE}/inputs.safetensors",
                 "--eval-every=1", "--save-best", "--steps=2", "--quiet", f"--save={OUT}/run", f"--log=tensorboard:{OUT}/board"],
}


def load_shim(name, **variables):
    library = FOLDER / f"{name}.so"
    if not library.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SHIMS / f"{name}.c", "-ldl"], check=True)
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return {**os.environ, "LD_PRELOAD": str(library), "ASAN_OPTIONS": sanitizer, **variables}


def run(name, env=None, **more):
    env = {**(env or os.environ), "TMPDIR": str(FOLDER / "tmp")}
    return subprocess.run([str(word) for word in COMMANDS[name]], env=env, capture_output=True, text=True, timeout=120, **more)


class Page(html.parser.HTMLParser):
    ended = False

    def handle_endtag(self, tag):
        self.ended = tag == "html"


def check_file(path):
    """Whether it is whole, by its kind."""
    if path.suffix == ".json":
        json.loads(path.read_text())
    elif path.suffix == ".safetensors":
        read_safetensors(path)
    elif path.suffix == ".html":
        page = Page()
        page.feed(path.read_text())
        assert page.ended, path
    elif path.suffix == ".csv":
        lines = list(csv.reader(path.open()))
        assert len({len(line) for line in lines if line}) <= 1, lines
    elif path.suffix == ".jsonl":
        for line in path.read_text().splitlines():
            json.loads(line)


def check_folder(name, seen):
    """Everything under OUT is whole, and nothing of the old files is gone."""
    for path in OUT.rglob("*"):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(OUT).parts):
            check_file(path)
    # The files of a save may be on their way, and the next run ends that: a program that reads looks at both places.
    for old in seen:
        there = OUT / old, (OUT / old).parent / ".saved" / (OUT / old).name
        assert any(path.exists() for path in there), (name, old, list(OUT.rglob("*")))
    package, saved = OUT / "p.memopt", OUT / "run"
    for words in ([package, "--steps=1"] if package.exists() else [], [FOLDER / "train.memopt", f"--load={saved}", "--steps=0"] if saved.exists() else []):
        if words:
            done = subprocess.run(["memopt-run", *map(str, words), DATA, "--quiet"], capture_output=True, text=True)
            assert done.returncode == 0, (name, done.stderr)


def list_files():
    return sorted(str(path.relative_to(OUT)) for path in OUT.rglob("*") if path.is_file() and "step-" not in str(path) and "board" not in str(path))


def begin(name):
    """The command's files as a run without faults leaves them."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    done = run(name)
    assert done.returncode == 0, (name, done.stderr)
    return list_files()


def restore(name):
    shutil.rmtree(OUT, ignore_errors=True)
    shutil.copytree(FOLDER / "before", OUT)


def sweep(name, make_env, met, must_work=False, most=200):
    """Lets the n-th call fail, for each n; how many there were."""
    seen = begin(name)
    shutil.rmtree(FOLDER / "before", ignore_errors=True)
    shutil.copytree(OUT, FOLDER / "before")
    for number in range(most):
        restore(name)
        met.unlink(missing_ok=True)
        done = run(name, make_env(number))
        what = (name, number, done.returncode, done.stderr)
        assert done.returncode in ((0,) if must_work else (0, 1, 3)), what
        assert done.returncode == 0 or "error" in done.stderr.lower(), what
        if not met.exists():
            return number
        check_folder(name, seen)
    return most


def sweep_calls(name):
    met = FOLDER / "met"
    found = {}
    for call, error in CALLS.items():
        found[call] = sweep(name, lambda number: load_shim("faults", FAULTS=f"{call}:{error}:{number}:1", FAULTS_IN=str(OUT), FAULTS_MET=str(met)), met)
    sweep_interrupts(name)
    return found


def sweep_interrupts(name):
    met = FOLDER / "met"
    for call in ("write", "pwrite", "open"):
        sweep(name, lambda number: load_shim("faults", FAULTS=f"{call}:4:{number}:1", FAULTS_IN=str(OUT), FAULTS_MET=str(met)), met, must_work=True)


def starts_within(name, limit):
    """Whether the command's program reaches its own code: with less the loader or a library's start ends it, each in its own way."""
    return subprocess.run([COMMANDS[name][0], "--version"], capture_output=True, preexec_fn=lambda: limit_memory(limit)).returncode == 0


def limit_memory(limit):
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def sweep_memory(name):
    """Runs in more and more address space, from where the program starts at all to where there is enough."""
    seen, limit, ways = begin(name), 32 << 20, 0
    while not starts_within(name, limit):
        limit += limit // 12
    limit += 1 << 20  # the JSON library asks for memory to take values apart, and ends a process that has none for it
    while True:
        done = run(name, preexec_fn=lambda: limit_memory(limit))
        if done.returncode == 0:
            return ways
        what = (name, limit, done.returncode, done.stderr)
        assert done.returncode in (1, 3) and "error" in done.stderr, what
        check_folder(name, seen)
        ways += 1
        limit += limit // 12


def clocks_jump():
    """A run sees an hour pass between any two looks at the clock, and the time of day go back; ranks are not given up for it."""
    before = begin("ranks")
    expected = {name: (OUT / name).read_bytes() for name in before if name.endswith(".safetensors")}
    shutil.rmtree(OUT)
    OUT.mkdir()
    for rule in ("1:3600", "7:400"):
        done = run("ranks", load_shim("clock", CLOCK=rule))
        assert done.returncode == 0, done.stderr
        assert {name: (OUT / name).read_bytes() for name in expected} == expected


def main():
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "tmp").mkdir(exist_ok=True)
    (FOLDER / "problem.csv").write_text("id,lower,upper,size\na,0,2,64\nb,1,3,64\nc,2,4,128\n")
    for name, options in (("train", ["--optimizer=adamw"]), ("eval", ["--mode=eval"]), ("ranks", ["--optimizer=adamw", "--ranks=2", "--zero-stage=2"])):
        subprocess.run(["memopt-compile", FIXTURE / "model.pt2", "-o", FOLDER / f"{name}.memopt", "--quiet", *options], check=True)
    names = [name for name in sys.argv[4:] if name in COMMANDS] or ([] if sys.argv[4:] else list(COMMANDS))
    calls = 0
    for name in names:
        found = sweep_calls(name)
        calls += sum(found.values())
        print(f"{name}: {', '.join(f'{call} {count}' for call, count in found.items() if count)}", flush=True)
    for name in names:
        print(f"{name}: {sweep_memory(name)} ways to have too little memory", flush=True)
    if "interrupts" in sys.argv[4:]:  # alone: the others are a part of the sweeps
        sweep_interrupts("compile")
    if not sys.argv[4:] or "clocks_jump" in sys.argv[4:]:
        clocks_jump()
    print(calls, "calls failed, each once")


main()
