#include "capture/run/forward_node.h"

#include "capture/entries/global_state.h"
#include "capture/host/package.h"
#include "capture/host/torch_api.h"
#include "capture/run/node_names.h"
#include "capture/run/stage_groups.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

/// Leaked, as what is used to the end.
struct NodeClass {
  PyObject* type = nullptr;
  PyObject* apply = nullptr;
};

NodeClass& node_class() { return made_once<NodeClass>(); }

/// What a call of CompiledNode is given before the inputs of its stage, and forward behind its context.
constexpr Py_ssize_t kNotInputs = 5;

/// What second derivatives may read: (the tensor, its version). Null with a Python error set.
Ref kept_for_second(PyObject* input) {
  const TorchApi& api = *TorchApi::get();
  if (!api.is_tensor(input)) return Ref::steal(Py_BuildValue("(Oi)", input, 0));
  const Ref history = Ref::steal(PyObject_GetAttr(input, node_names().grad_fn));
  if (!history) return {};
  // Another node of ours may give the object of its result other contents.
  if (history.get() != Py_None) return call_package<PackageFunction::kKept>(input);
  const Ref version = Ref::steal(PyObject_GetAttr(input, node_names().version));
  return version ? Ref::steal(PyTuple_Pack(2, input, version.get())) : Ref();
}

/// The saved values as a tuple, with None in the place of Python numbers, which the context gets. Null with a Python error set.
Ref without_numbers(PyObject* context, PyObject* saved) {
  Ref tuple = Ref::steal(PySequence_Tuple(saved));
  Ref numbers;
  for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple.get()); ++i) {
    PyObject* const item = PyTuple_GET_ITEM(tuple.get(), i);
    if (PyFloat_Check(item) == 0 && PyLong_Check(item) == 0) continue;
    if (!numbers) numbers = Ref::steal(PyDict_New());
    const Ref place = Ref::steal(PyLong_FromSsize_t(i));
    if (!numbers || !place || PyDict_SetItem(numbers.get(), place.get(), item) != 0) return {};
    PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(Py_None));
    Py_DECREF(item);
  }
  if (numbers && PyObject_SetAttr(context, node_names().numbers, numbers.get()) != 0) return {};
  return tuple;
}

PyObject* node_forward(PyObject*, PyObject* args) {
  if (PyTuple_GET_SIZE(args) < 1 + kNotInputs) {
    PyErr_SetString(PyExc_TypeError, "forward(context, stage, group, given, outputs, saved, *inputs)");
    return nullptr;
  }
  const auto arg = [&](Py_ssize_t i) { return PyTuple_GET_ITEM(args, i); };
  PyObject* const context = arg(0);
  static PyObject* const count = PyLong_FromSsize_t(kNotInputs);
  const auto set = [&](PyObject* name, PyObject* value) { return PyObject_SetAttr(context, name, value) == 0; };
  const DescribedGroup group(arg(2));
  const Ref kept = Ref::steal(PyList_New(PyTuple_GET_SIZE(group.second_inputs())));
  for (Py_ssize_t i = 0; kept && i < PyList_GET_SIZE(kept.get()); ++i) {
    Ref item = kept_for_second(arg(1 + kNotInputs + place_of(group.second_inputs(), i)));
    if (!item) return nullptr;
    PyList_SET_ITEM(kept.get(), i, item.release());
  }
  if (!kept || !set(node_names().stage, arg(1)) || !set(node_names().group, arg(2)) ||
      !set(node_names().given, arg(3)) || !set(node_names().not_inputs, count) || !set(node_names().kept, kept.get()) ||
      !set(node_names().materialize_grads, Py_False)) {
    return nullptr;
  }
  const Ref saved = group.used_up() ? without_numbers(context, arg(5)) : Ref::steal(PySequence_Tuple(arg(5)));
  if (!saved || !set(group.used_up() ? node_names().to_save : node_names().kept_tensors, saved.get())) return nullptr;
  return Py_NewRef(arg(4));
}

bool holds(PyObject* places, Py_ssize_t place) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); ++i) {
    if (place_of(places, i) == place) return true;
  }
  return false;
}

/// A run of a stage whose results get their histories.
class StageCall {
 public:
  StageCall(PyObject* stage, PyObject* inputs, PyObject* given, Ref outputs, PyObject* saved)
      : stage_(stage), inputs_(inputs), given_(given), outputs_(std::move(outputs)), saved_(saved) {}

