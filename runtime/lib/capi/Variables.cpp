//===- Variables.cpp - reading and writing numbers ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CSession.h"
#include <cmath>
#include <cstring>

using namespace memopt;
using namespace memopt::capi;

template <typename Spec>
static StatusOr<const Spec *> findTensor(const std::vector<Spec> &tensors, const char *kind,
                                         const char *name) {
  for (const Spec &tensor : tensors)
    if (tensor.name == name)
      return &tensor;
  return badInput("the package has no " + std::string(kind) + " " + quote(name));
}

static StatusOr<const PlacedTensor *> findTensor(const Manifest &manifest, int32_t kind,
                                                 const char *name) {
  auto widen = [](auto found) -> StatusOr<const PlacedTensor *> {
    if (!found.isOk())
      return found.takeStatus();
    return *found;
  };
  switch (kind) {
  case MEMOPT_INPUT:
    return widen(findTensor(manifest.inputs, "input", name));
  case MEMOPT_OUTPUT:
    return widen(findTensor(manifest.outputs, "output", name));
  case MEMOPT_VARIABLE:
    return widen(findTensor(manifest.variables, "variable", name));
  default:
    return badInput("there is no kind " + std::to_string(kind) + " of tensors");
  }
}

void capi::writeNumbers(memopt_session &session) {
  for (const auto &[variable, rate] : session.getSaid().rates)
    session.getProgram().setRate(*variable, rate);
  session.state.schedule.rate = session.getSaid().rate;
  session.getProgram().setHyperparameters(session.getSaid().rate, session.state.step + 1,
                                          session.state.seed);
}

int32_t memopt_session_initialize(memopt_session *session, int32_t init, int64_t seed,
                                  memopt_error *error) {
  return guard(error, [&]() -> Status {
    if (init != MEMOPT_INIT_WEIGHTS && init != MEMOPT_INIT_RANDOM)
      return badInput("there is no way " + std::to_string(init) + " to initialize variables");
    std::set<std::string> missing;
    auto isMissing = [&](const VariableSpec &variable) {
      return variable.init == VariableInit::Absent && missing.insert(variable.name).second;
    };
    MEMOPT_RETURN_IF_ERROR(init == MEMOPT_INIT_RANDOM
                               ? session->getFirst().initializeRandomly(seed)
                               : session->getFirst().initializeFromWeights(isMissing));
    session->missing = std::move(missing);
    session->state.step = session->state.dataPosition = 0;
    session->state.seed = seed;
    writeNumbers(*session);
    return Status::ok();
  });
}

StatusOr<TensorView> capi::readView(const memopt_view &view, DType expected, const Shape &shape) {
  std::optional<DType> dtype = parseDType(view.dtype ? view.dtype : "");
  if (!dtype)
    return badInput("has elements of unknown type " + quote(view.dtype ? view.dtype : ""));
  TensorView read{static_cast<const char *>(view.data), *dtype, {}, {}};
  if (view.rank > 0)
    read.shape.assign(view.shape, view.shape + view.rank);
  // Whether numbers lose digits should not depend on the batch.
  bool isNarrowed = isFloat(*dtype) && getByteSize(*dtype) > getByteSize(expected);
  if (read.shape != shape || isNarrowed)
    return badInput("is " + toString(*dtype, read.shape) + ", expected " +
                    toString(expected, shape));
  if (view.strides)
    read.strides.assign(view.strides, view.strides + view.rank);
  else
    read.strides = getRowMajorStrides(read.shape);
  if (!read.data && getElementCount(shape) > 0)
    return badInput("has no data");
  return read;
}

