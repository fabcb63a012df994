// Values that the process makes once.
#pragma once

#include <atomic>
#include <type_traits>

namespace tatara {

/// The process's one result of `make`, made at the first use and never destroyed: threads may use it while the process ends.
/// Each lambda expression has a value of its own. Unlike a static variable it has no lock, which a forked child could find
/// taken and, where `make` runs Python code, which a thread could wait for while it keeps the GIL. Of several values made at
/// once the first stays.
template <typename Make>
std::invoke_result_t<Make&>& made_once(Make make) {
  using T = std::invoke_result_t<Make&>;
  static constinit std::atomic<T*> only{nullptr};
  if (T* made = only.load(std::memory_order_acquire); made != nullptr) return *made;
  T* mine = new T(make());
  T* first = nullptr;
  if (only.compare_exchange_strong(first, mine, std::memory_order_acq_rel)) return *mine;
  delete mine;
  return *first;
}

/// The same for a type's default value; one for each type.
template <typename T>
T& made_once() {
  return made_once([] { return T(); });
}

}  // namespace tatara
