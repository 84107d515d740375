"""models.py CASE OUT: small archives that must import; what each shows is said in the test that reads it."""
import sys

from archive import Model, Value, linear_model, meta

BOOL, F32, F64 = {"as_scalar_type": 12}, {"as_scalar_type": 7}, {"as_scalar_type": 8}


def finish(model, value, shape):
    """A loss from whatever the case computed."""
    model.output(model.op("aten.sum.default", ("total", "f32", []), self_=value), value)
    return model


def linear():
    return linear_model()


def two_losses():
    model = linear_model()
    other = model.op("aten.sum.default", ("other", "f32", []), self_=Value("linear"))
    model.output(other)
    return model


def tied():
    model = Model()
    first = model.parameter("embed.weight", [4, 3], path="shared")
    last = model.parameter("head.weight", [4, 3], path="shared")
    x = model.input("x", "f32", [2, 3])
    return finish(model, model.op("aten.linear.default", ("y", "f32", [2, 4]), input=x, weight=last), [2, 4])


def without_data():
    model = tied()
    model.members = {"data/weights/shared": b""}
    return model


def without_data_but_a_constant():
    """Two matrices of one shape, and a constant that has a storage of its own."""
    model = Model()
    first = model.parameter("first.weight", [3, 3], path="shared")
    second = model.parameter("second.weight", [3, 3], path="shared")
    scale = model.buffer("scale", [3], [1.0, 2.0, 3.0], persistent=False)
    value = model.input("x", "f32", [2, 3])
    for name, weight in ("y", first), ("z", second):
        value = model.op("aten.linear.default", (name, "f32", [2, 3]), input=value, weight=weight)
    model.members = {name: b"" for name in model.members}
    return finish(model, model.op("aten.mul.Tensor", ("scaled", "f32", [2, 3]), self_=value, other=scale), [2, 3])


def data_left_out():
    """As tied, with a third matrix that nobody reads."""
    model = tied()
    model.parameter("spare.weight", [4, 3])
    model.members = {name: b"" for name in model.members}
    return model


def meta_device():
    """Two matrices alike and a bias in the one storage that tensors on the meta device name, and one elsewhere."""
    model = Model()
    first = model.parameter("a.weight", [3, 3], path="shared")
    last = model.parameter("b.weight", [3, 3], path="shared")
    bias = model.parameter("b.bias", [3], path="shared")
    model.parameter("spare.weight", [5, 2])
    model.members = {name: b"" for name in model.members}
    x = model.input("x", "f32", [2, 3])
    y = model.op("aten.linear.default", ("y", "f32", [2, 3]), input=x, weight=first)
    return finish(model, model.op("aten.linear.default", ("z", "f32", [2, 3]), input=y, weight=last, bias=bias), [2, 3])


def interleaved():
    """The left and the right columns of one matrix."""
    model = Model()
    numbers = [float(number) for number in range(8)]
    left = model.parameter("left", [2, 2], numbers=numbers, path="both", tensor_meta=meta("f32", [2, 2], [4, 1], 0))
    right = model.parameter("right", [2, 2], path="both", tensor_meta=meta("f32", [2, 2], [4, 1], 2))
    return finish(model, model.op("aten.mul.Tensor", ("y", "f32", [2, 2]), self_=left, other=right), [2, 2])


def named_as_the_program():
    """Buffers with names of the program's own variables, and names that these would get instead."""
    model = Model()
    value = model.input("x", "f32", [2])
    names = ["lr", "step", "seed", "sample_offset", "gradient_norm", "loss_scale", "optimizer.exp_avg.w", "model.lr", "train_step"]
    for number, name in enumerate(names):
        buffer = model.buffer(name, [2], [float(number), 1.0])
        value = model.op("aten.mul.Tensor", (f"y{number}", "f32", [2]), self_=value, other=buffer)
    weight = model.parameter("w", [2])
    return finish(model, model.op("aten.mul.Tensor", ("y", "f32", [2]), self_=value, other=weight), [2])


