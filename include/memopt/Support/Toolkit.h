//===- Toolkit.h - where NVIDIA's tools and libraries lie -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// They are looked for in the toolkit that $CUDA_HOME names, in the Python packages of the build's
// environment (tools/install.sh --with-cuda), beside the ptxas on PATH, and in /usr/local/cuda;
// nowhere where $MEMOPT_WITHOUT_CUDA is set.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_SUPPORT_TOOLKIT_H
#define MEMOPT_SUPPORT_TOOLKIT_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace memopt {

/// The first of the toolkits that has the file `name`, such as "bin/ptxas"; empty when none has.
/// `package` is the folder of NVIDIA's Python packages that holds it.
std::string findToolkitFile(llvm::StringRef name, llvm::StringRef package = "cu13");

} // namespace memopt

#endif // MEMOPT_SUPPORT_TOOLKIT_H
