# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An optimizer of torch.optim as options of memopt-compile, and its state as variables of a session.

Learning rates are no part of what is compiled. A parameter reads `lr`, or the rate of its group; which group that is
tells the rate that it is compiled with, the group's number, for a session never runs with it. Momentum, betas and weight
decay are inputs of the program as well, so that a schedule may change them; the rest of the settings is compiled.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from . import optim
from .errors import BadInput, Refused
from .runtime import Session
from .step_counts import OWN_COUNT, count_updates, find_own_counts, get_shared_count, set_shared_count, share_count
from .watching.hooks import HookWatch
from .watching.watch import Backoff, Watch

__all__ = ["Counterpart", "OptimizerOptions", "find_counterpart", "find_slots", "make_torch_state", "number_parameters",
           "read_optimizer_state", "unwrap_optimizer", "write_optimizer_state"]


class Counterpart(NamedTuple):
    name: str  #: as memopt-compile has it
    options: tuple[str, ...]  #: keys of a group, the options' names but for dashes
    state: Mapping[str, str]  #: the session's slot to the key in torch.optim's state
    counts_steps: bool = True  #: whether the state has a `step`
    numbers: tuple[str, ...] = ()  #: keys of torch.optim's state that are one number, here of 64 bits
    expected: Mapping[str, Any] = {}  #: further keys of a group, with the value that memopt-compile's optimizer has

    @property
    def keys(self) -> dict[str, str]:
        """Those of torch.optim's state by the session's slots, a parameter's own count of updates included."""
        return {OWN_COUNT: "step", **self.state}

    def counts_updates(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether it matters how many there were."""
        return self.counts_steps or any(group.get("dampening") for group in optimizer.param_groups)


_MUON = ("momentum", "nesterov", "weight_decay", "eps", "ns_steps", "adjust_lr_fn")
_COUNTERPARTS = {
    torch.optim.SGD: Counterpart("sgd", ("momentum", "dampening", "weight_decay", "nesterov"),
                                 {"momentum": "momentum_buffer"}, False),
    torch.optim.Adam: Counterpart("adam", ("betas", "eps", "weight_decay", "amsgrad"),
                                  {name: name for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")}),
    torch.optim.AdamW: Counterpart("adamw", ("betas", "eps", "weight_decay", "amsgrad"),
                                   {name: name for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")}),
    torch.optim.RMSprop: Counterpart("rmsprop", ("alpha", "eps", "momentum", "centered", "weight_decay"),
                                     {name: name for name in ("square_avg", "momentum_buffer", "grad_avg")}),
    torch.optim.Rprop: Counterpart("rprop", ("etas", "step_sizes"), {"prev": "prev", "step_size": "step_size"}),
    torch.optim.Adagrad: Counterpart("adagrad", ("lr_decay", "initial_accumulator_value", "eps", "weight_decay"),
                                     {"sum": "sum"}),
    torch.optim.Adadelta: Counterpart("adadelta", ("rho", "eps", "weight_decay"),
                                      {"square_avg": "square_avg", "acc_delta": "acc_delta"}),
    torch.optim.Adamax: Counterpart("adamax", ("betas", "eps", "weight_decay"),
                                    {"exp_avg": "exp_avg", "exp_inf": "exp_inf"}),
    torch.optim.NAdam: Counterpart("nadam", ("betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay"),
                                   {name: name for name in ("exp_avg", "exp_avg_sq", "mu_product")}, numbers=("mu_product",)),
    torch.optim.RAdam: Counterpart("radam", ("betas", "eps", "weight_decay", "decoupled_weight_decay"),
                                   {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}),
    torch.optim.ASGD: Counterpart("asgd", ("lambd", "alpha", "t0", "weight_decay"), {"ax": "ax", "eta": "eta"},
                                  numbers=("eta",)),
    torch.optim.Adafactor: Counterpart("adafactor", ("beta2_decay", "eps", "d", "weight_decay"),
                                       {name: name for name in ("row_var", "col_var", "variance")}),
    optim.Lion: Counterpart("lion", ("betas", "weight_decay"), {"exp_avg": "exp_avg"}),
    optim.SM3: Counterpart("sm3", ("momentum", "eps"),
                           {name: name for name in ("momentum_buffer", *(f"accumulator_{dim}" for dim in range(8)))}),
    optim.AdamMini: Counterpart("adam-mini", ("betas", "eps", "weight_decay", "n_heads"),
                                {"exp_avg": "exp_avg", "vmean": "vmean"}),
    **{kind: Counterpart(name, ("betas", "eps", "weight_decay", "rank", "update_proj_gap", "apollo_scale"),
                         {name: name for name in ("exp_avg", "exp_avg_sq", "scaled_norm")}, numbers=("scaled_norm",))
       for kind, name in ((optim.Apollo, "apollo"), (optim.ApolloMini, "apollo-mini"))},
    optim.Muon: Counterpart("muon", _MUON, {name: name for name in ("momentum_buffer", "exp_avg", "exp_avg_sq")}),
}
if hasattr(torch.optim, "Muon"):  # since PyTorch 2.9
    _COUNTERPARTS[torch.optim.Muon] = Counterpart("muon", _MUON, {"momentum_buffer": "momentum_buffer"}, False,
                                                  expected={"ns_coefficients": (3.4445, -4.775, 2.0315)})
#: Classes of other libraries with the algorithm of one above, by their names: the libraries need not be there.
_TIMM = {"caution": False, "corrected_weight_decay": False}
_COUNTERPARTS_BY_NAME = {
    "timm.optim.lion.Lion": Counterpart("lion", ("betas", "weight_decay"), {"exp_avg": "exp_avg"}, False, expected=_TIMM),
    "timm.optim.adamw.AdamWLegacy": _COUNTERPARTS[torch.optim.AdamW]._replace(expected=_TIMM),
}
#: What has no influence on numbers, or only one that PyTorch itself leaves open; of timm's what counts with
#: corrected_weight_decay alone.
_IMPLEMENTATION = {"params", "lr", "foreach", "fused", "capturable", "muon", "max_lr_snapshot"}
#: What the program reads in each step: keys of groups, and the names of their numbers as inputs.
_INPUTS: dict[str, tuple[str, ...]] = {"momentum": ("momentum",), "betas": ("beta1", "beta2"), "weight_decay": ("weight_decay",)}
_INPUT_PREFIX = "hyperparameter."
_OWN = "own"


def name_input(name: str, rate: str) -> str:
    """The variable with a number of the parameters whose rate is `lr` or `lr.N`."""
    return _INPUT_PREFIX + name + rate.removeprefix("lr")


def name_numbers(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """The numbers of an optimizer of one group, by the variables of a package that reads them. Which variables several groups
    have, only the package says: empty."""
    if len(optimizer.param_groups) > 1:
        return {}
    group = optimizer.param_groups[0]
    values = {key: group[key] if isinstance(group[key], (tuple, list)) else (group[key],) for key in _INPUTS if key in group}
    return {name_input(name, "lr"): float(value) for key, found in values.items() for name, value in zip(_INPUTS[key], found)}


_needs_gradient = operator.attrgetter("requires_grad")


def _write(value: Any) -> str:
    if isinstance(value, (tuple, list)):  # Adafactor's first eps is None by default
        return ",".join(_write(torch.finfo(torch.float32).eps if part is None else part) for part in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or isinstance(value, str):  # Muon's adjust_lr_fn
        return (value or "original").replace("_", "-")
    return repr(float(value)) if not isinstance(value, int) else str(value)


def unwrap_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that Accelerate, Lightning and others have wrapped: theirs has it as `optimizer`."""
    while _find_kind(optimizer) is None and isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def _changes_nothing(kind: type, base: type) -> bool:
    """Whether a subclass steps as its base does. PyTorch wraps `step` of each class, even if it is inherited."""
    own = {name for owner in kind.__mro__[:kind.__mro__.index(base)] for name in vars(owner)
           if not (name.startswith("__") and name.endswith("__"))}
    return all(inspect.unwrap(getattr(kind, name)) is inspect.unwrap(getattr(base, name, None))
               for name in own if callable(getattr(kind, name)))


def _look_up(kind: type) -> Counterpart | None:
    return _COUNTERPARTS.get(kind) or _COUNTERPARTS_BY_NAME.get(f"{kind.__module__}.{kind.__qualname__}")


def _find_base(optimizer: torch.optim.Optimizer) -> type | None:
    return next((kind for kind in type(optimizer).__mro__ if _look_up(kind)), None)


def _find_kind(optimizer: torch.optim.Optimizer) -> type | None:
    base = _find_base(optimizer)
    return base if base is not None and _changes_nothing(type(optimizer), base) else None


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def find_counterpart(optimizer: torch.optim.Optimizer) -> Counterpart:
    """What memopt calls the optimizer and its state; refused where there is no such thing."""
    kind = _find_kind(unwrap_optimizer(optimizer))
    if kind is None:
        name = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
        base = _find_base(optimizer)
        if base is not None:
            raise Refused(f"{name} steps otherwise than {base.__name__}, which it is derived from, and memopt does not see how")
        why = (", as it steps by a closure, which computes loss and gradients several times in a step"
               if _needs_closure(optimizer) else "")
        raise Refused(f"{name} has no counterpart{why}; there are " + ", ".join([
            *(f"memopt.optim.{kind.__name__}" if kind.__module__ == optim.__name__ else kind.__name__ for kind in _COUNTERPARTS),
            *_COUNTERPARTS_BY_NAME]))
    counterpart = _look_up(kind)
    assert counterpart is not None  # of every kind that is found
    return counterpart


class OptimizerOptions:
    """What an optimizer says of the step, read off it once.

    `parameters` are the model's, by all of their names in the program; `read` has the names that the program reads, of
    which tied parameters have one. Parameters in `own_counts` count their updates themselves; by default those whose updates
    the optimizer's state counts otherwise than others', and always those in `unsteady`, which the program does not update in each
    step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.nn.Parameter],
                 read: Collection[str], own_counts: Collection[torch.nn.Parameter] | None = None,
                 unsteady: Collection[torch.nn.Parameter] = ()):
        self.optimizer, self.parameters = optimizer, parameters
        self.unsteady = frozenset(unsteady)
        self.names = {parameter: name for name, parameter in parameters.items() if name in read}
        self.counterpart = find_counterpart(optimizer)
        self._settings = [self._read_group(number) for number in range(len(optimizer.param_groups))]
        self._mark_groups()
        self.own_counts = self.find_own_counts(optimizer.state) if own_counts is None else own_counts

    @property
    def own_counts(self) -> frozenset[torch.nn.Parameter]:
        return self._own_counts

    @own_counts.setter
    def own_counts(self, parameters: Collection[torch.nn.Parameter]) -> None:
        self._own_counts = self.unsteady.union(parameters)

    @property
    def counts_updates(self) -> bool:
        return self.counterpart.counts_updates(self.optimizer)

    def find_own_counts(self, state: Mapping[torch.nn.Parameter, Mapping[str, Any]]) -> frozenset[torch.nn.Parameter]:
        """The parameters that need a count of their own, behind the updates of `optimizer.state`."""
        return find_own_counts(count_updates(state, self.trained)) if self.counts_updates else frozenset()

    def has_counts_for(self, state: Mapping[torch.nn.Parameter, Mapping[str, Any]]) -> bool:
        """Whether parameters without a count of their own have had equally many updates."""
        shared = [parameter for parameter in self.trained if parameter not in self.own_counts]
        return not self.counts_updates or len(set(count_updates(state, shared).values())) <= 1

    def _mark_groups(self) -> None:
        """What `hold` compares."""
        self.held = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        self._counts = [len(group["params"]) for group in self.optimizer.param_groups]
        self._identities, self._flags = list(map(id, self.held)), list(map(_needs_gradient, self.held))
        self.trained = [parameter for parameter, needed in zip(self.held, self._flags) if needed and parameter in self.names]
        #: All of `hold` but the hooks.
        self.watch, self.is_all, self._looks = Watch(), True, Backoff()
        self._hooks = HookWatch([("the optimizer", self.optimizer)])
        # Whether a momentum is 0 decides whether there is state.
        compiled = [key for key in self.optimizer.defaults if key == "muon" or key not in _INPUTS and key not in _IMPLEMENTATION]
        self._compiled_keys = compiled
        self._read_compiled = lambda group: tuple(group[key] for key in compiled)
        self._compiled = [self._read_compiled(group) for group in self.optimizer.param_groups]
        #: Keys of groups that are inputs of the program; `read_settings` gives their values, and behind them the others'.
        self.input_keys = ["lr", *(key for key in self.counterpart.options if key in _INPUTS)]
        self.setting_keys = every = [*self.input_keys, *compiled]
        self.read_settings = operator.itemgetter(*every) if len(every) > 1 else lambda group: (group["lr"],)

    def _read_group(self, number: int) -> dict[str, Any]:
        group = self.optimizer.param_groups[number]
        settings = {key: group[key] for key in self.counterpart.options}
        if group.get("maximize"):
            settings["maximize"] = True
        # With these values the rest needs no counterpart. AdamW is an Adam whose decay is decoupled.
        neutral = {"maximize": False, "differentiable": False,
                   "decoupled_weight_decay": isinstance(self.optimizer, torch.optim.AdamW), **self.counterpart.expected}
        for key, value in group.items():
            # What no optimizer has by default, schedulers and libraries have left for themselves.
            if (key in settings or key in _IMPLEMENTATION or key not in self.optimizer.defaults or value is None
                    or neutral.get(key) == value):
                continue
            raise Refused(f"{type(self.optimizer).__name__}: group {number} has {key}={value}, which has no counterpart")
        return settings

    def hold(self) -> bool:
        """Whether the optimizer has the parameters that were compiled, and trains those that it did."""
        if not self._hooks.hold():
            return False
        if self.watch.holds():
            return True
        holds = ([id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]] == self._identities
                 and list(map(_needs_gradient, self.held)) == self._flags)
        if holds and self._looks.is_due():
            self._watch_groups()
        return holds

    def _watch_groups(self) -> None:
        """A watch over the groups as they are."""
        watch, groups = Watch(), self.optimizer.param_groups
        lists = [groups, *(group["params"] for group in groups)]
        takes = (watch.add_entry(vars(self.optimizer), "param_groups", groups) and all(map(watch.add_items, lists))
                 and all(watch.add_entry(group, "params", group["params"]) for group in groups) and watch.add_gradients(self.held))
        if takes:
            watch.finish()
            self.watch = watch

    def find_change(self) -> str | None:
        """What has changed of parameters and settings that are compiled, as a sentence."""
        if (hook := self._hooks.find_change()) is not None:
            return hook
        groups, known = self.optimizer.param_groups, self._identities
        if len(groups) != len(self._counts):
            return f"the optimizer has {len(groups)} groups of parameters, the step was compiled for {len(self._counts)}"
        for number, (group, count, compiled) in enumerate(zip(groups, self._counts, self._compiled)):
            own, known = known[:count], known[count:]
            if list(map(id, group["params"])) != own:
                return f"group {number} of the optimizer has other parameters than those that the step was compiled for"
            for key, old, new in zip(self._compiled_keys, compiled, self._read_compiled(group)):
                if old != new:
                    return f"{key} of the optimizer's group {number} has become {new}, the step was compiled for {old}"
        names = {id(parameter): name for name, parameter in reversed(self.parameters.items())}
        for parameter, needed in zip(self.held, self._flags):
            if parameter.requires_grad != needed:
                name = names.get(id(parameter), "a parameter").partition(".")[2]
                return (f"requires_grad of '{name}' has become {parameter.requires_grad}, the step was compiled to "
                        + ("train it" if needed else "leave it as it is"))
        return None

    def check_input(self, number: int, key: str, value: Any) -> str | None:
        """Why a value of an input cannot take effect in this program, as a sentence."""
        compiled = self._settings[number].get(key)
        if key == "momentum" and (value == 0) != (compiled == 0):
            return (f"momentum of the optimizer's group {number} has become {value}, the step was compiled for "
                    f"{compiled}; whether it is 0 decides which state there is")
        return None

    def get_words(self) -> list[str]:
        """The options of memopt-compile."""
        words = [f"--optimizer={self.counterpart.name}", "--hyperparameters=host"]
        words += [f"--{key.replace('_', '-')}={_write(value)}" for key, value in self._settings[0].items()]
        for number, group in enumerate(self.optimizer.param_groups):
            keys = self._write_group(number)
            trained = [parameter for parameter in group["params"] if parameter in self.names and parameter.requires_grad]
            own = [parameter for parameter in trained if parameter in self.own_counts]
            words += self._write_words(own, [*keys, f"step-count={_OWN}"])
            words += self._write_words([parameter for parameter in trained if parameter not in self.own_counts], keys)
        return words

    def _write_words(self, parameters: Iterable[torch.nn.Parameter], keys: Sequence[str]) -> list[str]:
        names = sorted(self.names[parameter] for parameter in parameters) if keys else []
        wrong = [name for name in names if not re.fullmatch(r"[\w.\-]+", name)]
        if wrong:
            raise Refused(f"the parameter's name '{wrong[0]}' cannot be written in a group; use letters, digits and _")
        # One argument of a process holds 128 KiB.
        return [f"--param-group={','.join(names[i:i + 500])}:{','.join(keys)}" for i in range(0, len(names), 500)]

    def list_inputs(self, manifest: Mapping) -> list[list[tuple[str, ...]]]:
        """By group and `input_keys`, the variables of the program with these numbers; what nothing reads has none."""
        there = {variable["name"] for variable in manifest["variables"]}
        names = [[() if rate is None else (rate,) if key == "lr" else tuple(name_input(name, rate) for name in _INPUTS[key])
                  for key in self.input_keys] for rate in self.name_rates(manifest)]
        return [[variables if there.issuperset(variables) else () for variables in group] for group in names]

    def _write_group(self, number: int) -> list[str]:
        """What `--param-group` says of a group; nothing where it is as the first. Values of inputs are written before
        each step, so that of these only counts whether there is a momentum."""
        first, own, keys = self._settings[0], self._settings[number], []
        if number:
            keys.append(f"lr={number}")
            if "weight_decay" in own:
                keys.append(f"weight-decay={_write(own['weight_decay'])}")
            differing = [key for key in {**first, **own} if own.get(key) != first.get(key) and
                         (key not in _INPUTS or key == "momentum" and 0 in (own[key], first[key]))]
            keys += [f"{key.replace('_', '-')}={_write(own.get(key, False))}" for key in differing]
        if not self.optimizer.param_groups[number].get("muon", True):
            keys.append("optimizer=adamw")
        return keys

    def check_program(self, manifest: Mapping) -> None:
        """Refuses a program that updates a matrix by AdamW where the optimizer would by Muon: the table of an embedding."""
        if self.counterpart.name != "muon":
            return
        ours = {self.names[parameter] for group in self.optimizer.param_groups for parameter in group["params"]
                if parameter in self.names and parameter.dim() == 2 and group.get("muon", True)}
        for variable in manifest["variables"]:
            if variable["role"] == "optimizer_state" and variable.get("slot") == "exp_avg" and variable.get("of") in ours:
                raise Refused(f"'{variable['of']}' is the table of an embedding, which the compiled step updates by AdamW, not "
                              "by Muon; put it into a group of memopt.optim.Muon with muon=False")

    def get_rates(self) -> list[float]:
        """Of the groups, as they are now."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def name_rates(self, manifest: Mapping) -> list[str | None]:
        """The variables with the groups' rates; None where nothing reads it."""
        own = {int(variable["init_value"]): variable["name"] for variable in manifest["variables"]
               if variable["role"] == "hyperparameter" and variable["name"].startswith("lr.")}
        base = any(variable["name"] == "lr" for variable in manifest["variables"])
        return ["lr" if base else None, *(own.get(number) for number in range(1, len(self._settings)))]


#: Said of state that a program cannot have.
UNEVEN = "parameters of the optimizer have had different numbers of updates, and the step counts these together"


def number_parameters(optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, torch.nn.Parameter]]:
    """As torch.optim numbers them in state dicts."""
    return enumerate(parameter for group in optimizer.param_groups for parameter in group["params"])


