// Rows of an attention on GPUs of compute capability 9.0: one warpgroup has the copy engine load queries, keys and values, the others
// multiply (wgmma) and keep scores, probabilities and sums in registers. Products are pieces of PTX; LLVM writes what becomes of scores.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/core/kernel_emitter.h"
#include "codegen/cuda/attention_blocks.h"
#include "codegen/cuda/gpu_context.h"
#include "loops/attention_layout.h"
#include "loops/tensor_map.h"

namespace tatara::codegen {

class AttentionTile {
 public:
  AttentionTile(GpuContext& gpu, KernelEmitter& emitter, const loops::Attention& attention);
  /// Prepares the barriers, once for all tiles of the block.
  void begin();
  /// Threads that load give registers to those that multiply.
  void take_role(bool loads);
  /// What goes from tile to tile: the number of the stage, the parity of its round and that of the queries (i32).
  static std::vector<Reg> first_state() { return std::vector<Reg>(3, Reg{"0", false}); }
  /// By one warp: loads what the tile needs.
  void load(std::vector<Reg>& state);
  using Pair = std::array<std::string, 2>;
  /// Of each sum the shares (float) of a row (i64) and two neighbouring keys, from those of each product; the first key is given (i32).
  using Score = std::function<std::vector<Pair>(const std::string& row, const std::string& key,
                                                const std::vector<Pair>& products)>;
  /// By the threads that multiply: computes the tile.
  void compute(const Score& score, std::vector<Reg>& state);
  using Result = std::function<void(const std::string& row, const std::string& element, const Pair& values)>;
  /// Gives this thread's results of a sum: a row, and two neighbouring elements of it.
  void give(size_t sum, const Result& result);
  /// By one thread for each row, its logarithm of the sum of exponentials.
  void give_norms(const std::function<void(const std::string& row, const std::string& norm)>& result);

 private:
  static constexpr size_t kRows = 2;  // that a thread has
  static constexpr int64_t kLine = loops::TensorMap::kBoxBytes;
  static constexpr const char* kStages = "@tatara_attention";

  struct Stage {
    std::string stage, parity;  // i32
  };
  /// What goes from block to block, in the order of registers: all sums of values, and of two rows the maximum and the sum of probabilities.
  struct Running {
    std::vector<std::string> sums, most, total;
    Stage at;
  };
  std::vector<DType> types() const;
  std::vector<Reg> packed(const Running& r) const;
  Running unpacked(const std::vector<Reg>& all) const;

  void each_block(const std::vector<DType>& types, std::vector<Reg>& now,
                  const std::function<void(const std::string& block, std::vector<Reg>& now)>& body);
  std::string query_loader() const;
  std::string block_loader() const;
  std::string copies(const loops::Attention::Side& side, int64_t rows, const std::string& name) const;
  std::string enter_stage(size_t base, bool values) const;
  std::string keys_product(size_t number, size_t first) const;
  std::vector<std::string> multiply_keys(const Stage& at);
  std::string values_product(size_t sum, size_t first, size_t shares) const;
  void add_values(Running& r, const std::vector<std::string>& shares);
  Stage after(const Stage& at);
  void find_rows();
  /// Shares of a block, for one sum after the other; what is past the last key gives `past`.
  std::vector<std::string> shares_of(const Score& score, const std::string& block,
                                     const std::vector<std::string>& products, const char* past);
  /// Of these: the new maxima and totals, sums scaled. They become probabilities.
  void soften(std::vector<std::string>& scores, Running& r);
  std::vector<std::string> in_twos(const std::vector<std::string>& values);
  void divide(const Running& end);
  std::string over_quad(const char* what, const std::string& value);
  std::string two(const std::string& low, const std::string& high);
  std::string piece(const std::string& text, const std::string& results, const std::string& constraints,
                    const std::string& operands);
  void at_queries(const char* what, const std::string& parity);
  size_t sums(size_t sum) const;
  size_t sums() const;
  size_t products() const;
  size_t softmax_rows() const { return attention_.is_sum() ? 0 : kRows; }
  int64_t blocks() const;
  int64_t bars() const;

  GpuContext& gpu_;
  IrWriter& ir_;
  Scope& scope_;
  KernelEmitter& emitter_;
  const loops::Attention& attention_;
  loops::AttentionLayout layout_;
  AttentionBlocks needed_;
  DType dtype_;
  std::string rows_[kRows];           // of the result (i64)
  std::string column_;                // of the first pair (i32)
  std::vector<std::string> results_;  // as the tensor cores have them
  std::string norms_[kRows];
};

}  // namespace tatara::codegen
