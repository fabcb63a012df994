// Where a frame has the arguments of its call, so that symbols can stand there.
#include "capture/trace/number_tracing.h"
#include "capture/trace/tracer_internal.h"

namespace tatara::capture {
namespace {

/// The local with the *args tuple (`keywords` false) or the **kwargs dict of the frame, which CPython has made for this call; -1: none.
int starred_local(const Frame& f, bool keywords) {
  const PyCodeObject* code = f.code();
  const int index = code->co_argcount + code->co_kwonlyargcount;
  const bool tuple = (code->co_flags & CO_VARARGS) != 0;
  if (!keywords) return tuple && PyTuple_CheckExact(f.local(index)) ? index : -1;
  const int at = index + (tuple ? 1 : 0);
  return (code->co_flags & CO_VARKEYWORDS) != 0 && PyDict_CheckExact(f.local(at)) ? at : -1;
}

/// Where an argument stands in a starred parameter of a frame.
struct StarredItem {
  int local = -1;  // -1: nowhere
  PyObject* name = nullptr;
  Py_ssize_t index = 0;  // where there is no name
  PyObject* value(const Frame& f) const {
    if (local < 0) return nullptr;
    if (name != nullptr) return PyDict_GetItemWithError(f.local(local), name);
    return index < PyTuple_GET_SIZE(f.local(local)) ? PyTuple_GET_ITEM(f.local(local), index) : nullptr;
  }
};

/// Of the argument `k` of a call whose roots these are.
StarredItem starred_item(const Frame& f, const std::vector<PyObject*>& roots, size_t k) {
  PyObject* const names = roots[roots.size() - 3];
  const size_t keywords = names != nullptr && PyTuple_Check(names) ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0;
  const size_t positional = roots.size() - 3 - keywords;
  if (k >= positional) {
    return {starred_local(f, true), PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(k - positional)), 0};
  }
  const Py_ssize_t index = static_cast<Py_ssize_t>(k) - f.code()->co_argcount;
  return {index >= 0 ? starred_local(f, false) : -1, nullptr, index};
}

}  // namespace

std::vector<int> NumberTracing::argument_places(const Frame& f, const std::vector<PyObject*>& roots) const {
  // The arguments of a call, then keyword names, defaults and keyword defaults.
  std::vector<int> places(roots.size(), -1);
  if (roots.size() < 3) return places;
  const PyCodeObject* code = f.code();
  PyObject* names = roots[roots.size() - 3];
  const size_t keywords = names != nullptr && PyTuple_Check(names) ? static_cast<size_t>(PyTuple_GET_SIZE(names)) : 0;
  const size_t positional = roots.size() - 3 - keywords;
  for (size_t i = 0; i < positional && i < static_cast<size_t>(code->co_argcount); ++i) places[i] = static_cast<int>(i);
  for (size_t k = 0; k < keywords; ++k) {
    const std::string wanted = text_of(PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(k)));
    for (int i = code->co_posonlyargcount; i < code->co_argcount + code->co_kwonlyargcount; ++i) {
      if (text_of(PyTuple_GET_ITEM(code->co_localsplusnames, i)) == wanted) places[positional + k] = i;
    }
  }
  // What the frame holds there must be the argument itself.
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0 && (places[i] >= f.local_count() || f.local(places[i]) != roots[i])) places[i] = -1;
  }
  for (size_t i = 0; i < positional + keywords; ++i) {
    const bool starred = places[i] < 0 && roots[i] != nullptr && starred_item(f, roots, i).value(f) == roots[i];
    if (starred) places[i] = kStarredArgument + static_cast<int>(i);
  }
  return places;
}

/// What stands for argument `k` of the call comes into the tuple or dict that is the frame's alone.
void NumberTracing::place_starred(Frame& f, const std::vector<PyObject*>& roots, size_t k, PyObject* number) {
  const StarredItem item = starred_item(f, roots, k);
  PyObject* const now = f.local(item.local);
  if (item.name != nullptr) {
    const Ref copy = Ref::steal(PyDict_Copy(now));
    if (!copy || PyDict_SetItem(copy.get(), item.name, number) != 0) return forget_error();
    return f.set_local(item.local, copy.get());
  }
  const Ref copy = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(now)));
  if (!copy) return forget_error();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(now); ++i) {
    PyTuple_SET_ITEM(copy.get(), i, Py_NewRef(i == item.index ? number : PyTuple_GET_ITEM(now, i)));
  }
  f.set_local(item.local, copy.get());
}

}  // namespace tatara::capture
