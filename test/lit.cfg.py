# lit configuration of memopt's regression suite.
import os
import subprocess

import lit.formats

config.name = "memopt"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "benchmark", "Unit"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.memopt_obj_root, "test")

config.environment["PATH"] = os.pathsep.join(
    [os.path.join(config.memopt_obj_root, "bin"), config.llvm_tools_dir, config.environment.get("PATH", "")]
)
# A pattern variable lives for one function unless its name begins with $.
config.environment["FILECHECK_OPTS"] = "-enable-var-scope --allow-unused-prefixes=false"
# Tests of the Python package beside PyTorch run where $MEMOPT_PYTORCH, or the Python of all tests, has it.
pytorch = os.environ.get("MEMOPT_PYTORCH", config.python)
has_torch = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ['torch', 'torchvision', 'transformers'])))"
if subprocess.run([pytorch, "-c", has_torch], check=False).returncode == 0:
    config.available_features.add("torch")
config.substitutions.append(("%pytorch", pytorch))
config.substitutions.append(("%python", config.python))
config.substitutions.append(("%inputs", os.path.join(config.test_source_root, "Inputs")))
config.substitutions.append(("%source", os.path.dirname(config.test_source_root)))
