// What tatara.explain() shows of a compilation, as plain Python data.
#pragma once

#include <string>

#include "capture/python/py.h"
#include "capture/tape/tape.h"
#include "compiler/compiler.h"

namespace tatara::capture {

/// A dict: id, nodes, inputs, outputs, kernels, steps, buffers, host_calls, times, notes (see python/tatara/report/_report.py).
/// Null with a Python error set.
Ref details_of(const CompileResult& compiled);

/// The same of a graph that runs in parts, made from theirs. Nothing is told where memory is short.
class JoinedDetails {
 public:
  JoinedDetails();
  /// A call between the parts, and why it is in none.
  void host(const TapeNode& node, const std::string& why);
  /// One part's; kernels are numbered through.
  void join(const Ref& part);
  Ref take();

 private:
  Ref list(const char* name);
  Ref details_;
};

}  // namespace tatara::capture
