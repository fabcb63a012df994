// A class whose attributes a trace read.
#pragma once

#include <compare>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/entries/read_place.h"
#include "capture/python/py.h"

namespace tatara::capture {

/// What a class and its bases (those written in Python) held when a trace first read from it. Unchanged by its version tag,
/// one compare. With another tag the contents decide: they must be the same objects, except for plain data (numbers,
/// strings) under names that the trace did not read.
class ClassWatch {
 public:
  explicit ClassWatch(PyTypeObject* type);
  PyObject* type() const { return type_.get(); }
  /// The trace read this attribute; null or `__dict__`: it may have read any.
  void read(PyObject* name);
  /// False with the reason when what was read is no longer so. Takes the new tag when it is.
  bool check(std::string* why);
  /// Adds names with numbers that differ now, with the dict that holds them.
  void other_numbers(VaryingPlaces& places) const;
  int traverse(const Visitor& visit) const { return visit(type_, mro_, bases_, names_); }

 private:
  struct Base {
    Ref type, before;  // before: a copy of its dict
    Ref weakly;        // a set: names of which `before` has weak references to the values, which may end; null: none
    PyObject* value_before(PyObject* name, PyObject* held) const;
    int traverse(const Visitor& visit) const { return visit(type, before, weakly); }
  };
  bool same(const Base& base, std::string* why) const;
  bool matters(const Base& base, PyObject* name, PyObject* before, PyObject* now) const;
  /// A class that comes before this one in the order of look-ups has the name.
  bool is_hidden(const Base& base, PyObject* name) const;
  Ref type_, mro_;
  std::vector<Base> bases_;
  Ref names_;  // a set
  bool all_ = false;
  unsigned tag_ = 0;
};

/// The classes that a trace read from.
class ClassGuards {
 public:
  /// The trace read `name` of a class; null: what it did depends on the class in other ways.
  void read(PyObject* type, PyObject* name);
  bool check(std::string* why);
  void other_numbers(VaryingPlaces& places) const;
  void describe(std::vector<std::string>& lines) const;  // guards_print.cpp
  size_t size() const { return watches_.size(); }
  int traverse(const Visitor& visit) const { return visit(watches_); }

 private:
  std::vector<ClassWatch> watches_;
  std::unordered_map<PyObject*, size_t> index_;
};

/// Of no use to C code: only a look-up by name makes a difference of it.
bool is_plain_data(PyObject* value);
/// The dict of a class; borrowed, null for classes in C.
PyObject* class_dict(PyTypeObject* type);
/// The dict in which the look-up of an attribute of a class ends; borrowed, null when no Python class has it.
PyObject* defining_dict(PyTypeObject* type, PyObject* name);

}  // namespace tatara::capture
