// The object that tatara.compile gives, as the tracer and its own methods (compiled_function.cpp) know it.
#pragma once

#include <Python.h>

#include <cstring>

#include "capture/entries/owner.h"

namespace tatara::capture {

struct CompiledFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;  // what is called on a miss
  PyObject* self;      // prepended to the arguments, or null
  PyObject* dict;
  PyObject* weakrefs;
  TraceOwner* owner;
};

inline constexpr const char* kCompiledFunctionName = "tatara._core.CompiledFunction";

/// Null for other objects.
inline CompiledFunction* as_compiled(PyObject* object) {
  const bool is_one = std::strcmp(Py_TYPE(object)->tp_name, kCompiledFunctionName) == 0;
  return is_one ? reinterpret_cast<CompiledFunction*>(object) : nullptr;
}

}  // namespace tatara::capture
