// Making the objects of a reconstruction.
#include <array>

#include "capture/entries/reconstruction.h"
#include "capture/host/object_kinds.h"

namespace tatara::capture {
namespace {

Ref new_instance(PyObject* type) {
  // tp_new of the nearest base in C makes the bare object; __init__ is not run.
  auto* t = reinterpret_cast<PyTypeObject*>(type);
  PyTypeObject* base = t;
  while ((base->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && base->tp_base != nullptr) base = base->tp_base;
  const Ref args = Ref::steal(PyTuple_New(0));
  return Ref::steal(base->tp_new(t, args.get(), nullptr));
}

using Step = Reconstruction::Step;

/// Makes the objects of steps, each from those before it. Every function but add() gives null with a Python error set where
/// something fails.
class ObjectMaker {
 public:
  ObjectMaker(const std::vector<Ref>& env, const std::vector<PyObject*>& objects, std::vector<int64_t> symbols)
      : env_(env), objects_(objects), symbols_(std::move(symbols)) {}
  /// False with a Python error set.
  bool add(const Step& step) {
    made_.push_back(step.kind == Reconstruction::Kind::kNull ? Ref() : make(step));
    return made_.back() || step.kind == Reconstruction::Kind::kNull;
  }
  void reserve(size_t steps) { made_.reserve(steps); }
  const Ref& made(int step) const { return made_[static_cast<size_t>(step)]; }

 private:
  PyObject* part(const Step& step, size_t i) const { return made(step.parts[i]).get(); }
  PyObject* key(const Step& step, size_t i) const {
    return step.keys[i] ? step.keys[i].get() : made(step.made_keys[i]).get();
  }
  Ref make(const Step& step) const;
  Ref not_a_number(const Step& step) const;
  Ref tuple(const Step& step) const;
  Ref tuple_of_class(const Step& step, const Ref& items) const;
  Ref list(const Step& step) const;
  Ref dict(const Step& step) const;
  Ref set(const Step& step) const;
  Ref instance(const Step& step) const;
  /// Attributes from part `first` on, by the keys from `first_key` on.
  bool set_attributes(PyObject* object, const Step& step, size_t first, size_t first_key) const;
  Ref reduced(const Step& step) const;
  Ref function(const Step& step) const;
  Ref number(const Step& step) const;

  const std::vector<Ref>& env_;
  const std::vector<PyObject*>& objects_;
  std::vector<int64_t> symbols_;
  std::vector<Ref> made_;
};

Ref ObjectMaker::make(const Step& step) const {
  using Kind = Reconstruction::Kind;
  switch (step.kind) {
    case Kind::kNull: return {};
    case Kind::kConst: return step.value;
    case Kind::kNotANumber: return not_a_number(step);
    case Kind::kObject: return Ref::borrow(objects_[static_cast<size_t>(step.index)]);
    case Kind::kTensor: return env_[static_cast<size_t>(step.index)];
    case Kind::kTuple: return tuple(step);
    case Kind::kList: return list(step);
    case Kind::kDict: return dict(step);
    case Kind::kSet: return set(step);
    case Kind::kInstance: return instance(step);
    case Kind::kCell: return Ref::steal(PyCell_New(part(step, 0)));
    case Kind::kReduce: return reduced(step);
    case Kind::kFunction: return function(step);
    case Kind::kSlice: return Ref::steal(PySlice_New(part(step, 0), part(step, 1), part(step, 2)));
    case Kind::kMethod: return Ref::steal(PyMethod_New(part(step, 0), part(step, 1)));
    case Kind::kInstanceDict: return Ref::steal(PyObject_GenericGetDict(part(step, 0), nullptr));
    case Kind::kNumber: return number(step);
    case Kind::kSymbolic: return Ref::steal(PyLong_FromLongLong(step.program.evaluate(symbols_)));
  }
  return {};
}

Ref ObjectMaker::not_a_number(const Step& step) const {
  PyObject* like = step.value.get();
  return Ref::steal(PyFloat_Check(like) ? PyFloat_FromDouble(PyFloat_AS_DOUBLE(like))
                                        : PyComplex_FromCComplex(PyComplex_AsCComplex(like)));
}

Ref ObjectMaker::tuple(const Step& step) const {
  const size_t items = step.parts.size() - step.keys.size();  // then what its own dict holds
  Ref result = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(items)));
  for (size_t i = 0; i < items; ++i) {
    PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), Py_XNewRef(part(step, i)));
  }
  if (step.value.get() == reinterpret_cast<PyObject*>(&PyTuple_Type)) return result;
  return tuple_of_class(step, result);
}

/// Classes written in Python: what their __new__ would do has been done. Others (struct sequences) have a constructor that
/// takes a sequence.
Ref ObjectMaker::tuple_of_class(const Step& step, const Ref& items) const {
  auto* type = reinterpret_cast<PyTypeObject*>(step.value.get());
  const Ref args = Ref::steal(PyTuple_Pack(1, items.get()));
  const bool heap =
      (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && PyObject_HasAttrString(step.value.get(), "n_sequence_fields") == 0;
  Ref result = Ref::steal(heap ? PyTuple_Type.tp_new(type, args.get(), nullptr)
                               : PyObject_Call(step.value.get(), args.get(), nullptr));
  const size_t count = step.parts.size() - step.keys.size();
  if (result && !set_attributes(result.get(), step, count, 0)) return {};
  return result;
}

bool ObjectMaker::set_attributes(PyObject* object, const Step& step, size_t first, size_t first_key) const {
  if (first >= step.parts.size()) return true;
  if (step.keys.empty()) {  // slots, all of them
    const std::vector<InstanceSlot> slots = instance_slots(object);
    for (size_t i = 0; i < slots.size(); ++i) slots[i].of(object) = Py_XNewRef(part(step, i));
    return true;
  }
  const Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) return false;
  for (size_t i = first; i < step.parts.size(); ++i) {
    if (PyDict_SetItem(dict.get(), key(step, i - first + first_key), part(step, i)) != 0) return false;
  }
  return true;
}

