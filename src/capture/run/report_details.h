// What tatara.explain() shows of a compilation, as plain Python data.
#pragma once

#include "capture/python/py.h"
#include "compiler/compiler.h"

namespace tatara::capture {

/// A dict: id, nodes, inputs, outputs, kernels, steps, buffers, host_calls, times, notes (see python/tatara/report/_report.py).
/// Null with a Python error set.
Ref details_of(const CompileResult& compiled);

}  // namespace tatara::capture
