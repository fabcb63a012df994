// A call on its way to the tape, while TorchTracing::record is at work.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "capture/trace/torch_tracing.h"

namespace tatara::capture {

struct TorchTracing::Recording {
  const TorchFunction& fn;
  PyObject* func;
  PyObject* args;
  PyObject* kwargs;
  Ref cast_args = {}, cast_kwargs = {};  // what autocast has made of them
  Ref tape_args = {}, tape_kwargs = {};
  size_t tensors = 0;
  Ref device = {};                       // of the results
  std::string problem = {};              // why it cannot be recorded
  std::span<const int64_t> values = {};  // of the symbols, where the host is asked for others than this call's
  bool by_value = false;                 // numbers that vary are not left to the graph
  bool varying = false;                  // some are
  bool foreign = false;                  // a sparse or quantised tensor is among its operands, or its results
};

}  // namespace tatara::capture