def strided():
    model = Model()
    model.parameter("w", [2, 2], numbers=[0.0, 1.0, 2.0, 3.0, 4.0], tensor_meta=meta("f32", [2, 2], [1, 2], 1))
    x = model.input("x", "f32", [2, 2])
    return finish(model, model.op("aten.mul.Tensor", ("y", "f32", [2, 2]), self_=x, other=Value("p_w")), [2, 2])


def _norm(model):
    return (model.input("x", "f32", [2, 3]),
            dict(weight=model.parameter("bn.weight", [3]), bias=model.parameter("bn.bias", [3]),
                 running_mean=model.buffer("bn.running_mean", [3], [0.0] * 3),
                 running_var=model.buffer("bn.running_var", [3], [1.0] * 3)))


def functional_norm():
    model = Model()
    x, arguments = _norm(model)
    count = model.buffer("bn.num_batches_tracked", [], [0], "i64")
    more = model.op("aten.add.Tensor", ("more", "i64", []), self_=count, other=1)
    y, _, _, mean, variance = model.op(
        "aten._native_batch_norm_legit_functional.default",
        [("y", "f32", [2, 3]), ("m", "f32", [3]), ("r", "f32", [3]), ("mean", "f32", [3]), ("variance", "f32", [3])],
        "bn", input=x, **arguments, training=True, momentum=0.1, eps=1e-5)
    model.mutation("bn.running_mean", mean)
    model.mutation("bn.running_var", variance)
    model.mutation("bn.num_batches_tracked", more)
    return finish(model, y, [2, 3])


def training_norm():
    model = Model()
    x, arguments = _norm(model)
    count = model.buffer("bn.num_batches_tracked", [], [0], "i64")
    model.op("aten.add_.Tensor", ("add_", "i64", []), self_=count, other=1)
    y = model.op("aten.batch_norm.default", ("y", "f32", [2, 3]), "bn", input=x, **arguments, training=True,
                 momentum=0.1, eps=1e-5, cudnn_enabled=False)
    return finish(model, y, [2, 3])


def transient():
    model = Model()
    ids = model.buffer("ids", [3], [2, 0, 1], "i64", persistent=False)
    scale = model.buffer("scale", [3], [1.0, 2.0, 3.0], persistent=False)
    table = model.parameter("table", [3, 2])
    rows = model.op("aten.embedding.default", ("rows", "f32", [3, 2]), "embed", weight=table, indices=ids)
    column = model.op("aten.unsqueeze.default", ("column", "f32", [3, 1]), self_=scale, dim=1)
    return finish(model, model.op("aten.mul.Tensor", ("y", "f32", [3, 2]), self_=rows, other=column), [3, 2])


def in_place():
    model = Model()
    x = model.input("x", "f32", [2, 3])
    y = model.op("aten.neg.default", ("y", "f32", [2, 3]), self_=x)
    same = model.op("aten.alias.default", ("same", "f32", [2, 3]), self_=y)
    model.op("aten.relu_.default", ("relu_", "f32", [2, 3]), self_=y)
    return finish(model, model.op("aten.exp.default", ("z", "f32", [2, 3]), self_=same), [2, 3])


def in_place_view():
    model = Model()
    x = model.input("x", "f32", [2, 3])
    y = model.op("aten.neg.default", ("y", "f32", [2, 3]), self_=x)
    row = model.op("aten.select.int", ("row", "f32", [3]), "net.rows", self_=y, dim=0, index=0)
    model.op("aten.relu_.default", ("relu_", "f32", [3]), "net.rows", self_=row)
    return finish(model, y, [2, 3])


def _causal_mask(model, size):
    rows = model.op("aten.arange.default", ("rows", "i64", [size]), end=size)
    column = model.op("aten.unsqueeze.default", ("column", "i64", [size, 1]), self_=rows, dim=1)
    ones = model.op("aten.new_ones.default", ("ones", "bool", []), self_=rows, size=[], dtype=BOOL)
    below = model.op("aten.le.Tensor", ("below", "bool", [size, size]), self_=rows, other=column)
    return model.op("aten.__and__.Tensor", ("mask", "bool", [size, size]), self_=ones, other=below)


