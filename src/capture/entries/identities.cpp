#include "capture/entries/identities.h"

#include <algorithm>
#include <utility>

#include "capture/host/object_kinds.h"
#include "capture/host/torch_native.h"
#include "support/str_cat.h"

namespace tatara::capture {

namespace {

int64_t number_of(PyObject* object, const char* method) {
  const Ref value = object != nullptr ? Ref::steal(PyObject_CallMethod(object, method, nullptr)) : Ref();
  const int64_t number = value && PyLong_Check(value.get()) ? PyLong_AsLongLong(value.get()) : -1;
  forget_error();
  return number;
}

int64_t storage_bytes(PyObject* tensor) {
  const Ref storage = Ref::steal(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
  return number_of(storage.get(), "nbytes");
}

}  // namespace

std::optional<int64_t> storage_address(PyObject* tensor) {
  const Ref storage = Ref::steal(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
  const int64_t address = number_of(storage.get(), "data_ptr");
  return address < 0 ? std::nullopt : std::optional(address);
}

bool lie_alike(PyObject* one, PyObject* other) {
  return number_of(one, "storage_offset") == number_of(other, "storage_offset") &&
         storage_bytes(one) == storage_bytes(other);
}

bool fills_storage(PyObject* tensor) {
  return number_of(tensor, "storage_offset") == 0 &&
         storage_bytes(tensor) == number_of(tensor, "numel") * number_of(tensor, "element_size");
}

bool apart_in_memory(std::span<PyObject* const> tensors) {
  constexpr int64_t kBitsOfByte = 8;
  std::vector<MemoryExtent> extents;
  for (PyObject* tensor : tensors) {
    TensorRef ref;
    if (!TorchNative::get().read(tensor, ref)) return false;
    if (const auto extent = extent_of(ref, ref.bits / kBitsOfByte)) extents.push_back(*extent);
  }
  std::ranges::sort(extents, {}, &MemoryExtent::begin);
  const auto meet = [](const MemoryExtent& one, const MemoryExtent& next) { return one.end > next.begin; };
  return std::ranges::adjacent_find(extents, meet) == extents.end();
}

bool Identities::hold(const std::vector<PyObject*>& objects, std::string* why) const {
  const auto other = [&](const Pair& pair) {
    return pair.other >= 0 ? objects[static_cast<size_t>(pair.other)] : pair.value.get();
  };
  for (const Pair& pair : same) {
    PyObject* now = objects[static_cast<size_t>(pair.object)];
    if (now == other(pair)) continue;
    if (why != nullptr)
      *why = str_cat("another object (", type_name(now), ") in the place of one that is elsewhere, too");
    return false;
  }
  for (const Pair& pair : apart) {
    PyObject* now = objects[static_cast<size_t>(pair.object)];
    if (now != other(pair)) continue;
    if (why != nullptr) *why = str_cat("two objects (", type_name(now), ") have become one");
    return false;
  }
  for (const auto& [pairs, wanted] : {std::pair(&alike, true), std::pair(&unlike, false)}) {
    for (const Pair& pair : *pairs) {
      if (lie_alike(objects[static_cast<size_t>(pair.object)], other(pair)) == wanted) continue;
      if (why != nullptr) *why = str_cat("two tensors ", wanted ? "no longer" : "now", " lie alike in their storages");
      return false;
    }
  }
  for (const auto& [places, wanted] : {std::pair(&whole, true), std::pair(&partial, false)}) {
    for (const int place : *places) {
      if (fills_storage(objects[static_cast<size_t>(place)]) == wanted) continue;
      if (why != nullptr) *why = str_cat("a tensor ", wanted ? "no longer fills" : "fills", " its storage");
      return false;
    }
  }
  for (const Group& group : separate) {
    std::vector<PyObject*> tensors;
    for (const int place : group.objects) tensors.push_back(objects[static_cast<size_t>(place)]);
    for (const HeldObject& value : group.values) tensors.push_back(value.get());
    if (apart_in_memory(tensors)) continue;
    if (why != nullptr) *why = "tensors share memory that did not";
    return false;
  }
  return true;
}

}  // namespace tatara::capture
