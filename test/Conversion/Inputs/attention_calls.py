#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of attention as a module, forward and backward of each kind.

    attention_calls.py CHIP KIND...

A KIND is a list of words with commas between: a type, head=N, value=N, queries=N, keys=N, heads=N, groups=N, causal,
bits, numbers, dropout, packed (queries, keys and values side by side in one tensor), odd (whose lines are no multiple of
16 bytes) and first. What is not said is bf16, 64 features, 1024 tokens and 2 heads.
"""

import sys

DEFAULTS = {"head": 64, "queries": 1024, "keys": 1024, "heads": 2, "groups": 2, "batch": 2}


def parse(kind):
    case = dict(DEFAULTS, type="bf16", words=set())
    for word in kind.split(","):
        name, _, value = word.partition("=")
        if value:
            case[name] = int(value)
        elif name in ("bf16", "f16", "f32"):
            case["type"] = name
        else:
            case["words"].add(name)
    case.setdefault("value", case["head"])
    return case


def strides(heads, tokens, features, line=0):
    line = line or heads * features
    return [tokens * line, features, line, 1]


def call(case, kind, number):
    words, element = case["words"], case["type"]
    batch, heads, groups, queries, keys = (case[name] for name in ("batch", "heads", "groups", "queries", "keys"))
    line = (heads + groups) * case["head"] + groups * case["value"] if "packed" in words else 0
    line += "odd" in words and (line or heads * case["head"]) + 1
    views = {"q": (heads, queries, case["head"], line), "k": (groups, keys, case["head"], line),
             "v": (groups, keys, case["value"], line), "o": (heads, queries, case["value"], 0)}
    if kind == "backward":
        views |= {"do": views["o"], "dq": views["q"], "dk": views["k"], "dv": views["v"]}
    text = [f"kind = {kind}", f"batch = {batch}", f"heads = {heads}", f"kv_heads = {groups}",
            f"query_length = {queries}", f"key_length = {keys}", f"head_dim = {case['head']}",
            f"value_dim = {case['value']}", "scale = 0.125 : f64", f"causal = {str('causal' in words).lower()}"]
    text += [f"{name}_strides = {strides(*view)}" for name, view in views.items()]
    types = {name: f"tensor<{batch * view[1] * (view[3] or view[0] * view[2])}x{element}>" for name, view in views.items()}
    inputs = [types[name] for name in "qkv"]
    if words & {"bits", "numbers"}:
        mask = "i1" if "bits" in words else "f32"
        text += [f"mask_type = {mask}", f"mask_strides = [{queries * keys}, 0, {keys}, 1]"]
        inputs.append(f"tensor<{batch}x1x{queries}x{keys}x{mask}>")
    if "dropout" in words:
        text += ["dropout = 0.1 : f64", "id = 7"] + ["first = true"] * ("first" in words)
        inputs += ["tensor<i64>"] * (3 if "first" in words else 2)
    sums = f"tensor<{batch}x{heads}x{queries}xf32>"
    results = [types["o"], sums]
    if kind == "backward":
        inputs += [types["o"], sums, types["do"]]
        results = [types[name] for name in ("dq", "dk", "dv")]
    text += [f"type = {element}", f"accumulator = {'f32' if element != 'f64' else 'f64'}"]
    names = [f"%{letter}{i}" for i, letter in enumerate("a" * len(inputs))]
    workspace = batch * heads * queries * 4 if kind == "backward" else 0
    arguments = ", ".join(f"{name}: {type}" for name, type in zip(names, inputs))
    return [f"func.func @{kind}_{number}({arguments}) {{",
            f"  %r:{len(results)} = memopt.library_call #memopt.attention<{', '.join(text)}> ({', '.join(names)}) "
            f"{{operand_offsets = array<i64: {', '.join('0' * len(names))}>, workspace = {workspace} : i64, "
            'implementation = "memopt:kernels"}',
            f"    : ({', '.join(inputs)}) -> ({', '.join(results)})", "  return", "}"]


def main():
    lines = [f'module attributes {{memopt.target = #memopt.cuda<"{sys.argv[1]}", sms = 132>}} {{']
    for number, kind in enumerate(sys.argv[2:]):
        for direction in ("forward", "backward"):
            lines += call(parse(kind), direction, number)
    print("\n".join(lines + ["}"]))


if __name__ == "__main__":
    main()