def _attention(model, size, mask, heads=2, shape=None):
    q, k, v = (model.input(n, "f32", [1, 2, size, 4]) for n in "qkv")
    y = model.op("aten.scaled_dot_product_attention.default", ("y", "f32", [1, 2, size, 4]), query=q, key=k, value=v,
                 attn_mask=mask, dropout_p=0.5)
    return finish(model, y, [1, 2, size, 4])


def causal_mask():
    model = Model()
    return _attention(model, 3, _causal_mask(model, 3))


def full_mask():
    model = Model()
    mask = model.op("aten.ones.default", ("mask", "bool", [1, 2, 3, 3]), size=[1, 2, 3, 3], dtype=BOOL)
    return _attention(model, 3, mask)


def padding_mask():
    model = Model()
    kept = model.input("kept", "i64", [1, 3])
    mask = model.op("aten._to_copy.default", ("b", "bool", [1, 3]), self_=kept, dtype=BOOL)
    for i in (1, 2):
        mask = model.op("aten.unsqueeze.default", (f"m{i}", "bool", [1] * (i + 1) + [3]), self_=mask, dim=1)
    mask = model.op("aten.expand.default", ("wide", "bool", [1, 1, 3, 3]), self_=mask, size=[1, -1, 3, -1])
    return _attention(model, 3, mask)


def band_mask():
    model = Model()
    mask = _causal_mask(model, 3)
    flipped = model.op("aten.triu.default", ("band", "bool", [3, 3]), self_=mask, diagonal=-1)
    return _attention(model, 3, flipped)


def grouped_heads():
    model = Model()
    q, k = model.input("q", "f32", [1, 4, 3, 8]), model.input("k", "f32", [1, 2, 3, 8])
    wide = model.op("aten.unsqueeze.default", ("u", "f32", [1, 2, 1, 3, 8]), self_=k, dim=2)
    wide = model.op("aten.expand.default", ("e", "f32", [1, 2, 2, 3, 8]), self_=wide, size=[1, 2, 2, 3, 8])
    wide = model.op("aten.reshape.default", ("r", "f32", [1, 4, 3, 8]), self_=wide, shape=[1, 4, 3, 8])
    y = model.op("aten.scaled_dot_product_attention.default", ("y", "f32", [1, 4, 3, 8]), query=q, key=wide,
                 value=wide, is_causal=True, scale=0.25)
    return finish(model, y, [1, 4, 3, 8])


def single_head():
    model = Model()
    q, k = model.input("q", "f32", [2, 4, 3, 8]), model.input("k", "f32", [2, 1, 3, 8])
    y = model.op("aten.scaled_dot_product_attention.default", ("y", "f32", [2, 4, 3, 8]), query=q, key=k, value=k)
    return finish(model, y, [2, 4, 3, 8])


def empty_parts():
    model = Model()
    x = model.input("x", "f32", [2, 6])
    none = model.op("aten.slice.Tensor", ("none", "f32", [2, 0]), self_=x, dim=1, start=6, end=9)
    turned = model.op("aten.neg.default", ("turned", "f32", [2, 0]), self_=none)
    shaped = model.op("aten.view.default", ("shaped", "f32", [2, 0]), self_=turned, size=[2, 0])
    y = model.op("aten.cat.default", ("y", "f32", [2, 6]), tensors=[shaped, x], dim=-1)
    y = model.op("aten.slice_scatter.default", ("written", "f32", [2, 6]), self_=y, src=shaped, dim=1, start=6, end=9)
    return finish(model, model.op("aten.exp.default", ("z", "f32", [2, 6]), self_=y), [2, 6])