Ref ObjectMaker::list(const Step& step) const {
  Ref result = Ref::steal(PyList_New(static_cast<Py_ssize_t>(step.parts.size())));
  for (size_t i = 0; i < step.parts.size(); ++i) {
    PyList_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i), Py_XNewRef(part(step, i)));
  }
  return result;
}

Ref ObjectMaker::dict(const Step& step) const {
  Ref result = Ref::steal(PyDict_New());
  for (size_t i = 0; i < step.parts.size(); ++i) {
    if (PyDict_SetItem(result.get(), key(step, i), part(step, i)) != 0) return {};
  }
  return result;
}

Ref ObjectMaker::set(const Step& step) const {
  const bool plain = step.value.get() == reinterpret_cast<PyObject*>(&PySet_Type);
  Ref result = Ref::steal(plain ? PySet_New(nullptr) : PyFrozenSet_New(nullptr));
  for (size_t i = 0; i < step.parts.size(); ++i) {
    if (PySet_Add(result.get(), part(step, i)) != 0) return {};
  }
  return result;
}

Ref ObjectMaker::instance(const Step& step) const {
  Ref result = new_instance(step.value.get());
  if (!result) return {};
  const bool ordered = PyObject_TypeCheck(result.get(), &PyODict_Type) != 0;
  const auto items = static_cast<size_t>(step.base_count);
  for (size_t i = 0; i < items; ++i) {
    const int rc = ordered ? PyODict_SetItem(result.get(), key(step, i), part(step, i))
                           : PyDict_SetItem(result.get(), key(step, i), part(step, i));
    if (rc != 0) return {};
  }
  return set_attributes(result.get(), step, items, items) ? result : Ref();
}

Ref ObjectMaker::reduced(const Step& step) const {
  Ref result = Ref::steal(PyObject_Call(step.value.get(), part(step, 0), nullptr));
  if (!result || step.parts.size() < 2) return result;
  const Ref done = Ref::steal(PyObject_CallMethod(result.get(), "__setstate__", "O", part(step, 1)));
  return done ? result : Ref();
}

Ref ObjectMaker::function(const Step& step) const {
  Ref result = Ref::steal(PyFunction_New(step.value.get(), part(step, 0)));
  if (!result) return {};
  if (part(step, 1) != Py_None && PyFunction_SetDefaults(result.get(), part(step, 1)) != 0) return {};
  if (part(step, 2) != Py_None && PyFunction_SetKwDefaults(result.get(), part(step, 2)) != 0) return {};
  if (part(step, 3) != Py_None && PyFunction_SetClosure(result.get(), part(step, 3)) != 0) return {};
  for (size_t i = 0; i < kFunctionNames.size(); ++i) {
    if (PyObject_SetAttrString(result.get(), kFunctionNames[i], part(step, 4 + i)) != 0) return {};
  }
  for (size_t i = 0; i < kFunctionDicts.size(); ++i) {
    PyObject* dict = part(step, 4 + kFunctionNames.size() + i);
    if (dict != Py_None && PyObject_SetAttrString(result.get(), kFunctionDicts[i], dict) != 0) return {};
  }
  return result;
}

Ref ObjectMaker::number(const Step& step) const {
  const Ref& value = env_[static_cast<size_t>(step.index)];
  if (PyFloat_CheckExact(value.get()) || PyLong_CheckExact(value.get())) return value;
  return Ref::steal(PyObject_CallMethod(value.get(), "item", nullptr));
}

}  // namespace

bool Reconstruction::read(const SymbolSource& source, PyObject* object, int64_t& value) {
  if (source.dim < 0) {
    value = number_part(object, source.dim);
    return true;
  }
  TensorMeta meta;
  if (!TorchApi::get()->read_meta(object, meta)) {
    PyErr_SetString(PyExc_RuntimeError, "an input tensor cannot be imported");
    return false;
  }
  value = (source.stride ? meta.strides : meta.sizes).at(static_cast<size_t>(source.dim));
  return true;
}

bool Reconstruction::read_symbols(const std::vector<PyObject*>& objects, std::vector<int64_t>& values) const {
  values.assign(sources_.size(), 0);
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].slot < 0 && !read(sources_[i], objects[static_cast<size_t>(sources_[i].object)], values[i])) {
      return false;
    }
  }
  return true;
}

bool Reconstruction::build(const std::vector<Ref>& env, const std::vector<PyObject*>& objects,
                           std::vector<int64_t> symbols, std::vector<Ref>& out) const {
  for (size_t i = 0; i < sources_.size(); ++i) {
    const int slot = sources_[i].slot;
    // Null: it comes to be behind the end of this entry.
    PyObject* made =
        slot >= 0 && static_cast<size_t>(slot) < env.size() ? env[static_cast<size_t>(slot)].get() : nullptr;
    if (made != nullptr && !read(sources_[i], made, symbols[i])) return false;
  }
  ObjectMaker maker(env, objects, std::move(symbols));
  maker.reserve(steps_.size());
  for (const Step& step : steps_) {
    if (!maker.add(step)) return false;
  }
  out.clear();
  for (const int index : wanted_) out.push_back(maker.made(index));
  return true;
}

}  // namespace tatara::capture
