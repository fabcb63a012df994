// A node of ours in a backward pass of the host's engine.
//
// No Python code runs while the engine goes through its own nodes, so to eager a pass is one step: no handler of a signal sees
// half of the gradients, and no exception that another thread sends (PyThreadState_SetAsyncExc) leaves them. So a node without
// anything unusual runs no Python code, where such an exception would be raised. At others handlers wait until the pass is over.
#pragma once

#include "capture/python/py.h"

namespace tatara::capture {

/// What the engine calls for a tatara.torch._training.CompiledNode, as a method of its context: apply(context, *cotangents), the
/// gradients of the node's inputs. Calls CompiledNode.backward where cotangents are batches, belong to a level of torch.func, have
/// tangents or a layout of their own, or where gradients are to have gradients. A new reference.
PyObject* compiled_node_apply();

}  // namespace tatara::capture
