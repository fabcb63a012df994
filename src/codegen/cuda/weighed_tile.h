// A tile of a product whose weight is computed: each warp computes weights where it multiplies them, by the instructions for 16 x 8 x 16 of
// half types (mma). What is summed may be in any order, so a thread has neighbours along it, which it reads as they lie in memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cuda/gpu_context.h"
#include "loops/weighed_layout.h"

namespace tatara::codegen {

class WeighedTile {
 public:
  WeighedTile(GpuContext& gpu, KernelEmitter& emitter, const loops::WeighedProduct& product);

  /// A result and the word with which a thread's part of its weight begins (both i64).
  struct Place {
    std::string result, word;
  };
  /// The weights of all parts at some places: for each place and part a vector of words.
  using Weigh = std::function<std::vector<std::vector<std::string>>(const std::vector<Place>& places)>;
  /// Multiplies, and leaves sums in shared memory.
  void multiply(const Weigh& weigh);
  /// Calls `store` with row and result (both i64) and the value (float) of each element of this thread.
  void give(
      const std::function<void(const std::string& row, const std::string& result, const std::string& value)>& store);

 private:
  std::string n(int64_t value) const { return std::to_string(value); }
  size_t deep() const { return static_cast<size_t>(layout_.deep()); }
  size_t steps() const { return static_cast<size_t>(layout_.rows / loops::WeighedLayout::kRowsOfStep); }
  int64_t run() const { return product_.run == 1 ? product_.words * product_.parts() : product_.words; }
  std::string inside(const std::string& at, const std::string& count);
  void find_places();
  std::vector<std::string> pairs(const std::vector<std::string>& parts);
  std::vector<std::string> row_pairs(size_t step, const std::string& word);
  void multiply_add(const std::vector<std::string>& weights, const std::vector<std::string>& rows, std::string* sums);
  std::string slot(const std::string& slice, const std::string& row, const std::string& result);

  GpuContext& gpu_;
  IrWriter& ir_;
  Scope& scope_;
  KernelEmitter& emitter_;
  const loops::WeighedProduct& product_;
  loops::WeighedLayout layout_;
  const DType dtype_;
  std::string slice_, group_, quarter_;  // of this thread: its slice, its eighth of the warp, and its place there (i64)
  std::string result_;                   // its first one in the tile (i64)
  std::vector<std::string> rows_;        // addresses of the rows whose elements it loads
  std::vector<std::string> results_;     // whose weights it computes
};

}  // namespace tatara::codegen
