# lit configuration of memopt's regression suite.
import os

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
config.substitutions.append(("%python", config.python))
config.substitutions.append(("%inputs", os.path.join(config.test_source_root, "Inputs")))
config.substitutions.append(("%source", os.path.dirname(config.test_source_root)))
