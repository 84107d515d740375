//===- Refusals.cpp - everything that a model has and memopt has not -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Refusals.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace memopt::pt2;

//===----------------------------------------------------------------------===//
// Alternatives
//===----------------------------------------------------------------------===//

namespace {
struct Alternative {
  StringLiteral prefix, advice;
};
} // namespace

// memopt.export writes much of this anew; an archive of torch.export's own has it as the model does.
static constexpr StringLiteral kRewritten =
    "export the model by memopt.export, which writes this operator in others that are supported";
static constexpr StringLiteral kDataShape =
    "the size of its result depends on the data; export the model by memopt.export, which takes "
    "such rows as far as a mask and a bound can stand for them, or keep all elements and weight "
    "them with a mask, such as torch.where(mask, x, 0).sum() / mask.sum()";
static constexpr StringLiteral kComplex =
    "export the model by memopt.export, which writes complex numbers as pairs; what it leaves is "
    "not supported";
static constexpr StringLiteral kDecomposition =
    "linalg.eigh, linalg.svd, linalg.cholesky and linalg.lu are taken; compute others outside of "
    "the step and pass the result as an input or a buffer";
static constexpr StringLiteral kControlFlow =
    "export the model by memopt.export, which writes out both sides and a known number of turns; "
    "what it leaves is not supported";
static constexpr StringLiteral kCustom =
    "what an operator of another library computes is not in the program; write it with PyTorch's "
    "operators, with a torch.autograd.Function for a gradient of its own";
static constexpr StringLiteral kChecked =
    "export the model by memopt.export, which makes checks of values part of the step; or give "
    "distributions validate_args=False";
static constexpr StringLiteral kPythonNumber =
    "a number that Python takes from a tensor is not known when the program is compiled; keep it a "
    "tensor";

/// Prefixes of operators; the first that fits counts.
static constexpr Alternative kAlternatives[] = {
    {"aten.nonzero", kDataShape},
    {"aten.argwhere", kDataShape},
    {"aten.masked_select", kDataShape},
    {"aten.unique", kDataShape},
    {"aten._unique", kDataShape},
    {"aten.where.default", kDataShape},
    {"aten.repeat_interleave.Tensor", kDataShape},
    {"aten.bincount",
     "the size of its result depends on the data; sum F.one_hot(x, classes) instead"},
    {"aten.item", kPythonNumber},
    {"aten._local_scalar_dense", kPythonNumber},
    {"aten.equal", kPythonNumber},
    {"aten.allclose", kPythonNumber},
    {"aten._is_all_true", kChecked},
    {"aten._is_any_true", kChecked},
    {"higher_order.cond", kControlFlow},
    {"higher_order.while_loop", kControlFlow},
    {"higher_order.map", kControlFlow},
    {"higher_order.scan", kControlFlow},
    {"higher_order.associative_scan", kControlFlow},
    {"higher_order.wrap_with_autocast",
     "mixed precision is an option of the compiler, not of the model; leave autocast out"},
    {"higher_order.autograd_function_apply",
     "export with memopt_export, which keeps backward formulas of torch.autograd.Function"},
    {"aten._fft", kComplex},
    {"aten.fft_fft", kComplex},
    {"aten.fft_ifft", kComplex},
    {"aten.fft_rfft", kComplex},
    {"aten.fft_ihfft", kComplex},
    {"aten.stft", kComplex},
    {"aten.istft", kComplex},
    {"aten.view_as_complex", kComplex},
    {"aten.view_as_real", kComplex},
    {"aten.complex", kComplex},
    {"aten.polar", kComplex},
    {"aten._conj", kComplex},
    {"aten.linalg_eig.", kDecomposition},
    {"aten.linalg_eigvals.", kDecomposition},
    {"aten._linalg_eigvals.", kDecomposition},
    {"aten.linalg_ldl_", kDecomposition},
    {"aten.lstm.data", kRewritten},
    {"aten.gru.data", kRewritten},
    {"aten.rnn_tanh.data", kRewritten},
    {"aten.rnn_relu.data", kRewritten},
    {"aten._pack_padded_sequence", kRewritten},
    {"aten._ctc_loss", kRewritten},
    {"torchvision.roi_align", kRewritten},
    {"torchvision.nms", "boxes are suppressed after prediction, outside of the step"},
    {"torchvision.deform_conv2d", kRewritten},
    {"aten._segment_reduce", "use scatter_reduce with an index of the segment for each element"},
    {"aten.segment_reduce", "use scatter_reduce with an index of the segment for each element"},
};

