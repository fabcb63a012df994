// Steps of iterators that existed before the trace.
#include <algorithm>
#include <vector>

#include "capture/host/iterator_state.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/iterator_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

/// The one in `made` that takes the iterator's steps, and before it those of the iterators that it moves on.
bool add_stand_in(PyObject* iterator, std::unordered_map<PyObject*, Ref>& made) {
  if (made.contains(iterator)) return true;
  IteratorState state;
  if (!read_state(iterator, state)) return false;
  for (const Ref& part : state.parts) {
    if (is_c_iterator(part.get()) && !add_stand_in(part.get(), made)) return false;
  }
  Ref like = iterator_like(iterator, made);
  if (!like) forget_error();
  return like && made.emplace(iterator, std::move(like)).second;
}

}  // namespace

PyObject* IteratorTracing::step(PyObject* iterator) {
  if (!writes().break_before_write(iterator)) return nullptr;
  if (!tracing()) return not_handled();
  const bool followed = follow(iterator);
  PyObject* own = followed ? own_.stand_ins.at(iterator).get() : nullptr;
  PyObject* item = followed ? Py_TYPE(own)->tp_iternext(own) : nullptr;
  // An error of its own (of zip, where lengths must be equal) comes where the iterator itself takes the step.
  const bool fails = item == nullptr && PyErr_Occurred() != nullptr && !caught(PyExc_StopIteration);
  if (fails) forget_error();
  if (!followed || fails) return graph_break("an iterator that existed before the trace") ? not_handled() : nullptr;
  writes().note_effect({Effect::Kind::kNext, Ref::borrow(iterator), {}, {}});
  if (item != nullptr) adopt_item(iterator, item);
  return item;
}

PyObject* IteratorTracing::call_next(const TracedCall& call) {
  PyObject* item = step(call.args[0]);
  if (item != nullptr || PyErr_Occurred() != nullptr) return item;
  if (call.nargs() > 1) return Py_NewRef(call.args[1]);
  PyErr_SetNone(PyExc_StopIteration);
  return nullptr;
}

/// The tuples that enumerate and the like make are new; what they hold comes from the containers, which are guarded.
void IteratorTracing::adopt_item(PyObject* iterator, PyObject* item) {
  if (!makes_tuples(iterator) || !PyTuple_CheckExact(item)) return;
  context_.mark_born(item);
  if (is_dict_iterator(iterator)) return;
  IteratorState state;
  if (!read_state(iterator, state)) return;
  const Py_ssize_t before = PyTuple_GET_SIZE(item) - static_cast<Py_ssize_t>(state.parts.size());
  for (size_t i = 0; i < state.parts.size(); ++i) {
    // enumerate has its number first.
    const bool numbered = before == 1;
    adopt_item(state.parts[i].get(), PyTuple_GET_ITEM(item, static_cast<Py_ssize_t>(i) + (numbered ? 1 : 0)));
  }
}

/// Whether the trace has changed one of these: their state at its begin cannot be read any more.
bool IteratorTracing::was_written(const std::unordered_set<PyObject*>& objects) {
  std::unordered_set<PyObject*> all = objects;
  for (PyObject* object : objects) {
    if (is_pinned_kind(object, api_) || !is_plain_instance(object)) continue;
    const Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    if (!dict) forget_error();
    if (dict) all.insert(dict.get());
  }
  return std::any_of(trace_->effects.begin(), trace_->effects.end(), [&](const Effect& effect) {
    return effect.kind != Effect::Kind::kSwitch && effect.kind != Effect::Kind::kNext &&
           all.contains(effect.target.get());
  });
}

bool IteratorTracing::follow(PyObject* iterator) {
  if (is_followed(iterator)) return true;
  Trace& t = *trace_;
  // A call finds the guard's objects first, then numbers that vary: behind these the guard can't have more.
  if (t.iterators_vary || !origins().has_guarded_objects_alone(t)) return false;
  const Bypass bypass(bypass_);  // what is read of tensors is no part of the program
  ValueGuard guard = t.guard;
  std::vector<PyObject*> objects = t.objects;
  const std::vector<PyObject*> watched = guard.watch_iterator(iterator, t.index_of(iterator), api_, t.symbols, objects);
  std::unordered_map<PyObject*, Ref> made = own_.stand_ins;
  if (watched.empty() || !guard.unsupported_tensor.empty() || !add_stand_in(iterator, made)) return false;
  std::unordered_set<PyObject*> over,
      read(objects.begin() + static_cast<std::ptrdiff_t>(t.objects.size()), objects.end());
  for (PyObject* each : watched) {
    IteratorState state;
    if (!read_state(each, state)) return false;
    for (const Ref& part : state.parts) {
      if (!is_c_iterator(part.get())) over.insert(part.get());
    }
  }
  read.insert(over.begin(), over.end());
  if (was_written(read)) return false;
  own_.stand_ins = std::move(made);
  own_.over.merge(over);
  t.guard = std::move(guard);
  origins().guards_more(t, std::move(objects));
  return true;
}

bool IteratorTracing::break_if_iterated(PyObject* target) {
  if (own_.over.empty() || !tracing()) return true;
  // An attribute is an item of the object's own dict.
  const Ref dict = Ref::steal(PyType_Check(target) ? nullptr : PyObject_GenericGetDict(target, nullptr));
  if (!dict) forget_error();
  if (!own_.over.contains(target) && !(dict && own_.over.contains(dict.get()))) return true;
  return graph_break("a change of what an iterator from before the trace goes over (" + type_name(target) + ")");
}

void IteratorTracing::perform_steps(size_t nodes) {
  if (own_.performed || trace_ == nullptr) return;
  own_.performed = true;
  const ErrorAside aside;
  for (const Effect& effect : trace_->effects) {
    if (effect.kind != Effect::Kind::kNext || effect.nodes > nodes) continue;
    if (!perform(effect)) forget_error();
  }
}

}  // namespace tatara::capture