def empty_constant():
    """torch.cat([torch.tensor([]), x]), as caches are filled for the first time."""
    model = Model()
    none = model.op("aten.clone.default", ("none", "f32", [0]), self_=model.constant("none", [0], []))
    x = model.input("x", "f32", [2, 6])
    y = model.op("aten.cat.default", ("y", "f32", [2, 6]), tensors=[none, x], dim=-1)
    return finish(model, model.op("aten.exp.default", ("z", "f32", [2, 6]), self_=y), [2, 6])


def assertion():
    """assert lengths.max().item() <= 6"""
    model = linear_model()
    lengths = model.input("lengths", "i64", [2])
    most = model.op("aten.max.default", ("most", "i64", []), self_=lengths)
    number, truth = ({f"as_sym_{kind}": {"as_name": kind}} for kind in ("int", "bool"))
    node = {"metadata": {}, "is_hop_single_tensor_return": None}
    model.graph["sym_int_values"]["int"] = {"as_expr": {"expr_str": "u0", "hint": None}}
    model.graph["nodes"] += [
        node | {"target": "torch.ops.aten.item.default", "outputs": [number],
                "inputs": [{"name": "self", "arg": {"as_tensor": {"name": most}}, "kind": 1}]},
        node | {"target": "_operator.le", "outputs": [truth],
                "inputs": [{"name": "", "arg": number, "kind": 1}, {"name": "", "arg": {"as_int": 6}, "kind": 1}]},
        node | {"target": "torch.ops.aten._assert_scalar.default", "outputs": [],
                "inputs": [{"name": "self", "arg": truth, "kind": 1}]}]
    return model


def falling_range():
    model = Model()
    x = model.input("x", "f32", [2, 4])
    rows = model.op("aten.arange.start_step", ("rows", "i64", [4]), start=3.0, end=-1.0, step=-1.0)
    return finish(model, model.op("aten.add.Tensor", ("y", "f32", [2, 4]), self_=x, other=rows), [2, 4])


def positions():
    model = Model()
    table = model.parameter("positions.weight", [8, 2])
    ids = model.buffer("ids", [1, 8], range(8), "i64", persistent=False)
    some = model.op("aten.slice.Tensor", ("some", "i64", [1, 4]), self_=ids, dim=1, start=2, end=6)
    y = model.op("aten.embedding.default", ("y", "f32", [1, 4, 2]), weight=table, indices=some)
    x = model.input("x", "f32", [3, 4, 2])
    return finish(model, model.op("aten.add.Tensor", ("z", "f32", [3, 4, 2]), self_=x, other=y), [3, 4, 2])


def cholesky():
    model = Model()
    a = model.parameter("a", [3, 3])
    low = model.op("aten.linalg_cholesky.default", ("low", "f32", [3, 3]), self_=a)
    return finish(model, low, [3, 3])


def pairs(kind="eigenvectors", results=(("values", "f32", [4, 3]), ("vectors", "f32", [4, 3, 3, 2])), more=(), **flags):
    """Complex matrices with a last dimension of two; `more` are sizes of further operands."""
    model = Model()
    inputs = [model.parameter("a", [4, 3, 3, 2]), *(model.parameter(f"b{n}", sizes) for n, sizes in enumerate(more))]
    found = model.op("memopt.linear_algebra.default", list(results), inputs=inputs, kind=kind, **flags)
    return finish(model, found[0], results[0][2])


def pairs_solve():
    return pairs("triangular_solve", [("x", "f32", [4, 3, 2, 2])], [[4, 3, 2, 2]], transposed=True)


def pairs_misfit():
    return pairs("triangular_solve", [("x", "f32", [4, 3, 2, 2])], [[4, 5, 2, 2]])


def pairs_wrong():
    return pairs("cholesky", [("x", "f32", [4, 3, 3, 2])], upper=True)


def pairs_missing():
    return pairs("lu_solve", [("x", "f32", [4, 3, 3, 2])])


def pairs_unknown():
    return pairs("anything", [("x", "f32", [4, 3, 3, 2])])


def pairs_results():
    return pairs("cholesky", [("x", "f32", [4, 3, 3, 2]), ("y", "f32", [4])])


