#pragma once

#include <cstdint>
#include <vector>

#include "capture/python/py.h"

namespace tatara::capture {

/// Memory of one call, used again by later ones. Calls nest and threads take turns, so there are several; guarded by the
/// GIL.
class CallScratch {
 public:
  std::vector<PyObject*> roots, objects;
  std::vector<Ref> env, made;
  std::vector<int64_t> symbols;

  class Lease {
   public:
    Lease() {
      if (spare().empty()) {
        scratch_ = new CallScratch;
      } else {
        scratch_ = spare().back();
        spare().pop_back();
      }
    }
    ~Lease() {
      scratch_->roots.clear();
      scratch_->objects.clear();
      scratch_->env.clear();
      scratch_->made.clear();
      spare().push_back(scratch_);
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    CallScratch* operator->() const { return scratch_; }

   private:
    CallScratch* scratch_;
  };

 private:
  static std::vector<CallScratch*>& spare() {
    static std::vector<CallScratch*> all;
    return all;
  }
};

}  // namespace tatara::capture
