// torch.utils.checkpoint while a trace is open. Its own Python code runs in the virtual machine, but for the generator that puts
// hooks on saved tensors: one of ours stands in for it, which marks both ends of the region on the tape. The run of the open
// trace calls torch's generator there, so what the present call leaves behind is eager's in every respect.
#include <algorithm>
#include <set>

#include "capture/trace/checkpoint_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// Keyword arguments of a vectorcall.
Ref keywords_of(PyObject* const* values, PyObject* names) {
  Ref dict = Ref::steal(PyDict_New());
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
    PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(names, i), values[i]);
  }
  return dict;
}

}  // namespace

/// Calls the function that torch wraps, past the switch for its own compiler.
PyObject* CheckpointTracing::enter_checkpoint(PyObject* callable, PyObject* const* args, Py_ssize_t nargs,
                                              PyObject* kwnames) {
  if (PyFunction_Check(callable)) {
    static PyObject* const wrapped = PyUnicode_InternFromString("__wrapped__");
    const Ref function = attr_or_null(callable, "__wrapped__");
    if (!function || !PyFunction_Check(function.get())) return not_handled();
    reads().watch_lookup(callable, wrapped);
    if (!born(callable)) origins().find(function.get());
    trace_->object_guards.function(callable);
    return PyObject_Vectorcall(function.get(), args, static_cast<size_t>(nargs), kwnames);
  }
  const Ref function = attr_or_null(callable, "func"), first = attr_or_null(callable, "args"),
            named = attr_or_null(callable, "keywords");
  if (!function || !first || !named || !PyTuple_Check(first.get()) || !PyDict_Check(named.get())) return not_handled();
  origins().find_parts(callable);
  reads().watch_container(named.get());
  std::vector<PyObject*> all;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(first.get()); ++i) all.push_back(PyTuple_GET_ITEM(first.get(), i));
  all.insert(all.end(), args, args + nargs);
  const Ref keywords = Ref::steal(PyDict_Copy(named.get())), given = keywords_of(args + nargs, kwnames);
  if (!keywords || PyDict_Update(keywords.get(), given.get()) != 0) return nullptr;
  const Ref names = Ref::steal(PyTuple_New(PyDict_GET_SIZE(keywords.get())));
  const auto count = static_cast<Py_ssize_t>(all.size());
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  for (Py_ssize_t i = 0; PyDict_Next(keywords.get(), &at, &key, &value) != 0; ++i) {
    PyTuple_SET_ITEM(names.get(), i, Py_NewRef(key));
    all.push_back(value);
  }
  return enter_checkpoint(function.get(), all.data(), count, names.get());
}

/// A function of ours, called in place of one of torch's with the same arguments; not_handled() where regions mean nothing.
PyObject* CheckpointTracing::call_for_checkpoint(PackageFunction function, PyObject* const* args, Py_ssize_t nargs,
                                                 PyObject* kwnames) {
  // The user's backends and runs of plain tapes know nothing of regions.
  if (owner_.backend || owner_.eager_backend || context_.dry_run || transforms().open() > 0) {
    return not_handled();
  }
  Ref ours;
  {
    const Bypass bypass(bypass_);
    ours = package_function(function);
  }
  return PyObject_Vectorcall(ours.get(), args, static_cast<size_t>(nargs), kwnames);
}

/// Our generator in place of torch's.
PyObject* CheckpointTracing::make_region(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  PyObject* generator = call_for_checkpoint(PackageFunction::kCheckpointRegion, args, nargs, kwnames);
  if (generator != nullptr && generator != not_handled() && tracing()) mark_born(generator);
  return generator;
}

/// With use_reentrant=True.
PyObject* CheckpointTracing::enter_reentrant(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return call_for_checkpoint(PackageFunction::kCheckpointReentrant, args, nargs, kwnames);
}

/// Gradients go from such a region into its arguments and leaves only: those of anything else it reads would take a way of
/// their own, inside of the region's backward pass.
bool CheckpointTracing::reads_history(size_t first, PyObject* arguments) const {
  const Trace& t = *trace_;
  std::set<int> known;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); ++i) {
    known.insert(t.tape.find(PyTuple_GET_ITEM(arguments, i)));
  }
  bool found = false;
  for (size_t n = first; n < t.tape.nodes().size(); ++n) {
    const TapeNode& node = t.tape.nodes()[n];
    const auto look = [&](int slot) {
      const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
      const bool leaf = info.input ? attribute_is_true(info.object.get(), "is_leaf") : gradients().is_made_leaf(slot);
      found = found || (!known.contains(slot) && !leaf && histories().needs_grad(slot) != NeedsGrad::kNo);
    };
    if (node.grad) {
      for_each_slot(node.args.get(), look);
      for_each_slot(node.kwargs.get(), look);
    }
    for (const int slot : node.outputs) known.insert(slot);
  }
  return found;
}

