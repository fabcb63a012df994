// The calling convention between compiled kernels and the runtime.
#pragma once

#include <cstdint>

namespace tatara {

/// Filled in by a kernel whose bounds check failed.
struct KernelFault {
  int64_t value;   // the offending index
  int64_t size;    // the size it was checked against
  int32_t site;    // number of the IndexValue statement inside the kernel, in program order
  int32_t raised;  // 1, where the kernel cannot say so itself: on a GPU
};

/// Runs iterations [begin, end) of the kernel's collapsed parallel space (the product of its parallel extents, row
/// major; a kernel without parallel loops has a space of 1). Returns 0, or 1 when a bounds check failed (fault filled in).
/// `buffers[i]` are base pointers, `sizes[i]` the size symbols, `scalars` 8-byte slots (f64, i64 or bool as i64).
using KernelFn = int32_t (*)(void* const* buffers, const int64_t* sizes, const int64_t* scalars, int64_t begin,
                             int64_t end, KernelFault* fault);

}  // namespace tatara
