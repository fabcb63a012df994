// Scratch memory of runs on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tatara {

/// The memory of one context of a plan. Small memory is the context's own and stays between runs. Big memory is shared: runs that
/// follow each other (a forward and its backward pass) use the same, so that what lies idle is what the largest of them needs and
/// not the sum.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { release(); }

  /// The bytes that the runs to come need.
  void resize(size_t bytes);
  bool is_shared() const { return wanted_ >= kShared; }
  /// Memory for a run; until leave() nobody else has it.
  std::byte* enter();
  void leave();

  /// Bytes of all arenas of the process.
  static int64_t total();
  /// Gives the system back what no run is using.
  static void release_idle();

 private:
  static constexpr size_t kShared = size_t{4} << 20;

  void release();

  size_t wanted_ = 0;
  std::byte* base_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tatara
