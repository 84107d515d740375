#!/usr/bin/env python3
"""cache.py MODEL FOLDER: compilations with --cache leave the packages that they leave without, to the byte: those that
fill it, those that find everything, two at once, and those that find damaged, truncated and foreign entries, or answers
under other options. The cache is a number of files, which only changes where something was made."""
import pathlib
import shutil
import sys

import processes

OPTIONS = {"plain": [], "other": ["--optimizer=adamw"]}


def start(model, out, options, cache=None):
    command = ["memopt-compile", model, "-o", out, *options, *([f"--cache={cache}"] if cache else [])]
    return processes.start(*command)


def finish(process):
    errors = process.communicate()[1]
    assert process.returncode == 0, errors
    return errors


def read(package):
    return {path.name: path.read_bytes() for path in package.iterdir()}


def entries(cache):
    return {path: path.read_bytes() for path in sorted(cache.glob("llvmcache-*"))}


def damage(files):
    """Cuts the first off, empties the second, changes a byte of the third, and gives the rest their neighbours' bytes."""
    paths = list(files)
    assert len(paths) > 5, paths
    paths[0].write_bytes(files[paths[0]][:-1])
    paths[1].write_bytes(b"")
    paths[2].write_bytes(files[paths[2]][:-5] + bytes([files[paths[2]][-5] ^ 1]) + files[paths[2]][-4:])
    for path, other in zip(paths[3:], paths[4:] + paths[3:4]):
        path.write_bytes(files[other])


def main(model, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cache = folder / "cache"
    plain = {}
    for name, options in OPTIONS.items():
        finish(start(model, folder / name, options))
        plain[name] = read(folder / name)

    def check(name, process):
        errors = finish(process)
        assert read(folder / "out" / name) == plain[name], name
        return errors

    def compile(name):
        return check(name, start(model, folder / "out" / name, OPTIONS[name], cache))

    (folder / "out").mkdir()
    compile("plain")
    first = entries(cache)
    assert "remark: cache" not in compile("plain") and entries(cache) == first
    compile("other")  # with other options some answers are new
    both = entries(cache)
    assert len(both) > len(first)
    compile("plain"), compile("other")
    assert entries(cache) == both, "all was found"

    damage(both)
    errors = compile("other")
    assert "remark: cache entry" in errors and "is damaged; it is made anew" in errors, errors
    compile("plain")
    assert entries(cache) == both, "what was damaged is as it was"

    shutil.rmtree(cache)
    together = [(name, start(model, folder / "out" / f"{name}", OPTIONS[name], cache)) for name in OPTIONS]
    for name, process in together:
        check(name, process)
    assert entries(cache) == both, "two at once leave the same"


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