def eigenvalues(rows=100):
    model = Model()
    a = model.op("aten.expand.default", ("a", "f32", [rows, rows]), self_=model.parameter("number", [1, 1]), size=[rows, rows])
    return finish(model, model.op("aten.linalg_eigvalsh.default", ("values", "f32", [rows]), self_=a), [rows])


def many_eigenvalues():
    return eigenvalues(16385)


def spectrum():
    model = Model()
    a = model.parameter("a", [2, 5])
    return finish(model, model.op("aten.fft_irfft.default", ("y", "f32", [2, 8]), self_=a), [2, 8])


def pick_by_ranges():
    model = Model()
    x = model.input("x", "f32", [4, 6])
    rows = model.op("aten.arange.default", ("rows", "i64", [4]), end=4)
    rows = model.op("aten.view.default", ("r", "i64", [4, 1, 1]), self_=rows, size=[4, 1, 1])
    columns = model.op("aten.arange.start_step", ("columns", "i64", [3]), start=1, end=6, step=2)
    y = model.op("aten.index.Tensor", ("y", "f32", [4, 1, 3]), self_=x, indices=[rows, columns])
    return finish(model, y, [4, 1, 3])


def promotion():
    model = Model()
    image = model.input("image", "u8", [2, 3])
    real = model.op("aten._to_copy.default", ("real", "f32", [2, 3]), self_=image, dtype=F32)
    scaled = model.op("aten.div.Tensor", ("scaled", "f32", [2, 3]), self_=real, other=255)
    count = model.input("count", "i64", [2, 1])
    mixed = model.op("aten.add.Tensor", ("mixed", "f32", [2, 3]), self_=count, other=scaled, alpha=2)
    low = model.op("aten.lt.Scalar", ("low", "bool", [2, 1]), self_=count, other=0.5)
    y = model.op("aten.where.ScalarSelf", ("y", "f32", [2, 3]), condition=low, self_=0.0, other=mixed)
    return finish(model, y, [2, 3])


def no_gradient():
    model = Model()
    x = model.input("x", "f32", [2])
    graph = {"inputs": [{"as_tensor": {"name": "x"}}], "outputs": [{"as_tensor": {"name": "c"}}],
             "nodes": [{"target": "torch.ops.aten.cos.default", "name": "c", "metadata": {},
                        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}],
                        "outputs": [{"as_tensor": {"name": "c"}}], "is_hop_single_tensor_return": None}],
             "tensor_values": {"x": meta("f32", [2]), "c": meta("f32", [2])}, "sym_int_values": {}}
    y = model.op("higher_order.wrap_with_set_grad_enabled", ("y", "f32", [2]), "rope", a=False,
                 b={"as_graph": {"name": "g", "graph": graph}}, c=x)
    for argument in model.graph["nodes"][0]["inputs"]:
        argument["name"] = ""
    return finish(model, y, [2])


def detached_parameter():
    model = Model()
    w = model.parameter("w", [2])
    y = model.op("aten.detach.default", ("y", "f32", [2]), "net.frozen", self_=w)
    return finish(model, model.op("aten.add.Tensor", ("z", "f32", [2]), self_=y, other=w), [2])


def aliased(caller=None):
    model = Model()
    w = model.parameter("w", [2])
    y = model.op("aten.alias.default", ("y", "f32", [2]), "net.frozen", self_=w)
    if caller:
        model.graph["nodes"][-1]["metadata"]["torch_fn"] = caller
    return finish(model, model.op("aten.add.Tensor", ("z", "f32", [2]), self_=y, other=w), [2])


def aliased_by_detach():
    return aliased("detach_1;method_descriptor.detach")


def aliased_by_index():
    return aliased("__getitem___1;wrapper_descriptor.__getitem__")


def aliased_by_function():
    return aliased("gumbel_softmax_1;function.gumbel_softmax")


