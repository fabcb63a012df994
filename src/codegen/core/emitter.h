// Loop IR to LLVM IR text: the emitter's state and its parts (statements and indices in emitter.cpp, then one file each
// for loops, memory, scalars, conversions, division and complex numbers; elementary functions come from math_table.h).
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/emit_cpu.h"
#include "codegen/text/ir_writer.h"
#include "loops/kernel.h"

namespace tatara::codegen {

/// How an index changes from lane to lane.
enum class Stride : uint8_t { kUniform, kUnit, kReversed, kStrided, kGather };

class Emitter {
  friend class GpuSorter;  // emitter_sort.cpp

 public:
  Emitter(const loops::Kernel& kernel, const CpuTarget& target, std::string_view symbol);
  std::string run();
  /// For a kernel with a mapping to a GPU's threads.
  std::string run_gpu(bool adds_vectors);

 private:
  // -- indices --
  bool varies(Expr e) const;
  std::string index(Expr e);         // i64 in lane 0
  std::string index_vector(Expr e);  // i64 per lane
  std::string index_expr(Expr e, bool vec);
  Stride stride_of(Expr e) const;

  // -- statements --
  void block(const loops::Block& block);
  void statement(const loops::Let& let);
  void statement(const loops::Load& load);
  void statement(const loops::Store& store);
  void statement(const loops::IndexValue& index);
  void statement(const loops::If& branch);
  void statement(const loops::For& loop);
  void statement(const loops::Transpose& tile);
  void statement(const loops::Sort& sort);
  /// Rows of a square block become its columns.
  void transpose_registers(std::vector<std::string>& rows, const std::string& element);
  void parallel(const loops::For& loop);
  void serial(const loops::For& loop, const std::string& begin, const std::string& end);
  void serial_from(const loops::For& loop, const std::string& begin, const std::string& end, std::vector<Reg> carried);
  void vector(const loops::For& loop);
  using LoopBody = std::function<void(const std::string& counter, std::vector<Reg>& carried)>;
  /// A counted loop from begin to end by step with carried registers of the given types; body() reads `carried` and
  /// replaces them.
  void counted(const std::string& begin, const std::string& end, const std::string& step,
               const std::vector<DType>& dtypes, std::vector<Reg>& carried, const LoopBody& body,
               bool written_out = false);
  /// The same, in levels where sums of many numbers would lose accuracy in one: each level starts from 0 again after some
  /// passes, as the host's cascades do.
  void summed(const loops::For& loop, const std::string& begin, const std::string& end, int64_t step,
              std::vector<Reg>& carried, const LoopBody& body);
  void sum_level(const loops::For& loop, const std::string& begin, const std::string& end, int64_t step, int level,
                 std::vector<Reg>& carried, const LoopBody& body);
  void vector_pass(const loops::For& loop, const std::string& base, const std::string& mask, std::vector<Reg>& carried);
  /// The statements of a scan; `step` has those that make the next value of a carried one (its index).
  void scan_body(const loops::For& loop, const std::function<void(const loops::Let&, size_t)>& step);
  /// In place of the Let that makes carried value i: the element of each lane becomes the total up to it.
  void scan_step(const loops::For& loop, const loops::Let& let, size_t i, const std::string& mask,
                 std::vector<Reg>& carried);
  Reg identity(loops::Combine combine, DType dtype) const;
  Reg combine(loops::Combine combine, DType dtype, const Reg& a, const Reg& b, bool vec);
  void reduce_lanes(const loops::For& loop, std::vector<Reg>& carried);
  struct VectorShape {
    int lanes = 1;
    bool masks = false;  // the rest runs under a mask, else one by one
    bool heavy = false;  // a body too long for two copies
    bool light = false;  // a body that waits for memory
  };
  VectorShape vector_shape(const loops::For& loop) const;
  std::string mask_below(const std::string& left);
  /// Carried sums of products: rounded once where the target can, which is no less accurate, and one instruction less.
  void note_products(const loops::For& loop);
  template <typename Pass>
  void masked_rest(const loops::For& loop, const std::string& extent, const std::string& whole,
                   std::vector<Reg>& carried, Pass&& pass);

