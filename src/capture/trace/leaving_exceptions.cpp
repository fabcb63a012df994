// Exceptions that leave compiled functions. A trace that ends so has no entry: the call's effects have happened, and its error is of
// its own. Without more, each such call would be traced anew.
#include <frameobject.h>

#include "capture/entries/owner.h"
#include "capture/trace/trace_ends.h"

namespace tatara::capture {

void TraceEnds::note_leaving(PyObject* error) {
  if (error == nullptr || owner_.fullgraph || !context_.whole.empty()) return;
  // The root itself is not among the frames of the traceback yet.
  const Ref trace = Ref::steal(PyException_GetTraceback(error));
  auto* innermost = reinterpret_cast<PyTracebackObject*>(trace.get());
  while (innermost != nullptr && innermost->tb_next != nullptr) innermost = innermost->tb_next;
  const Frame& root = *context_.root;
  const Ref code = innermost != nullptr ? Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(innermost->tb_frame)))
                                        : Ref::borrow(reinterpret_cast<PyObject*>(root.code()));
  ++owner_.raised[{code.get(), innermost != nullptr ? innermost->tb_lasti : root.opcode_offset()}];
}

bool TraceEnds::leaves_again(const Frame& f) const {
  constexpr int kEnough = 2;  // the first one may be the last
  if (owner_.raised.empty() || context_.ahead != nullptr || context_.dry_run) return false;
  const auto found = owner_.raised.find({reinterpret_cast<PyObject*>(f.code()), f.opcode_offset()});
  return found != owner_.raised.end() && found->second >= kEnough;
}

bool TraceEnds::leave_in_eager() {
  decided_.leaving = true;
  return graph_break("an exception leaves the compiled function", true);
}

}  // namespace tatara::capture
