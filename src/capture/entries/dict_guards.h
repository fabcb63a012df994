// Guards on dicts that a trace read: globals, attributes of instances, dicts of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/entries/class_watch.h"
#include "capture/entries/object_reads.h"
#include "capture/python/dict_changes.h"

namespace tatara::capture {

class DictGuards {
 public:
  /// The trace read one key, or all items.
  void read_key(PyObject* dict, PyObject* key, ReadNotes& notes);
  void read_all(PyObject* dict, ReadNotes& notes);
  /// How many items it has.
  void read_size(PyObject* dict, ReadNotes& notes);
  /// Calls fn(read, whether the trace wrote to it).
  template <typename Fn>
  void for_each_read(const TraceWrites& writes, Fn&& fn) {
    for (Watch& watch : watches_) {
      for (ObjectRead& read : watch.reads) fn(read, writes.contains(watch.dict.get(), read.key.get()));
      for (ObjectRead& read : watch.items) fn(read, writes.contains(watch.dict.get(), read.key.get()));
    }
  }
  /// Notes numbers that the trace has given other values.
  void note_rewritten(const TraceWrites& writes);
  /// Those with source tensors are looked at in each check.
  void note_sourced();
  /// One compare a dict where nothing changed.
  bool check(ObjectCheck& check);
  /// Adds the places of numbers that are not what they were.
  void compare(TorchApi& api, const std::vector<SourceTensor>& sources, VaryingPlaces& varying) const;
  void add_ended(VaryingPlaces& varying) const;
  void describe(std::vector<std::string>& lines, const std::vector<SourceTensor>& sources) const;  // guards_print.cpp
  size_t size() const { return watches_.size(); }
  int traverse(const Visitor& visit) const { return visit(watches_); }

 private:
  struct Watch {
    Ref dict;
    uint64_t version = 0;
    std::vector<ObjectRead> reads;
    Py_ssize_t size = -1;  // -1: not read
    bool all = false;
    bool sourced = false;
    std::vector<ObjectRead> items;
    std::vector<Ref> order;  // ordered_keys()
    int traverse(const Visitor& visit) const { return visit(dict, reads, items, order); }
  };
  Watch& watch_of(PyObject* dict, ReadNotes& notes);
  static bool holds(const Watch& watch, ObjectCheck& check);

  std::vector<Watch> watches_;
  std::vector<size_t> sourced_;
  std::vector<size_t> ordered_;           // whose order is watched
  std::unique_ptr<DictChanges> changes_;  // of watches_, since the first check; goes before they do
  std::unordered_map<PyObject*, size_t> index_;
};

/// A number whose value is another one now.
void note_rewritten(ObjectRead& read, PyObject* now);
/// Adds the place, or items of the tuple there, where another number, tensor or container is there than before.
void add_varying(ReadPlace place, PyObject* before, PyObject* now, TorchApi& api, VaryingPlaces& varying);
/// The same of what a trace read, and where it leaves another number.
void add_varying(ReadPlace place, const ObjectRead& read, PyObject* now, TorchApi& api,
                 const std::vector<SourceTensor>& sources, VaryingPlaces& varying);

}  // namespace tatara::capture