  /// Makes the node of a group. False with a Python error set.
  bool make_node(PyObject* described, PyObject* differentiable) {
    const DescribedGroup group(described);
    const Py_ssize_t results = PyTuple_GET_SIZE(group.results());
    const auto place = [&](Py_ssize_t k) { return place_of(differentiable, place_of(group.results(), k)); };
    const Ref values = Ref::steal(PyTuple_New(results)), saved = saved_values(group);
    for (Py_ssize_t k = 0; values && k < results; ++k)
      PyTuple_SET_ITEM(values.get(), k, Py_NewRef(PyList_GET_ITEM(outputs_.get(), place(k))));
    const Py_ssize_t inputs = PyList_GET_SIZE(inputs_);
    const Ref args = Ref::steal(PyTuple_New(kNotInputs + inputs));
    if (!values || !saved || !args) return false;
    PyObject* const first[kNotInputs] = {stage_, described, given_, values.get(), saved.get()};
    for (Py_ssize_t i = 0; i < kNotInputs; ++i) PyTuple_SET_ITEM(args.get(), i, Py_NewRef(first[i]));
    for (Py_ssize_t i = 0; i < inputs; ++i) {
      Ref operand = operand_of(group, i);
      if (!operand) return false;
      PyTuple_SET_ITEM(args.get(), kNotInputs + i, operand.release());
    }
    const Ref made = applied(args.get());
    if (!made) return false;
    for (Py_ssize_t k = 0; k < results; ++k) {
      if (PyList_SetItem(outputs_.get(), place(k), Py_NewRef(PyTuple_GET_ITEM(made.get(), k))) != 0) return false;
    }
    return true;
  }

  /// Makes a view of what has a history now (TrainingStage.views). False with a Python error set.
  bool make_view(PyObject* described) {
    const Py_ssize_t place = place_of(described, 0), base = place_of(described, 2);
    const bool of_input = PyTuple_GET_ITEM(described, 1) == Py_True, needs = PyTuple_GET_ITEM(described, 3) == Py_True;
    PyObject* const view = PyList_GET_ITEM(outputs_.get(), place);
    Ref source = Ref::borrow(PyList_GET_ITEM(of_input ? inputs_ : outputs_.get(), base));
    if (!needs) source = Ref::steal(PyObject_CallMethod(source.get(), "detach", nullptr));
    if (!source) return false;
    if (dtype_object(source.get()).get() != dtype_object(view).get()) {
      Ref made = call_package<PackageFunction::kViewLike>(source.get(), view);
      return made && PyList_SetItem(outputs_.get(), place, made.release()) == 0;
    }
    const Ref size = Ref::steal(PyObject_GetAttrString(view, "shape"));
    const Ref stride = Ref::steal(size ? PyObject_CallMethod(view, "stride", nullptr) : nullptr);
    const Ref offset = Ref::steal(stride ? PyObject_CallMethod(view, "storage_offset", nullptr) : nullptr);
    if (!offset) return false;
    PyObject* const made =
        PyObject_CallMethod(source.get(), "as_strided", "OOO", size.get(), stride.get(), offset.get());
    return made != nullptr && PyList_SetItem(outputs_.get(), place, made) == 0;
  }

  Ref outputs() { return std::move(outputs_); }

 private:
  /// What the group keeps for its backward plan, and what is kept for its version alone.
  Ref saved_values(const DescribedGroup& group) const {
    Ref list = Ref::steal(PyList_New(0));
    bool fine = static_cast<bool>(list);
    const auto add = [&](PyObject* places, const auto& item) {
      for (Py_ssize_t i = 0; fine && i < PyTuple_GET_SIZE(places); ++i)
        fine = PyList_Append(list.get(), item(place_of(places, i))) == 0;
    };
    add(group.saved(), [&](Py_ssize_t i) { return PyTuple_GET_ITEM(saved_, i); });
    if (fine && group.used_up()) {
      add(group.checked_inputs(), [&](Py_ssize_t i) { return PyList_GET_ITEM(inputs_, i); });
      add(group.checked_outputs(), [&](Py_ssize_t i) { return PyList_GET_ITEM(outputs_.get(), i); });
    }
    return fine ? std::move(list) : Ref();
  }

  /// An input as the group's node gets it: without its history where no result's is in it.
  Ref operand_of(const DescribedGroup& group, Py_ssize_t i) const {
    PyObject* const input = PyList_GET_ITEM(inputs_, i);
    if (!holds(group.unreached(), i)) return Ref::borrow(input);
    if (!holds(group.second_inputs(), i)) return Ref::borrow(Py_None);
    return Ref::steal(PyObject_CallMethod(input, "detach", nullptr));
  }

