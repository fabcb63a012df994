// A tile of a matrix product on GPUs of compute capability 9.0: one warpgroup has the copy engine load blocks of the operands, the others
// multiply them (wgmma). The main loop is one piece of PTX, so that nothing comes between the multiplications; LLVM writes what
// becomes of the elements.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cuda/gpu_context.h"
#include "loops/product_layout.h"

namespace tatara::codegen {

class ProductTile {
 public:
  ProductTile(GpuContext& gpu, KernelEmitter& emitter, const loops::Product& product);
  /// Prepares the barriers, once for all tiles of the block.
  void begin();
  /// Threads that load give registers to those that multiply.
  void take_role(bool loads);
  /// Which tiles this thread's warpgroup multiplies, and with what state it begins.
  struct Turn {
    std::string first, step;
    std::vector<Reg> state;
  };
  Turn turn(const std::string& first, const std::string& step);
  /// By one thread: loads the blocks of the tile. `state`: the number of the stage (i32) and the parity of its round, here and below.
  void load(std::vector<Reg>& state);
  /// By the threads that multiply: computes the tile. `locals` gets memory of the thread, for the begin of the kernel.
  void multiply(std::string& locals, std::vector<Reg>& state);

  /// A thread's elements lie in some rows, in runs of neighbouring columns.
  size_t run_length() const { return interleaved() ? 8 : 2; }
  /// All elements (float), row by row.
  std::vector<Reg> elements() const;
  /// How many elements a part of a row has, at most `most`, when all parts are alike.
  size_t part(size_t most) const;
  /// The row of the result (i64) that part `number` (i64) lies in, and which element of the row it begins with (i64).
  std::pair<std::string, std::string> place(const std::string& number, size_t part) const;
  /// The column of the result (i64) that has the element `at` behind `begin`.
  std::string column(const std::string& begin, int at) const;

 private:
  using Side = loops::Product::Side;

  /// Fields of a matrix descriptor but the address, and bytes from one multiplication to the next along k and to the next warpgroup's rows.
  struct Descriptor {
    int64_t fixed, deep, group;
    int turned;  // 1: k does not go along memory
  };

  std::string pointer(const Side& side, size_t part) const;
  struct Operand {
    std::string type, text;
  };
  size_t rows() const { return static_cast<size_t>(2 * layout_.group_rows() / loops::ProductLayout::kGroupRows); }
  /// Whether a thread's columns lie beside each other: as they were loaded, or after an exchange.
  bool loads_interleaved() const { return product_.right.matrices && product_.right.matrices->interleaved; }
  bool exchanges() const;
  bool interleaved() const { return loads_interleaved() || exchanges(); }
  std::vector<Operand> places();
  /// Blocks of the tile, and how many elements of k of the last one it multiplies.
  std::string own_blocks();
  std::string last_block();
  std::vector<std::string> through_blocks(const std::string& text, size_t sums, const std::vector<Operand>& given,
                                          std::vector<Reg>& state);
  std::string without_rest() const;
  /// Waits for the turn, and lets the other warpgroup have it.
  std::string await_turn() const;
  std::string give_turn() const;
  void exchange();
  void find_place();
  void give_scales(std::vector<Operand>& given);
  static std::string add_to_some(size_t count);
  std::string multiplications(const std::string& sum) const;
  static std::string free_stage(const char* blocks);
  std::string sum_by_blocks(size_t scales) const;
  std::string add_block(const std::string& set) const;
  std::string load_scales(const std::string& set) const;
  std::string enter(size_t first, size_t state) const;
  std::string leave(size_t state) const;
  std::string loader() const;
  Descriptor descriptor(const Side& side) const;
  std::string matrix_copies(const Side& side, const std::string& map, const std::string& name) const;
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
