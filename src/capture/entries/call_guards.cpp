#include "capture/entries/call_guards.h"

#include <algorithm>

#include "capture/host/natures.h"
#include "capture/host/object_kinds.h"

namespace tatara::capture {

void CallGuards::call(PyObject* callable, PyObject* const* args, size_t count, PyObject* result, ReadNotes& notes) {
  const auto known = [&](const CallWatch& watch) {
    bool same =
        watch.callable.get() == callable && watch.args.size() == count && same_value(watch.result.get(), result);
    for (size_t i = 0; same && i < count; ++i) same = watch.args[i].get() == args[i];
    return same;
  };
  if (std::any_of(calls_.begin(), calls_.end(), known)) return;
  notes.know(result);
  CallWatch watch{Ref::borrow(callable), {}, Ref::borrow(result)};
  for (size_t i = 0; i < count; ++i) watch.args.push_back(Ref::borrow(args[i]));
  calls_.push_back(std::move(watch));
}

void CallGuards::cached(PyObject* cache, PyObject* key, PyObject* held, PyObject* result, ReadNotes& notes) {
  const auto known = [&](const CachedWatch& watch) { return watch.cache.get() == cache && watch.held.get() == held; };
  if (std::any_of(cached_.begin(), cached_.end(), known)) return;
  notes.know(result);
  cached_.push_back({Ref::borrow(cache), Ref::borrow(key), Ref::borrow(held), Ref::borrow(result)});
}

namespace {

/// A count of the registrations with abstract base classes, in this process.
unsigned long long registrations() {
  static PyObject* const count = [] {
    const Ref module = Ref::steal(PyImport_ImportModule("abc"));
    return module ? PyObject_GetAttrString(module.get(), "get_cache_token") : nullptr;
  }();
  const Ref now = count != nullptr ? Ref::steal(PyObject_CallNoArgs(count)) : Ref();
  const unsigned long long value = now ? PyLong_AsUnsignedLongLong(now.get()) : 0;
  if (PyErr_Occurred() != nullptr) forget_error();
  return value;
}

}  // namespace

void CallGuards::subclass(PyObject* type, PyObject* abstract, PyObject* answer) {
  const auto known = [&](const SubclassWatch& watch) {
    return watch.type.get() == type && watch.abstract.get() == abstract;
  };
  if (std::any_of(subclasses_.begin(), subclasses_.end(), known)) return;
  // A registration during the trace counts as one after it.
  if (subclasses_.empty()) registered_ = registrations();
  subclasses_.push_back({Ref::borrow(type), Ref::borrow(abstract), Ref::borrow(answer)});
}

bool CallGuards::subclasses_as_before(ObjectCheck& check) const {
  const unsigned long long now = registrations();
  if (now == registered_) return true;
  for (const SubclassWatch& watch : subclasses_) {
    const int answer = PyObject_IsSubclass(watch.type.get(), watch.abstract.get());
    if (answer < 0) forget_error();
    PyObject* const said = answer > 0 ? Py_True : Py_False;
    if (answer < 0 || said != watch.answer.get()) {
      return check.fail("subclasses of", watch.abstract.get(), watch.answer.get(), said);
    }
  }
  registered_ = now;
  return true;
}

void CallGuards::hold_weakly(WeakMaker& maker) {
  for (CallWatch& watch : calls_) {
    watch.weak.resize(watch.args.size());
    for (size_t i = 0; i < watch.args.size(); ++i) watch.weak[i] = watch.weak[i] || maker.make_weak(watch.args[i]);
  }
}

/// Keys whose hash or comparison would run the program's code are looked for by identity.
bool CallGuards::CachedWatch::holds() const {
  PyObject *each = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  const bool plain = PyUnicode_CheckExact(key.get()) || PyLong_CheckExact(key.get());
  if (plain) {
    value = PyDict_GetItemWithError(cache.get(), key.get());
    if (value == nullptr) forget_error();
  }
  while (!plain && PyDict_Next(cache.get(), &at, &each, &value) != 0 && each != key.get()) value = nullptr;
  return value == held.get() && is_cached(value, result.get());
}

bool CallGuards::check(ObjectCheck& check) const {
  for (const CachedWatch& watch : cached_) {
    if (!watch.holds()) return check.fail("cached result", watch.key.get(), watch.result.get(), nullptr);
  }
  if (nothing_handled_ && Ref::steal(PyErr_GetHandledException())) {
    if (check.why != nullptr) *check.why = "a caller handles an exception now";
    return false;
  }
  if (!subclasses_.empty() && !subclasses_as_before(check)) return false;
  std::vector<PyObject*> args;
  for (const CallWatch& watch : calls_) {
    args.clear();
    for (size_t i = 0; i < watch.args.size(); ++i) {
      const bool weak = i < watch.weak.size() && watch.weak[i];
      args.push_back(weak ? weak_object(watch.args[i].get()) : watch.args[i].get());
    }
    const Ref now = Ref::steal(PyObject_Vectorcall(watch.callable.get(), args.data(), args.size(), nullptr));
    if (!now) forget_error();
    if (!same_value(now.get(), watch.result.get())) {
      return check.fail("result of", watch.callable.get(), watch.result.get(), now.get());
    }
  }
  return true;
}

}  // namespace tatara::capture
