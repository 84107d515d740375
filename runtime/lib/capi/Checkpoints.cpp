//===- Checkpoints.cpp - checkpoints of a session, and of files -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CSession.h"
#include "memopt-runtime/ranks/KeepAlive.h"
#include <algorithm>
#include <list>
#include <tuple>

using namespace memopt;
using namespace memopt::capi;

int32_t memopt_session_save(memopt_session *session, const char *folder, memopt_error *error) {
  return guard(error, [&]() -> Status {
    MEMOPT_RETURN_IF_ERROR(checkFinite(session->getFirst(), session->state));
    Communicator *ranks = session->member ? &session->member->getCommunicator() : nullptr;
    if (ranks && ranks->getRank() != 0) {
      MEMOPT_RETURN_IF_ERROR(contributeToCheckpoint(session->getFirst()));
      return ranks->barrier();
    }
    {
      KeepAlive keepAlive(ranks); // a server of files may be slow
      KeepAlive::Work work(keepAlive);
      MEMOPT_ASSIGN_OR_RETURN(CheckpointFolder target, CheckpointFolder::open(folder));
      MEMOPT_RETURN_IF_ERROR(target.save(session->getFirst(), session->state));
    }
    return ranks ? ranks->barrier() : Status::ok();
  });
}

int32_t memopt_session_load(memopt_session *session, const char *folder, memopt_error *error) {
  return guard(error, [&]() -> Status {
    forgetValues(*session);
    MEMOPT_ASSIGN_OR_RETURN(TrainingState state, loadCheckpoint(folder, session->getFirst()));
    // Where its data stands the caller knows; what is kept for memopt-run is the nearest batch.
    (void)state.countBatchesOf(session->state.batchSize);
    session->state = std::move(state);
    session->said.front().rate = session->state.schedule.rate;
    for (ProgramInputs &said : session->said)
      for (auto &[variable, rate] : said.rates)
        if (auto found = session->state.numbers.find(variable->name);
            found != session->state.numbers.end())
          rate = found->second;
    session->missing.clear();
    return Status::ok();
  });
}

namespace {
/// Tensors as files have them: row-major.
struct NamedTensors {
  std::vector<TensorToWrite> tensors;
  std::list<std::vector<char>> copies; ///< of those that were not

  Status add(const memopt_named_view &named) {
    const memopt_view &view = named.view;
    std::optional<DType> dtype = parseDType(view.dtype ? view.dtype : "");
    if (!named.name || !dtype || view.rank < 0)
      return badInput("has no name, or elements of unknown type " +
                      quote(view.dtype ? view.dtype : ""));
    TensorView tensor{static_cast<const char *>(view.data), *dtype, {}, {}};
    if (view.rank)
      tensor.shape.assign(view.shape, view.shape + view.rank);
    MEMOPT_ASSIGN_OR_RETURN(int64_t bytes, getTensorBytes(*dtype, tensor.shape));
    if (!tensor.data && bytes)
      return badInput("has no data");
    tensor.strides = getRowMajorStrides(tensor.shape);
    if (view.strides && !std::equal(tensor.strides.begin(), tensor.strides.end(), view.strides)) {
      tensor.strides.assign(view.strides, view.strides + view.rank);
      copies.emplace_back(size_t(bytes));
      MEMOPT_RETURN_IF_ERROR(tensor.copyTo(*dtype, copies.back().data()));
      tensor.data = copies.back().data();
    }
    tensors.push_back({named.name, *dtype, tensor.shape, tensor.data});
    return Status::ok();
  }
};
} // namespace

int32_t memopt_checkpoint_write(const char *folder, const memopt_named_view *model, int64_t models,
                                const memopt_named_view *optimizer, int64_t optimizers,
                                const char *state, memopt_error *error) {
  return guard(error, [&]() -> Status {
    StatusOr<TrainingState> parsed = parseTrainingState(state);
    if (!parsed.isOk())
      return parsed.takeStatus().withContext("the state");
    NamedTensors files[2];
    for (auto [file, views, count] :
         {std::tuple(&files[0], model, models), std::tuple(&files[1], optimizer, optimizers)})
      for (int64_t i = 0; i < count; ++i)
        MEMOPT_RETURN_IF_ERROR(
            file->add(views[i]).withContext("tensor " + quote(views[i].name ? views[i].name : "")));
    MEMOPT_ASSIGN_OR_RETURN(CheckpointFolder target, CheckpointFolder::open(folder));
    return target.save({std::move(files[0].tensors), std::move(files[1].tensors)}, *parsed);
  });
}
