# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients that a model takes itself."""

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import map as map_over, scan, while_loop
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

import memopt
from memopt import export
from rewriting import Model, case, check_all, compare_step


@case()
def penalty(self, x):
    x = x.requires_grad_()
    y = self.linear(x).tanh().pow(3).sum(1)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(g[:, 0].sum(), x, create_graph=True)
    (fixed,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    return (g.norm(dim=1) - 1).square().mean() + second.sum() + (y[:, None] * fixed).sum()


@case(conv=lambda: nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2))
def convolution(self, x):
    image = x[:, :, None].repeat(1, 3, 6).reshape(12, 2, 9, 6).requires_grad_()
    (g,) = torch.autograd.grad(F.relu(self.conv(image)).square().sum(), image, create_graph=True)
    return g.square().mean()


@case()
def several(self, x):
    """Several gradients at once, values beside a derivative, and derivatives of several results."""
    x = x.requires_grad_()
    y = self.linear(x).tanh()
    (rows,) = torch.autograd.grad(y, x, torch.eye(5)[:, None].expand(5, 12, 5), create_graph=True, is_grads_batched=True)

    def both(z):
        found = self.linear(z).sin()
        return (found[:2], {"rest": found[2:].exp()}), found.square()
    (first, rest), squares = torch.func.vmap(torch.func.jacrev(both, has_aux=True))(x)
    _, along, more = torch.func.jvp(lambda z: (self.linear(z).cos(), z * 2), (x,), (x.sin(),), has_aux=True)
    return rows.pow(3).sum() + first.square().sum() + rest["rest"].square().sum() + squares.mean() + (along.sum(1) * more[:, 0]).sum()


@case()
def functional(self, x):
    """torch.autograd.functional."""
    known = torch.autograd.functional
    energy = lambda a, b: (self.linear(a).sin() * b).sum()
    b = x[:, :5].cos()
    jacobian = known.jacobian(lambda z: self.linear(z).exp().sum(0), x, create_graph=True)
    (first, mixed), _ = known.hessian(lambda a, b: energy(a[None], b[None]), (x[0], b[0]), create_graph=True)
    _, along = known.hvp(energy, (x, b), (x.sin(), b), create_graph=True)
    _, (back, _) = known.vjp(energy, (x, b), create_graph=True)
    _, ahead = known.jvp(lambda z: self.linear(z).tanh(), x, x.sin(), create_graph=True)
    return jacobian.square().mean() + first.sum() + mixed.square().sum() + along[0].square().sum() + along[1].sum() + back.norm() + ahead.sum()


@case(outside=6, wave=lambda: torch.randn(4, dtype=torch.cfloat))
def transformed(self, x):
    """Spectra, which gradients inside are taken through by operators of their own."""
    x = x.requires_grad_()
    y = self.linear(x)
    spectrum = torch.fft.rfft(y)
    back = torch.fft.irfft(spectrum * self.wave, norm="ortho")
    energy = spectrum.abs().square().mean() + back.square().sum() + torch.fft.fft2(y).real.square().mean()
    (g,) = torch.autograd.grad(energy, x, create_graph=True)
    return g.square().mean()


@case(outside=36)
def sampled(self, x):
    """Pools, samplings and pads, whose own backward passes have no gradient but as products."""
    forms = [lambda v: F.avg_pool2d(v, 3, 2, 1, count_include_pad=False), lambda v: F.avg_pool2d(v, (2, 3), ceil_mode=True),
             lambda v: F.avg_pool2d(v, 2, divisor_override=3), lambda v: F.adaptive_avg_pool2d(v, (4, 5)),
             lambda v: F.avg_pool3d(v[:, None], (1, 2, 3)), lambda v: F.max_pool2d(v, 3, 2, 1), lambda v: F.adaptive_max_pool2d(v, 3),
             lambda v: F.interpolate(v, size=(9, 4)), lambda v: F.interpolate(v, scale_factor=1.7, mode="bilinear"),
             lambda v: F.interpolate(v, size=8, mode="bilinear", align_corners=True), lambda v: F.interpolate(v, size=7, mode="bicubic"),
             lambda v: F.interpolate(v.flatten(2), scale_factor=2, mode="linear"), lambda v: F.pad(v, (1, 2, 0, 3), mode="replicate"),
             lambda v: F.pad(v, (1, 2, 0, 3), mode="reflect"), lambda v: F.softshrink(v, 0.2)]
    return measure(self, x, forms)


