# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_buckets.py FOLDER [CASE...]: texts of several lengths by `memopt-run --data-buckets`, held against PyTorch."""

import copy
import json
import struct
import subprocess

import torch
import torch.nn.functional as F
from torch import nn

from memopt.tools import find_tool
from training import FOLDER, assert_near, run_cases

BUCKETS, ROWS, RATE = (4, 8, 16), 3, 0.5


class Reader(nn.Module):
    """A causal model of bytes and its loss."""

    def __init__(self):
        super().__init__()
        self.table, self.places, self.head = nn.Embedding(128, 16), nn.Embedding(64, 16), nn.Linear(16, 128)

    def forward(self, tokens, targets):
        x = self.table(tokens) + self.places(torch.arange(tokens.shape[1]))
        x = torch.cumsum(torch.tanh(x), 1)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


class Judge(nn.Module):
    """Classifies whole texts, of which it sees what a mask shows."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(128, 16), nn.Linear(16, 3)

    def forward(self, tokens, attention_mask, label):
        shown = attention_mask.unsqueeze(-1).float()
        mean = (torch.tanh(self.table(tokens)) * shown).sum(1) / shown.sum(1).clamp(min=1)
        return F.cross_entropy(self.head(mean), label, ignore_index=-100)


def write_tensors(path, tensors):
    """Integers as a safetensors file."""
    header, data = {}, b""
    for name, value in tensors.items():
        content = value.to(torch.int64).numpy().tobytes()
        header[name] = {"dtype": "I64", "shape": [*value.shape], "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def export(model, example, names):
    tokens = torch.export.Dim("tokens", min=2, max=64)
    shapes = {name: {1: tokens} if value.dim() > 1 else None for name, value in zip(names, example)}
    torch.export.save(torch.export.export(model, example, dynamic_shapes=shapes), FOLDER / "model.pt2")


def run(*options, code=0):
    command = [find_tool("memopt-run"), FOLDER / "model.pt2", "--dim=tokens=" + ",".join(map(str, BUCKETS)), f"--lr={RATE}", "--quiet",
               f"--report={FOLDER}/report.json", *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr[-3000:]
    return done.stderr if code else json.loads((FOLDER / "report.json").read_text())


def pad(texts, tokens, rows, fill):
    return torch.tensor([[*text, *[fill] * (tokens - len(text))] for text in texts] + [[fill] * tokens] * (rows - len(texts)))


LINES = ["a", "text", "of several", "", "lengths", "that are sorted into", "three", "buckets", "one is far too long for the largest of them",
         "and", "x" * 16]


def list_pieces():
    """By bucket the tokens and targets of all pieces, in their order."""
    buckets = {size: [] for size in BUCKETS}
    for line in LINES:
        codes = [*(line + "\n").encode()]
        for begin in range(0, len(codes) - 1, BUCKETS[-1]):
            tokens, targets = codes[begin:-1][:BUCKETS[-1]], codes[begin + 1:][:BUCKETS[-1]]
            buckets[min(size for size in BUCKETS if size >= len(tokens))].append((tokens, targets))
    return buckets


def make_steps(rows):
    for size, pieces in list_pieces().items():
        for begin in range(0, len(pieces), rows):
            chosen = pieces[begin:begin + rows]
            yield pad([tokens for tokens, _ in chosen], size, rows, 0), pad([targets for _, targets in chosen], size, rows, -100)


def train_in_pytorch(model, steps, epochs=2):
    model = copy.deepcopy(model)
    optimizer, losses = torch.optim.SGD(model.parameters(), RATE), []
    for step in [*steps] * epochs:
        optimizer.zero_grad()
        loss = model(*step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def make_reader():
    torch.manual_seed(0)
    model, example = Reader(), torch.zeros(ROWS, 8, dtype=torch.long)
    export(model, (example, example.clone()), ("tokens", "targets"))
    (FOLDER / "train.txt").write_text("\n".join(LINES))
    return model


DATA = ("--data-buckets=" + ",".join(map(str, BUCKETS)), f"--data=lines:{FOLDER}/train.txt")


def lines():
    """In turn, with the losses of PyTorch; every program has its steps, and uses what was predicted."""
    model = make_reader()
    report = run(*DATA, "--shuffle=off", "--epochs=2", "--check-memory")
    theirs = train_in_pytorch(model, make_steps(ROWS))
    assert len(report["losses"]) == len(theirs) and sum(program["steps"] > 0 for program in report["programs"]) == 3
    for mine, other in zip(report["losses"], theirs):
        assert_near(mine, other)
    for program in report["programs"]:
        assert program["predicted_peak_bytes"] == program["used_peak_bytes"], program
    assert report["hot_path_allocations"] == 0
    # Of one step are the batches of all ranks, and of an accumulation.
    for options in (("--ranks=2", "--zero-stage=3"), ("--accumulative-counts=2",)):
        for mine, other in zip(run(*DATA, "--shuffle=off", "--epochs=2", *options)["losses"], train_in_pytorch(model, make_steps(2 * ROWS))):
            assert_near(mine, other)


def order():
    """It follows from the seed, is another in each epoch, and goes on from a checkpoint."""
    make_reader()
    steps = len([*make_steps(ROWS)])
    whole = run(*DATA, "--seed=3", "--epochs=2")["losses"]
    assert whole == run(*DATA, "--seed=3", "--epochs=2")["losses"] and whole != run(*DATA, "--seed=4", "--epochs=2")["losses"]
    first = run(*DATA, "--seed=3", "--steps=3", f"--save={FOLDER}/saved")["losses"]
    assert first + run(*DATA, f"--steps={2 * steps - 3}", f"--load={FOLDER}/saved")["losses"] == whole


def evaluation():
    """Between steps, by the program of each batch: on texts in buckets, on batches of a file, by ranks in turn."""
    model = make_reader()
    (FOLDER / "held.txt").write_text("other\nwords\nthat are not trained on\nat all")
    held, pieces = [], [[*(line + "\n").encode()] for line in (FOLDER / "held.txt").read_text().split("\n")]
    for low, size in zip((0, *BUCKETS), BUCKETS):
        own = [codes[begin:begin + BUCKETS[-1] + 1] for codes in pieces for begin in range(0, len(codes) - 1, BUCKETS[-1])]
        own = [codes for codes in own if low < len(codes) - 1 <= size]
        held += [(len(own[begin:begin + ROWS]), pad([codes[:-1] for codes in own[begin:begin + ROWS]], size, ROWS, 0),
                  pad([codes[1:] for codes in own[begin:begin + ROWS]], size, ROWS, -100)) for begin in range(0, len(own), ROWS)]
    assert len({tokens.shape for _, tokens, _ in held}) == 2
    write_tensors(FOLDER / "held.safetensors", {f"step{number}.{name}": value for number, (_, *values) in enumerate(held)
                                                for name, value in zip(("tokens", "targets"), values)})

    def average(rows):
        with torch.no_grad():
            return sum(count * model(*batch).item() for count, (_, *batch) in zip(rows, held)) / sum(rows)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    wanted = []
    for step in make_steps(ROWS):
        optimizer.zero_grad()
        model(*step).backward()
        optimizer.step()
        wanted.append((average([count for count, _, _ in held]), average([ROWS] * len(held))))
    for source, kind in ((f"lines:{FOLDER}/held.txt", 0), (FOLDER / "held.safetensors", 1)):
        options = (*DATA, "--shuffle=off", "--epochs=1", f"--eval-data={source}", "--eval-every=1")
        report = run(*options, "--check-memory")
        found = [entry["outputs"]["loss"] for entry in report["evaluations"]]
        assert len(found) == len(wanted) and found[-1] != found[0]
        for mine, other in zip(found, wanted):
            assert_near(mine, other[kind])
        assert report["predicted_peak_bytes"] == report["used_peak_bytes"]
        assert len(report["programs"]) == 2 * len(BUCKETS)
    alone = run(*DATA, "--shuffle=off", "--steps=2", f"--eval-data={source}", "--accumulative-counts=2")["evaluations"]
    ranks = run(*DATA, "--shuffle=off", "--steps=2", f"--eval-data={source}", "--ranks=2")["evaluations"]
    assert_near(alone[0]["outputs"]["loss"], ranks[0]["outputs"]["loss"])
    assert "evaluations for batches of different shapes" in run(*DATA, f"--eval-data={source}", "--ranks=2", "--zero-stage=3", code=1)


def texts():
    """Labels of whole texts, and a mask that is made."""
    torch.manual_seed(0)
    model, example = Judge(), torch.zeros(ROWS, 8, dtype=torch.long)
    export(model, (example, example + 1, torch.zeros(ROWS, dtype=torch.long)), ("tokens", "attention_mask", "label"))
    lengths = [3, 9, 4, 8, 1, 16, 5]
    tokens = [torch.randint(1, 128, (length,)) for length in lengths]
    labels = torch.randint(3, (len(lengths),))
    write_tensors(FOLDER / "texts.safetensors", {"lengths": torch.tensor(lengths), "tokens": torch.cat(tokens), "label": labels})
    steps = []
    for low, size in zip((0, *BUCKETS), BUCKETS):
        own = [number for number, length in enumerate(lengths) if low < length <= size]
        for begin in range(0, len(own), ROWS):
            chosen = own[begin:begin + ROWS]
            missing = [-100] * (ROWS - len(chosen))
            steps.append((pad([tokens[number].tolist() for number in chosen], size, ROWS, 0),
                          pad([[1] * lengths[number] for number in chosen], size, ROWS, 0),
                          torch.tensor([*labels[chosen].tolist(), *missing])))
    data = (DATA[0], f"--data=texts:{FOLDER}/texts.safetensors")
    for mine, other in zip(run(*data, "--shuffle=off", "--epochs=2")["losses"], train_in_pytorch(model, steps)):
        assert_near(mine, other)


def refusals():
    make_reader()
    write_tensors(FOLDER / "empty.safetensors", {"tokens": torch.zeros(1)})
    for words, options in (("no program has batches of 32 tokens", (DATA[1], "--data-buckets=8,32")),
                           ("texts of several lengths", (DATA[1],)),
                           ("--data-buckets takes texts", (DATA[0], f"--data=bytes:{FOLDER}/train.txt")),
                           ("texts need 'lengths'", (DATA[0], f"--data=texts:{FOLDER}/empty.safetensors"))):
        assert words in run(*options, code=1), words


run_cases([lines, order, evaluation, texts, refusals])