# ----------------------------------------------------------------------------------------------------------
# State
# ----------------------------------------------------------------------------------------------------------

_TORCH_DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
                 "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
                 "i1": torch.bool}


def describe_value(facts: Mapping) -> tuple[Sequence[int], torch.dtype]:
    """Shape and type of what is read and written; what is frozen in codes is f32 to those outside."""
    encoding = facts.get("encoding")
    return (encoding["shape"], torch.float32) if encoding else (facts.get("whole_shape", facts["shape"]), _TORCH_DTYPES[facts["dtype"]])


def read_tensor(read: Callable[[str, int], None], facts: Mapping) -> torch.Tensor:
    """The value of a variable or output that the manifest describes, read by `Session.read_variable` or `read_output`."""
    shape, dtype = describe_value(facts)
    tensor = torch.empty(shape, dtype=dtype)
    read(facts["name"], tensor.data_ptr())
    return tensor


def write_tensor(session: Session, variable: Mapping, tensor: torch.Tensor) -> None:
    """Gives a variable the tensor's value, in the variable's type and shape."""
    tensor = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor
    shape, dtype = describe_value(variable)
    tensor = tensor.detach().to("cpu", dtype).reshape(shape)
    session.write(variable["name"], tensor)


def as_complex(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A value of a variable that holds what a complex tensor of PyTorch does, as that; others as they are."""
    return torch.view_as_complex(value) if like.is_complex() and not value.is_complex() else value


def find_slots(options: OptimizerOptions, session: Session) -> dict[torch.nn.Parameter, dict[str, Mapping]]:
    """By parameter, the variables of its state by torch.optim's keys."""
    slots: dict[torch.nn.Parameter, dict[str, Mapping]] = {}
    for variable in session.manifest["variables"]:
        if variable["role"] != "optimizer_state" or variable.get("slot") in ("average", "average_updates"):
            continue
        key = options.counterpart.keys.get(variable.get("slot"))
        parameter = options.parameters.get(variable.get("of"))
        if key is None or parameter is None or variable["dtype"] == "i8":
            raise BadInput(f"'{variable['name']}' is kept in {variable['dtype']}, a form that torch.optim does not have; "
                           "step.sync(optimizer=False) leaves it out, step.save keeps it")
        slots.setdefault(parameter, {})[key] = variable
    return slots


def make_torch_state(optimizer: torch.optim.Optimizer, counterpart: Counterpart,
                     slots: Mapping[torch.nn.Parameter, Mapping[str, torch.Tensor]],
                     steps: int, may_leave_groups: bool = False) -> dict[torch.nn.Parameter, dict[str, Any]]:
    """`optimizer.state` behind so many updates, from tensors by torch.optim's keys, which it owns from now on; a parameter
    may have its own number among them.

    With `may_leave_groups` also of parameters whose group is gone: the optimizer keeps their state, too.
    """
    state: dict[torch.nn.Parameter, dict[str, Any]] = {}
    groups = {parameter: group for group in optimizer.param_groups for parameter in group["params"]}
    for parameter, values in slots.items():
        if parameter not in groups and not may_leave_groups:
            raise BadInput("there is state of a parameter that the optimizer does not have; make it from the parameters "
                           "that were trained")
        count = int(values.get("step", steps))
        if not count:
            continue
        entry: dict[str, Any] = {"step": torch.tensor(float(count))} if counterpart.counts_steps else {}
        for key, value in values.items():
            if key != "step":
                entry[key] = value if key in counterpart.numbers else value.to(parameter.dtype)
        if counterpart.name == "asgd":
            entry["mu"] = torch.tensor(1 / max(1.0, count - groups.get(parameter, optimizer.defaults)["t0"]))
        if entry:  # of SGD without momentum a program has but the count
            state[parameter] = entry
    return state


def read_optimizer_state(options: OptimizerOptions, session: Session) -> dict[torch.nn.Parameter, dict[str, Any]]:
    """The state as `torch.optim` keeps it in `optimizer.state`: by parameter, tensors of their own.

    The number of updates becomes each parameter's `step`. What has had none has no state.
    """
    if session.step == 0:
        return {}
    slots = {parameter: {key: as_complex(read_tensor(session.read_variable, variable), parameter) for key, variable in variables.items()}
             for parameter, variables in find_slots(options, session).items()}
    return make_torch_state(options.optimizer, options.counterpart, slots, get_shared_count(session), may_leave_groups=True)


def check_lack(options: OptimizerOptions, parameter: torch.nn.Parameter, key: str, count: int) -> None:
    """Refuses state that settings ask for which came behind the first update. PyTorch begins none but SGD's momentum then."""
    if count and options.counterpart.name != "sgd":
        raise BadInput(f"'{options.names[parameter].partition('.')[2]}' has had {count} updates without the state '{key}', which the "
                       f"settings of {type(options.optimizer).__name__} ask for now, and from which PyTorch cannot go on either: set "
                       "them before the first step, or begin with a new optimizer")


def write_optimizer_state(options: OptimizerOptions, session: Session, state: Mapping[torch.nn.Parameter, Mapping[str, Any]],
                          step: int | None = None) -> None:
    """Gives the session the state of `optimizer.state`, and the number of updates that it was made in; `step` is that of the
    run, where it is known.

    An optimizer without state has made no step, and leaves the session's state as it was initialized. Refused where
    parameters have had different numbers of updates and the program has one count for them.
    """
    is_counted = options.counterpart.counts_steps
    if not any(state.values()):
        set_shared_count(session, 0, step, is_counted)
        return
    if not options.has_counts_for(state):
        raise BadInput(UNEVEN)
    slots = find_slots(options, session)
    counts = count_updates(state, slots)
    for parameter, keys in slots.items():
        given = {key: value for key, value in state.get(parameter, {}).items() if value is not None}
        for key, variable in keys.items():
            if key == "step":
                write_tensor(session, variable, torch.tensor(counts[parameter]))
            elif key in given:
                write_tensor(session, variable, given[key])
            else:
                check_lack(options, parameter, key, counts[parameter])
    shared = {parameter: count for parameter, count in counts.items() if parameter not in options.own_counts}
    set_shared_count(session, share_count(shared) if shared else max(session.step, share_count(counts)), step, is_counted)