@case(outside=36)
def rewritten(self, x):
    """Operators of whose backward passes others take the place."""
    forms = [lambda v: v.masked_scatter(v > 0.3, v.sin()), lambda v: F.bilinear(v, v.cos(), v[0]), F.logsigmoid, F.rrelu,
             lambda v: F.pad(v, (1, 2, 3, 0), mode="circular"), lambda v: torch.pdist(v.flatten(1)).sqrt(),
             lambda v: v.index_fill(1, torch.tensor([1, 1]), v.mean())]
    return measure(self, x, forms)


def measure(self, x, forms):
    total = 0
    for form in forms:
        image = self.linear(x).reshape(6, 2, 6, 6).requires_grad_()
        (g,) = torch.autograd.grad(form(image).pow(3).sum(), image, create_graph=True)
        total = total + g.square().mean()
    return total


@case()
def written(self, x):
    """Writes to tensors that do not depend on what the gradient is taken by, through views of them."""
    y = self.linear(x).requires_grad_()
    found, turned = torch.zeros(12, 5), torch.zeros(5, 12)
    found[:, 3:] = y[:, 3:].cos()
    found[1] += y[0] * y[1]
    turned.mT.copy_(y.sin())
    (g,) = torch.autograd.grad((found + turned.mT).pow(3).sum(), y, create_graph=True)
    filled = torch.ones(12, 5)
    filled[2:] = y[2:]
    (direct,) = torch.autograd.grad(filled, y, y, create_graph=True)
    return g.square().mean() + direct.square().mean()


@case()
def given_back(self, x):
    """Operators that give back the very tensor they get; others have read it before them."""
    total = 0
    for form in (lambda v: v.to(torch.float32), lambda v: F.dropout(v, 0.5, False), lambda v: v.contiguous().float().type_as(x),
                 lambda v: torch.broadcast_tensors(v.cos(), v)[1]):
        y = (self.linear(x) * 1).requires_grad_()
        (g,) = torch.autograd.grad((y.sin() * form(y) * y.cos()).square().sum(), y, create_graph=True)
        total = total + g.square().mean()
    return total


@case()
def behind_regions(self, x):
    """What was read or written under no_grad, and given back by regions, beside what others read of it."""
    y = (self.linear(x) * 1).requires_grad_()
    found = torch.ones(12, 5)
    with torch.no_grad():
        scale = y.float().abs().mean()
        found.add_(y.cos())
        found[0].mul_(y[0])
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        z = y.sin() * y.float()
    (g,) = torch.autograd.grad((z * found).square().sum() * scale, y, create_graph=True)
    return g.square().mean()


@case()
def read_without_gradient(self, x):
    """No gradient inside: what is looked at under no_grad has its gradient behind."""
    y = self.linear(x) * 1
    with torch.no_grad():
        scale = y.float().abs().mean()
        kept = F.dropout(y, 0.5, False)
    return (y.sin() * scale).square().sum() + kept.cos().sum()


@case(outside=12)
def distances(self, x):
    """Distances and attention, of whose backward passes those of PyTorch have no gradient or none that is taken over."""
    y = self.linear(x).requires_grad_()
    apart = sum(torch.cdist(y[:, :6], y[:, 6:], p=p).pow(3).sum() for p in (1, 1.5, 2, torch.inf))
    queries = y.reshape(2, 2, 6, 6)
    with sdpa_kernel(SDPBackend.MATH):
        seen = F.scaled_dot_product_attention(queries, queries.sin(), queries.cos(), is_causal=True)
    (g,) = torch.autograd.grad(seen.square().sum() + apart / 100, y, create_graph=True)
    return g.square().mean()


