//===- Trace.cpp - a timeline of instructions -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/Trace.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/Files.h"
#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace memopt;

Trace::Trace(const Manifest &manifest, int64_t steps) : manifest(manifest), begin(getTime()) {
  int64_t perStep = int64_t(manifest.instructions.size()) + 1;
  int64_t whole = std::min(maxEvents / perStep, steps);
  events.reserve(size_t(whole * perStep));
  flights.reserve(size_t(whole) * manifest.collectives.size());
}

void Trace::addFlight(int64_t collective, Collectives::Times times) {
  if (flights.size() < flights.capacity())
    flights.push_back({collective, times.begin - begin, times.end - begin});
}

void Trace::beginInstruction(int64_t index) {
  if (events.size() < events.capacity())
    events.push_back({index, getTime() - begin});
}

/// Microseconds with three decimals, the unit of the format.
static std::string toMicroseconds(int64_t nanoseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", double(nanoseconds) / 1000);
  return text;
}

static std::string toJsonString(const std::string &text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status Trace::write(const std::string &path) const {
  MEMOPT_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::create(path));
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
                     "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 1, \"args\": {\"name\": "
                     "\"memopt-run\"}}";
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Event &event = events[i];
    if (event.instruction >= int64_t(manifest.instructions.size()))
      continue; // the end of a step, between two of them nothing runs
    const InstructionSpec &instruction = manifest.instructions[size_t(event.instruction)];
    std::string start = toMicroseconds(event.nanoseconds);
    text +=
        ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"name\": " + toJsonString(instruction.name) +
        ", \"cat\": " + toJsonString(instruction.kind) + ", \"ts\": " + start +
        ", \"dur\": " + toMicroseconds(events[i + 1].nanoseconds - event.nanoseconds) +
        ", \"args\": {\"module\": " + toJsonString(instruction.module) +
        ", \"ops\": " + toJsonString(instruction.ops) + "}}" +
        ",\n{\"ph\": \"C\", \"pid\": 1, \"name\": \"live bytes\", \"ts\": " + start +
        ", \"args\": {";
    for (int space = 0; space < countedSpaces; ++space)
      text += std::string(space ? ", \"" : "\"") + getSpaceName(space) +
              "\": " + std::to_string(instruction.liveBytes[space]);
    text += "}}";
    if (text.size() > 1 << 20) {
      MEMOPT_RETURN_IF_ERROR(writer.write(text.data(), text.size()));
      text.clear();
    }
  }
  if (!flights.empty())
    text += ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": 2, \"args\": "
            "{\"name\": \"other ranks\"}}";
  for (const FlightEvent &flight : flights)
    text += ",\n{\"ph\": \"X\", \"pid\": 1, \"tid\": 2, \"name\": \"" +
            getName(manifest.collectives[size_t(flight.collective)].kind) + "." +
            std::to_string(flight.collective) +
            "\", \"cat\": \"collective\", \"ts\": " + toMicroseconds(flight.begin) +
            ", \"dur\": " + toMicroseconds(flight.end - flight.begin) + "}";
  text += "\n]}\n";
  MEMOPT_RETURN_IF_ERROR(writer.write(text.data(), text.size()));
  return writer.commit();
}
