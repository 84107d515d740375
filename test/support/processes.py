# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Processes of tests: words of a command may be of any type, output is captured as text, and whoever fails says why."""

import pathlib
import subprocess


class Failed(RuntimeError):
    pass


def start(*command, **options):
    """A process whose output communicate() gives."""
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run(*command, code=0, timeout=600, **options):
    """The process once it has ended, with this exit code; `None` takes any."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{pathlib.Path(command[0]).name} is not done in {timeout} s") from late
    if code is not None and done.returncode != code:
        raise Failed(f"{' '.join(command)}\nends with {done.returncode}, expected {code}: {(done.stdout + done.stderr).strip()[-1000:]}")
    return done
