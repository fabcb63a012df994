// Shared by the sources of NumPy's loops: views of the plan's memory, gone through.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "capture/host/numpy_loops.h"

namespace tatara::capture {

using LoopViews = std::vector<const TensorView*>;
using LoopBody = std::function<void(const LoopViews&)>;

/// The operator of that name, of which the body is always the same.
const OpDef& add_numpy_loop(const std::string& key, LoopBody body);
/// NumPy's letter for the element type.
char letter_of(DType dtype);
/// Throws where data decide otherwise how large a result is.
void stop_unless(int64_t found, int64_t wanted);

// Of PyArray_ArrFuncs in ndarraytypes.h; `kind` is NumPy's number.
inline constexpr int kArgmax = 26, kSort = 33, kArgsort = 36, kArgmin = 46;

using SortFunction = int (*)(void*, Py_ssize_t, void*);
using ArgsortFunction = int (*)(void*, Py_ssize_t*, Py_ssize_t, void*);
using ExtremeFunction = int (*)(void*, Py_ssize_t, Py_ssize_t*, void*);

/// The outer dimensions of a loop's operands together, as few as their strides allow. Strides in bytes.
struct Outer {
  std::vector<int64_t> sizes;
  std::vector<std::vector<Py_ssize_t>> strides;  // by dimension and operand

  Outer(const LoopViews& views, const std::vector<size_t>& core) {
    size_t rank = 0;
    for (size_t k = 0; k < views.size(); ++k) rank = std::max(rank, views[k]->sizes.size() - core[k]);
    for (size_t d = 0; d < rank; ++d) {
      int64_t size = 1;
      std::vector<Py_ssize_t> steps;
      for (size_t k = 0; k < views.size(); ++k) {
        const size_t own = views[k]->sizes.size() - core[k];
        const bool has = d + own >= rank && views[k]->sizes[d + own - rank] != 1;
        if (has) size = views[k]->sizes[d + own - rank];
        steps.push_back(has ? views[k]->strides[d + own - rank] * dtype_size(views[k]->dtype) : 0);
      }
      if (size == 1) continue;
      bool joins = !sizes.empty();
      for (size_t k = 0; joins && k < steps.size(); ++k) joins = strides.back()[k] == steps[k] * size;
      if (joins) {
        sizes.back() *= size;
        strides.back() = std::move(steps);
      } else {
        sizes.push_back(size);
        strides.push_back(std::move(steps));
      }
    }
    if (!sizes.empty()) return;
    sizes.push_back(1);
    strides.emplace_back(views.size(), 0);
  }
};

/// Calls `run(pointers, count, steps)` for the last of the outer dimensions at each place of the others.
template <class Run>
void for_each_row(const Outer& outer, std::vector<char*> at, const Run& run, size_t dim = 0) {
  if (dim + 1 == outer.sizes.size()) {
    if (outer.sizes[dim] > 0) run(at, outer.sizes[dim], outer.strides[dim]);
    return;
  }
  for (int64_t i = 0; i < outer.sizes[dim]; ++i) {
    for_each_row(outer, at, run, dim + 1);
    for (size_t k = 0; k < at.size(); ++k) at[k] += outer.strides[dim][k];
  }
}

std::vector<char*> begins(const LoopViews& views);
/// One element of so many bytes.
void copy_item(void* to, const void* from, int64_t item);
void copy_elements(const TensorView& from, const TensorView& to);

}  // namespace tatara::capture