@case(outside=50)
def placed(self, x):
    """Samples of images at places of a grid, beside what numbers PyTorch's forward gives them."""
    y = self.linear(x).requires_grad_()
    image, places = y[:4, :50].reshape(2, 4, 5, 5), y[4:, :48].tanh().reshape(2, 4, 24, 2)
    found = [F.grid_sample(image, places, mode, padding, corners) for mode, padding, corners in
             (("bilinear", "zeros", False), ("bilinear", "reflection", True), ("bilinear", "border", True), ("nearest", "zeros", False))]
    solid = F.grid_sample(image[:, :, None], places.flatten(1).reshape(2, 4, 4, 4, 3), padding_mode="reflection", align_corners=False)
    total = sum(part.square().sum() for part in found) + solid.square().sum()
    (g,) = torch.autograd.grad(total, y, create_graph=True)
    return g.square().mean()


@case()
def transforms(self, x):
    energy = lambda z: self.linear(z).sin().sum()
    by_row = torch.func.grad(energy)(x)
    return by_row.square().sum() + torch.func.jacrev(lambda z: self.linear(z).exp()[:2])(x[0]).square().sum()


@case()
def lagrangian(self, x):
    """Transforms that a module has imported by their names, one in the other."""
    def energy(place, speed):
        return self.linear(torch.cat([place, speed])).square().sum() + 0.5 * speed.square().sum()

    def accelerate(place, speed):
        mixed = jacrev(grad(energy, argnums=1), argnums=0)(place, speed)
        forces = grad(energy, argnums=0)(place, speed) - mixed @ speed
        return hessian(energy, argnums=1)(place, speed) @ forces
    _, along = jvp(lambda z: self.linear(z).sin(), (x,), (x.cos(),))
    both = jacfwd(energy, argnums=(0, 1))(x[0, :3], x[0, 3:])
    force = vmap(accelerate)(x[:, :3], x[:, 3:]).square().mean()
    return (force + along.square().mean() + both[0].sum() + both[1].square().sum()).float()  # PyTorch makes doubles, by the factor 0.5


@case()
def made_by_forward(self, x):
    x = x.detach().clone().requires_grad_()
    y = self.linear(x).sin().sum(1)
    (g,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
    second = [torch.autograd.grad(g[:, place], x, torch.ones_like(y), create_graph=True)[0][:, place] for place in range(3)]
    return sum(second).square().mean()


@case()
def directions(self, x):
    energy = lambda z: self.linear(z).sin().sum()
    _, along = torch.func.jvp(torch.func.grad(energy), (x,), (x.cos(),))
    value, pull = torch.func.vjp(lambda z: self.linear(z).tanh(), x)
    gradient, total = torch.func.grad_and_value(energy)(x)
    return along.square().sum() + pull(value)[0].square().sum() + gradient.abs().sum() * total


@case()
def of_each_sample(self, x):
    def energy(weight, z):
        return (weight @ z).sin().sum()
    second = torch.vmap(torch.func.hessian(lambda z: energy(self.linear.weight, z)))(x)
    by_weight, by_sample = torch.vmap(torch.func.grad(energy, argnums=(0, 1)), in_dims=(None, 0))(self.linear.weight, x)
    turned = torch.vmap(torch.func.jacrev(lambda z: self.linear(z).exp()), in_dims=1)(x.mT)
    return second.diagonal(dim1=1, dim2=2).sum() + by_weight.square().sum((1, 2)).sqrt().sum() + by_sample.norm() + turned.norm()


@case(inside=5)
def steps_inside(self, x):
    weights = {"weight": self.linear.weight, "bias": self.linear.bias}
    for _ in range(2):
        loss = torch.func.functional_call(self.linear, weights, (x[:6],)).tanh().square().mean()
        found = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = {name: value - 0.5 * slope for (name, value), slope in zip(weights.items(), found)}
    return torch.func.functional_call(self.linear, weights, (x[6:],)).square().mean()


@case()
def draws(self, x):
    """Without a bias, the gradient by the draw that y is made of gives y again, and that by another does not."""
    x = x.requires_grad_()
    y = F.dropout(x @ self.linear.weight.mT, 0.5, True).sum(1)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return ((g * x).sum(1) - y).square().sum() + self.linear.bias.sum()


@case(critic=lambda: nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)))
def frozen_for_a_while(self, x):
    """A critic that is trained by one part of the loss, and not by the other."""
    y = self.linear(x)
    self.critic.requires_grad_(False)
    first = self.critic(y).mean()
    for parameter in self.critic.parameters():
        parameter.requires_grad = True
    second = self.critic(y.detach()).square().mean()
    self.critic[0].weight.requires_grad = False
    third = self.critic(y).exp().mean()
    self.critic[0].weight.requires_grad = True
    return first + second + third