  static Ref dtype_object(PyObject* tensor) { return attr_or_null(tensor, "dtype"); }

  static Ref applied(PyObject* args) {
    const NodeClass& node = node_class();
    if (!in_a_level(*TorchApi::get())) return Ref::steal(PyObject_CallObject(node.apply, args));
    const Ref apply = Ref::steal(PyObject_GetAttrString(node.type, "apply"));
    return apply ? Ref::steal(PyObject_CallObject(apply.get(), args)) : Ref();
  }

  PyObject *stage_, *inputs_, *given_;
  Ref outputs_;
  PyObject* saved_;
};

}  // namespace

void install_compiled_node(PyObject* node, PyObject* apply) { node_class() = {Py_NewRef(node), Py_NewRef(apply)}; }

PyObject* compiled_node_forward() {
  static PyMethodDef method = {"forward", node_forward, METH_VARARGS,
                               "forward(context, stage, group, given, outputs, saved, *inputs)\n--\n\nThe "
                               "outputs, which were computed before."};
  return PyCFunction_New(&method, nullptr);
}

Ref call_stage(PyObject* stage, PyObject* inputs, PyObject* given) {
  const Ref done = Ref::steal(PyObject_CallMethodOneArg(stage, node_names().run, inputs));
  if (!done || done.get() == Py_None) return done;
  Ref outputs = Ref::steal(PySequence_List(PyTuple_GET_ITEM(done.get(), 0)));
  const Ref differentiable = Ref::steal(outputs ? PyObject_GetAttr(stage, node_names().differentiable) : nullptr);
  const Ref views = Ref::steal(differentiable ? PyObject_GetAttr(stage, node_names().views) : nullptr);
  const Ref groups = Ref::steal(views ? PyObject_GetAttr(stage, node_names().groups) : nullptr);
  if (!groups) return {};
  if (PyTuple_GET_SIZE(differentiable.get()) + PyTuple_GET_SIZE(views.get()) == 0) return outputs;
  const GradientsSet recording(*TorchApi::get(), true);
  StageCall call(stage, inputs, given, std::move(outputs), PyTuple_GET_ITEM(done.get(), 1));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(groups.get()); ++i) {
    if (!call.make_node(PyTuple_GET_ITEM(groups.get(), i), differentiable.get())) return {};
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(views.get()); ++i) {
    if (!call.make_view(PyTuple_GET_ITEM(views.get(), i))) return {};
  }
  return call.outputs();
}

Ref run_stages(PyObject* stages, PyObject* inputs, PyObject* given) {
  const Ref values = Ref::steal(PySequence_List(inputs));
  const Py_ssize_t before = values ? PyList_GET_SIZE(values.get()) : 0;
  for (Py_ssize_t number = 0; values && number < PyList_GET_SIZE(stages); ++number) {
    PyObject* const item = PyList_GET_ITEM(stages, number);
    PyObject *const sources = PyTuple_GET_ITEM(item, 1), *const targets = PyTuple_GET_ITEM(item, 2);
    const Ref operands = Ref::steal(PyList_New(PyTuple_GET_SIZE(sources)));
    for (Py_ssize_t i = 0; operands && i < PyTuple_GET_SIZE(sources); ++i) {
      const Py_ssize_t source = place_of(sources, i);
      PyList_SET_ITEM(operands.get(), i, Py_NewRef(PyList_GET_ITEM(values.get(), source)));
    }
    const Ref remembered = given == Py_None ? Ref::borrow(Py_None) : Ref::steal(Py_BuildValue("(On)", given, number));
    Ref outputs =
        operands && remembered ? call_stage(PyTuple_GET_ITEM(item, 0), operands.get(), remembered.get()) : Ref();
    if (!outputs || outputs.get() == Py_None) return outputs;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(targets); ++i) {
      const Py_ssize_t target = place_of(targets, i);
      while (PyList_GET_SIZE(values.get()) <= target) {
        if (PyList_Append(values.get(), Py_None) != 0) return {};
      }
      if (i >= PyList_GET_SIZE(outputs.get())) continue;
      if (PyList_SetItem(values.get(), target, Py_NewRef(PyList_GET_ITEM(outputs.get(), i))) != 0) return {};
    }
  }
  return values ? Ref::steal(PyList_GetSlice(values.get(), before, PyList_GET_SIZE(values.get()))) : Ref();
}

}  // namespace tatara::capture
