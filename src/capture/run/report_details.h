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
/// One of the steps: a call between compiled parts, and why it is in none. Null with a Python error set.
Ref step_between(const TapeNode& node, const std::string& why);

}  // namespace tatara::capture