  // -- threads of a GPU (emitter_gpu.cpp) --
  std::string special_register(const char* name);
  /// Which iterations this thread has; threads without any leave.
  std::pair<std::string, std::string> gpu_divided(const std::string& position, const std::string& count);
  void gpu_positions();
  /// The kernel whose blocks find their item of a list and run the function for one item.
  std::string list_entry();
  void gpu_vector(const loops::For& loop);
  void gpu_independent(const loops::For& loop);
  void gpu_pass(const loops::For& loop, const std::string& base, int site, std::vector<Reg>& carried);
  void gpu_enter(const loops::For& loop, int lanes);
  void gpu_leave();
  /// Whether several passes of this loop of a thread are to be under way at once, for it waits for what it loads.
  bool gpu_waits(const loops::For& loop) const;
  /// Which carried values are the same in all lanes, for they come from nothing that differs (how many elements there were).
  std::vector<bool> same_in_lanes(const loops::For& loop) const;
  void gpu_when(const std::string& condition, const std::vector<DType>& dtypes, std::vector<Reg>& carried,
                const std::function<void(std::vector<Reg>&)>& body);
  std::string as_word(DType part, const std::string& text);
  std::string from_word(DType part, const std::string& word);
  /// The word of another thread of the warp: `mode` is bfly, up or idx, as PTX has them.
  std::string shuffle_word(DType part, const std::string& text, const char* mode, int operand, int clamp);
  Reg shuffled(DType dtype, const Reg& value, const char* mode, int operand, int clamp = 31);
  void find_members();
  Reg passed_value(int buffer);
  void gpu_scan(const loops::For& loop);
  void gpu_scan_step(const loops::For& loop, const loops::Let& let, size_t i, std::vector<Reg>& carried);
  Reg scan_lanes(const loops::Carried& c, Reg sum, const Reg& nothing);
  /// The totals of the warps before this thread's one, and of all of them.
  std::pair<Reg, Reg> totals_of_warps(const loops::Carried& c, const Reg& total, const Reg& nothing);
  std::string shared_slot(size_t word, const std::string& at);
  void barrier();
  int64_t gpu_tile_vector(const loops::Transpose& tile, int64_t most) const;
  void gpu_tile(const loops::Transpose& tile);
  void gpu_tile_rows(const loops::For& loop);
  void merge_values(const loops::For& loop, std::vector<Reg>& a, const std::vector<Reg>& b, const std::string& swapped);
  void combine_warp(const loops::For& loop, std::vector<Reg>& carried, int threads, const std::string& lane);
  void combine_threads(const loops::For& loop, std::vector<Reg>& carried);
  /// Which whole vectors the loop reads in any case: elements of others that lie in these come from there.
  void gpu_note_vectors(const loops::For& loop);
  /// A vector that lies across those noted, element by element; nullopt: none of it is there.
  std::optional<Reg> gpu_across(int buffer, Expr where);
  bool on_gpu() const { return kernel_.gpu.threads > 0; }
  bool vector_add(const loops::Store& store, const Reg& value, const std::string& mask);
  std::string align_of_vector(DType dtype, Expr where) const;
  std::string load_flags(int buffer) const;
  void report_fault(const loops::IndexValue& stmt, const std::string& bad, const std::string& given, bool vec);

  // -- memory --
  std::string address(int buffer, const std::string& index);
  std::string addresses(int buffer, const std::string& index);
  std::string from_memory(DType dtype, const std::string& text, bool vec);
  std::string to_memory(DType dtype, const std::string& text, bool vec);
  std::string lane_mask(loops::ScalarId mask);  // i1 vector of lanes that count, "" for all
  std::string spread_mask(const std::string& mask, int n, int used);
  Reg vector_load(int buffer, Expr where, const std::string& mask);
  void vector_store(int buffer, Expr where, const Reg& given, const std::string& mask);
  void prefetch_stores(int buffer, int bytes, int lanes, const std::string& at);
  int small_step(Expr where, DType dtype) const;
  std::string masked_load(const std::string& element, int lanes, const std::string& at, const std::string& align,
                          const std::string& mask, const std::string& flags = {});
  void masked_store(const std::string& element, int bytes, int lanes, const std::string& value, const std::string& at,
                    const std::string& align, const std::string& mask);
  std::string gather(const std::string& element, const std::string& pointers, const std::string& align,
                     const std::string& mask);
  void scatter(const std::string& element, const std::string& value, const std::string& pointers,
               const std::string& align, const std::string& mask);
  Reg split_pairs(const std::string& element, const std::string& pairs);
  std::string join_pairs(const std::string& element, const Reg& value);
  std::string second_part(const std::string& pointers, DType dtype);
  Reg plain_load(DType dtype, const std::string& at, const std::string& flags = {});
  void plain_store(DType dtype, const std::string& at, const Reg& value);
  Reg updated(loops::StoreMode mode, DType dtype, const Reg& old, const Reg& value, bool vec);
  void update_element(const loops::Store& store, const std::string& at, const Reg& value);
  Reg lane_of(DType dtype, const Reg& value, int lane);

