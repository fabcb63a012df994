// A tile of a matrix product on GPUs of compute capability 9.0: one warpgroup has the copy engine load blocks of the operands, the others
// multiply them (wgmma). The main loop is one piece of PTX, so that nothing comes between the multiplications; LLVM writes what
// becomes of the elements.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cuda/gpu_context.h"
#include "loops/product_layout.h"

namespace tatara::codegen {

class ProductTile {
 public:
  ProductTile(GpuContext& gpu, KernelEmitter& emitter, const loops::Product& product);
  /// Computes the tile. Threads that only load end here. `locals` gets memory of the thread, for the begin of the kernel.
  void compute(std::string& locals);

  /// Elements of this thread, in pairs of neighbouring columns.
  size_t pairs() const { return values_.size() / 2; }
  /// Element 0 or 1 of a pair (float).
  const std::string& value(size_t pair, size_t element) const { return values_[2 * pair + element]; }
  /// Pairs lie in two rows, alternately.
  static size_t row_of(size_t pair) { return pair % 2; }
  /// The row of the result (i64), and the column of a pair's first element.
  std::string row(size_t number) const;
  std::string column(size_t pair) const;

 private:
  using Side = loops::Product::Side;

  std::string pointer(const Side& side, size_t part) const;
  std::string main_loop() const;
  std::string loader() const;
  std::string multiplier() const;
  void mend(std::string& locals);
  std::string exact(const std::string& row, const std::string& column);
  std::string element(const Side& side, const std::string& place, const std::string& k);

  GpuContext& gpu_;
  IrWriter& ir_;
  Scope& scope_;
  KernelEmitter& emitter_;
  const loops::Product& product_;
  loops::ProductLayout layout_;
  std::string blocks_;
  std::string row_, column_;              // this thread's first in the tile (i64)
  std::string first_row_, first_column_;  // the tile's in the result
  std::vector<std::string> values_;
};

}  // namespace tatara::codegen
