"""Writes small .pt2 archives, whole or broken, in the layout of torch.export.save (schema 8.20).

A Model is built value by value and saved with its weights; between the two a test may change `document` (the
JSON of the graph), `weights` and `members` (bytes by name) to make an archive that contradicts itself.
"""
import json
import math
import struct
import zipfile

DTYPES = {"u8": 1, "i8": 2, "i16": 3, "i32": 4, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "bool": 12, "bf16": 13}
FORMATS = {"u8": "B", "i32": "i", "i64": "q", "f32": "f", "f64": "d", "bool": "?"}


def meta(dtype, sizes, strides=None, offset=0, grad=False):
    if strides is None:
        strides = [1] * len(sizes)
        for i in reversed(range(len(sizes) - 1)):
            strides[i] = strides[i + 1] * sizes[i + 1]
    return {"dtype": DTYPES[dtype], "sizes": [{"as_int": s} for s in sizes], "requires_grad": grad,
            "device": {"type": "cpu", "index": None}, "strides": [{"as_int": s} for s in strides],
            "storage_offset": {"as_int": offset}, "layout": 7}


class Value(str):
    """The name of a tensor in the graph."""


def argument(value):
    if value is None:
        return {"as_none": True}
    if isinstance(value, dict):  # already in the schema's form
        return value
    if isinstance(value, Value):
        return {"as_tensor": {"name": str(value)}}
    if isinstance(value, bool):
        return {"as_bool": value}
    if isinstance(value, int):
        return {"as_int": value}
    if isinstance(value, float):
        return {"as_float": value if math.isfinite(value) else json.dumps(value)}
    if isinstance(value, str):
        return {"as_string": value}
    if value and all(isinstance(v, Value) for v in value):
        return {"as_tensors": [{"name": str(v)} for v in value]}
    if any(isinstance(v, Value) for v in value):
        return {"as_optional_tensors": [argument(v) for v in value]}
    if value and all(isinstance(v, float) for v in value):
        return {"as_floats": value}
    return {"as_ints": list(value)}


class Model:
    def __init__(self):
        self.graph = {"inputs": [], "outputs": [], "nodes": [], "tensor_values": {}, "sym_int_values": {},
                      "sym_bool_values": {}, "is_single_tensor_return": False, "custom_obj_values": {},
                      "sym_float_values": {}}
        self.signature = {"input_specs": [], "output_specs": []}
        self.document = {"graph_module": {"graph": self.graph, "signature": self.signature, "module_call_graph": [],
                                          "metadata": {}, "treespec_namedtuple_fields": {}},
                         "opset_version": {"aten": 10}, "range_constraints": {},
                         "schema_version": {"major": 8, "minor": 20}, "verifiers": ["ATEN"],
                         "torch_version": "2.15.0", "guards_code": []}
        self.weights, self.constants, self.members, self.payloads = {}, {}, {}, 0

    def _value(self, name, dtype, sizes, grad=False):
        self.graph["tensor_values"][name] = meta(dtype, sizes, grad=grad)
        return Value(name)

    def input(self, name, dtype, sizes):
        value = self._value(name, dtype, sizes)
        self.graph["inputs"].append(argument(value))
        self.signature["input_specs"].append({"user_input": {"arg": argument(value)}})
        return value

    def _payload(self, folder, dtype, numbers, path):
        path = path or f"weight_{self.payloads}"
        self.payloads += 1
        self.members[f"data/{folder}/{path}"] = struct.pack(f"<{len(numbers)}{FORMATS[dtype]}", *numbers)
        return path

    def parameter(self, name, sizes, dtype="f32", numbers=None, path=None, grad=True, tensor_meta=None):
        value = self._value("p_" + name.replace(".", "_"), dtype, sizes, grad)
        count = 1
        for size in sizes:
            count *= size
        if numbers is None:
            numbers = [0.5] * count
        shared = f"data/weights/{path}" in self.members
        path = path if shared else self._payload("weights", dtype, numbers, path)
        self.weights[name] = {"path_name": path, "is_param": True, "use_pickle": False,
                              "tensor_meta": tensor_meta or meta(dtype, sizes, grad=grad)}
        self.graph["inputs"].append(argument(value))
        self.signature["input_specs"].append({"parameter": {"arg": {"name": value}, "parameter_name": name}})
        return value

    def constant(self, name, sizes, numbers, dtype="f32"):
        """A tensor that the step's code made while it was traced."""
        return self.buffer(name, sizes, numbers, dtype, persistent=False,
                           spec={"tensor_constant": {"tensor_constant_name": name}})

    def buffer(self, name, sizes, numbers, dtype="f32", persistent=True, spec=None):
        value = self._value("b_" + name.replace(".", "_"), dtype, sizes)
        folder, config = ("weights", self.weights) if persistent else ("constants", self.constants)
        config[name] = {"path_name": self._payload(folder, dtype, numbers, None), "is_param": False,
                        "use_pickle": False, "tensor_meta": meta(dtype, sizes)}
        self.graph["inputs"].append(argument(value))
        spec = spec or {"buffer": {"buffer_name": name, "persistent": persistent}}
        next(iter(spec.values()))["arg"] = {"name": value}
        self.signature["input_specs"].append(spec)
        return value

    def op(self, target, results, module="", /, **inputs):
        """Results as (name, dtype, sizes); one of them gives a Value, more give a tuple."""
        single = isinstance(results, tuple)
        values = [self._value(*result) for result in ([results] if single else results)]
        stack = f"L__self__,,Model;L__self__{module},{module},torch.nn.Module" if module else "L__self__,,Model"
        self.graph["nodes"].append(
            {"target": "torch.ops." + target, "name": str(values[0]) if values else target,
             "inputs": [{"name": n.rstrip("_"), "arg": argument(v), "kind": 1} for n, v in inputs.items()],
             "outputs": [argument(v) for v in values], "metadata": {"nn_module_stack": stack},
             "is_hop_single_tensor_return": None})
        return values[0] if single else tuple(values)

    def output(self, *values):
        for value in values:
            self.graph["outputs"].append(argument(value))
            self.signature["output_specs"].append({"user_output": {"arg": argument(value)}})

    def mutation(self, buffer, value):
        """A new value of a buffer; such outputs come before the user's."""
        self.graph["outputs"].append(argument(value))
        self.signature["output_specs"].append(
            {"buffer_mutation": {"arg": {"name": value}, "buffer_name": buffer}})

    def save(self, path, compression=zipfile.ZIP_STORED, root="model/", text=None):
        members = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little",
                   "models/model.json": (text if text is not None else json.dumps(self.document)).encode(),
                   "data/weights/model_weights_config.json": json.dumps({"config": self.weights}).encode(),
                   "data/constants/model_constants_config.json": json.dumps({"config": self.constants}).encode()}
        members.update(self.members)
        with zipfile.ZipFile(path, "w", compression) as out:
            for name, data in members.items():
                if data is not None:
                    out.writestr(root + name, data)


def linear_model():
    """mean((x w^T + b)^2): a parameter pair, an input and a loss."""
    model = Model()
    weight = model.parameter("fc.weight", [4, 3])
    bias = model.parameter("fc.bias", [4])
    x = model.input("x", "f32", [2, 3])
    y = model.op("aten.linear.default", ("linear", "f32", [2, 4]), "fc", input=x, weight=weight, bias=bias)
    z = model.op("aten.pow.Tensor_Scalar", ("pow_1", "f32", [2, 4]), self_=y, exponent=2)
    loss = model.op("aten.mean.default", ("mean", "f32", []), self_=z)
    model.output(loss, y)
    return model
