// The results of training stages as results of nodes of the host's autograd.
#pragma once

#include "capture/python/py.h"

namespace tatara::capture {

/// What nodes are made with: the class CompiledNode (tatara.torch._training), and the host's own `apply` of it, which its Python
/// layer calls in the end. Called once, when that module is imported.
void install_compiled_node(PyObject* node, PyObject* apply);

/// CompiledNode.forward(context, stage, group, given, outputs, saved, *inputs): the outputs, which were computed before. The
/// context keeps what a backward pass needs. A new reference.
PyObject* compiled_node_forward();

/// A list of the outputs of a stage (tatara._core.TrainingStage) for a list of inputs, as eager would give them. None when they are
/// not as compiled for; null with a Python error set. `given`: what is remembered of this run.
Ref call_stage(PyObject* stage, PyObject* inputs, PyObject* given);

/// The same for a chain of stages, a list of (stage, sources, targets): each reads inputs and results of those before it. The
/// results are those behind the inputs.
Ref run_stages(PyObject* stages, PyObject* inputs, PyObject* given);

}  // namespace tatara::capture