@case(other=lambda: torch.randn(3))
def unused(self, x):
    """What has no gradient is None where that is allowed, as in PyTorch."""
    x = x.requires_grad_()
    y = self.linear(x).sin()
    part, stopped = (x * 1).contiguous(), y.detach() * 2
    with torch.no_grad():
        fixed = y * 3
    kept = torch.zeros(12, 6)
    kept[:] = x

    def derive(value, inputs, **words):
        found = torch.autograd.grad(value, inputs, create_graph=True, allow_unused=True, **words)
        return "".join("-" if slope is None else "+" for slope in found), [slope for slope in found if slope is not None]
    missing, first = derive(y.sum(), [x, self.other, part])
    rest = [derive((part * part).sum() + (stopped * y).sum() + fixed.sum(), [part, x, self.other, self.linear.weight]),
            derive(first[0].pow(3).sum(), [x, self.linear.weight, self.linear.bias, self.other]),
            derive(kept.square().sum(), [x, self.linear.bias]), derive(kept.pow(3).sum(), [x, self.linear.bias], materialize_grads=True)]
    assert [missing, *(word for word, _ in rest)] == ["+--", "++-+", "+++-", "+-", "++"]
    return sum(slope.square().sum() for slope in (*first, *(slope for _, slopes in rest for slope in slopes)))


