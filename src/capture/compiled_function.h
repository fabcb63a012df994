// The object that tatara.compile gives: a callable with vectorcall.
#pragma once

#include <Python.h>

namespace tatara::capture {

/// The type `CompiledFunction(function, backend, fullgraph, self)`; self (a module or None) goes before the arguments.
/// New reference, null with an error set.
PyObject* compiled_function_type();

/// Counters for tatara.stats(): a new dict.
PyObject* stats_dict();
bool is_tracing();
/// Forgets the entries of every compiled function.
void reset_all();

}  // namespace tatara::capture
