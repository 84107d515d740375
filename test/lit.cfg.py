# lit configuration of memopt's regression suite.
import glob
import os
import shutil
import subprocess

import lit.formats

config.name = "memopt"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "benchmark", "support", "Unit"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.memopt_obj_root, "test")

config.environment["PATH"] = os.pathsep.join(
    [os.path.join(config.memopt_obj_root, "bin"), config.llvm_tools_dir, config.environment.get("PATH", "")]
)
# A pattern variable lives for one function unless its name begins with $.
config.environment["FILECHECK_OPTS"] = "-enable-var-scope --allow-unused-prefixes=false"
# NVIDIA's assembler, libdevice and cuDNN, where the compiler looks for them (lib/Support/Toolkit.cpp).
toolkits = [os.environ.get("CUDA_HOME", "")]
for package in ("cu13", "cudnn"):
    toolkits += glob.glob(os.path.join(os.path.dirname(config.test_source_root),
                                       "build/venv/lib/python3*/site-packages/nvidia", package))
toolkits += [os.path.dirname(os.path.dirname(shutil.which("ptxas") or "")), "/usr/local/cuda"]
if not os.environ.get("MEMOPT_WITHOUT_CUDA"):
    for feature, file in (("ptxas", "bin/ptxas"), ("libdevice", "nvvm/libdevice/libdevice.10.bc"),
                          ("cudnn", "lib/libcudnn.so.9")):
        if any(folder and os.path.exists(os.path.join(folder, file)) for folder in toolkits):
            config.available_features.add(feature)
# Their headers, and what reads them.
compiler = shutil.which("clang++", path=config.llvm_tools_dir) or shutil.which("clang++")
for feature, files in (("cuda", ("cuda.h", "cublasLt.h")), ("cudnn", ("cudnn.h",))):
    for folder in (os.path.join(toolkit, "include") for toolkit in toolkits if toolkit and compiler):
        if all(os.path.exists(os.path.join(folder, file)) for file in files):
            config.available_features.add(feature + "-headers")
            config.substitutions.append((f"%{feature}_include", folder))
            break
config.substitutions.append(("%clang", compiler or "clang++"))
# Workspaces depend on the processor, and so do pages that show them.
cpuinfo = "/proc/cpuinfo"
if os.path.exists(cpuinfo) and "avx512dq" in open(cpuinfo).read():
    config.available_features.add("avx512")
# What one test alone wants has to be free, not only there.
memory = "/proc/meminfo"
if os.path.exists(memory):
    available = next((int(line.split()[1]) for line in open(memory) if line.startswith("MemAvailable")), 0)
    if available >= 10 << 20:
        config.available_features.add("memory-10gib")
# The emulated device, where it is built (x86-64).
if os.path.exists(os.path.join(config.memopt_obj_root, "bin/memopt-emulate")):
    config.available_features.add("emulator")
config.substitutions.append(("%fake_cuda", os.path.join(config.memopt_obj_root, "test/fake-cuda")))
config.substitutions.append(("%emulated_device", os.path.join(config.test_source_root, "emulator/device.json")))
# Ranks over MPI, where the plugin is built and its launcher is there.
launcher = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
if launcher and os.path.exists(os.path.join(config.memopt_obj_root, "lib/libmemopt-mpi.so")):
    config.available_features.add("mpi")
    config.substitutions.append(("%mpirun", launcher))
if os.path.exists(os.path.join(config.memopt_obj_root, "lib/libmemopt-ucx.so")):
    config.available_features.add("ucx")
# Pages are looked at where there is a browser that needs no screen.
browser = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
if browser:
    config.available_features.add("browser")
    config.substitutions.append(("%browser", browser))
# Tests of the Python package beside PyTorch run where $MEMOPT_PYTORCH, or the Python of all tests, has it.
pytorch = os.environ.get("MEMOPT_PYTORCH", config.python)
has_torch = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ['torch', 'torchvision', 'transformers'])))"
if subprocess.run([pytorch, "-c", has_torch], check=False).returncode == 0:
    config.available_features.add("torch")
for library in ("accelerate", "lightning", "mmengine"):
    finds = f"import importlib.util as u, sys; sys.exit(u.find_spec('{library}') is None)"
    if subprocess.run([pytorch, "-c", finds], check=False).returncode == 0:
        config.available_features.add(library)
config.substitutions.append(("%pytorch", pytorch))
config.substitutions.append(("%python", config.python))
# Helpers of tests in Python.
support = os.path.join(config.test_source_root, "support")
config.environment["PYTHONPATH"] = support
config.substitutions.append(("%support", support))
config.substitutions.append(("%built", config.memopt_obj_root))
# The wheels of tools/wheels.sh.
dist = os.path.join(os.path.dirname(config.test_source_root), "build/dist")
if glob.glob(os.path.join(dist, "memopt_compiler-*.whl")):
    config.available_features.add("wheels")
config.substitutions.append(("%dist", dist))
config.substitutions.append(("%source", os.path.dirname(config.test_source_root)))
