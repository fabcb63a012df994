// Names of attributes that nodes of ours, their stages and tensors are asked for in each run.
#pragma once

#include "capture/python/py.h"
#include "support/made_once.h"

namespace tatara::capture {

struct NodeNames {
  PyObject* stage = PyUnicode_InternFromString("stage");
  PyObject* group = PyUnicode_InternFromString("group");
  PyObject* given = PyUnicode_InternFromString("given");
  PyObject* not_inputs = PyUnicode_InternFromString("not_inputs");
  PyObject* kept = PyUnicode_InternFromString("kept");
  PyObject* numbers = PyUnicode_InternFromString("numbers");
  PyObject* kept_tensors = PyUnicode_InternFromString("kept_tensors");
  PyObject* saved_tensors = PyUnicode_InternFromString("saved_tensors");
  PyObject* maybe_clear_saved_tensors = PyUnicode_InternFromString("maybe_clear_saved_tensors");
  PyObject* needs_input_grad = PyUnicode_InternFromString("needs_input_grad");
  PyObject* to_save = PyUnicode_InternFromString("to_save");
  PyObject* materialize_grads = PyUnicode_InternFromString("materialize_grads");
  PyObject* grad_fn = PyUnicode_InternFromString("grad_fn");
  PyObject* version = PyUnicode_InternFromString("_version");
  PyObject* run = PyUnicode_InternFromString("run");
  PyObject* backward = PyUnicode_InternFromString("backward");
  PyObject* differentiable = PyUnicode_InternFromString("differentiable");
  PyObject* views = PyUnicode_InternFromString("views");
  PyObject* groups = PyUnicode_InternFromString("groups");
  PyObject* layouts = PyUnicode_InternFromString("layouts");
};

inline const NodeNames& node_names() {
  return made_once([] { return NodeNames(); });
}

}  // namespace tatara::capture