@case()
def grid_distances(self, x):
    """Of points that have coordinates in common."""
    points = (torch.arange(12)[:, None] // torch.tensor([1, 3, 6]) % 3 * 1.0).requires_grad_()
    near = torch.exp(-torch.cdist(points, points + 0.5 * (torch.arange(3) == 1))) @ self.linear(x)
    (g,) = torch.autograd.grad(near.sum(), points, create_graph=True)
    (second,) = torch.autograd.grad(g[:, 0].sum(), points, create_graph=True)
    return near.square().sum() + second.square().sum()


@case()
def written_before(self, x):
    """Gradients by tensors as they are behind a write: points on a boundary, above all. Views from before it show what is written later."""
    points = x.clone()
    points[:, 0] = 0
    points.requires_grad_()
    (slope,) = torch.autograd.grad(self.linear(points).tanh().sum(), points, create_graph=True)
    y = self.linear(x)
    top, flat, early = y[:3], y.view(-1), y.sum() * 3
    y[:, 0] = 0.5
    flat[3:9].mul_(2)
    (g,) = torch.autograd.grad((y + 0).square().sum() + top.sum() ** 2 + early + (flat + 0)[::3].cos().sum(), y, create_graph=True)
    y[1] = 0.25
    return slope.square().sum() + g.square().mean() + (y + 0).square().mean() + (top + 0).square().sum()


def check_norms_at_zero():
    """Norms of zeros and their second gradients, as PyTorch has them."""
    def norms(self, x, order):
        y = self.linear(x) * torch.zeros(12, 1).index_fill(0, torch.tensor([3]), 1)
        found = torch.linalg.vector_norm(y, order, dim=1)
        (g,) = torch.autograd.grad(found.sum(), y, create_graph=True)
        return (g * torch.arange(1, 6)).sum() + found.square().sum()
    for order in (1, 3, 4.5, torch.inf):
        def ordered(self, x, order=order):
            return norms(self, x, order)
        compare_step(f"norms of order {order} at zero", lambda: (Model(ordered, 6, 5), {"x": torch.randn(12, 6)}))


def branches(self, x, choose):
    x = x.requires_grad_()
    y = self.linear(x)
    z = choose(y.mean() > self.limit.detach().sum(), lambda a: (a.exp() * a).sum(1), lambda a: a.abs().log1p().sum(1), (y,))
    (g,) = torch.autograd.grad(z.sum(), x, create_graph=True)
    return g.square().sum() + z.sum() + self.limit.sum()


def turns(self, x, scan, each):
    y = self.linear(x)

    def turn(carried, value):
        found = torch.tanh(carried + value)
        return found, found * value
    last, made = scan(turn, torch.zeros(5), y)
    mapped = each(lambda value, shift: (value * shift).sin(), y, self.linear.bias)
    (g,) = torch.autograd.grad(made.sum() + last.sum() + mapped.sum(), self.linear.weight, create_graph=True)
    return g.square().sum() + made.square().sum() + mapped.sum()


def choose_in_python(condition, yes, no, given):
    return (yes if condition else no)(*given)


def scan_in_python(turn, carried, values):
    found = []
    for value in values:
        carried, made = turn(carried, value)
        found.append(made)
    return carried, torch.stack(found)


def map_in_python(function, values, *rest):
    return torch.stack([function(value, *rest) for value in values])


def endless(self, x):
    _, y = while_loop(lambda i, z: i < 5, lambda i, z: (i + 1, z * 0.7), (torch.tensor(0), self.linear(x)))
    return torch.autograd.grad(y.sum(), self.linear.weight, create_graph=True)[0].sum()


def check_graphs():
    """Gradients through torch.cond, map and scan, whose second gradients PyTorch itself has wrong, beside the same in Python."""
    pairs = {"cond": (lambda self, x: branches(self, x, torch.cond), lambda self, x: branches(self, x, choose_in_python)),
             "scan and map": (lambda self, x: turns(self, x, scan, map_over), lambda self, x: turns(self, x, scan_in_python, map_in_python))}
    for name, (graphs, python) in pairs.items():
        for limit in (-9.0, 9.0):
            results = []
            for function in (python, graphs):
                torch.manual_seed(0)
                model, batch = Model(function, 6, 5, limit=torch.full((1,), limit)), {"x": torch.randn(12, 6)}
                weight = model.linear.weight
                run = model if function is python else export.export_program(export.TrainingStep(model), batch, training=True).module()
                weight = weight if function is python else dict(run.named_parameters())["net.linear.weight"]
                loss = run(**batch)
                results.append([loss.detach(), *torch.autograd.grad(loss, weight)])
            torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
        print(f"ok gradients through {name}")
    try:
        export.export_program(export.TrainingStep(Model(endless, 6, 5)), {"x": torch.randn(12, 6)}, training=True)
        raise AssertionError("expected an error")
    except memopt.Refused as error:
        assert "a gradient inside the step through torch.while_loop is not supported; write it in Python" in str(error), error
    print("ok while_loop is refused")


def check_code_without_a_file():
    """As `python -c` has it."""
    names = {"torch": torch}
    exec("def slope(self, x):\n    y = self.linear(x)\n    return torch.autograd.grad(y.sin().sum(), y, create_graph=True)[0].square().sum()", names)
    compare_step("code without a file", lambda: (Model(names["slope"], 6, 5), {"x": torch.randn(12, 6)}))


def normalized(self, x):
    """Norms, whose statistics the second gradient is taken through; running ones are updated."""
    total = 0
    for norm in self.norms:
        z = self.linear(x).requires_grad_()
        y = self.wide(z)
        y = norm(y.unflatten(1, (2, 4))).flatten(1) if isinstance(norm, nn.InstanceNorm1d) else norm(y)
        (g,) = torch.autograd.grad(y.tanh().square().sum(), z, create_graph=True)
        total = total + (g.norm(dim=1) - 1).square().mean()
    return total


def check_norms():
    def make():
        norms = [nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8, momentum=None), nn.RMSNorm(8),
                 nn.InstanceNorm1d(2, affine=True, track_running_stats=True)]
        return Model(normalized, 6, 5, norms=nn.ModuleList(norms), wide=nn.Linear(5, 8)), {"x": torch.randn(12, 6)}
    compare_step("norms", make)


