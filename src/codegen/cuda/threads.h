// The threads of a GPU: which iterations this one has, and the values that threads exchange.
#pragma once

#include <string>
#include <utility>

#include "codegen/core/emit_context.h"

namespace tatara::codegen {

inline constexpr int kWarp = 32;  // threads that run together

/// A register of any scalar type as an integer of 64 bits, and back.
std::string to_word(IrWriter& ir, DType dtype, const std::string& text);
std::string from_word(IrWriter& ir, DType dtype, const std::string& word);

class Threads {
 public:
  explicit Threads(EmitContext& context) : ir_(context.ir), scope_(context.scope), kernel_(context.kernel) {}

  // -- Places. The kernel's GpuMapping says what threads share. --

  /// Computes this thread's places; threads without any iteration go to the block "exit".
  void compute_positions();
  /// Number of this thread's iteration of the parallel space.
  const std::string& iteration() const { return iteration_; }
  /// Its place among the threads that share a row; without rows, the first element of its part of the vector loop.
  const std::string& lane() const { return lane_; }
  /// Its place in the block, where the block copies tiles or shares columns.
  const std::string& thread() const { return thread_; }
  /// The place of its group of `row` threads, where the block copies tiles; its place among those that share a column.
  const std::string& group() const { return group_; }
  /// How many blocks the launch has (i64).
  std::string blocks() { return special_register("nctaid"); }
  /// Quotient and remainder of a position among all threads.
  std::pair<std::string, std::string> divide_position(const std::string& position, const std::string& count);

  // -- Values of the other threads of a warp --

  /// Finds which threads of the warp have the same row: shuffle() is for these.
  void compute_row_mask();
  /// The mask of these threads.
  const std::string& row_mask() const { return row_mask_; }
  /// The value of another thread. `mode` is bfly, up or idx, as PTX has them, `operand` and `clamp` belong to it.
  Reg shuffle(DType dtype, const Reg& value, const char* mode, int operand, int clamp = 31);

  // -- Memory shared by the threads of a block --

  void barrier();
  /// Address of word `at` among the 32 that belong to value number `value`.
  std::string shared_slot(size_t value, const std::string& at);
  std::string load_shared(size_t value, const std::string& at);
  /// Address of a word of all shared memory.
  std::string shared_word(const std::string& at);
  /// Makes room for so many words of 64 bits.
  void reserve_shared(int64_t words);
  int64_t shared_words() const { return shared_words_; }

 private:
  std::string special_register(const char* name);
  void stop_unless(const std::string& condition);
  void find_row(const std::string& thread, const std::string& block);
  void find_part(const std::string& thread, const std::string& block);
  std::string shuffle_part(DType part, const std::string& text, const char* mode, int operand, int clamp);

  IrWriter& ir_;
  Scope& scope_;
  const loops::Kernel& kernel_;
  std::string iteration_;
  std::string lane_;
  std::string thread_;
  std::string group_;
  std::string row_mask_;
  bool narrow_ = false;  // positions fit in 32 bits
  int64_t shared_words_ = 0;
};

}  // namespace tatara::codegen
