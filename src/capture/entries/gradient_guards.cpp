#include "capture/entries/gradient_guards.h"

#include <algorithm>

#include "capture/host/object_kinds.h"

namespace tatara::capture {

void GradientGuards::add(int index, PyObject* tensor, PyObject* value, TensorMeta meta, ReadNotes& notes) {
  if (index < 0) notes.know(tensor);
  notes.know(value);
  if (value != nullptr) values_.insert(value);
  gradients_.push_back(
      {index, index < 0 ? Ref::borrow(tensor) : Ref(), Ref::borrow(value), value == nullptr, std::move(meta)});
}

std::vector<PyObject*> GradientGuards::take() {
  std::vector<PyObject*> result;
  for (Watch& watch : gradients_) {
    if (!watch.none) result.push_back(watch.value.get());
    watch.value = Ref();  // the trace holds it
  }
  return result;
}

void GradientGuards::leaf(PyObject* tensor, ReadNotes& notes) {
  notes.know(tensor);
  const auto same = [tensor](const Ref& leaf) { return leaf.get() == tensor; };
  if (std::none_of(leaves_.begin(), leaves_.end(), same)) leaves_.push_back(Ref::borrow(tensor));
}

void GradientGuards::requires_grad(PyObject* tensor, bool needs, ReadNotes& notes) {
  if (!asked_.insert(tensor).second) return;
  notes.know(tensor);
  needs_.push_back({Ref::borrow(tensor), needs});
}

void GradientGuards::drop(PyObject* tensor) {
  std::erase_if(leaves_, [tensor](const Ref& leaf) { return leaf.get() == tensor; });
  if (asked_.erase(tensor) == 0) return;
  std::erase_if(needs_, [tensor](const Need& need) { return need.tensor.get() == tensor; });
}

/// Whether arguments and captured tensors are each another tensor.
bool GradientGuards::all_distinct(const ObjectCheck& check) const {
  std::vector<PyObject*> tensors;
  for (const Ref& leaf : leaves_) tensors.push_back(leaf.get());
  for (size_t i = 0; i < check.base + check.sources.size(); ++i) {
    if (check.objects[i] != nullptr && check.api.is_torch_tensor(check.objects[i])) tensors.push_back(check.objects[i]);
  }
  std::sort(tensors.begin(), tensors.end());
  return std::adjacent_find(tensors.begin(), tensors.end()) == tensors.end();
}

bool GradientGuards::check(ObjectCheck& check) const {
  if (passes_ && !all_distinct(check)) {
    if (check.why != nullptr) *check.why = "two tensors are one now, which gradients tell";
    return false;
  }
  for (const Need& need : needs_) {
    if (check.api.requires_grad(need.tensor.get()) == need.needs) continue;
    return check.fail("requires_grad of a tensor", nullptr, need.needs ? Py_True : Py_False,
                      need.needs ? Py_False : Py_True);
  }
  for (const Ref& tensor : leaves_) {
    if (!check.api.is_leaf(tensor.get())) return check.fail("history of a tensor", nullptr, nullptr, nullptr);
  }
  for (const Watch& watch : gradients_) {
    PyObject* owner = watch.object >= 0 ? check.objects[static_cast<size_t>(watch.object)] : watch.tensor.get();
    // Reading it of another kind of tensor that comes with the call would be a warning.
    if (watch.object >= 0 && !check.api.is_leaf(owner) && attr_or_null(owner, "retains_grad").get() != Py_True) {
      return check.fail("gradient of a tensor that is no leaf", nullptr, nullptr, owner);
    }
    if (watch.none && check.api.lacks_gradient(owner)) continue;
    const Ref held = attr_or_null(owner, "grad");  // its owner holds it too
    PyObject* now = held.get();
    const bool none = now == nullptr || now == Py_None;
    const bool good = watch.none ? none
                                 : !none && check.api.is_plain_tensor(now) && check.api.matches(now, watch.meta) &&
                                       !check.api.requires_grad(now);
    if (!good) return check.fail("gradient of a tensor", nullptr, nullptr, now);
    if (!watch.none) check.objects.push_back(now);
  }
  return true;
}

}  // namespace tatara::capture
