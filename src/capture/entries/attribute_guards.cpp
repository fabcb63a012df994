#include "capture/entries/attribute_guards.h"

#include "capture/entries/dict_guards.h"
#include "capture/entries/lifetimes.h"
#include "capture/entries/number_guards.h"
#include "capture/host/object_kinds.h"

namespace tatara::capture {

void AttributeGuards::attribute(PyObject* owner, PyObject* reference, PyObject* name, PyObject* value,
                                ReadNotes& notes) {
  if (!notes.first(owner, name) || notes.writes().contains(owner, name)) return;
  notes.know(value);
  attrs_.push_back({Ref::borrow(reference != nullptr ? reference : owner),
                    {Ref::borrow(name), Ref::borrow(value)},
                    reference != nullptr});
}

void AttributeGuards::tensor_attribute(int index, PyObject* tensor, PyObject* name, ReadNotes& notes) {
  PyObject** dict = _PyObject_GetDictPtr(tensor);
  if (dict != nullptr && *dict != nullptr && notes.writes().contains(*dict, name)) return;
  if (!notes.first(tensor, name)) return;
  PyObject* value = own_attribute(tensor, name);
  notes.know(value);
  tensor_attrs_.push_back({index, {Ref::borrow(name), Ref::borrow(value)}});
}

void AttributeGuards::instance(PyObject* object, bool attributes) {
  const auto [found, inserted] = instance_index_.emplace(object, instances_.size());
  if (inserted) {
    instances_.push_back({Ref::borrow(object), Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object))), {}});
    instance_checks_.push_back({object, Py_TYPE(object)});
  }
  InstanceCheck& check = instance_checks_[found->second];
  if (check.place != nullptr || !attributes) return;
  PyObject** const place = _PyObject_GetDictPtr(object);
  if (place == nullptr || *place == nullptr) return;
  check.place = place;
  check.dict = *place;
  instances_[found->second].dict = Ref::borrow(*place);
}

bool AttributeGuards::function(PyObject* function, ReadNotes& notes) {
  if (!notes.first(function)) return false;
  FunctionWatch& watch = functions_.emplace_back();
  watch.function = Ref::borrow(function);
  watch.code = Ref::borrow(PyFunction_GET_CODE(function));
  watch.keyword_defaults = Ref::borrow(PyFunction_GET_KW_DEFAULTS(function));
  PyObject* const defaults = PyFunction_GET_DEFAULTS(function);
  const Py_ssize_t count = defaults != nullptr ? PyTuple_GET_SIZE(defaults) : 0;
  bool ends = false;
  for (Py_ssize_t i = 0; i < count; ++i) ends = ends || is_held_weakly(PyTuple_GET_ITEM(defaults, i));
  if (!ends) watch.defaults = Ref::borrow(defaults);
  for (Py_ssize_t i = 0; ends && i < count; ++i) watch.items.emplace_back(PyTuple_GET_ITEM(defaults, i));
  return true;
}

namespace {

bool is_slot(PyObject* owner, PyObject* name) {
  PyObject* const descriptor = _PyType_Lookup(Py_TYPE(owner), name);
  return descriptor != nullptr && Py_TYPE(descriptor) == &PyMemberDescr_Type;
}

}  // namespace

void AttributeGuards::note_rewritten(const TraceWrites& writes) {
  for (AttrWatch& watch : attrs_) {
    PyObject *const owner = watch.object(), *const name = watch.read.key.get();
    if (writes.contains(owner, name) && is_slot(owner, name))
      capture::note_rewritten(watch.read, slot_value(owner, name));
  }
}

void AttributeGuards::compare(TorchApi& api, const std::vector<SourceTensor>& sources, VaryingPlaces& varying) const {
  for (const AttrWatch& watch : attrs_) {
    PyObject *const owner = watch.object(), *const name = watch.read.key.get();
    if (!watch.weak && is_slot(owner, name))
      add_varying({owner, name}, watch.read, slot_value(owner, name), api, sources, varying);
  }
}

void AttributeGuards::hold_weakly(WeakMaker& maker) {
  for (AttrWatch& watch : attrs_) watch.weak = watch.weak || maker.make_weak(watch.owner);
  for (size_t i = 0; i < instances_.size(); ++i) {
    if (instance_checks_[i].object != nullptr && maker.make_weak(instances_[i].object))
      instance_checks_[i].object = nullptr;
  }
}

std::unordered_set<PyObject*> AttributeGuards::instance_dicts() const {
  std::unordered_set<PyObject*> result;
  for (const InstanceWatch& watch : instances_) result.insert(watch.dict.get());
  return result;
}

PyObject* AttributeGuards::weak_instance(const InstanceCheck& instance) const {
  return weak_object(instances_[static_cast<size_t>(&instance - instance_checks_.data())].object.get());
}

bool AttributeGuards::FunctionWatch::same_items(PyObject* now) const {
  if (now == nullptr || PyTuple_GET_SIZE(now) != static_cast<Py_ssize_t>(items.size())) return false;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(PyTuple_GET_ITEM(now, static_cast<Py_ssize_t>(i)))) return false;
  }
  return true;
}

bool AttributeGuards::check(ObjectCheck& check) const {
  for (const AttrWatch& watch : attrs_) {
    const Ref now = Ref::steal(PyObject_GetAttr(watch.object(), watch.read.key.get()));
    if (!now) forget_error();
    if (!check.same("attribute", watch.read, now.get())) return false;
  }
  for (const TensorAttrWatch& watch : tensor_attrs_) {
    PyObject* now = own_attribute(check.objects[static_cast<size_t>(watch.object)], watch.read.key.get());
    if (!check.same("attribute of a tensor", watch.read, now)) return false;
  }
  for (const InstanceCheck& instance : instance_checks_) {
    PyObject* const object = instance.object != nullptr ? instance.object : weak_instance(instance);
    if (Py_TYPE(object) != instance.type) {
      return check.fail("class of", object, reinterpret_cast<PyObject*>(instance.type),
                        reinterpret_cast<PyObject*>(Py_TYPE(object)));
    }
    if (instance.place != nullptr && *instance.place != instance.dict) {
      return check.fail("__dict__ of", object, instance.dict, *instance.place);
    }
  }
  for (const FunctionWatch& watch : functions_) {
    if (!watch.holds()) return check.fail("code or defaults of function", watch.function.get(), nullptr, nullptr);
  }
  return true;
}

}  // namespace tatara::capture