/// Operators that somebody else has registered.
static bool isCustom(StringRef target) {
  StringRef library = target.split('.').first;
  return target.contains('.') && library != "aten" && library != "prims" &&
         library != "higher_order" && library != "torchvision" && library != "memopt" &&
         library != "_operator" && library != "math" && library != "torch";
}

StringRef memopt::pt2::getAlternative(StringRef target) {
  for (const Alternative &alternative : kAlternatives)
    if (target.starts_with(alternative.prefix))
      return alternative.advice;
  return isCustom(target) ? StringRef(kCustom) : StringRef();
}

static StringRef adviceFor(StringRef target, StringRef reason) {
  StringRef advice = getAlternative(target);
  return advice.empty() && reason.contains("a size that depends on the data")
             ? StringRef(kDataShape)
             : advice;
}

//===----------------------------------------------------------------------===//
// Message
//===----------------------------------------------------------------------===//

void Refusals::add(const Node &node, std::string reason) {
  auto [entry, isNew] = numbers.try_emplace({node.target, reason}, groups.size());
  if (isNew)
    groups.push_back({node.target, std::move(reason), 0, node.name, node.line, {}});
  Group &group = groups[entry->second];
  ++group.count;
  if (!is_contained(group.modules, node.modulePath))
    group.modules.push_back(node.modulePath);
}

void Refusals::addUnknown(const Node &node) { add(node, std::string()); }
void Refusals::add(const Node &node, Error cause) { add(node, llvm::toString(std::move(cause))); }

std::string Refusals::describeNode(const Group &group) {
  return "node '" + group.firstNode + "'" +
         (group.firstLine.empty() ? "" : " at " + group.firstLine);
}

std::string Refusals::describe(const Group &group) {
  std::string text;
  raw_string_ostream os(text);
  os << group.target;
  if (!group.reason.empty())
    os << ": " << group.reason;
  os << " (" << group.count << (group.count == 1 ? " use" : " uses") << " in ";
  constexpr size_t shown = 8;
  interleaveComma(ArrayRef(group.modules).take_front(shown), os, [&](StringRef module) {
    os << (module.empty() ? StringRef("the root module") : module);
  });
  if (group.modules.size() > shown)
    os << " and " << group.modules.size() - shown << " more";
  if (!group.firstNode.empty())
    os << ", " << (group.count == 1 ? "" : "first ") << describeNode(group);
  os << ")";
  if (StringRef advice = adviceFor(group.target, group.reason); !advice.empty())
    os << ": " << advice;
  return text;
}

Error Refusals::take(StringRef file) const {
  bool allUnknown = all_of(groups, [](const Group &group) { return group.reason.empty(); });
  if (groups.size() == 1 && !allUnknown) {
    const Group &only = groups.front();
    StringRef module = only.modules.front(), advice = adviceFor(only.target, only.reason);
    std::string place = module.empty() ? std::string() : (" in module '" + module + "'").str();
    std::string more = only.count > 1 ? (" (and " + Twine(only.count - 1) + " more)").str() : "";
    return makeError(file + ": " + describeNode(only) + place + more + ": " + only.target + ": " +
                     only.reason + (advice.empty() ? "" : "; ") + advice);
  }
  std::string text;
  raw_string_ostream os(text);
  os << groups.size() << (allUnknown ? " operator" : " use") << (groups.size() == 1 ? "" : "s")
     << (allUnknown ? "" : " of operators") << (groups.size() == 1 ? " is" : " are")
     << " not supported:";
  for (const Group &group : groups)
    os << "\n  " << describe(group);
  return makeError(file + ": " + text);
}
