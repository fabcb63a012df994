// torch.cond by a tensor while a trace is open. Both functions are recorded ahead of time and come off the tape again. What is left is
// one call of an operator of ours that runs one of them (_control_flow.py), each compiled as a function of its own.
#include <algorithm>
#include <functional>

#include "capture/host/package.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"

namespace tatara::capture {
namespace {

bool same(PyObject* a, PyObject* b) {
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  forget_error();
  return equal == 1;
}

}  // namespace

/// (predicate, function, function, tensors) -> what the function gives that the predicate tells, in a tuple. True: both are
/// to be called, for examples of a batch. None: the one that the predicate tells.
PyObject* TransformTracing::choose_calls(PyObject* const* args) {
  Trace& t = *trace_;
  const int predicate = t.tape.find(args[0]);
  const auto differs = [&](int level) { return predicate >= 0 && is_batched(predicate, level); };
  if (open() != 0 && only_batches() && std::any_of(own_.open_levels.begin(), own_.open_levels.end(), differs)) {
    return Py_NewRef(Py_True);
  }
  const BreakInfo place = context_.here({});
  if (context_.ahead != nullptr || context_.dry_run || open() != 0 || !PyTuple_Check(args[3]) ||
      owner_.learned.unchosen.reason("cond", place.file, place.line) != nullptr) {
    return Py_NewRef(Py_None);
  }
  const Branch yes = record_branch(args[1], args[3]);
  const Branch no = yes.problem.empty() ? record_branch(args[2], args[3]) : Branch{};
  std::string problem = yes.problem.empty() ? no.problem : yes.problem;
  if (problem.empty() && !same(yes.structure.get(), no.structure.get()))
    problem = "its functions give other structures";
  if (problem.empty() && !same(yes.types.get(), no.types.get())) problem = "its functions give other types";
  if (!problem.empty()) {
    if (owner_.learned.unchosen.add("cond", place.file, place.line, problem) && ends().retry()) return nullptr;
    return transform_break("cond: " + problem);
  }
  Ref chosen, operands;
  {
    const Bypass bypass(bypass_);
    const Ref count = Ref::steal(PyLong_FromSize_t(yes.reads.size()));
    const Ref uses = Ref::steal(PyTuple_Pack(2, yes.uses.get(), no.uses.get()));
    chosen = call_package<PackageFunction::kCondRegister>(yes.recording.get(), no.recording.get(), count.get(),
                                                          uses.get(), yes.types.get());
    operands = Ref::steal(PySequence_List(args[3]));
    for (const std::vector<int>* reads : {&yes.reads, &no.reads}) {
      for (const int slot : *reads)
        PyList_Append(operands.get(), t.tape.slots()[static_cast<size_t>(slot)].object.get());
    }
  }
  if (!chosen || !operands) return nullptr;
  PyObject* const op = PyTuple_GET_ITEM(chosen.get(), 0);
  const Ref call = Ref::steal(PyTuple_Pack(3, args[0], PyTuple_GET_ITEM(chosen.get(), 1), operands.get()));
  Ref made = Ref::steal(torch().record(api_.classify(op), op, call.get(), nullptr));
  if (!made) return nullptr;
  const Bypass bypass(bypass_);
  if (api_.is_tensor(made.get())) made = Ref::steal(PyTuple_Pack(1, made.get()));
  const auto put = [&](PyObject* o) -> Ref {
    return PyLong_CheckExact(o) ? Ref::borrow(PySequence_Fast_GET_ITEM(made.get(), PyLong_AsSsize_t(o)))
                                : Ref::borrow(o);
  };
  Ref value = map_structure(yes.structure.get(), put);
  if (!value) return nullptr;
  const std::function<void(PyObject*)> mark = [&](PyObject* o) {
    if (PyTuple_Check(o) || PyList_Check(o)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) mark(PySequence_Fast_GET_ITEM(o, i));
    } else if (PyDict_Check(o)) {
      PyObject *key = nullptr, *item = nullptr;
      Py_ssize_t at = 0;
      while (PyDict_Next(o, &at, &key, &item) != 0) mark(item);
    } else {
      return;
    }
    mark_born(o);
  };
  PyObject* pair = PyTuple_Pack(1, value.get());
  if (pair != nullptr) mark(pair);
  return pair;
}

}  // namespace tatara::capture