/// What eager would do a second time while it computes gradients; empty: nothing that shows.
std::string CheckpointTracing::region_problem() const {
  const Trace& t = *trace_;
  const OpenRegion& open = own_.regions.back();
  for (size_t i = open.effects; i < t.effects.size(); ++i) {
    if (t.effects[i].kind != Effect::Kind::kSwitch) return "it writes to an object from outside of it";
  }
  const auto older = [&](int slot) {
    const auto at = static_cast<size_t>(slot);
    return at < open.versions.size() || t.tape.slots()[at].input;
  };
  const std::vector<int64_t> now = t.inference.versions();
  for (size_t i = 0; i < now.size(); ++i) {
    const int64_t before = i < open.versions.size() ? std::max<int64_t>(open.versions[i], 0) : 0;
    if (now[i] > before && older(static_cast<int>(i))) return "it writes to a tensor from outside of it";
  }
  for (size_t n = open.node; n < t.tape.nodes().size(); ++n) {
    const TapeNode& node = t.tape.nodes()[n];
    if (gradient_pass(node) != nullptr || is_leaf_mark(node) || step_of(node) != FuncStep::kNone)
      return node.name + " inside of it";
    if (!node.mutates || PyTuple_GET_SIZE(node.args.get()) == 0) continue;
    const int target = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
    if (target >= 0 && older(target)) return node.name + " on a tensor from outside of it";
  }
  return {};
}

PyObject* CheckpointTracing::mark_region(PyObject* state, PyObject* step) {
  Trace& t = *trace_;
  const std::string name = text_of(step);
  std::string problem;
  {
    const Bypass bypass(bypass_);
    if (name == "end") {
      problem = own_.regions.empty() ? "it began before the trace" : region_problem();
      const Ref arguments = attr_or_null(state, "inputs");
      if (problem.empty() && arguments && PyTuple_Check(arguments.get()) &&
          reads_history(own_.regions.back().node, arguments.get())) {
        problem = "it reads a tensor with a history that is none of its arguments";
      }
    } else if (name != "begin") {
      problem = name;
    }
  }
  if (!problem.empty()) {
    const bool went_on = graph_break("a checkpoint: " + problem);
    if (!own_.regions.empty()) own_.regions.pop_back();
    return went_on ? not_handled() : nullptr;
  }
  const Bypass bypass(bypass_);
  TapeNode node;
  RegionMark mark;
  mark.begins = name == "begin";
  node.func = attr_or_null(reinterpret_cast<PyObject*>(Py_TYPE(state)), name.c_str());
  node.args = Ref::steal(PyTuple_Pack(1, state));
  node.name = "checkpoint." + name;
  const Ref given = attr_or_null(state, "arguments");
  for (Py_ssize_t i = 0; given && i < PyTuple_GET_SIZE(given.get()); ++i) {
    if (const int slot = t.tape.find(PyTuple_GET_ITEM(given.get(), i)); slot >= 0) mark.given.push_back(slot);
  }
  mark.redraws = attr_or_null(state, "redraws").get() == Py_True;
  mark.reentrant = attr_or_null(state, "inputs").get() != Py_None;
  node.grad = node.mode = api_.grad_enabled();
  if (!node.func || !node.args) throw InternalError("the mark of a checkpoint is not what it was");
  node.location = user_location();
  if (mark.begins) {
    const Ref casts = AutocastState::read(api_).as_tuple();
    if (PyObject_SetAttrString(state, "casts", casts.get()) != 0) forget_error();
    std::vector<int64_t> versions = t.inference.versions();
    versions.resize(t.tape.slots().size(), -1);
    own_.regions.push_back({t.tape.nodes().size(), t.effects.size(), std::move(versions), mark.reentrant});
  } else {
    own_.regions.pop_back();
  }
  node.kind = std::move(mark);
  t.tape.add_node(std::move(node));
  Py_RETURN_NONE;
}

}  // namespace tatara::capture
