//===- ProfileFitTest.cpp - rates from measured times -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Target/Cpu/ProfileFit.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace mlir::memopt;

/// What a machine with other rates than the shipped ones would measure: every class of work, from
/// tiny to large, with more or less traffic for its arithmetic, wide and narrow.
static std::vector<MeasuredInstruction> measure(const MachineProfile &machine) {
  std::vector<MeasuredInstruction> measured;
  for (int workClass = 0; workClass <= static_cast<int>(WorkClass::HostKernel); ++workClass)
    for (double size = 1e2; size < 1e11; size *= 3)
      for (double intensity : {0.05, 3.0, 300.0}) {
        Work work;
        work.workClass = static_cast<WorkClass>(workClass);
        work.operations = size;
        work.functions = intensity == 3.0 ? size / 4 : 0;
        work.weights = size / (intensity == 3.0 ? 100 : 10000); // for 50 or 5,000 positions each
        work.bytes = size / intensity;
        for (Multiplication multiplication :
             {Multiplication::Full, Multiplication::Narrow, Multiplication::Converted}) {
          work.multiplication = multiplication;
          measured.push_back({work, machine.getSeconds(work)});
        }
      }
  return measured;
}

/// A device, so that every rate decides about something.
static MachineProfile makeStart() {
  MachineProfile machine;
  machine.hasHost = true;
  return machine;
}

static MachineProfile makeMachine() {
  MachineProfile machine = makeStart();
  double factor = 0.3;
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    machine.*rate.field *= factor += 0.25;
  return machine;
}

TEST(ProfileFit, FindsTheRatesOfAMachine) {
  MachineProfile machine = makeMachine();
  ProfileFit fit = fitProfile(measure(machine), makeStart());
  EXPECT_LT(fit.typicalError, 0.02);
  EXPECT_NEAR(fit.totalRatio, 1, 0.02);
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    EXPECT_NEAR(fit.profile.*rate.field / machine.*rate.field, 1, 0.05) << rate.key.str();
}

TEST(ProfileFit, DisturbedInstructionsMoveLittle) {
  MachineProfile machine = makeMachine();
  std::vector<MeasuredInstruction> measured = measure(machine);
  for (size_t i = 0; i < measured.size(); i += 10)
    measured[i].seconds *= 50;
  ProfileFit fit = fitProfile(measured, makeStart());
  EXPECT_LT(fit.typicalError, 0.1);
  EXPECT_NEAR(fit.profile.matmulRate / machine.matmulRate, 1, 0.15);
  EXPECT_NEAR(fit.profile.memoryBandwidth / machine.memoryBandwidth, 1, 0.15);
}

TEST(ProfileFit, WhatIsNotMeasuredStays) {
  MachineProfile start;
  Work work;
  work.workClass = WorkClass::Matmul;
  work.operations = 1e12;
  ProfileFit fit = fitProfile({{work, 10.0}}, start);
  EXPECT_NEAR(fit.profile.matmulRate, 1e11, 1e9);
  EXPECT_EQ(fit.profile.convolutionRate, start.convolutionRate);
  EXPECT_EQ(fit.profile.kernelSeconds, start.kernelSeconds);
  fit = fitProfile({}, start);
  EXPECT_EQ(fit.profile.matmulRate, start.matmulRate);
}

/// What is most of a step decides its rate.
TEST(ProfileFit, WhatWeighsMoreDecides) {
  Work work;
  work.workClass = WorkClass::Matmul;
  work.operations = 1e12;
  for (double heavy : {5.0, 20.0}) {
    ProfileFit fit = fitProfile({{work, heavy, 20}, {work, 10.0}}, MachineProfile());
    EXPECT_NEAR(fit.profile.matmulRate, 1e12 / heavy, 0.1e12 / heavy);
  }
}

TEST(ProfileFit, MeasurementsOfNoTimeAreLeftOut) {
  std::vector<MeasuredInstruction> measured = measure(makeMachine());
  Work work;
  work.operations = 1e9;
  measured.push_back({work, 0.0});
  ProfileFit with = fitProfile(measured, makeStart());
  measured.pop_back();
  ProfileFit without = fitProfile(measured, makeStart());
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    EXPECT_EQ(with.profile.*rate.field, without.profile.*rate.field) << rate.key.str();
}

/// A machine that others use is fast and slow by turns.
TEST(ProfileFit, SlowTurnsAreLeftOut) {
  EXPECT_DOUBLE_EQ(getUndisturbed({2, 1, 2, 1, 2, 1, 2, 50}), 1);
  EXPECT_DOUBLE_EQ(getUndisturbed({3}), 3);
}

/// Most instructions are a little faster than the rest are slow: no rate is right for all, but sums
/// of all are.
TEST(ProfileFit, SumsAreThoseThatWereMeasured) {
  Work work;
  work.workClass = WorkClass::Matmul;
  std::vector<MeasuredInstruction> measured;
  for (int i = 1; i <= 10; ++i) {
    work.operations = 1e10 * i;
    measured.push_back({work, work.operations / (i > 7 ? 5e10 : 1e11)});
  }
  ProfileFit fit = fitProfile(measured, MachineProfile());
  double predicted = 0, seconds = 0;
  for (const MeasuredInstruction &instruction : measured) {
    predicted += fit.profile.getSeconds(instruction.work);
    seconds += instruction.seconds;
  }
  EXPECT_NEAR(predicted / seconds, 1, 1e-3);
  EXPECT_NEAR(fit.totalRatio, 1, 1e-3);
}
