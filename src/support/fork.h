// What other threads do while the process forks.
//
// A forked child has one thread and a copy of everything else as it was at that moment: a lock that another thread held stays
// locked for ever, and what it guards half-changed. So a fork waits until no other thread holds a lock of ours, and no thread
// takes one before the child is there.
#pragma once

#include <cstdint>
#include <mutex>

namespace tatara {

/// While a thread is in one, forks by other threads wait; while a fork waits, no thread enters. Sections nest. Inside of one
/// nothing may be waited for that another thread does outside of all sections: the GIL above all (the thread that forks may
/// hold it), or the end of a thread.
class ForkSection {
 public:
  ForkSection() { enter(); }
  ~ForkSection() { leave(); }
  ForkSection(const ForkSection&) = delete;
  ForkSection& operator=(const ForkSection&) = delete;

  /// Whether the calling thread is in one.
  static bool inside();

 private:
  friend class ForkSafeMutex;
  static void enter();
  static void leave();
};

/// A mutex that a forked child finds free, and what it guards whole: its holder is in a ForkSection. Every lock of data that
/// outlives a call is one of these.
class ForkSafeMutex {
 public:
  void lock() {
    ForkSection::enter();
    mutex_.lock();
  }
  bool try_lock() {
    ForkSection::enter();
    if (mutex_.try_lock()) return true;
    ForkSection::leave();
    return false;
  }
  void unlock() {
    mutex_.unlock();
    ForkSection::leave();
  }

 private:
  std::mutex mutex_;  // taken in a section only
};

/// How many forks lie between this process and the one that loaded the library. What belongs to threads (a pool) is good only
/// in the generation that made it.
uint64_t fork_generation();

}  // namespace tatara
