# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime's C interface (memopt-runtime/CInterface.h) for Python.

A `Session` is a package at work. It needs neither PyTorch nor NumPy:

    session = memopt.Session("mine.memopt")
    session.initialize()
    session.run_step([[image, label]])
    session.read_scalar("loss")
"""

from __future__ import annotations

import ctypes
import functools
import json
import math
import os
import pathlib
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import arrays
from .errors import BadInput, Error, LossNotFinite, Unavailable
from .tools import find_library

__all__ = ["Program", "Session", "Watched", "find_rank", "load_are_unchanged", "write_checkpoint_files"]

_C_VERSION = 2
_INPUT, _OUTPUT, _VARIABLE = 0, 1, 2


class _Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("is_loss_refused", ctypes.c_int32), ("step", ctypes.c_int64),
                ("message", ctypes.c_char_p)]


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("threads", ctypes.c_int32),
                ("continue_on_nan", ctypes.c_int32), ("joins_ranks", ctypes.c_int32), ("check_memory", ctypes.c_int32),
                ("rank_seconds", ctypes.c_double), ("disk_folder", ctypes.c_char_p)]


class _View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_int64)]


class _NamedView(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("view", _View)]


class Watched(ctypes.Structure):
    """Words that are to be what they were; see the header."""
    _fields_ = [("look_up", ctypes.c_void_p), ("tables", ctypes.c_void_p), ("keys", ctypes.c_void_p), ("values", ctypes.c_void_p),
                ("mask", ctypes.c_size_t), ("count", ctypes.c_int64), ("is_table_pointed", ctypes.c_int32)]


_SESSION, _NAME, _ERROR = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(_Error)
#: Results and arguments of the functions, as in the header.
_FUNCTIONS = {
    "memopt_c_version": (ctypes.c_int32, []),
    "memopt_error_clear": (None, [_ERROR]),
    "memopt_session_open": (ctypes.c_int32, [_NAME, ctypes.POINTER(_Options), ctypes.POINTER(_SESSION), _ERROR]),
    "memopt_session_close": (None, [_SESSION]),
    "memopt_session_get_manifest": (ctypes.c_char_p, [_SESSION]),
    "memopt_find_rank": (ctypes.c_int32, [ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64), _ERROR]),
    "memopt_session_get_used_bytes": (ctypes.c_int64, [_SESSION, _NAME]),
    "memopt_session_begin_trace": (ctypes.c_int32, [_SESSION, ctypes.c_int64, _ERROR]),
    "memopt_session_write_trace": (ctypes.c_int32, [_SESSION, _NAME, _ERROR]),
    "memopt_session_count_programs": (ctypes.c_int64, [_SESSION]),
    "memopt_session_choose_program": (ctypes.c_int32, [_SESSION, ctypes.c_int64, _ERROR]),
    "memopt_session_add_program": (ctypes.c_int32, [_SESSION, _NAME, _ERROR]),
    "memopt_session_initialize": (ctypes.c_int32, [_SESSION, ctypes.c_int32, ctypes.c_int64, _ERROR]),
    "memopt_session_write": (ctypes.c_int32, [_SESSION, _NAME, ctypes.POINTER(_View), _ERROR]),
    "memopt_session_read": (ctypes.c_int32, [_SESSION, ctypes.c_int32, _NAME, ctypes.c_void_p, ctypes.c_int64, _ERROR]),
    "memopt_session_set_rate": (ctypes.c_int32, [_SESSION, _NAME, ctypes.c_double, _ERROR]),
    "memopt_session_run_step": (ctypes.c_int32, [_SESSION, ctypes.POINTER(_View), ctypes.c_int64, _ERROR]),
    "memopt_session_get_step": (ctypes.c_int64, [_SESSION]),
    "memopt_session_set_step": (None, [_SESSION, ctypes.c_int64]),
    "memopt_session_get_step_seconds": (ctypes.c_double, [_SESSION]),
    "memopt_session_save": (ctypes.c_int32, [_SESSION, _NAME, _ERROR]),
    "memopt_session_load": (ctypes.c_int32, [_SESSION, _NAME, _ERROR]),
    "memopt_checkpoint_write": (ctypes.c_int32, [_NAME, ctypes.POINTER(_NamedView), ctypes.c_int64, ctypes.POINTER(_NamedView),
                                                 ctypes.c_int64, _NAME, _ERROR]),
}


def _get_mode() -> int:
    return os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND


@functools.cache
def _load_library() -> ctypes.CDLL:
    # oneDNN has to find the runtime's OpenMP before that of others, PyTorch's say.
    if not hasattr(os, "RTLD_DEEPBIND"):
        raise Unavailable("memopt's runtime needs Linux with the GNU C library: this system has no RTLD_DEEPBIND, which keeps "
                          "the runtime's OpenMP apart from PyTorch's")
    path = find_library()
    try:
        library = ctypes.CDLL(str(path), mode=_get_mode())
    except OSError as error:
        raise Unavailable(f"{path} does not load: {error}") from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise Unavailable(f"{path} has no {name}, which this package needs; take both from one release")
        function.restype, function.argtypes = result, arguments
    if library.memopt_c_version() != _C_VERSION:
        raise Unavailable(f"{path} has version {library.memopt_c_version()} of the C interface, this package needs "
                          f"{_C_VERSION}; take both from one release")
    return library


def load_are_unchanged() -> Callable[[Any, int], int] | None:
    """The library's `memopt_are_unchanged`, by a call that keeps the interpreter's lock, as what it looks up is the interpreter's.
    Libraries of earlier releases have none."""
    _load_library()
    function = getattr(ctypes.PyDLL(str(find_library()), mode=_get_mode()), "memopt_are_unchanged", None)
    if function is not None:
        function.restype = ctypes.c_int32
    return function


def _raise(library: ctypes.CDLL, error: _Error) -> None:
    code, step, message = error.code, error.step, (error.message or b"").decode(errors="replace")
    is_loss_refused = error.is_loss_refused
    library.memopt_error_clear(ctypes.byref(error))
    message = message.replace("--rank-timeout=", "rank_timeout=")  # memopt-run's option is a keyword here
    if step:
        message = f"step {step}: {message}"
    if is_loss_refused:
        raise LossNotFinite(message, step=step)
    if code in (1, 4):
        raise BadInput(message, step=step)
    raise Unavailable(message) if code == 3 else Error(message)


def find_rank() -> tuple[int, int]:
    """Which rank a launcher (torchrun, mpirun, srun) has made of this process, and of how many; alone (0, 1)."""
    library, error, rank, ranks = _load_library(), _Error(), ctypes.c_int64(), ctypes.c_int64()
    if library.memopt_find_rank(ctypes.byref(rank), ctypes.byref(ranks), ctypes.byref(error)):
        _raise(library, error)
    return rank.value, ranks.value


def _count_bytes(tensor: Mapping | None) -> int:
    """Of a tensor's values: whole where ranks have parts of it, f32 where it is kept in codes."""
    if tensor is None:
        return 0
    if "encoding" in tensor:
        return 4 * math.prod(tensor["encoding"]["shape"])
    if "whole_shape" not in tensor:
        return tensor["bytes"]
    return tensor["bytes"] // max(1, math.prod(tensor["shape"])) * math.prod(tensor["whole_shape"])


