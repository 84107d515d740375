//===- MachineProfile.h - rates of a processor ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A roofline (Williams, Waterman and Patterson, CACM 2009) with two levels of memory: an
// instruction takes what it costs to start, and then the longer of its arithmetic and its traffic.
// The rates are measured once per machine (`memopt-compile --calibrate`), and travel in the
// module's target, so that every pass sees the same costs.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TARGET_CPU_MACHINEPROFILE_H
#define MEMOPT_TARGET_CPU_MACHINEPROFILE_H

#include "memopt/Interfaces/Work.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <functional>
#include <string>

namespace mlir::memopt {

/// What a machine does in a second, all of its threads together. The defaults stand for
/// what a profile does not say.
struct MachineProfile {
  std::string machine = "assumed rates of two cores"; ///< for people
  int64_t threads = 2;                                ///< that the rates are of

  double matmulRate = 1.6e11;            ///< operations a second of matrix products
  double convolutionRate = 1.2e11;       ///< of convolutions and gradients of their inputs
  double convolutionWeightRate = 1.2e11; ///< of gradients of convolutions' weights
  /// The same two of filters of one tap, and of 3 x 3 taps that are taken in tiles. Operations of tiles
  /// are those of plain sums, which they save some of.
  double pointwiseConvolutionRate = 1.2e11, pointwiseConvolutionWeightRate = 1.2e11;
  double tiledConvolutionRate = 2.2e11, tiledConvolutionWeightRate = 2.4e11;
  double groupConvolutionRate = 2.0e10; ///< of all three, where channels come in groups
  /// Weights a second that convolutions pack, and whose gradients are unpacked. So the rate of a
  /// convolution grows with the number of positions of its images, which each weight is used for.
  double weightRate = 1.6e9, weightGradientRate = 7e8;
  double attentionForwardRate = 1.2e11;  ///< of attention's products
  double attentionBackwardRate = 1.2e11; ///< of its gradient's
  /// Of products and convolutions of 16 bits, as multiples of the rates above: where the processor
  /// multiplies these types itself, and where their operands are widened on the way. Attention is
  /// as fast as in f32 where it widens, as a processor's always does.
  double narrowMatmulSpeed = 1.9;
  double narrowConvolutionSpeed = 1.9;
  double convertedMatmulSpeed = 0.7;
  double convertedConvolutionSpeed = 0.6;
  double narrowAttentionSpeed = 1;
  double scoreRate = 2.0e9;           ///< passes over one score of attention a second
  double kernelRate = 1.0e11;         ///< cheap operations a second of generated code
  double functionRate = 6.0e9;        ///< exponentials and the like a second of generated code
  double cacheBandwidth = 8.0e10;     ///< bytes a second of what fits the caches
  double memoryBandwidth = 2.0e10;    ///< bytes a second of what does not
  bool hasHost = false;               ///< a device; else the machine is its own host
  double hostLinkBandwidth = 2.56e10; ///< bytes a second between a device and its host, each way
  double hostMemoryBandwidth = 1e11;  ///< of the host's own memory
  double diskBandwidth = 1.5e9;       ///< bytes a second between the host and a disk
  double cacheBytes = 8e6;            ///< bytes of an instruction that fit the caches
  double kernelSeconds = 1e-6;        ///< to start a kernel
  double callSeconds = 4e-6;          ///< to start a matrix product or attention
  double convolutionSeconds = 1.2e-5; ///< to start a convolution, which packs its weights first

  double getSeconds(const Work &work) const;
  /// The same, on a copy of the profile.
  std::function<double(const Work &)> getCostFunction() const {
    return [profile = *this](const Work &work) { return profile.getSeconds(work); };
  }

  llvm::json::Object toJson() const;
  /// Fails, naming the key, what is expected and what was found.
  static llvm::Expected<MachineProfile> fromJson(const llvm::json::Value &value);
  /// Takes every rate from an object that has these and no others; those that are optional may be
  /// missing, and stay as they are. Fails as fromJson does.
  llvm::Error readRates(const llvm::json::Object &rates);
  /// Errors begin with the file's name.
  static llvm::Expected<MachineProfile> read(StringRef path);

  /// The shipped profile for a processor with the name that clang's -march uses; an empty name is
  /// this machine. Zen 5 has the rates of an EPYC 9005, processors with AMX those of a Xeon of the 5th
  /// generation, others with AVX-512 those of an EPYC 9004. Of processors whose vectors have 256 bits
  /// Zen 1 to 3 have those of an EPYC 7003, Intel's those of the Xeon held to AVX2, all others those of
  /// an EPYC 9004 that was held to AVX2.
  static const MachineProfile &getShipped(StringRef processor);

  /// What a device does not say of itself.
  static MachineProfile getDevice();

  /// As the profile of a #memopt.cpu.
  DictionaryAttr toAttribute(MLIRContext *context) const;
  /// Rates that the attribute, which may be null, does not name are those of `shipped`.
  static MachineProfile of(DictionaryAttr attribute, const MachineProfile &shipped);

  struct Rate {
    llvm::StringLiteral key;
    double MachineProfile::*field;
    bool isOptional = false; ///< files of before it was known are read
    /// A file that does not have it, but has this one, means the same multiple of it as the defaults.
    double MachineProfile::*like = nullptr;
  };
  /// All rates, by the keys of file and attribute.
  static ArrayRef<Rate> getRates();
};

} // namespace mlir::memopt

#endif // MEMOPT_TARGET_CPU_MACHINEPROFILE_H
