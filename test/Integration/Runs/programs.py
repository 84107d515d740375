#!/usr/bin/env python3
"""programs.py FIXTURE FOLDER: packages of several programs over one state.

FIXTURE is a folder with model.pt2 and inputs.safetensors of a small model, FOLDER where to work. The first check that fails
ends it with what was seen."""
import json
import pathlib
import re
import shutil
import sys

import processes
from tensor_files import read_safetensors, write_safetensors

FIXTURE, FOLDER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
MODEL, WHOLE = FIXTURE / "model.pt2", FOLDER / "whole.memopt"
OPTIONS = ["--optimizer=adamw", "--lr=0.01", "--quiet"]


def run(*command, code=0):
    return processes.run(*command, code=code).stderr


def compile_programs(package, *programs, options=OPTIONS, code=0):
    """Programs are (name, options)."""
    listed = FOLDER / "programs.json"
    listed.write_text(json.dumps({"programs": [{"name": name, "model": str(MODEL), "options": list(own)} for name, own in programs]}))
    return run("memopt-compile", f"--programs={listed}", "-o", package, f"--report={FOLDER}/compiled.json", *options, code=code)


def train(package, data, *options, code=0):
    report = FOLDER / "report.json"
    said = run("memopt-run", package, f"--data={data}", "--quiet", "--seed=3", f"--report={report}", *options, code=code)
    return said if code else json.loads(report.read_text())


def write_data():
    """Batches of 32, 8, 32, 8, 8 samples, and those of 8 alone."""
    tensors = read_safetensors(FIXTURE / "inputs.safetensors")
    mixed, small = {}, {}
    for step, size in enumerate((32, 8, 32, 8, 8)):
        for name in ("image", "label"):
            mixed[f"step{step}.{name}"] = tensors[f"step{step}.{name}"][:size]
            small[f"step{step}.{name}"] = tensors[f"step{step}.{name}"][:8]
    write_safetensors(FOLDER / "mixed.safetensors", mixed)
    write_safetensors(FOLDER / "small.safetensors", small)


def check_bytes(package, report):
    """The arena is the largest program's, each used what was predicted, and the state lies at one place in all."""
    manifests = [json.loads((package / name).read_text()) for name in ("manifest.json", "2.manifest.json")]
    places = [{v["name"]: (v["offset"], v["bytes"]) for v in m["variables"] if v["role"] in ("parameter", "optimizer_state")} for m in manifests]
    assert places[0] == places[1] and len(places[0]) > 3, places
    programs = report["programs"]
    assert [program["name"] for program in programs] == ["full", "part"] and [program["steps"] for program in programs] == [2, 3], programs
    for program in programs:
        assert program["predicted_peak_bytes"] == program["used_peak_bytes"], program
    peaks = [program["predicted_peak_bytes"]["device"] for program in programs]
    assert peaks[0] > peaks[1] and report["predicted_peak_bytes"]["device"] == report["used_peak_bytes"]["device"] == peaks[0], peaks
    assert report["hot_path_allocations"] == 0


def check_shapes():
    compile_programs(WHOLE, ("full", []), ("part", ["--batch=8"]), options=[*OPTIONS, f"--html={FOLDER}/plans.html"])
    compiled = json.loads((FOLDER / "compiled.json").read_text())
    assert [(p["name"], p["kind"]) for p in compiled["programs"]] == [("full", "train"), ("part", "train")], compiled["programs"]
    page = (FOLDER / "plans.html").read_text()
    shown = json.loads(page.partition("const page = ")[2].partition(";\n")[0])["programs"]
    assert [(plan["name"], plan["report"]["predicted_peak_bytes"]) for plan in shown] == [
        (p["name"], p["predicted_peak_bytes"]) for p in compiled["programs"]]
    report = train(WHOLE, FOLDER / "mixed.safetensors", "--steps=5", "--check-memory")
    check_bytes(WHOLE, report)
    # A program of the package has the bits of the package that has it alone.
    run("memopt-compile", MODEL, "--batch=8", "-o", FOLDER / "alone.memopt", *OPTIONS)
    alone = train(FOLDER / "alone.memopt", FOLDER / "small.safetensors", "--steps=5", f"--save={FOLDER}/alone")
    shared = train(WHOLE, FOLDER / "small.safetensors", "--steps=5", f"--save={FOLDER}/shared")
    assert alone["losses"] == shared["losses"], (alone["losses"], shared["losses"])
    for name in ("model.safetensors", "optimizer.safetensors"):
        first, second = (read_safetensors(FOLDER / folder / name) for folder in ("alone", "shared"))
        assert first.keys() == second.keys() and all(first[key].tobytes() == second[key].tobytes() for key in first), name