def _fill(target: _View, view: arrays.View) -> None:
    rank = len(view.shape)
    target.data, target.dtype, target.rank = view.address, view.dtype.encode(), rank
    target.shape = (ctypes.c_int64 * rank)(*view.shape)
    if view.strides is not None:
        target.strides = (ctypes.c_int64 * rank)(*view.strides)


class Program:
    """One of the programs of a session, which all have its variables: `Session.programs` has them.

    `manifest` is the program's own. Outputs are those of the program's last step, and are lost when another one runs.
    """

    def __init__(self, session: Session, number: int, manifest: Mapping, name: str):
        self._session, self._number = session, number
        self.manifest, self.name = manifest, name
        self._outputs = {tensor["name"]: tensor for tensor in manifest["outputs"]}
        self._variables = {tensor["name"]: tensor for tensor in manifest["variables"]}

    def __repr__(self) -> str:
        return f"<memopt.Program {self.name!r}>"

    def __reduce__(self):
        return self._session.__reduce__()

    def _call(self, name: str, *arguments) -> None:
        with self._session._lock:
            self._session._choose(self._number)
            self._session._call(name, *arguments)

    def run_step(self, batches: Sequence[Sequence[Any]]) -> None:
        """One step on as many batches as it accumulates, each with its arrays in the order of the manifest's inputs.

        The arrays are copied once, into the arena. Ctrl-C waits for the step's end.
        """
        inputs = self.manifest["inputs"]
        views, kept = (_View * max(1, len(batches) * len(inputs)))(), []
        for place, batch in enumerate(batches):
            if len(batch) != len(inputs):
                raise BadInput(f"the batch has {len(batch)} arrays, expected {len(inputs)}: "
                               + ", ".join(tensor["name"] for tensor in inputs))
            for i, value in enumerate(batch):
                try:
                    kept.append(arrays.view_array(value))
                except BadInput as error:
                    raise BadInput(f"input '{inputs[i]['name']}': {error.message}") from None
                _fill(views[place * len(inputs) + i], kept[-1])
        self._call("run_step", views, len(batches))

    def read_output(self, name: str, address: int) -> None:
        """Copies an output of the last step, row-major, to an address with room for its `bytes`."""
        self._call("read", _OUTPUT, name.encode(), address, _count_bytes(self._outputs.get(name)))

    def read_variable(self, name: str, address: int) -> None:
        """The same for a variable, one of the program alone as well."""
        self._call("read", _VARIABLE, name.encode(), address, _count_bytes(self._variables.get(name)))

    def read_scalar(self, name: str) -> float:
        """An output of one floating-point number."""
        dtype = self._outputs.get(name, {"dtype": "f32"})["dtype"]
        number = {"f32": ctypes.c_float, "f64": ctypes.c_double}.get(dtype)
        if number is None:
            raise BadInput(f"output '{name}' is of type {dtype}, expected f32 or f64")
        value = number()
        self.read_output(name, ctypes.addressof(value))
        return value.value

    def set_rate(self, variable: str, rate: float) -> None:
        """Sets the learning rate `lr`, or that of a group of parameters, `lr.1`, ..., from the next step on."""
        self._call("set_rate", variable.encode(), rate)

    def begin_trace(self, steps: int) -> None:
        """Records the timeline of the next steps, with room for so many."""
        self._call("begin_trace", steps)

    def write_trace(self, path: str | os.PathLike | None) -> None:
        """Ends it, and writes it for Perfetto or chrome://tracing, if there is a path."""
        self._call("write_trace", None if path is None else os.fsencode(path))

    @property
    def used_bytes(self) -> dict[str, int]:
        """By space, the end of the highest byte that the program was seen to use; of a session with `check_memory`."""
        with self._session._lock:
            self._session._choose(self._number)
            return {space: self._session._library.memopt_session_get_used_bytes(self._session._get_open(), space.encode())
                    for space in ("device", "host", "disk")}

    @property
    def step_seconds(self) -> float:
        """How long its last step took, without the copies of its batches."""
        with self._session._lock:
            self._session._choose(self._number)
            return self._session._library.memopt_session_get_step_seconds(self._session._get_open())


