// Guards on lists, sets, deques and closure variables that a trace read.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/entries/class_watch.h"
#include "capture/entries/object_reads.h"

namespace tatara::capture {

class ContainerGuards {
 public:
  void list_size(PyObject* list, ReadNotes& notes);
  /// `index` counts from the start. The length is watched too.
  void list_item(PyObject* list, Py_ssize_t index, ReadNotes& notes);
  void list(PyObject* list, ReadNotes& notes);
  /// With `ordered`, the order of its items matters, too.
  void set(PyObject* set, bool ordered, ReadNotes& notes);
  /// `elsewhere`: items, as they were when the trace began, of which other guards speak.
  void deque(PyObject* deque, std::vector<bool> elsewhere, ReadNotes& notes);
  void cell(PyObject* cell, ReadNotes& notes);
  /// Calls fn(read, whether the trace wrote to it).
  template <typename Fn>
  void for_each_read(const TraceWrites& writes, Fn&& fn) {
    for (ListWatch& watch : lists_) {
      for (auto& [index, read] : watch.items) {
        const Ref key = Ref::steal(PyLong_FromSsize_t(index));
        fn(read, writes.contains(watch.list.get(), key.get()));
      }
    }
    for (CellWatch& watch : cells_) fn(watch.read, writes.of(watch.cell.get()) != nullptr);
  }
  /// Calls fn(container) for lists, sets and deques.
  void for_each_container(const std::function<void(PyObject*)>& fn) const;
  /// Notes numbers that the trace has given other values.
  void note_rewritten(const TraceWrites& writes);
  bool check(ObjectCheck& check) const;
  /// Adds the places of numbers that are not what they were.
  void add_ended(VaryingPlaces& varying) const;
  void compare(TorchApi& api, const std::vector<SourceTensor>& sources, VaryingPlaces& varying) const;
  void describe(std::vector<std::string>& lines, const std::vector<SourceTensor>& sources) const;  // guards_print.cpp
  size_t size() const { return lists_.size() + sets_.size() + deques_.size() + cells_.size(); }
  int traverse(const Visitor& visit) const { return visit(lists_, sets_, deques_, cells_); }

 private:
  struct ListWatch {
    Ref list;
    Py_ssize_t size = 0;
    std::vector<std::pair<Py_ssize_t, ObjectRead>> items;
    std::unordered_set<Py_ssize_t> seen;
    int traverse(const Visitor& visit) const {
      int result = visit(list);
      for (size_t i = 0; i < items.size() && result == 0; ++i) result = visit(items[i].second);
      return result;
    }
  };
  struct SetWatch {
    Ref set, before;  // a list
    bool ordered = true;
    int traverse(const Visitor& visit) const { return visit(set, before); }
  };
  struct DequeWatch {
    Ref deque, before;  // a list
    std::vector<bool> elsewhere;
    int traverse(const Visitor& visit) const { return visit(deque, before); }
  };
  struct CellWatch {
    Ref cell;
    ObjectRead read;
    int traverse(const Visitor& visit) const { return visit(cell, read); }
  };
  ListWatch& list_watch(PyObject* list, ReadNotes& notes);
  static bool same_items(const SetWatch& watch);
  static bool same_items(const DequeWatch& watch, ObjectCheck& check);

  std::vector<ListWatch> lists_;
  std::unordered_map<PyObject*, size_t> list_index_;
  std::vector<SetWatch> sets_;
  std::vector<DequeWatch> deques_;
  std::vector<CellWatch> cells_;
};

}  // namespace tatara::capture
