// Calls in which graphs have broken. A break far below costs each frame above it a graph: without this, one more in each call.
#include "capture/entries/owner.h"
#include "capture/trace/trace_context.h"

namespace tatara::capture {

bool TraceContext::may_be_root(const Frame& f) const {
  // Without torch, what is behind a break is as fast in NumPy as a graph in between.
  return api.present() && !f.is_generator() && !is_library_code(f.code(), api);
}

/// The module whose method the frame runs, or null.
static PyObject* module_of(const Frame& f, const TorchApi& api) {
  PyObject* self = f.code()->co_argcount > 0 ? f.local(0) : nullptr;
  if (self != nullptr && PyCell_Check(self)) self = PyCell_GET(self);
  return self != nullptr && api.is_module(self) ? self : nullptr;
}

void TraceContext::note_broken_calls() {
  bool below = false;
  for (const Frame* frame : frames) {
    PyObject* const self = below && may_be_root(*frame) ? module_of(*frame, api) : nullptr;
    if (self != nullptr) owner.broken_calls.emplace(reinterpret_cast<PyObject*>(frame->code()), self);
    below = below || frame == root;
  }
}

bool TraceContext::breaks_inside(const Frame& f) const {
  // Where the trace begins with the call of a function that is below a break itself.
  if (owner.broken_calls.empty() || trace->start.offset != 0 || trace->start.of_call) return false;
  if (ahead != nullptr || dry_run || f.resumed || f.throwing || !may_be_root(f)) return false;
  for (auto it = frames.rbegin(); it != frames.rend() && *it != root; ++it) {
    if (may_be_root(**it)) return false;
  }
  PyObject* const self = module_of(f, api);
  return self != nullptr && owner.broken_calls.contains({reinterpret_cast<PyObject*>(f.code()), self});
}

}  // namespace tatara::capture
