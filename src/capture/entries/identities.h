// Which objects of a call are the same ones, and which tensors lie in their memory alike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/entries/held_object.h"
#include "capture/python/py.h"

namespace tatara::capture {

/// Where the tensor's storage begins; nothing: it is not known.
std::optional<int64_t> storage_address(PyObject* tensor);
/// Whether two tensors begin at the same place of storages of the same size.
bool lie_alike(PyObject* one, PyObject* other);
/// Whether a tensor without holes is all of its storage.
bool fills_storage(PyObject* tensor);

/// Whether no two of the tensors share memory; false, too, where one's memory is not known.
bool apart_in_memory(std::span<PyObject* const> tensors);

/// What a trace has taken for granted of the identities of objects that come with each call.
struct Identities {
  struct Pair {
    int object = 0, other = -1;  // places among the objects; -1: `value`
    HeldObject value;
    int traverse(const Visitor& visit) const { return visit(value); }
  };
  struct Group {
    std::vector<int> objects;  // places
    std::vector<HeldObject> values;
    int traverse(const Visitor& visit) const { return visit(values); }
  };
  std::vector<Pair> same;           // this very object: it was found elsewhere, too, or its identity was asked for
  std::vector<Pair> apart;          // two objects, of which one was changed or which were compared
  std::vector<Pair> alike, unlike;  // two tensors: lie_alike()
  std::vector<int> whole, partial;  // places of tensors: fills_storage()
  std::vector<Group> separate;      // tensors: apart_in_memory()
  bool hold(const std::vector<PyObject*>& objects, std::string* why) const;
  std::vector<std::string> describe() const;  // guards_print.cpp
  int traverse(const Visitor& visit) const { return visit(same, apart, alike, unlike, separate); }
};

}  // namespace tatara::capture
