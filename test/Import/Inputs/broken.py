"""broken.py CASE OUT: an archive that must be refused. Every case changes one thing of a good one."""
import pathlib
import sys
import zipfile

from archive import Value, linear_model, meta


def node(model, index=0):
    return model.graph["nodes"][index]


def change_bytes(path, edit):
    data = bytearray(path.read_bytes())
    path.write_bytes(bytes(edit(data)))


# Cases that are more than a change of the document: functions of (model, path).
def not_a_zip(model, path):
    path.write_bytes(b"#!/bin/sh\necho not a model\n")


def empty(model, path):
    path.write_bytes(b"")


def truncated(model, path):
    model.save(path)
    change_bytes(path, lambda data: data[:len(data) // 2])


def overlong(model, path):
    model.save(path)
    change_bytes(path, lambda data: data + b"more")


def damaged(model, path):
    model.save(path)

    def flip(data):
        data[data.index(b'"schema_version"') + 1] ^= 1
        return data
    change_bytes(path, flip)


def compressed(model, path):
    model.save(path, compression=zipfile.ZIP_DEFLATED)


def contradictory_header(model, path):
    model.save(path)

    def rename(data):
        at = data.index(b"model/byteorder")  # in the local header, not in the directory
        data[at:at + 5] = b"MODEL"
        return data
    change_bytes(path, rename)


def member_beyond_end(model, path):
    model.save(path)

    def move(data):
        at = data.rindex(b"PK\x01\x02")
        data[at + 42:at + 46] = (1 << 30).to_bytes(4, "little")
        return data
    change_bytes(path, move)


def overlapping_members(model, path):
    model.save(path)

    def grow(data):
        entry = data.index(b"PK\x01\x02")  # the first member's size, in the directory
        data[entry + 20:entry + 28] = (100).to_bytes(4, "little") * 2
        return data
    change_bytes(path, grow)


def duplicate_member(model, path):
    model.save(path)
    with zipfile.ZipFile(path, "a") as out:
        out.writestr("model/byteorder", b"little")


def climbing_name(model, path):
    model.members["../../etc/passwd"] = b"x"
    model.save(path)


def no_root(model, path):
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("hello.txt", b"hello")


def legacy_format(model, path):
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("serialized_exported_program.json", b"{}")


def big_endian(model, path):
    model.members["byteorder"] = b"big"
    model.save(path)


def not_json(model, path):
    model.save(path, text='{"graph_module": ')


def nesting_bomb(model, path):
    model.save(path, text="[" * 1000000)


def graph_bomb(model, path):
    argument = {"as_int": 1}
    for _ in range(40):
        graph = {"inputs": [], "outputs": [], "nodes": [{"target": "t", "metadata": {}, "outputs": [], "inputs": [
            {"name": "a", "arg": argument, "kind": 1}]}], "tensor_values": {}}
        argument = {"as_graph": {"name": "g", "graph": graph}}
    node(model)["inputs"][0]["arg"] = argument
    model.save(path)


# Cases that change the document and then save it.
def array_for_object(model):
    model.graph["tensor_values"] = []


def missing_key(model):
    del model.document["graph_module"]["signature"]


def number_for_name(model):
    node(model, 1)["inputs"][0]["arg"] = {"as_tensor": {"name": 7}}


def two_tags(model):
    node(model, 1)["inputs"][0]["arg"] = {"as_int": 1, "as_float": 1.0}


def other_version(model):
    model.document["schema_version"]["major"] = 9


def unknown_operators(model):
    y = Value("linear")
    model.op("aten.frobnicate.default", ("a", "f32", [2, 4]), "net.first", self_=y)
    model.op("aten.frobnicate.default", ("b", "f32", [2, 4]), "net.second", self_=y)
    model.op("custom.thing.default", ("c", "f32", [2, 4]), self_=y)


def several_refusals(model):
    y = Value("linear")
    model.op("aten.nonzero.default", ("a", "i64", [5, 2]), "net.first", self_=y)
    model.graph["tensor_values"]["a"]["sizes"][0] = {"as_expr": {"expr_str": "u0", "hint": None}}
    b = model.op("aten.narrow.default", ("b", "f32", [9, 4]), "net.first", self_=y, dim=0, start=3, length=9)
    model.op("aten.narrow.default", ("c", "f32", [9, 4]), "net.second", self_=y, dim=0, start=3, length=9)
    model.op("aten.view_as_complex.default", ("d", "f32", [2, 2]), "net.second", self_=y)
    model.graph["tensor_values"]["d"]["dtype"] = 10
    model.op("aten.sum.dim_IntList", ("e", "f32", [4]), self_=b, dim=[7])
    z = model.input("z", "f32", [3])
    model.op("aten.mul.Tensor", ("f", "f32", [2, 4]), self_=y, other=z)


def unknown_argument(model):
    node(model)["inputs"].append({"name": "mystery", "arg": {"as_int": 1}, "kind": 2})


def missing_argument(model):
    del node(model)["inputs"][1]


def wrong_argument(model):
    node(model)["inputs"][1]["arg"] = {"as_string": "weight"}


def unknown_dtype(model):
    model.graph["tensor_values"]["x"]["dtype"] = 10


def unknown_dtype_code(model):
    model.weights["fc.weight"]["tensor_meta"]["dtype"] = 99


def huge_tensor(model):
    model.graph["tensor_values"]["linear"]["sizes"] = [{"as_int": 1 << 40}, {"as_int": 1 << 40}]


def negative_size(model):
    model.graph["tensor_values"]["linear"]["sizes"][0] = {"as_int": -2}


def symbolic_size(model):
    model.graph["tensor_values"]["x"]["sizes"][0] = {"as_expr": {"expr_str": "s0", "hint": None}}


def short_weight(model):
    model.members["data/weights/weight_0"] = model.members["data/weights/weight_0"][:-4]


def odd_weight(model):
    model.members["data/weights/weight_0"] = model.members["data/weights/weight_0"][:-1]


def weight_offset(model):
    model.weights["fc.weight"]["tensor_meta"]["storage_offset"] = {"as_int": 1}


def huge_weight_offset(model):
    model.weights["fc.weight"]["tensor_meta"]["storage_offset"] = {"as_int": (1 << 63) - 1}


def overlapping_strides(model):
    model.weights["fc.weight"]["tensor_meta"] = meta("f32", [4, 3], strides=[2, 1])


def negative_stride(model):
    model.weights["fc.weight"]["tensor_meta"] = meta("f32", [4, 3], strides=[-3, 1])


def overlapping_weights(model):
    model.weights["fc.bias"].update(path_name="weight_0")


def weight_path(model):
    model.weights["fc.weight"]["path_name"] = "../../model.json"


def missing_payload(model):
    model.members["data/weights/weight_0"] = None


def pickled_weight(model):
    model.weights["fc.weight"]["use_pickle"] = True


def missing_weight(model):
    del model.weights["fc.weight"]


def weight_shape(model):
    model.weights["fc.weight"]["tensor_meta"] = meta("f32", [3, 4])


def missing_value(model):
    node(model, 1)["inputs"][0]["arg"] = {"as_tensor": {"name": "nowhere"}}


def later_value(model):
    node(model)["inputs"][0]["arg"] = {"as_tensor": {"name": "pow_1"}}


def defined_twice(model):
    model.graph["nodes"].append(node(model))


def wrong_result_shape(model):
    model.graph["tensor_values"]["pow_1"] = meta("f32", [2, 5])


def wrong_result_dtype(model):
    model.graph["tensor_values"]["linear"] = meta("f64", [2, 4])


def incompatible_shapes(model):
    model.graph["tensor_values"]["x"] = meta("f32", [2, 5])


def mixed_dtypes(model):
    model.graph["tensor_values"]["x"] = meta("f64", [2, 3])


def missing_spec(model):
    del model.signature["input_specs"][0]


def swapped_specs(model):
    specs = model.signature["input_specs"]
    specs[0], specs[1] = specs[1], specs[0]


def no_loss(model):
    model.output(Value("linear"))
    del model.graph["outputs"][:2], model.signature["output_specs"][:2]


def gradient_output(model):
    model.signature["output_specs"][1] = {"gradient_to_parameter": {"arg": {"name": "linear"}, "parameter_name": "fc.weight"}}


def main():
    case, path = globals()[sys.argv[1]], pathlib.Path(sys.argv[2])
    model = linear_model()
    if case.__code__.co_argcount == 2:
        case(model, path)
    else:
        case(model)
        model.save(path)


if __name__ == "__main__":
    main()