def check_alternation():
    report = train(WHOLE, FOLDER / "small.safetensors", "--steps=4", "--alternate=part:3,full:1", code=1)
    assert "step 4: " in report and "[32,1,28,28]" in report.replace(" ", ""), report
    report = train(WHOLE, FOLDER / "small.safetensors", "--steps=3", "--alternate=part:3")
    assert [program["steps"] for program in report["programs"]] == [0, 3]
    assert "no training program 'other'" in train(WHOLE, FOLDER / "small.safetensors", "--alternate=other:1", code=1)


def check_state():
    """A program that is compiled later for the state that is there."""
    compile_programs(FOLDER / "more.memopt", ("evaluation", ["--mode=eval"]), options=[f"--state={WHOLE}", "--quiet"])
    first, more = (json.loads((package / "manifest.json").read_text()) for package in (WHOLE, FOLDER / "more.memopt"))
    places = [{v["name"]: v["offset"] for v in m["variables"] if v["role"] == "parameter"} for m in (first, more)]
    assert places[0] == places[1]
    run("memopt-compile", MODEL, "-o", FOLDER / "single.memopt", *OPTIONS)
    said = compile_programs(FOLDER / "more.memopt", ("evaluation", ["--mode=eval"]), options=[f"--state={FOLDER}/single.memopt"], code=1)
    assert "is a package of one program" in said, said
    said = compile_programs(FOLDER / "more.memopt", ("other", ["--optimizer=nadam"]), options=[f"--state={WHOLE}"], code=1)
    assert "is no part of the package's state" in said, said


def list_kernels(package):
    """The kernels in the one file of code that a package has."""
    assert [path.name for path in package.glob("*.so")] == ["program.so"], sorted(package.iterdir())
    return set(re.findall(rb"memopt_kernel_\d+(?=\0)", (package / "program.so").read_bytes()))


def check_code():
    """Kernels that programs share are in the package once."""
    compile_programs(FOLDER / "twice.memopt", ("one", []), ("two", []))
    single, part, twice, whole = (len(list_kernels(FOLDER / f"{name}.memopt")) for name in ("single", "alone", "twice", "whole"))
    assert single == twice > 3 and max(single, part) < whole < single + part, (single, part, twice, whole)
    losses = train(FOLDER / "twice.memopt", FIXTURE / "inputs.safetensors", "--steps=4", "--alternate=one:1,two:1")["losses"]
    assert losses == train(FOLDER / "single.memopt", FIXTURE / "inputs.safetensors", "--steps=4")["losses"]
    said = compile_programs(FOLDER / "none.memopt", ("a", []), ("b", ["--target-features=x86-64-v2"]), code=1)
    assert "program 'b' is compiled for another machine than program 'a'" in said, said


def check_older():
    """A package of format 3 has code for each program."""
    older = FOLDER / "older.memopt"
    compile_programs(older, ("one", []))
    manifest = json.loads((older / "manifest.json").read_text())
    entry = {"kind": "train", "shapes": {}, "predicted_peak_bytes": manifest["predicted_peak_bytes"]}

    def write(version):
        manifest["version"] = version
        (older / "2.manifest.json").write_text(json.dumps(manifest))
        (older / "manifest.json").write_text(json.dumps({**manifest, "programs": [{"name": "one", **entry}, {"name": "two", **entry}]}))
    shutil.copy(older / "program.so", older / "2.program.so")
    write(3)
    losses = train(older, FIXTURE / "inputs.safetensors", "--steps=4", "--alternate=one:1,two:1")["losses"]
    assert losses == train(FOLDER / "single.memopt", FIXTURE / "inputs.safetensors", "--steps=4")["losses"]
    write(4)
    said = train(older, FIXTURE / "inputs.safetensors", "--steps=4", code=1)
    assert "'program.so' does not export 'memopt_program_step_2'" in said, said


def check_refusals():
    said = compile_programs(FOLDER / "none.memopt", ("full", []), ("part", ["--batch=8"]), options=[*OPTIONS, "--device-memory=20KiB"], code=2)
    assert "error: program 'full': " in said and "does not fit" in said, said
    assert "two programs of the package have the name 'a'" in compile_programs(FOLDER / "none.memopt", ("a", []), ("a", []), code=1)
    said = compile_programs(FOLDER / "none.memopt", ("a", ["--auto=precision", "--device-memory=1GiB"]), ("b", []), code=1)
    assert "search the form of one program" in said, said
    assert "needs its name: -o NAME.memopt" in run("memopt-compile", MODEL, MODEL, *OPTIONS, code=1)
    said = train(WHOLE, FIXTURE / "inputs.safetensors", "--steps=1", f"--trace={FOLDER}/trace.json", code=1)
    assert "--trace draws the steps of one program" in said, said
    assert not (FOLDER / "none.memopt").exists()


write_data()
check_shapes()
check_alternation()
check_state()
check_code()
check_older()
check_refusals()
print("programs: all checks passed")