int32_t memopt_session_write(memopt_session *session, const char *variable, const memopt_view *view,
                             memopt_error *error) {
  return guard(error, [&]() -> Status {
    MEMOPT_ASSIGN_OR_RETURN(const VariableSpec *target,
                            findTensor(session->getManifest().variables, "variable", variable));
    if (!target->isState())
      return badInput("variable " + quote(variable) + " is written anew in each step");
    if (target->isFrozenScale())
      return badInput("variable " + quote(variable) + " is written with its codes");
    auto copy = [&]() -> Status {
      MEMOPT_ASSIGN_OR_RETURN(TensorView source,
                              readView(*view, target->getWholeDType(), target->getWholeShape()));
      if (target->encoding) {
        std::vector<float> values(size_t(getElementCount(source.shape)));
        MEMOPT_RETURN_IF_ERROR(source.copyTo(DType::F32, reinterpret_cast<char *>(values.data())));
        return session->getProgram().encode(*target, values.data());
      }
      if (target->wholeShape) {
        std::vector<char> whole(size_t(target->getWholeBytes()));
        MEMOPT_RETURN_IF_ERROR(source.copyTo(target->dtype, whole.data()));
        return session->getProgram().setWhole(*target, whole.data());
      }
      if (char *address = session->getProgram().getAddress(*target))
        return source.copyTo(target->dtype, address);
      std::vector<char> storage(size_t(target->bytes));
      MEMOPT_RETURN_IF_ERROR(source.copyTo(target->dtype, storage.data()));
      return session->getProgram().writeTensor(*target, storage.data());
    };
    session->missing.insert(variable); // of a copy that fails, a part is there
    MEMOPT_RETURN_IF_ERROR(copy().withContext("variable " + quote(variable)));
    session->missing.erase(variable);
    return Status::ok();
  });
}

/// What ranks have parts of, whole. Null where the variable is none of these.
static StatusOr<const VariableSpec *> readShared(memopt_session &session, const char *name,
                                                 void *target, int64_t bytes) {
  const VariableSpec *variable = session.getManifest().findVariable(name);
  if (!variable || !variable->wholeShape || !session.member)
    return static_cast<const VariableSpec *>(nullptr);
  if (bytes != variable->getWholeBytes())
    return badInput(quote(name) + " has " + std::to_string(variable->getWholeBytes()) +
                    " bytes, not " + std::to_string(bytes));
  std::vector<char> storage;
  MEMOPT_ASSIGN_OR_RETURN(const void *whole,
                          session.getProgram().getWholeOnAll(*variable, storage));
  std::memcpy(target, whole, size_t(bytes));
  return variable;
}

int32_t memopt_session_read(memopt_session *session, int32_t kind, const char *name, void *target,
                            int64_t bytes, memopt_error *error) {
  return guard(error, [&]() -> Status {
    if (kind == MEMOPT_VARIABLE) {
      MEMOPT_ASSIGN_OR_RETURN(const VariableSpec *shared,
                              readShared(*session, name, target, bytes));
      if (shared)
        return Status::ok();
    }
    MEMOPT_ASSIGN_OR_RETURN(const PlacedTensor *tensor,
                            findTensor(session->getManifest(), kind, name));
    const VariableSpec *variable =
        kind == MEMOPT_VARIABLE ? session->getManifest().findVariable(name) : nullptr;
    bool isEncoded = variable && variable->encoding;
    int64_t expected = isEncoded ? variable->getWholeBytes() : tensor->bytes;
    if (bytes != expected)
      return badInput(quote(name) + " has " + std::to_string(expected) + " bytes, not " +
                      std::to_string(bytes));
    if (isEncoded)
      return session->getProgram().decode(*variable, static_cast<float *>(target));
    return session->getProgram().readTensor(*tensor, target);
  });
}

int32_t memopt_session_set_rate(memopt_session *session, const char *variable, double rate,
                                memopt_error *error) {
  return guard(error, [&]() -> Status {
    MEMOPT_ASSIGN_OR_RETURN(const VariableSpec *target,
                            findTensor(session->getManifest().variables, "variable", variable));
    if (target->isGroupRate() || target->isOptimizerSetting()) {
      session->getSaid().rates[target] = rate;
      if (std::isfinite(rate))
        session->state.numbers[target->name] = rate;
    } else if (target == session->getManifest().findHyperparameter("lr")) {
      session->getSaid().rate = rate;
    } else {
      return badInput("variable " + quote(variable) +
                      " is neither a learning rate nor another number of the optimizer");
    }
    writeNumbers(*session);
    return Status::ok();
  });
}
