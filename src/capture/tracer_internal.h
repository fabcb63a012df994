// What the tracer's source files share.
#pragma once

#include "capture/trace_context.h"
#include "capture/tracer.h"

namespace tatara::capture {

/// A switch of the host's that a trace throws as the program does (switches.cpp).
bool is_thrown_switch(std::string_view name);

/// One call of `hang`: results that get a history, and what decides it.
struct FunctionCall {
  PyObject* cls = nullptr;
  PyObject* context = nullptr;
  PyObject* args = nullptr;
  std::vector<PyObject*> results;
  std::vector<int> outputs;   // slots of those that get a history
  std::vector<bool> follows;  // per result: it is one of these
  std::vector<int> places;    // arguments that require grad
  bool materialize = true;
};

/// What the engine is asked for: tensors by their slots.
struct EngineCall {
  std::vector<int> roots, cotangents, variables;
  std::vector<PyObject*> tensors;  // of the variables
  std::vector<Ref> hooks;          // of the variables: gradient_hooks()
  bool keep = false, accumulate = false, unused = false, create = false;
};

/// A call of Python code that is traced ahead of its time (Tracer::trace_ahead).
struct AheadRun {
  size_t slots = 0;  // that there were before
  Ref returned;
  std::vector<TapeNode> nodes;  // what it recorded, which is off the tape again
  std::string problem;          // empty: it came to its end, and nothing of it may be seen
};

/// Whether it is known what strides a gradient by a tensor, which has these in this call, has where its sizes vary.
bool knows_layout(const TapeSlot& variable, const std::vector<int64_t>& strides);
/// Whether tensors have the same dtype and sizes.
bool same_type(const TapeSlot& a, const TapeSlot& b);

/// A call of the host's on meta tensors, which tells what its results are. Null with a Python error set.
Ref call_meta(PyObject* func, PyObject* args, PyObject* kwargs);

/// A function of the package's own Python code.
Ref package_function(const char* module, const char* name);

/// The torch-function mode of tracers.
PyObject* mode_object();

}  // namespace tatara::capture
