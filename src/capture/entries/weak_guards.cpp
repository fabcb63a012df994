#include "capture/entries/weak_guards.h"

namespace tatara::capture {

void WeakGuards::add(PyObject* reference, PyObject* object, ReadNotes& notes) {
  if (!notes.first(reference)) return;
  const bool alive = weak_object(reference) != Py_None;
  watches_.push_back({Ref::borrow(reference), alive});
  if (!alive) return;
  notes.know(object);
  references_.emplace(object, reference);
}

PyObject* WeakGuards::reference_to(PyObject* object) const {
  const auto found = references_.find(object);
  return found == references_.end() ? nullptr : found->second;
}

void WeakGuards::for_each_asked(const std::function<void(PyObject*)>& fn) const {
  for (const Watch& watch : watches_) fn(watch.reference.get());
}

std::vector<PyObject*> WeakGuards::objects() const {
  std::vector<PyObject*> result;
  for (const Watch& watch : watches_) {
    if (watch.alive) result.push_back(weak_object(watch.reference.get()));
  }
  for (const Ref& reference : ending_) result.push_back(weak_object(reference.get()));
  return result;
}

bool WeakGuards::check(ObjectCheck& check) const {
  for (const Watch& watch : watches_) {
    PyObject* now = weak_object(watch.reference.get());
    if ((now != Py_None) != watch.alive) return check.fail("object of", watch.reference.get(), nullptr, now);
    if (watch.alive) check.objects.push_back(now);
  }
  for (const Ref& reference : ending_) {
    PyObject* now = weak_object(reference.get());
    if (now == Py_None) return check.fail("object of", reference.get(), nullptr, now);
    check.objects.push_back(now);
  }
  return true;
}

}  // namespace tatara::capture
