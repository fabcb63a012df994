// Tensors of a trace whose values depend on nothing from outside, such as masks made from positions: a branch on one needs
// no graph break.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/tape/tape.h"

namespace tatara::capture {

/// A guard on what such tensors say where their sizes are symbols: the same calls under the sizes of a later call must give the
/// same answer. They are made once for each set of sizes.
class ConstantGuard {
 public:
  ConstantGuard(std::vector<TapeNode> nodes, size_t slots, Ref func, Ref args, Ref kwargs, Ref expected)
      : nodes_(std::move(nodes)),
        slots_(slots),
        func_(std::move(func)),
        args_(std::move(args)),
        kwargs_(std::move(kwargs)),
        expected_(std::move(expected)) {}
  bool holds(std::span<const int64_t> symbols);
  std::string str() const;

 private:
  bool evaluate(std::span<const int64_t> symbols) const;
  std::vector<TapeNode> nodes_;
  size_t slots_;
  Ref func_, args_, kwargs_, expected_;
  std::map<std::vector<int64_t>, bool> known_;
};

class ConstantTensors {
 public:
  /// The arguments of a call with every slot replaced by its value; null (no error set) when one of them depends on an
  /// input, on random numbers or on memory that was never written.
  Ref evaluate(const Tape& tape, PyObject* arguments);
  /// Whether their values depend on symbols; they are those of the present call then.
  bool symbolic(PyObject* arguments) const;
  /// func(*args, **kwargs), with slots as arguments, gave `result`.
  std::shared_ptr<ConstantGuard> guard(const Tape& tape, PyObject* func, Ref args, Ref kwargs, PyObject* result) const;
  /// The tape has lost the nodes from `first` on.
  void cut(size_t first) {
    seen_ = std::min(seen_, first);
    std::erase_if(nodes_, [first](size_t node) { return node >= first; });
  }
  /// Arrays that NumPy's calls on constants alone have made among torch calls: they are on no tape, and later calls get copies.
  void add_array(PyObject* array) { arrays_.emplace(array, Ref::borrow(array)); }
  void drop_array(PyObject* array) { arrays_.erase(array); }
  bool has_array(PyObject* object) const { return arrays_.contains(object); }

 private:
  void advance(const Tape& tape);

  size_t seen_ = 0;
  std::vector<Ref> env_;        // per slot: its value, or null
  std::vector<bool> symbolic_;  // per slot
  std::vector<size_t> nodes_;   // those that were evaluated
  std::unordered_map<PyObject*, Ref> arrays_;
};

}  // namespace tatara::capture