def decomposed(self, x):
    """Through eigenvectors and singular vectors, in what does not depend on their signs."""
    y = self.linear(x).reshape(-1, 4, 3).requires_grad_()
    values, vectors = torch.linalg.eigh(y.mT @ y)
    u, s, vh = torch.linalg.svd(y, full_matrices=False)
    first = (vectors * values.sin().unsqueeze(-2)) @ vectors.mT
    second = (u * s.square().unsqueeze(-2)) @ vh
    (g,) = torch.autograd.grad((first * self.weights[0]).sum() + (second.tanh() * self.weights[1:]).sum(), y, create_graph=True)
    return g.square().mean()


def check_decompositions():
    def make():
        return Model(decomposed, 6, 3, weights=torch.randn(5, 3)), {"x": torch.randn(12, 6)}
    compare_step("decompositions", make)


def _differentiate_factors(self, x):
    """Gradients of gradients through decompositions of complex matrices."""
    x = x.requires_grad_()
    y = self.linear(x)
    a = torch.complex(y[:5], y[5:10]) + 3 * torch.eye(5)
    h = a @ a.mH
    low, (q, r) = torch.linalg.cholesky(h), torch.linalg.qr(a)
    known = torch.linalg.slogdet(a).logabsdet + torch.linalg.solve(a, h).real.sum() + low.abs().square()[1:, 0].sum() + q.real.sum()
    known = known + r.diagonal().abs().sum() + torch.linalg.eigvalsh(h)[-1] + torch.linalg.svdvals(a)[0]
    (g,) = torch.autograd.grad(known, x, create_graph=True)
    return g.square().sum() + known


class Limited(torch.autograd.Function):
    """With a gradient that is not that of forward, by its input and its result."""

    @staticmethod
    def forward(ctx, x, limit):
        y = torch.tanh(x) * x
        ctx.save_for_backward(x, y)
        ctx.limit = limit
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * x.cos() * (y < ctx.limit) + gradient * y, None


def _differentiate_functions(self, x):
    y = self.linear(x)
    z = Limited.apply(y, 0.5)
    (g,) = torch.autograd.grad((z.square() * y).sum(), y, create_graph=True)
    (second,) = torch.autograd.grad(g.sin().sum(), y, create_graph=True)
    return g.square().mean() + second.mean() + z.mean()


def _differentiate_hooked(self, x):
    """Hooks are called for a gradient by their tensor, too, unless that is asked for on the way to another."""
    y = self.linear(x)
    z = y.sin()
    z.register_hook(lambda gradient: gradient * y.cos())
    z.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1) + gradient.square())
    (own,) = torch.autograd.grad(z.square().sum(), z, create_graph=True)
    (before,) = torch.autograd.grad((z.square() * y).sum(), y, create_graph=True)
    on_the_way, _ = torch.autograd.grad((z.square() * y).sum(), [z, y], create_graph=True)
    return own.square().mean() + before.tanh().mean() + on_the_way.cos().mean() + z.sum() * 0.1


def _differentiate_in_region(self, x):
    y = self.linear(x)
    with torch.no_grad():
        g = torch.func.grad(lambda z: (self.linear(z[:, :1] * x).tanh() * y).sum())(y) + y
        moved = y
        for _ in range(2):
            with torch.enable_grad():
                moved = moved.detach().requires_grad_()
                (slope,) = torch.autograd.grad((moved.tanh() * y).sum(), moved)
            moved = moved - 0.1 * slope
    return (y * g).square().mean() + (moved * y).sum()


def check_formulas():
    for function in (_differentiate_functions, _differentiate_hooked, _differentiate_in_region):
        compare_step(function.__name__, lambda: (Model(function, 6, 5), {"x": torch.randn(12, 6)}))


def check_complex_factors():
    compare_step("complex factors", lambda: (Model(_differentiate_factors, 6, 5), {"x": torch.randn(12, 6)}))


if __name__ == "__main__":
    check_all()
    check_complex_factors()
    check_norms_at_zero()
    check_graphs()
    check_code_without_a_file()
    check_norms()
    check_norms_at_zero()
    check_graphs()
    check_code_without_a_file()
    check_decompositions()
    check_formulas()
