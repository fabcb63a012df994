// torch.utils.checkpoint while a trace is open (tracer_checkpoint.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "capture/host/package.h"
#include "capture/trace/trace_context.h"

namespace tatara::capture {

class CheckpointTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  PyObject* enter_checkpoint(PyObject* callable, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* enter_reentrant(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* make_region(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  PyObject* mark_region(PyObject* state, PyObject* step);

  /// Whether the trace is inside of a checkpoint that eager runs without gradients.
  bool in_reentrant() const {
    return std::any_of(own_.regions.begin(), own_.regions.end(), [](const OpenRegion& open) { return open.reentrant; });
  }
  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  struct OpenRegion {
    size_t node = 0;  // of its beginning
    size_t effects = 0;
    std::vector<int64_t> versions;  // of the memory behind each slot
    bool reentrant = false;
  };

  PyObject* call_for_checkpoint(PackageFunction function, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  bool reads_history(size_t first, PyObject* arguments) const;
  std::string region_problem() const;

  /// Of one trace.
  struct Own {
    std::vector<OpenRegion> regions;  // that are open
  };
  Own own_;
};

}  // namespace tatara::capture
