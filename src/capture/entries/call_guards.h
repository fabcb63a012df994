// Guards on results of code that a trace called outside of itself.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "capture/entries/object_reads.h"

namespace tatara::capture {

class CallGuards {
 public:
  /// A call of C code that changes nothing and whose result depends on more than its arguments: made again by check().
  void call(PyObject* callable, PyObject* const* args, size_t count, PyObject* result, ReadNotes& notes);
  /// What an abstract base class says of a class. Asked again when classes have been registered since (abc.get_cache_token).
  void subclass(PyObject* type, PyObject* abstract, PyObject* answer);
  /// No exception is being handled where the code is called.
  void nothing_handled() { nothing_handled_ = true; }
  /// A function with a cache gave `result`, which `cache` has under `key`, in `held`: itself, or a link that others may use later.
  void cached(PyObject* cache, PyObject* key, PyObject* held, PyObject* result, ReadNotes& notes);
  void hold_weakly(WeakMaker& maker);
  bool check(ObjectCheck& check) const;
  void describe(std::vector<std::string>& lines) const;  // guards_print.cpp
  size_t size() const {
    return calls_.size() + cached_.size() + subclasses_.size() + static_cast<size_t>(nothing_handled_);
  }
  int traverse(const Visitor& visit) const { return visit(calls_, cached_, subclasses_); }

 private:
  struct CallWatch {
    Ref callable;
    std::vector<Ref> args;
    Ref result;
    std::vector<bool> weak{};  // per argument
    int traverse(const Visitor& visit) const { return visit(callable, args, result); }
  };
  struct CachedWatch {
    Ref cache, key, held, result;
    bool holds() const;
    int traverse(const Visitor& visit) const { return visit(cache, key, held, result); }
  };
  struct SubclassWatch {
    Ref type, abstract, answer;
    int traverse(const Visitor& visit) const { return visit(type, abstract, answer); }
  };
  bool subclasses_as_before(ObjectCheck& check) const;

  std::vector<SubclassWatch> subclasses_;
  mutable unsigned long long registered_ = 0;  // how often classes were, when the answers last held
  std::vector<CachedWatch> cached_;
  bool nothing_handled_ = false;
  std::vector<CallWatch> calls_;
};

}  // namespace tatara::capture
