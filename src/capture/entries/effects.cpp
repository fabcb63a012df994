#include "capture/entries/effects.h"

#include <map>
#include <utility>

#include "support/str_cat.h"

namespace tatara::capture {
namespace {

/// dict[str] = value of a dict proper.
bool sets_item(const Effect& effect) {
  static PyObject* const set_item = attr(reinterpret_cast<PyObject*>(&PyDict_Type), "__setitem__").release();
  return effect.kind == Effect::Kind::kCall && effect.name.get() == set_item &&
         PyDict_CheckExact(effect.target.get()) && effect.operands.size() == 2 &&
         PyUnicode_CheckExact(effect.operands[0].get());
}

/// Which effects a later one makes void: of writes to the same attribute or cell, and of whole contents, the last counts.
/// It takes the place of the first, which is where a new key would have been added.
std::vector<const Effect*> last_writes(const std::vector<Effect>& effects, size_t count) {
  std::vector<const Effect*> result;
  std::map<std::pair<PyObject*, PyObject*>, size_t> places;
  std::map<std::pair<PyObject*, std::string>, size_t> items;  // of dicts, under a str
  for (size_t i = 0; i < count; ++i) {
    const Effect& effect = effects[i];
    if (sets_item(effect)) {
      const auto [item, first] =
          items.try_emplace({effect.target.get(), text_of(effect.operands[0].get())}, result.size());
      if (!first && result[item->second] != nullptr) {
        result[item->second] = &effect;
        continue;
      }
      item->second = result.size();
    } else {
      PyObject** dict = effect.kind == Effect::Kind::kAttribute ? _PyObject_GetDictPtr(effect.target.get()) : nullptr;
      PyObject* changed = dict != nullptr ? *dict : effect.target.get();
      std::erase_if(items, [&](const auto& item) { return item.first.first == changed; });
    }
    if (effect.kind == Effect::Kind::kNext) {
      result.push_back(&effect);
      continue;
    }
    const bool replaces = effect.kind != Effect::Kind::kCall && effect.kind != Effect::Kind::kSwitch;
    // The attributes of an object may be written through its __dict__ as well: no merging across that.
    if (effect.kind != Effect::Kind::kAttribute && PyDict_Check(effect.target.get())) places.clear();
    const auto key = std::pair(effect.target.get(), effect.name.get());
    const auto found = places.find(key);
    if (effect.kind == Effect::Kind::kContents) {
      for (const Effect*& earlier : result) {
        if (earlier != nullptr && earlier->target.get() == effect.target.get()) earlier = nullptr;
      }
    } else if (replaces && found != places.end() && result[found->second] != nullptr && !effect.operands.empty() &&
               !result[found->second]->operands.empty()) {
      result[found->second] = &effect;
      continue;
    }
    if (replaces) places[key] = result.size();
    result.push_back(&effect);
  }
  return result;
}

/// Calls a method of the object's C type.
bool call_method(PyObject* object, const char* name, PyObject* argument) {
  const Ref done = Ref::steal(argument != nullptr ? PyObject_CallMethod(object, name, "O", argument)
                                                  : PyObject_CallMethod(object, name, nullptr));
  return static_cast<bool>(done);
}

bool set_contents(PyObject* target, const Ref* operands, size_t count) {
  if (PyDict_Check(target)) {
    PyDict_Clear(target);
    for (size_t i = 0; i + 1 < count; i += 2) {
      if (PyDict_SetItem(target, operands[i].get(), operands[i + 1].get()) != 0) return false;
    }
    return true;
  }
  const Ref items = Ref::steal(PyList_New(static_cast<Py_ssize_t>(count)));
  if (!items) return false;
  for (size_t i = 0; i < count; ++i) {
    PyList_SET_ITEM(items.get(), static_cast<Py_ssize_t>(i), Py_NewRef(operands[i].get()));
  }
  if (PyList_Check(target)) return PyList_SetSlice(target, 0, PyList_GET_SIZE(target), items.get()) == 0;
  if (PySet_Check(target)) {
    if (PySet_Clear(target) != 0) return false;
    for (size_t i = 0; i < count; ++i) {
      if (PySet_Add(target, operands[i].get()) != 0) return false;
    }
    return true;
  }
  return call_method(target, "clear", nullptr) && call_method(target, "extend", items.get());
}

bool apply(Effect::Kind kind, PyObject* name, const Ref* objects, size_t count) {
  PyObject* target = objects[0].get();
  switch (kind) {
    case Effect::Kind::kAttribute:
      return PyObject_GenericSetAttr(target, name, count > 0 ? objects[1].get() : nullptr) == 0;
    case Effect::Kind::kCell: return PyCell_Set(target, count > 0 ? objects[1].get() : nullptr) == 0;
    case Effect::Kind::kCall: {
      std::vector<PyObject*> args;
      for (size_t i = 0; i <= count; ++i) args.push_back(objects[i].get());
      const Ref done = Ref::steal(PyObject_Vectorcall(name, args.data(), args.size(), nullptr));
      return done || caught(PyExc_StopIteration);  // an iterator at its end, as in the trace
    }
    case Effect::Kind::kSwitch: {
      std::vector<PyObject*> args;
      for (size_t i = 1; i <= count; ++i) args.push_back(objects[i].get());
      return static_cast<bool>(Ref::steal(PyObject_Vectorcall(target, args.data(), args.size(), nullptr)));
    }
    case Effect::Kind::kContents: return set_contents(target, objects + 1, count);
    case Effect::Kind::kNext: {
      const Ref item = Ref::steal(PyIter_Next(target));
      return item || PyErr_Occurred() == nullptr;
    }
  }
  return false;
}

}  // namespace

bool perform(const Effect& effect) {
  std::vector<Ref> objects{effect.target};
  objects.insert(objects.end(), effect.operands.begin(), effect.operands.end());
  return apply(effect.kind, effect.name.get(), objects.data(), effect.operands.size());
}

namespace {

bool restore_slots(PyObject* target, PyObject* before) {
  PyObject *name = nullptr, *kept = nullptr;
  Py_ssize_t at = 0;
  bool all = true;
  while (PyDict_Next(before, &at, &name, &kept) != 0) {
    PyObject* const value = PyTuple_GET_SIZE(kept) > 0 ? PyTuple_GET_ITEM(kept, 0) : nullptr;
    if (PyObject_GenericSetAttr(target, name, value) == 0) continue;
    all = value == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError) != 0 && all;  // it is empty already
    forget_error();
  }
  return all;
}

bool restore_ordered(PyObject* target, PyObject* before) {
  const Ref present = Ref::steal(PyDict_Keys(target));
  for (Py_ssize_t i = 0; present && i < PyList_GET_SIZE(present.get()); ++i) {
    if (PyODict_DelItem(target, PyList_GET_ITEM(present.get(), i)) != 0) return false;
  }
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(before, &at, &key, &value) != 0) {
    if (PyODict_SetItem(target, key, value) != 0) return false;
  }
  return true;
}

}  // namespace