class Session:
    """A package with variables of its own.

    One thread at a time uses it (others wait), and any number of sessions run at once. `manifest` is the package's
    manifest.json (docs/Package.md), which names all inputs, outputs and variables. A session is neither copied nor
    pickled: its memory and threads are this process's. A process that is forked from this one leaves them alone.

    With `joins_ranks` the process is the rank that a launcher has made it, of a package that was compiled for so many:
    all ranks make the same calls, each with its own batches. `device` is "cpu" or "cuda"; `check_memory` lets
    `Program.used_bytes` say what was used; `disk_folder` is where the file of what lies on disk is made;
    `rank_seconds` is how long to wait for other ranks.
    """

    def __init__(self, package: str | os.PathLike, threads: int = 0, continue_on_nan: bool = False, *, device: str = "cpu",
                 joins_ranks: bool = False, check_memory: bool = False, rank_seconds: float = 0,
                 disk_folder: str | os.PathLike | None = None):
        self._library = _load_library()
        self._lock = threading.Lock()
        self._handle = _SESSION()
        error = _Error()
        folder = None if disk_folder is None else os.fsencode(disk_folder)
        options = _Options(ctypes.sizeof(_Options), device.encode(), threads, continue_on_nan, joins_ranks, check_memory,
                           rank_seconds, folder)
        if self._library.memopt_session_open(os.fsencode(package), options, ctypes.byref(self._handle), ctypes.byref(error)):
            _raise(self._library, error)
        # A process forked from this one (a worker of a DataLoader) has no such threads to end.
        self._finalizer = weakref.finalize(self, _close, self._library, self._handle.value, os.getpid())
        self.package = pathlib.Path(package)
        self._chosen = 0
        #: How often those who use the session have said that its state has changed.
        self.changes = 0
        self.manifest = json.loads(self._library.memopt_session_get_manifest(self._handle))
        names = [entry["name"] for entry in self.manifest.get("programs", ())] or [""]
        #: All programs of the package, and those that were added.
        self.programs: list[Program] = []
        for name in names:
            self._list_program(name)
        self._tensors = {tensor["name"]: tensor for tensor in self.manifest["variables"]}

    def __repr__(self) -> str:
        with self._lock:
            steps = f"after {self._library.memopt_session_get_step(self._handle)} steps" if self._handle else "closed"
        return f"<memopt.Session of {str(self.package)!r}, {steps}>"

    def __reduce__(self):
        raise BadInput("a memopt.Session has memory and threads of its own, and is neither copied nor pickled; open the "
                       "package again, and take its state by save and load")

    def _get_open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise BadInput("the session is closed")
        return self._handle

    def _call(self, name: str, *arguments) -> None:
        error = _Error()
        if getattr(self._library, f"memopt_session_{name}")(self._get_open(), *arguments, ctypes.byref(error)):
            _raise(self._library, error)

    def _choose(self, number: int) -> None:
        """Makes calls speak of a program."""
        if self._chosen != number:
            self._call("choose_program", number)
            self._chosen = number

    def _list_program(self, name: str) -> Program:
        self._choose(len(self.programs))
        manifest = json.loads(self._library.memopt_session_get_manifest(self._get_open()))
        self.programs.append(Program(self, len(self.programs), manifest, name))
        return self.programs[-1]

    def add(self, package: str | os.PathLike) -> Program:
        """Adds the program of a package that memopt-compile has made with --state for this session's package. The arena
        grows where the program needs more."""
        with self._lock:
            self._call("add_program", os.fsencode(package))
            program = self._list_program("")
            program.name = program.manifest["programs"][0]["name"]
        return program

    @property
    def is_closed(self) -> bool:
        return not self._handle

    def close(self) -> None:
        """Frees its memory and ends its threads."""
        with self._lock:
            self._handle = _SESSION()
            self._finalizer()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------------------
    # Variables
    # ------------------------------------------------------------------------------------------------------

    def initialize(self, random: bool = False, seed: int = 0) -> None:
        """Gives variables their first values: the package's, or random ones. Without a value stay those that were
        exported without, until they are written.
        """
        with self._lock:
            self._call("initialize", int(random), seed)

    def write(self, variable: str, value: Any) -> None:
        """Copies an array into a variable."""
        view = _View()
        seen = arrays.view_array(value)
        _fill(view, seen)
        with self._lock:
            self._choose(0)
            self._call("write", variable.encode(), ctypes.byref(view))

    def read_variable(self, name: str, address: int) -> None:
        """Copies a variable, row-major, to an address with room for its `bytes`; what is kept in codes as its f32 values."""
        self.programs[0].read_variable(name, address)

    def read_output(self, name: str, address: int) -> None:
        """The same for an output of the first program's last step."""
        self.programs[0].read_output(name, address)

    def read_bytes(self, name: str) -> bytes:
        """A variable's bytes, row-major."""
        count = _count_bytes(self._tensors.get(name))
        buffer = ctypes.create_string_buffer(max(1, count))
        self.read_variable(name, ctypes.addressof(buffer))
        return buffer.raw[:count]

    def read_scalar(self, name: str) -> float:
        """An output of the first program, of one floating-point number."""
        return self.programs[0].read_scalar(name)

    def set_rate(self, variable: str, rate: float) -> None:
        """Sets a learning rate of the first program, `lr`, or that of a group of parameters, `lr.1`, ..."""
        self.programs[0].set_rate(variable, rate)

    # ------------------------------------------------------------------------------------------------------
    # Steps
    # ------------------------------------------------------------------------------------------------------

    def run_step(self, batches: Sequence[Sequence[Any]]) -> None:
        """One step of the first program (`Program.run_step`)."""
        self.programs[0].run_step(batches)

    @property
    def step(self) -> int:
        """Steps done."""
        with self._lock:
            return self._library.memopt_session_get_step(self._get_open())

    @step.setter
    def step(self, value: int) -> None:
        with self._lock:
            self._library.memopt_session_set_step(self._get_open(), value)

    @property
    def step_seconds(self) -> float:
        """How long the first program's last step took, without the copies of its batches."""
        return self.programs[0].step_seconds

    # ------------------------------------------------------------------------------------------------------
    # Checkpoints
    # ------------------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike) -> None:
        """Writes a checkpoint of memopt-run's."""
        with self._lock:
            self._call("save", os.fsencode(folder))

    def load(self, folder: str | os.PathLike) -> None:
        """Goes on from a checkpoint of memopt-run's."""
        with self._lock:
            self._call("load", os.fsencode(folder))


def write_checkpoint_files(folder: str | os.PathLike, model: Mapping[str, Any], optimizer: Mapping[str, Any], state: str) -> None:
    """Writes a checkpoint from arrays by name and the text of its state, whole or not at all."""
    library, error, kept = _load_library(), _Error(), []

    def describe(arrays_by_name: Mapping[str, Any]):
        views = (_NamedView * max(1, len(arrays_by_name)))()
        for target, (name, value) in zip(views, arrays_by_name.items()):
            try:
                kept.append(arrays.view_array(value))
            except BadInput as refusal:
                raise BadInput(f"'{name}': {refusal.message}") from None
            target.name = name.encode()
            _fill(target.view, kept[-1])
        return views, len(arrays_by_name)

    if library.memopt_checkpoint_write(os.fsencode(folder), *describe(model), *describe(optimizer), state.encode(), ctypes.byref(error)):
        _raise(library, error)


def _close(library: ctypes.CDLL, handle: int, process: int) -> None:
    if os.getpid() == process:
        library.memopt_session_close(handle)
