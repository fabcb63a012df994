// Observers that exercise the seam of the VM: see make_observer.
#pragma once

#include <memory>
#include <string>

#include "capture/vm/vm.h"

namespace tatara::capture {

struct StressCounts {
  std::uint64_t entered = 0;
  std::uint64_t left = 0;
  std::uint64_t hooks = 0;
  std::uint64_t actions = 0;  ///< hand-backs and reloads
};
StressCounts& stress_counts();

/// "count": looks at everything, does nothing. "perform": performs every operation in the VM's stead.
/// "handback": gives frames back to CPython at pseudo-random instructions. "reload": takes the frame's state apart and
/// puts it back at pseudo-random instructions. "scripted": acts on functions with telling names (test_smoke.py).
/// nullptr for another name.
std::unique_ptr<VmObserver> make_observer(const std::string& mode);

}  // namespace tatara::capture
