#!/usr/bin/env python3
"""make_corpus.py FOLDER: inputs for the fuzzers to begin with, FOLDER/NAME/*, made from small files of the tree.

Whatever is there already stays: fuzzers add what they find.
"""
import gzip
import hashlib
import io
import json
import pathlib
import re
import struct
import sys
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LARGEST = 40_000  # bytes; larger inputs are slow to mutate and to run
PIPELINES = 40  # of MlirFuzzer.cpp


class Corpus:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def add(self, name, content):
        data = content.encode() if isinstance(content, str) else content
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        if len(data) <= LARGEST:
            (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def smaller_graph(text):
    """An exported program without what the importer ignores: stack traces, source files, guards, example inputs."""
    program = json.loads(text)
    for node in program["graph_module"]["graph"]["nodes"]:
        node["metadata"] = {key: value for key, value in node["metadata"].items() if key == "nn_module_stack"}
    return json.dumps({key: program[key] for key in ("graph_module", "schema_version") if key in program})


def add_archives(corpus):
    for path in sorted(SOURCE.glob("tools/export/models/*.pt2")) + sorted(SOURCE.glob("test/Integration/Inputs/*/*.pt2")):
        corpus.add("import", b"\0" + path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if member.endswith("models/model.json"):
                    corpus.add("import", b"\1" + smaller_graph(archive.read(member)).encode())
                if member.endswith("weights_config.json"):
                    corpus.add("import", b"\2" + archive.read(member))
    sys.path.insert(0, str(SOURCE / "test/Import/Inputs"))
    import models
    for name in sorted(dir(models)):
        build = getattr(models, name)
        if callable(build) and getattr(build, "__module__", "") == "models" and not name.startswith("_"):
            buffer = io.BytesIO()
            try:
                build().save(buffer)
            except (TypeError, AttributeError):
                continue  # a helper, not a model
            corpus.add("import", b"\0" + buffer.getvalue())


def add_graphs(corpus):
    """Modules of the lit tests, without the lines that check them, each for some of the pipelines."""
    number = 0
    for path in sorted(SOURCE.glob("test/**/*.mlir")):
        for module in path.read_text().split("// -----\n"):
            lines = [line for line in module.splitlines() if not re.match(r"\s*(//|#---)", line)]
            text = "\n".join(line for line in lines if line.strip())
            if len(text) < 60 or len(text) > 6000:
                continue
            for _ in range(3):
                corpus.add("mlir", bytes([number % PIPELINES]) + text.encode())
                number += 8  # has no divisor in common with the number of pipelines


def add_plans(corpus):
    def op(inputs, size, cost=1, **more):
        return {"bytes": size, "cost": cost, "inputs": inputs, **more}

    chain = [op([], 100)] + [op([i], 10 * (i + 1)) for i in range(6)] + [op([6 - i, 5 - i], 20) for i in range(5)]
    fork = [op([], [8, 16]), op([[0, 0]], 8, workspace=5), op([[0, 1], 1], 8, after=[1], in_place=[[0, 1]]),
            op([2], 0, pinned=True, after=[0])]
    for ops in (chain, fork, []):
        corpus.add("plan", "\0" + json.dumps({"format": "memopt-remat-problem", "version": 1, "resident": 7, "ops": ops}))
    for path in sorted(SOURCE.glob("test/Planning/Inputs/*.json")):
        corpus.add("plan", "\0" + path.read_text())
    corpus.add("plan", "\1id,lower,upper,size\na,0,3,4\nb,1,4,4\nc,3,5,8\n")
    corpus.add("plan", "\1id,lower,upper,size,alignment,fixed_offset,pinned,in_place_of\n"
                       "w,0,9,64,64,,1,\na,0,3,40,8,64,0,\n\"b,2\",2,4,40,8,,0,a\n")


def safetensors(tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def add_data(corpus):
    batches = {}
    for step in range(2):
        batches[f"step{step}.label"] = ("I64", [4], struct.pack("<4q", 0, 1, 2, 3))
        batches[f"step{step}.x"] = ("F32", [4, 3], struct.pack("<12f", *range(12)))
    for content in (safetensors(batches), safetensors({}), safetensors({"a": ("BOOL", [0, 3], b""), "b": ("BF16", [], b"ab")})):
        corpus.add("safetensors", content)
        corpus.add("data", b"\3\1" + content)
    corpus.add("data", b"\0\0" + bytes([0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0, 3]) + bytes(range(45)))
    corpus.add("data", b"\1\2" + bytes([0, 0, 8, 1, 0, 0, 0, 5]) + bytes([0, 1, 2, 9, 1]))
    # Compressed, and with headers that say more than there is, or than a machine has.
    image, label = bytes([0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0, 3]), bytes([0, 0, 8, 1, 0, 0, 0, 5])
    for kind, header, values in ((0, image, bytes(range(45))), (1, label, bytes([0, 1, 2, 9, 1]))):
        dims = len(header) // 4 - 1
        for content in (header + values, header + values + bytes(1 << 18), header[:4] + b"\x7f\xff\xff\xff" * dims + values,
                        header[:4] + b"\x00\x10\x00\x00" * dims + values, header[:3] + b"\xff" + b"\0\0\0\2" * 255):
            corpus.add("data", bytes([kind, 1]) + content)
            corpus.add("data", bytes([kind, 1]) + gzip.compress(content))
            corpus.add("data", bytes([kind + 4, 1]) + content)
    corpus.add("data", b"\6\1" + b"a\n\ntext of\nseveral lines")
    texts = {"lengths": ("I64", [3], struct.pack("<3q", 2, 0, 7)), "tokens": ("U8", [9], bytes(range(9))),
             "targets": ("I64", [9], struct.pack("<9q", *range(9))), "label": ("I32", [3], struct.pack("<3i", 1, -100, 2))}
    corpus.add("data", b"\7\2" + safetensors(texts))
    corpus.add("data", b"\7\1" + safetensors({**texts, "lengths": ("I64", [3], struct.pack("<3q", 1 << 60, -1, 1))}))
    corpus.add("data", b"\2\3" + b"In the beginning was the word, and it had some bytes.")


def add_documents(corpus):
    state = {"format": "memopt-checkpoint", "version": 1, "step": 3, "data_position": 3, "seed": 7, "optimizer": "adamw",
             "schedule": {"kind": "cosine", "rate": 0.1, "min_rate": 0.0, "warmup_steps": 2, "total_steps": 9,
                          "step_size": 1, "gamma": 0.5}}
    corpus.add("state", json.dumps(state))
    for text in re.findall(r"```json\n(.*?)```", (SOURCE / "docs/Package.md").read_text(), re.S):
        corpus.add("manifest", text)
    for path in sorted((SOURCE / "build").glob("*/test/**/*.memopt/manifest.json")):
        corpus.add("manifest", path.read_text())
    rates = re.findall(r'\{"(\w+)", &MachineProfile::', (SOURCE / "lib/Target/Cpu/MachineProfile.cpp").read_text())
    profile = {"format": "memopt-machine-profile", "version": 1, "target": "cpu", "machine": "here", "threads": 2,
               "rates": {rate: 1e9 for rate in rates}}
    corpus.add("profile", json.dumps(profile))
    for path in sorted(SOURCE.glob("lib/Target/Cuda/devices/*.json")):
        corpus.add("device", path.read_text())
    for text in re.findall(r"```json\n(.*?)```", (SOURCE / "docs/Offload.md").read_text(), re.S):
        corpus.add("deepspeed", text)
    corpus.add("deepspeed", json.dumps({
        "train_batch_size": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0, "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}))
    corpus.add("words", json.dumps({"arguments": ["m.pt2", "--steps=3"], "files": [["the model", "1:2:3:4.5"]]}))


def main():
    corpus = Corpus(sys.argv[1])
    for add in (add_archives, add_graphs, add_plans, add_data, add_documents):
        add(corpus)
    for folder in sorted(corpus.folder.iterdir()):
        print(f"{folder.name}: {len(list(folder.iterdir()))} inputs")


if __name__ == "__main__":
    main()
