// Long work that somebody may want to end early: compilation, when a signal comes.
#pragma once

#include <functional>

namespace tatara {

/// What check_cancelled() throws. No std::exception, so that nobody takes it for a failure of the work and goes on without.
struct Cancelled {};

/// For the life of the scope check_cancelled() asks `wanted` in this thread. A thread that works for another one opens a scope
/// with the other's current(). `wanted` must be cheap and thread-safe, and need no lock.
class CancelScope {
 public:
  using Wanted = std::function<bool()>;
  explicit CancelScope(const Wanted* wanted);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;
  /// Null when nobody wants to cancel anything.
  static const Wanted* current();

 private:
  const Wanted* before_;
};

/// Throws Cancelled when the scope's owner wants it. Called wherever nodes, loops or kernels are gone through, so that no more
/// than a few milliseconds lie between two calls.
void check_cancelled();

/// For work that cannot be ended early (LLVM's): runs it in a thread of its own and waits. When it is cancelled meanwhile,
/// Cancelled is thrown at once, and the work goes on to its end with nobody to see it, at the latest before the process ends;
/// so it must own all that it touches. Without a scope it simply runs. Hands on what the work throws.
void run_or_abandon(std::function<void()> work);

}  // namespace tatara
