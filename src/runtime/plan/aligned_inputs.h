// Inputs of a run on a GPU that lie where kernels cannot read whole vectors.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/plan/plan_programs.h"
#include "runtime/plan/run_context.h"

namespace tatara {

/// Whether kernels on a GPU, which read whole vectors, can work on memory that begins here.
inline bool aligned_for_gpu(const void* data) {
  constexpr uintptr_t kAlignment = 16;
  return reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
}

/// For one run: copies of those inputs that begin off a vector's boundary, as slices do, in aligned memory. Other programs
/// would have to read them element by element; a copy costs one launch.
class AlignedInputs {
 public:
  /// Points `context` and `io` to the copies, which come first in the order of the stream.
  AlignedInputs(const PlanPrograms& programs, HostOps& host, RunContext& context, RunIo& io, void* stream);
  ~AlignedInputs() { io_.inputs = given_; }
  AlignedInputs(const AlignedInputs&) = delete;
  AlignedInputs& operator=(const AlignedInputs&) = delete;

  /// What the plan has written goes to where it belongs.
  void copy_back();

 private:
  struct Copy {
    size_t input, bytes;
    HostTensor memory;
  };

  const PlanPrograms& programs_;
  HostOps& host_;
  RunIo& io_;
  void* stream_;
  std::span<void* const> given_;
  std::vector<void*> inputs_;
  std::vector<Copy> copies_;
};

}  // namespace tatara
