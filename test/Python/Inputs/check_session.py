# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_session.py ARCHIVE FOLDER: the part of the package that needs no PyTorch, against memopt-run."""

import array
import json
import os
import pathlib
import subprocess
import sys
import threading

import numpy

import memopt
from memopt import arrays, packages, tools
from tensor_files import write_safetensors

archive, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
os.environ["MEMOPT_CACHE"] = str(folder / "cache")
STEPS, OPTIONS = 5, ["--optimizer=adam", "--lr=0.01", "--run-threads=2"]
rng = numpy.random.default_rng(0)
batches = [(rng.random((64, 1, 28, 28), dtype=numpy.float32), rng.integers(0, 10, 64)) for _ in range(STEPS)]


def refuses(kind, parts, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        assert all(part in error.message for part in parts), error.message
        return error
    raise AssertionError(f"{function.__name__} refuses nothing, expected {parts}")


def open_session(**options):
    session = memopt.Session(compiled.path, **options)
    session.initialize()
    return session


def train(session):
    return [session.run_step([batch]) or session.read_scalar("loss") for batch in batches]


def read_state(session):
    return {v["name"]: session.read_bytes(v["name"]) for v in session.manifest["variables"]
            if v["role"] in ("parameter", "buffer", "optimizer_state")}


# Packages are kept by what they were compiled from.
compiled = packages.build_package([packages.Program("step", archive.read_bytes(), OPTIONS)])
assert not compiled.was_cached and compiled.report["fits"]
assert packages.build_package([packages.Program("step", archive.read_bytes(), OPTIONS)]) == compiled._replace(was_cached=True)
assert packages.build_package([packages.Program("step", archive.read_bytes(), [*OPTIONS, "--eps=1e-7"])]).path != compiled.path
assert (folder / "cache").stat().st_mode & 0o077 == 0, "native code in a folder that others may write"
assert not list((folder / "cache").glob(".compiling-*"))

# Losses and state have the bits of memopt-run's.
write_safetensors(folder / "batches.safetensors", {f"step{i}.{name}": value for i, batch in enumerate(batches)
                                                   for name, value in zip(("image", "label"), batch)})
subprocess.run(["memopt-run", compiled.path, f"--data={folder}/batches.safetensors", f"--steps={STEPS}", "--quiet",
                f"--save={folder}/saved", f"--report={folder}/run.json"], check=True, stdout=subprocess.DEVNULL)
session = open_session()
assert train(session) == json.loads((folder / "run.json").read_text())["losses"]
session.save(folder / "ours")
for name in ("model.safetensors", "optimizer.safetensors"):
    assert (folder / "ours" / name).read_bytes() == (folder / "saved" / name).read_bytes(), name
places = [json.loads((folder / name / "state.json").read_text()) for name in ("ours", "saved")]
for place in places:
    del place["schedule"]["total_steps"]  # here, the end is not known
assert places[0] == places[1]
state = read_state(session)

# Several sessions at once; arrays of any kind and order; what a checkpoint holds.
sessions = [open_session(threads=1 + i % 2) for i in range(4)]
threads = [threading.Thread(target=train, args=[each]) for each in sessions]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(read_state(each) == state for each in sessions)
session.load(folder / "saved")
assert session.step == STEPS and read_state(session) == state


class OnlyDLPack:
    def __init__(self, value):
        self.value = value

    def __dlpack__(self, **options):
        return self.value.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.value.__dlpack_device__()


image, label = batches[0]
kinds = [(image, label), (OnlyDLPack(image), OnlyDLPack(label)), (numpy.asfortranarray(image), label.astype(numpy.int32)),
         (memoryview(array.array("f", image.tobytes())).cast("B").cast("f", image.shape), array.array("q", label.tobytes())),
         (numpy.broadcast_to(image, image.shape), numpy.repeat(label, 2)[::2])]
found = set()
for kind in kinds:
    session = open_session()
    session.run_step([kind])
    found.add(tuple(read_state(session).values()))
assert len(found) == 1
assert arrays.view_array(image[:, :, ::2, ::-1]).strides == (784, 784, 56, -1)

# What is wrong is said by name, and nothing has changed.
before = read_state(session)
refuses(memopt.BadInput, ["input 'image': is f64[64, 1, 28, 28], expected f32"], session.run_step, [(image.astype(float), label)])
refuses(memopt.BadInput, ["input 'label'", "found list"], session.run_step, [(image, list(label))])
refuses(memopt.BadInput, ["input 'label'", "'<c16'"], session.run_step, [(image, label.astype(complex))])
refuses(memopt.BadInput, ["expected 2: image, label"], session.run_step, [(image,)])
refuses(memopt.BadInput, ["takes 1 batches, not 2"], session.run_step, batches[:2])
assert refuses(memopt.BadInput, ["step 2: input 'label' holds 10"], session.run_step, [(image, label * 0 + 10)]).step == 2
assert refuses(memopt.LossNotFinite, ["the loss is nan"], session.run_step, [(image * numpy.nan, label)]).step == 2
refuses(memopt.BadInput, ["no variable 'nobody'"], session.write, "nobody", label)
assert read_state(session) == before and session.step == 1
refuses(memopt.BadInput, ["not a folder"], memopt.Session, folder / "nothing")
session.close()
refuses(memopt.BadInput, ["is closed"], session.run_step, [(image, label)])

# A child of fork, as loaders start them, leaves the session alone.
child = os.fork()
if child == 0:
    sessions.clear()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
sessions[0].run_step([batches[0]])

# The compiler's failures have fields.
error = refuses(memopt.DoesNotFit, ["does not fit"], tools.run_compiler,
                [str(archive), "-o", str(folder / "no.memopt"), "--device-memory=64KiB"])
assert error.budget == 65536 < error.lower_bound <= error.smallest_budget and error.largest[0][0] > 0
fits = tools.run_compiler([str(archive), "-o", str(folder / "yes.memopt"), f"--device-memory={error.smallest_budget}"])[1]
assert fits["fits"] and fits["predicted_peak_bytes"]["device"] <= error.smallest_budget
refuses(memopt.DoesNotFit, ["does not fit"], tools.run_compiler,
        [str(archive), "-o", str(folder / "no.memopt"), "--device-memory=64KiB", "--auto=recompute,accumulate"])
refuses(memopt.BadInput, ["option 'batchsize=' is unknown, did you mean 'batch_size='"], tools.run_compiler, [str(archive), "--batchsize=4"])

# The plan is the manifest's.
plan = memopt.Plan(sessions[0].manifest, compiled.report)
assert max(plan.get_timeline()) <= plan.peak_bytes["device"] and "<svg" in plan._repr_html_() and "arena" in plan._repr_html_()
assert sum(count for kind, count in plan.bytes_by_kind.items() if kind != "variables") <= plan.peak_bytes["device"] and plan.largest == sorted(plan.largest, key=lambda v: -v[0])
assert "torch" not in sys.modules
