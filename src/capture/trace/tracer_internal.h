// What the tracer's source files share.
#pragma once

#include "capture/trace/trace_context.h"
#include "capture/trace/tracer.h"
#include "capture/vm/interrupts.h"

namespace tatara::capture {

bool is_of_library(std::string_view name);
/// Whether a call of this name writes to one of its operands.
bool writes_to_operand(std::string_view name, PyObject* kwargs);
/// A call of the host's on meta tensors, which tells what its results are. Null with a Python error set.
Ref call_meta(PyObject* func, PyObject* args, PyObject* kwargs);

/// Of a torch.Generator that the tape makes, or that is another one in each call; -1: it is the same in each.
int generator_slot(Trace& trace, PyObject* generator);

/// Two tensors that stand for a foreign one: of its layout, type and sizes, with other elements. Null with a Python error set.
Ref foreign_stand_ins(const TorchApi& api, PyObject* tensor);

/// The torch-function mode of tracers.
PyObject* mode_object();

}  // namespace tatara::capture