  // -- scalars --
  Reg scalar(const loops::Scalar& s);
  Reg constant(const loops::Scalar& s);
  Reg zero(DType dtype);
  Reg cast(DType from, DType to, const Reg& x);
  Reg widen_small(DType from, const Reg& x);
  Reg narrow_small(DType to, const Reg& x);
  /// One value per lane of a uniform one.
  Reg widened(DType dtype, const Reg& r);
  Reg choose(DType dtype, const Reg& condition, const Reg& a, const Reg& b, bool vec);
  Reg arithmetic(const loops::Scalar& s, std::span<const Reg> v, bool vec);
  Reg comparison(const loops::Scalar& s, std::span<const Reg> v, bool vec);
  Reg integer_division(loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);
  Reg real_division(loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);
  Reg shift(loops::ScalarOp op, DType dtype, const Reg& a, const Reg& b, bool vec);
  std::string number(double value, DType dtype, bool vec) const;  // a constant of a floating or integer type
  Reg function(loops::ScalarOp op, DType dtype, std::span<const Reg> v, bool vec);
  const Reg& reg(loops::ScalarId id) const { return regs_[static_cast<size_t>(id)]; }
  DType dtype(loops::ScalarId id) const { return kernel_.scalar_types[static_cast<size_t>(id)]; }
  void set(loops::ScalarId id, Reg value) { regs_[static_cast<size_t>(id)] = std::move(value); }

  /// A function of the math table, if it has this one.
  bool table_function(loops::ScalarOp op, DType dtype, std::span<const Reg> v, bool vec, std::string& result);

  // -- complex --
  Reg complex_cast(DType from, DType to, const Reg& x);
  Reg complex_arithmetic(const loops::Scalar& s, std::span<const Reg> v, bool vec);
  Reg complex_comparison(loops::ScalarOp op, DType in, const Reg& a, const Reg& b, bool vec);
  Reg complex_function(loops::ScalarOp op, DType part, std::span<const Reg> v, bool vec);
  std::string magnitude(const std::string& re, const std::string& im, DType part, bool vec);
  Reg quotient(const Reg& x, const Reg& y, DType part, bool vec);

  const loops::Kernel& kernel_;
  const CpuTarget& target_;
  std::string symbol_;
  Declarations declarations_;
  IrWriter ir_{declarations_};
  int site_ = 0;
  std::vector<Reg> regs_;
  std::vector<std::string> bases_;
  std::unordered_map<Expr, Reg, ExprHash> symbols_;
  Expr vector_var_;
  bool folds_ = false;    // a vector loop so far carried values
  bool streams_ = false;  // the present vector loop does little beside reading and writing
  std::unordered_map<loops::ScalarId, std::array<loops::ScalarId, 3>> products_;  // x * y + z, by what they define
  std::unordered_map<loops::ScalarId, double> constants_;                         // floating ones so far
  std::unordered_set<int> loaded_;  // buffers that vectors were read from so far
  std::string vector_mask_;         // lanes of the present pass that count; "" for all
  std::string gpu_iteration_;       // this thread's place in the parallel space
  std::string gpu_lane_;            // its place in the row, or the first element of its part of the vector loop
  std::string gpu_members_;         // mask of the threads of the warp that have the same row
  std::string gpu_guard_;           // whether this thread's part of a scan lies inside; "" for yes
  bool gpu_inside_ = false;         // a vector loop
  bool gpu_tiles_ = false;          // tiles are being copied: the loop over their rows comes next
  std::string gpu_thread_;          // this thread's place in the block, where it copies tiles
  std::string gpu_group_;           // and its group of threads that have the same row
  std::vector<bool> gpu_same_;      // of what it carries: one register for all lanes
  std::map<std::pair<int, const ExprNode*>, std::string> gpu_vectors_;   // noted, by address; "" until it is read
  std::map<std::pair<int, const ExprNode*>, std::string> gpu_elements_;  // read beside them
  bool gpu_adds_vectors_ = false;  // of four float32 to memory, by one instruction
  bool gpu_narrow_ = false;        // positions of threads fit in 32 bits
  int gpu_shared_ = 0;             // words of memory shared by the threads of a block
  bool gpu_rolled_ = false;        // some loop is to stay one
  bool gpu_written_out_ = false;   // passes of some loop are to be written out
};

}  // namespace tatara::codegen
