// Guards on what gradients rest on: `.grad` of tensors, tensors without history, and which tensor is which.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

#include "capture/entries/object_reads.h"

namespace tatara::capture {

class GradientGuards {
 public:
  /// `.grad` of a tensor (a guarded object, or -1) held `value`, null: None. Later calls find other gradients of its layout:
  /// check() adds them to the objects, in the order of take().
  void add(int index, PyObject* tensor, PyObject* value, TensorMeta meta, ReadNotes& notes);
  /// The gradients; the trace holds them from now on.
  std::vector<PyObject*> take();
  /// Gradients go by which tensor is which: those that were several must be several.
  void passes() { passes_ = true; }
  /// A tensor that is no argument must stay without a history.
  void leaf(PyObject* tensor, ReadNotes& notes);
  /// Whether a tensor that is no argument requires grad must stay as it is.
  void requires_grad(PyObject* tensor, bool needs, ReadNotes& notes);
  /// The tensor is another one in each call.
  void drop(PyObject* tensor);
  /// Found as the gradient of a tensor. It may have ended.
  bool is_gradient(PyObject* object) const { return values_.contains(object); }
  bool check(ObjectCheck& check) const;
  void describe(std::vector<std::string>& lines) const;  // guards_print.cpp
  size_t size() const { return gradients_.size() + leaves_.size() + needs_.size() + static_cast<size_t>(passes_); }
  int traverse(const Visitor& visit) const { return visit(gradients_, leaves_, needs_); }

 private:
  struct Watch {
    int object = -1;
    Ref tensor;  // null: the guarded object
    Ref value;   // while the trace is open
    bool none = false;
    TensorMeta meta;
    int traverse(const Visitor& visit) const { return visit(tensor, value); }
  };
  struct Need {
    Ref tensor;
    bool needs = false;
    int traverse(const Visitor& visit) const { return visit(tensor); }
  };
  bool all_distinct(const ObjectCheck& check) const;

  std::vector<Watch> gradients_;
  std::vector<Ref> leaves_;
  std::vector<Need> needs_;
  std::unordered_set<PyObject*> asked_;  // those of needs_
  bool passes_ = false;
  std::unordered_set<PyObject*> values_;  // identities alone
};

}  // namespace tatara::capture
