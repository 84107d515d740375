"""mixed_batches.py INPUTS MIXED: batches of 32, 8, 32, 8 samples, from those of 32 in INPUTS."""
import sys

from tensor_files import read_safetensors, write_safetensors

tensors, mixed = read_safetensors(sys.argv[1]), {}
for step, size in enumerate((32, 8, 32, 8)):
    for name in ("image", "label"):
        mixed[f"step{step}.{name}"] = tensors[f"step{step}.{name}"][:size]
write_safetensors(sys.argv[2], mixed)