def custom_gradient():
    model = Model()
    w = model.parameter("w", [2])
    y = model.op("aten.sign.default", ("y", "f32", [2]), self_=w)
    g = model.op("memopt.incoming_gradient.default", ("g", "f32", [2]), value=y, result=0)
    d = model.op("aten.neg.default", ("d", "f32", [2]), self_=g)
    model.op("memopt.custom_gradient.default", [("z", "f32", [2])], values=[y], gradients=[g], inputs=[w],
             input_gradients=[d])
    return finish(model, Value("z"), [2])


def with_gradient_of():
    """The sign of a weight, whose gradient is the weight's."""
    model = Model()
    w = model.parameter("w", [2])
    y = model.op("aten.sign.default", ("y", "f32", [2]), self_=w)
    return finish(model, model.op("memopt.with_gradient_of.default", ("z", "f32", [2]), written=y, value=w), [2])


def updated_where():
    """A weight that is updated where more of x is above zero than below, beside one that always is."""
    model = Model()
    x = model.input("x", "f32", [2])
    w, always = model.parameter("w", [2]), model.parameter("always", [2])
    y = model.op("aten.mul.Tensor", ("y", "f32", [2]), self_=x, other=w)
    z = model.op("aten.add.Tensor", ("z", "f32", [2]), self_=y, other=always)
    total = model.op("aten.sum.default", ("total", "f32", []), self_=z)
    count = model.op("aten.sum.default", ("count", "f32", []), self_=model.op("aten.sign.default", ("sign", "f32", [2]), self_=x))
    model.output(model.op("memopt.updated_where.default", ("loss", "f32", []), loss=total, parameters=[w], count=count))
    return model


def alpha_dropout():
    """As run_decompositions({}) takes nn.AlphaDropout(0.3) apart."""
    model = Model()
    x = model.input("x", "f32", [2, 3])

    def op(target, name, self_, other):
        return model.op(f"aten.{target}", (name, "f32", [2, 3]), self_=self_, other=other)
    like = model.op("aten.empty_like.default", ("like", "f32", [2, 3]), self_=x)
    drawn = model.op("aten.bernoulli.p", ("drawn", "f32", [2, 3]), self_=like, p=0.7)
    lowered = op("mul.Scalar", "lowered", op("add.Scalar", "dropped", drawn, -1), 1.513640227123543)
    offset = op("add.Scalar", "offset", lowered, 0.4540920681370629)
    product = op("mul.Tensor", "product", x, op("mul.Scalar", "scaled", drawn, 0.8609526162463561))
    return finish(model, op("add.Tensor", "y", product, offset), [2, 3])


def dropout_in_evaluation():
    model = dropout()
    model.members["extra/memopt_mode"] = b"eval"
    return model


def dropout():
    model = Model()
    x = model.input("x", "f32", [2, 3])
    y, _ = model.op("aten.native_dropout.default", [("y", "f32", [2, 3]), ("kept", "bool", [2, 3])], input=x, p=0.25,
                    train=True)
    return finish(model, y, [2, 3])


def no_common_batch():
    model = Model()
    x, y = model.input("x", "f32", [2, 3]), model.input("y", "f32", [3])
    return finish(model, model.op("aten.add.Tensor", ("z", "f32", [2, 3]), self_=x, other=y), [2, 3])


def losses():
    model = Model()
    x, t = model.input("x", "f32", [2, 5, 3]), model.input("t", "i64", [2, 3])
    a = model.op("aten.cross_entropy_loss.default", ("a", "f32", []), self_=x, target=t, ignore_index=4)
    logs = model.op("aten.log_softmax.int", ("logs", "f32", [2, 5, 3]), self_=x, dim=1)
    b = model.op("aten.nll_loss_nd.default", ("b", "f32", [2, 3]), self_=logs, target=t, reduction=0)
    c = model.op("aten.binary_cross_entropy_with_logits.default", ("c", "f32", []), self_=x, target=logs, reduction=2)
    model.output(a, b, c)
    return model


if __name__ == "__main__":
    globals()[sys.argv[1]]().save(sys.argv[2])