bool restore_contents(PyObject* target, PyObject* before) {
  if (PyCell_Check(target)) return PyCell_Set(target, before) == 0;
  if (before == nullptr) return false;
  if (PyODict_Check(target)) return restore_ordered(target, before);
  if (PyDict_Check(target)) {
    PyDict_Clear(target);
    return PyDict_Update(target, before) == 0;
  }
  if (PyDict_Check(before)) return restore_slots(target, before);
  const Ref items = Ref::steal(PySequence_List(before));
  std::vector<Ref> operands;
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
    operands.push_back(Ref::borrow(PyList_GET_ITEM(items.get(), i)));
  }
  return items && set_contents(target, operands.data(), operands.size());
}

bool EffectReplay::build(const std::vector<Effect>& effects, size_t count, ReconstructionBuilder& builder) {
  const Effect* before = nullptr;
  for (const Effect* effect : last_writes(effects, count)) {
    if (effect == nullptr) continue;
    const bool again = before != nullptr && effect->kind == Effect::Kind::kNext &&
                       before->kind == Effect::Kind::kNext && before->target.get() == effect->target.get();
    before = effect;
    if (again) {
      ++steps_.back().times;
      continue;
    }
    if (!builder.want(effect->target.get())) return false;
    for (const Ref& operand : effect->operands) {
      if (!builder.want(operand.get())) return false;
    }
    steps_.push_back({effect->kind, effect->name, effect->operands.size(), 1});
    objects_ += 1 + effect->operands.size();
  }
  return true;
}

bool EffectReplay::replay(const std::vector<Ref>& made) const {
  size_t at = made.size() - objects_;
  for (const Step& step : steps_) {
    for (size_t i = 0; i < step.times; ++i) {
      if (!apply(step.kind, step.name.get(), &made[at], step.count)) return false;
    }
    at += 1 + step.count;
  }
  return true;
}

std::vector<std::string> EffectReplay::describe() const {
  std::vector<std::string> lines;
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Effect::Kind::kAttribute: lines.push_back("attribute " + text_of(step.name.get())); break;
      case Effect::Kind::kSwitch: lines.push_back("switch"); break;
      case Effect::Kind::kCell: lines.push_back("closure variable"); break;
      case Effect::Kind::kCall: lines.push_back("call of " + name_of(step.name.get(), "__qualname__")); break;
      case Effect::Kind::kContents: lines.push_back(str_cat("contents of ", step.count, " objects")); break;
      case Effect::Kind::kNext:
        lines.push_back(step.times == 1 ? "a step of an iterator" : str_cat(step.times, " steps of an iterator"));
        break;
    }
  }
  return lines;
}

}  // namespace tatara::capture
