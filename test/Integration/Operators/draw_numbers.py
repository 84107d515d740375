#!/usr/bin/env python3
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Imports ATen operators that draw random numbers and compares thousands of draws with their laws.

All operators are nodes of one model, as in import_numbers.py. A law with a density is held by the distance of
Kolmogorov and Smirnov, one of single values by how often each comes. The seed is given, so the same numbers are judged
at every run: equal seeds must give equal numbers; other seeds, steps and nodes other ones.
"""

import argparse
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from import_cases import Case, Constant
from import_numbers import Family

SHAPE = (256, 128)
COUNT = 16384
P = 0.3


# ----------------------------------------------------------------------------------------------------
# Laws: what is wrong with `found`, or None
# ----------------------------------------------------------------------------------------------------

def continuous(below):
    """`below(x)` is the probability of less than x. Larger distances come once in 1500 times."""
    def judge(found):
        ordered = np.sort(found.reshape(-1).astype("f8"))
        if not np.isfinite(ordered).all():
            return "not finite"
        steps = np.arange(ordered.size + 1) / ordered.size
        expected = below(ordered)
        distance = max((steps[1:] - expected).max(), (expected - steps[:-1]).max()) * math.sqrt(ordered.size)
        return f"distance {distance:.2f} of its distribution" if not distance < 2 else None
    return judge


def discrete(table):
    """Probabilities by value; the last value stands for all that are larger. Bounds are 4.5 deviations."""
    def judge(found):
        values, left = np.minimum(found.reshape(-1).astype("f8"), max(table)), found.size
        for value, p in table.items():
            count = int(np.isclose(values, value).sum())
            left -= count
            if abs(count - p * values.size) > 4.5 * math.sqrt(p * (1 - p) * values.size):
                return f"{value} comes {count} times of {values.size}, expected {p * values.size:.0f}"
        return f"{left} values are none of {list(table)}" if left else None
    return judge


def uniform(low, high):
    return continuous(lambda x: np.clip((x - low) / (high - low), 0, 1))


def normal(mean, deviation):
    return continuous(lambda x: np.vectorize(math.erf)((x - mean) / deviation / math.sqrt(2)) / 2 + 0.5)


def integers(low, high):
    return discrete({value: 1 / (high - low) for value in range(low, high)})


def hits(p, of_hit=1.0, of_miss=0.0):
    return discrete({of_hit: p, of_miss: 1 - p})


def left_and_right(left, right):
    middle = SHAPE[1] // 2
    return lambda found: left(found[:, :middle]) or right(found[:, middle:])


def by_channel(law):
    return lambda found: law(found[..., 0]) if (found == found[..., :1]).all() else "differs within a channel"


def permutation(found):
    if not (np.sort(found) == np.arange(found.size)).all():
        return "no permutation"
    correlation = np.corrcoef(found, np.arange(found.size))[0, 1] * math.sqrt(found.size)
    return f"in {correlation:.1f} deviations of order" if abs(correlation) > 4 else None


def pairs(weights):
    """Two different ones of each row."""
    p = np.array(weights) / sum(weights)
    second = [sum(p[i] * p[j] / (1 - p[i]) for i in range(len(p)) if i != j) for j in range(len(p))]

    def judge(found):
        if (found[:, 0] == found[:, 1]).any():
            return "drawn twice"
        return discrete(dict(enumerate(p)))(found[:, 0]) or discrete(dict(enumerate(second)))(found[:, 1])
    return judge


def unchanged(expected):
    return lambda found: None if (found == expected).all() else "changed"


# ----------------------------------------------------------------------------------------------------
# Operators
# ----------------------------------------------------------------------------------------------------

class Draw(Case):
    """Its results are judged by the laws; `slope` gives the gradient of "input" from the first result."""

    def __init__(self, target, *laws, results=(np.zeros(SHAPE, "f4"),), slope=None, is_random=True, **arguments):
        target = target if "." in target else target + ".default"
        super().__init__(target, target, list(results), **arguments)
        self.laws, self.slope, self.is_random = laws, slope, is_random
        if slope:
            self.slopes = {"input" if "input" in arguments else "self_": None}


def halves(left, right):
    return Constant(np.tile(np.repeat(np.array([left, right], "f4"), SHAPE[1] // 2), (SHAPE[0], 1)))


def draws():
    size, like, none = {"size": list(SHAPE)}, {"self_": Constant(np.zeros(SHAPE, "f4"))}, {"generator": None}
    yield Draw("rand", uniform(0, 1), **size)
    yield Draw("rand.generator", uniform(0, 1), **size, **none)
    yield Draw("rand_like", uniform(0, 1), **like)
    yield Draw("uniform", uniform(-1, 3), **like, **{"from": -1.0, "to": 3.0})
    yield Draw("randn", normal(0, 1), **size)
    yield Draw("randn.generator", normal(0, 1), **size, **none)
    yield Draw("randn_like", normal(0, 1), **like)
    for target in ("normal", "normal_functional"):
        yield Draw(target, normal(2, 0.5), **like, mean=2.0, std=0.5)
    yield Draw("normal.float_float", normal(-1, 3), **size, mean=-1.0, std=3.0)
    yield Draw("normal.Tensor_float", left_and_right(normal(-1, 0.5), normal(3, 0.5)), mean=halves(-1, 3), std=0.5)
    yield Draw("normal.float_Tensor", left_and_right(normal(1, 0.5), normal(1, 2)), mean=1.0, std=halves(0.5, 2))
    yield Draw("normal.Tensor_Tensor", left_and_right(normal(-1, 0.5), normal(3, 2)), mean=halves(-1, 3), std=halves(0.5, 2))
    yield Draw("log_normal", lambda found: normal(0.5, 2)(np.log(found)), **like, mean=0.5, std=2.0)
    yield Draw("exponential", continuous(lambda x: 1 - np.exp(-2 * x)), **like, lambd=2.0)
    yield Draw("cauchy", continuous(lambda x: 0.5 + np.arctan((x - 1) / 2) / math.pi), **like, median=1.0, sigma=2.0)
    trials = {k: P * (1 - P) ** (k - 1) for k in range(1, 9)} | {9: (1 - P) ** 8}
    yield Draw("geometric", discrete(trials), **like, p=P)
    for target in ("bernoulli.p", "bernoulli.float"):
        yield Draw(target, hits(P), **like, p=P)
    yield Draw("bernoulli", left_and_right(hits(0.2), hits(0.9)), self_=halves(0.2, 0.9))
    yield Draw("bernoulli.Tensor", left_and_right(hits(0.2), hits(0.9)), **like, p=halves(0.2, 0.9))
    whole = {"results": (np.zeros(SHAPE, "i8"),)}
    yield Draw("randint", integers(0, 5), high=5, **size, **whole)
    yield Draw("randint.low", integers(-2, 3), low=-2, high=3, **size, **whole)
    yield Draw("randint_like", integers(0, 5), high=5, **like)
    yield Draw("randint_like.low_dtype", integers(-2, 3), low=-2, high=3, **like)
    yield Draw("randperm", permutation, results=(np.zeros(COUNT, "i8"),), n=COUNT)
    weights = [2.0, 1.0, 0.0, 3.0]
    law, rows = discrete({k: w / 6 for k, w in enumerate(weights)}), Constant(np.tile(np.array(weights, "f4"), (COUNT, 1)))
    yield Draw("multinomial", law, results=(np.zeros((COUNT, 2), "i8"),), self_=rows, num_samples=2, replacement=True)
    yield Draw("multinomial", law, results=(np.zeros(COUNT, "i8"),), self_=Constant(rows.values[0]), num_samples=COUNT, replacement=True)
    yield Draw("multinomial", pairs(weights), results=(np.zeros((COUNT, 2), "i8"),), self_=rows, num_samples=2)
    yield from dropouts()


def dropouts():
    ones, channels = np.ones(SHAPE, "f4"), np.ones((*SHAPE, 3), "f4")
    kept = hits(1 - P, 1 / (1 - P))
    yield Draw("dropout", kept, slope=np.positive, input=ones, p=P, train=True)
    mask = np.zeros(SHAPE, "?")
    for train in (True, None):
        yield Draw("native_dropout", kept, hits(1 - P), results=(ones, mask), slope=np.positive, input=ones, p=P, train=train)
    yield Draw("feature_dropout", by_channel(kept), results=(channels,), slope=np.positive, input=channels, p=P, train=True)
    # What is dropped becomes -alpha, and all is moved and scaled to the mean and variance of before.
    alpha = 1.7580993408473766
    scale = 1 / math.sqrt((1 - P) * (1 + P * alpha ** 2))
    of_one, of_dropped = (scale * (value + alpha * P) for value in (1, -alpha))
    law, slope = hits(1 - P, of_one, of_dropped), lambda found: np.where(found > 0, np.float32(scale), 0)
    yield Draw("alpha_dropout", law, slope=slope, input=ones, p=P, train=True)
    yield Draw("feature_alpha_dropout", by_channel(law), results=(channels,), slope=slope, input=channels, p=P, train=True)
    yield Draw("rrelu", uniform(-0.5, -0.25), slope=np.negative, self_=-ones, lower=0.25, upper=0.5, training=True)
    for target in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
        for p, train, expected in ((P, False, 1), (0.0, True, 1), (1.0, True, 0)):
            yield Draw(target, unchanged(expected), is_random=False, input=Constant(ones), p=p, train=train)
    for p, train, expected in ((P, False, 1), (0.0, True, 1), (1.0, True, 0)):
        yield Draw("native_dropout", unchanged(expected), unchanged(expected), results=(ones, mask), is_random=False,
                   input=Constant(ones), p=p, train=train)


# ----------------------------------------------------------------------------------------------------
# Judgement
# ----------------------------------------------------------------------------------------------------

def judge(cases, saved, gradients):
    for number, case in enumerate(cases):
        results = [saved[f"case{number}_{place}"] for place in range(len(case.laws))]
        for law, found in zip(case.laws, results):
            yield case, law(found)
        for key in case.slopes:
            gradient = gradients[f"in{number}_{key.rstrip('_')}"]
            yield case, None if np.allclose(gradient, case.slope(results[0]), rtol=1e-5) else "its gradient is of other draws"


def compare(cases, saved, again, others):
    """The same seed again; other seeds and steps by name."""
    first = [saved[f"case{number}_0"] for number in range(len(cases))]
    for number, case in enumerate(cases):
        name = f"case{number}_0"
        yield case, None if np.array_equal(saved[name], again[name]) else "another result with the same seed"
        if not case.is_random:
            continue
        for about, other in others.items():
            yield case, f"the same result with another {about}" if np.array_equal(saved[name], other[name]) else None
        twins = [c.name for n, c in enumerate(cases) if n != number and np.array_equal(first[n], first[number])]
        yield case, f"the draws of {twins}" if twins else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="", help="folder of memopt-run; by default it is on PATH")
    options = parser.parse_args()
    cases = list(draws())
    with tempfile.TemporaryDirectory() as folder:
        def run(*arguments):
            return family.run(options.tools, pathlib.Path(folder), *arguments)

        try:
            family = Family(cases)
            saved, gradients = run("--seed=7")
            others = {"seed": run("--seed=8")[0], "step": run("--seed=7", "--steps=2")[0]}
            again = run("--seed=7")[0]
        except subprocess.CalledProcessError as error:
            sys.exit(error.stderr.strip()[-2000:])
    wrong = [f"FAIL {case.name} {problem}" for case, problem in (*judge(cases, saved, gradients), *compare(cases, saved, again, others))
             if problem]
    print("\n".join([*wrong, f"{len(cases)} draws, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
