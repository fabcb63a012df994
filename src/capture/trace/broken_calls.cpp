// Calls in which graphs have broken. A break far below costs each frame above it a graph: without this, one more in each call.
#include <algorithm>

#include "capture/entries/owner.h"
#include "capture/host/natures.h"
#include "capture/trace/function_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/trace_context.h"
#include "capture/trace/trace_ends.h"

namespace tatara::capture {

bool TraceContext::may_be_root(const Frame& f) const {
  // Without torch, what is behind a break is as fast in NumPy as a graph in between.
  if (!api.present() || f.is_generator() || is_library_code(f.code(), api)) return false;
  // The context of an autograd.Function is another one in each call: no entry would ever serve two of them.
  return f.code()->co_argcount == 0 || f.local(0) == nullptr || !is_of_functions(Py_TYPE(f.local(0)));
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

bool TraceContext::makes_apart(const Frame& f) const {
  if (owner.generators_apart.empty() || !tracing() || ahead != nullptr || dry_run || f.resumed || f.throwing)
    return false;
  return (f.code()->co_flags & CO_GENERATOR) != 0 && !frames.empty() && frames.back() == root &&
         owner.generators_apart.contains(reinterpret_cast<PyObject*>(root->code()));
}

bool TraceEnds::leave_keys() {
  PyObject* const code = reinterpret_cast<PyObject*>(context_.root->code());
  // What comes behind the break would find other keys in each call, and each point there be compiled anew.
  if (owner_.keys_by_value.contains(code) || !numbers().holds_free_keys() || !retry()) return false;
  owner_.keys_by_value.insert(code);
  return true;
}

bool TraceEnds::leave_generators() {
  PyObject* const code = reinterpret_cast<PyObject*>(context_.root->code());
  if (owner_.fullgraph || context_.dry_run || context_.ahead != nullptr || owner_.generators_apart.contains(code))
    return false;
  const auto is_generator = [this](PyObject* o) { return PyGen_CheckExact(o) && born(o); };
  const auto holds = [&](const Ref& value) {
    if (!value || !born(value.get())) return false;
    if (is_generator(value.get())) return true;
    if (nature_of(value.get(), api_) != Nature::kIterator) return false;
    const std::vector<PyObject*> parts = referents(value.get());  // of enumerate, zip, map
    return std::any_of(parts.begin(), parts.end(), is_generator);
  };
  const Trace::Snapshot& snap = trace_->snap;
  if (std::none_of(snap.locals.begin(), snap.locals.end(), holds) &&
      std::none_of(snap.stack.begin(), snap.stack.end(), holds)) {
    return false;
  }
  if (!retry()) return false;
  owner_.generators_apart.insert(code);
  return true;
}

}  // namespace tatara::capture
