// Emits the statements and loops of a kernel. CpuEmitter and GpuEmitter derive from it: they decide how parallel and vector
// loops run.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/core/emit_context.h"
#include "codegen/core/memory.h"
#include "codegen/core/scalars.h"

namespace tatara::codegen {

class KernelEmitter {
 public:
  KernelEmitter(EmitContext& context, Scalars& scalars, Memory& memory)
      : context_(context), ir_(context.ir), scope_(context.scope), scalars_(scalars), memory_(memory) {}
  KernelEmitter(const KernelEmitter&) = delete;
  KernelEmitter& operator=(const KernelEmitter&) = delete;
  virtual ~KernelEmitter() = default;

  void block(const loops::Block& block);

  using LoopBody = std::function<void(const std::string& counter, std::vector<Reg>& carried)>;
  /// for (counter = begin; counter < end; counter += step). body() gets the carried values and replaces them by the next ones.
  /// `metadata` (", !llvm.loop !N" or "") is attached to the back edge. `until`, which the body may set, ends the loop where it is true.
  void counted_loop(const std::string& begin, const std::string& end, const std::string& step,
                    const std::vector<DType>& dtypes, std::vector<Reg>& carried, const LoopBody& body,
                    const std::string& metadata = {}, const std::string* until = nullptr);
  /// Emits the body of a scan loop. For the Let that defines the next value of carried value i, step(let, i) is called instead.
  void scan_body(const loops::For& loop, const std::function<void(const loops::Let&, size_t)>& step);
  /// The operand of a scan's Let that is not the running total.
  Reg scan_element(const loops::Carried& carried, const loops::Let& let) const;
  /// An inclusive scan over the lanes of `sum`.
  Reg scan_lanes(const loops::Carried& c, Reg sum, const Reg& nothing);
  /// Reduces carried vectors to scalars by combining halves.
  void reduce_lanes(const loops::For& loop, std::vector<Reg>& carried);
  /// Emits `body` under a condition (i1); "" means unconditionally.
  void run_if(const std::string& condition, const std::function<void()>& body);

 protected:
  // -- Target hooks --

  /// Emits the body of the collapsed parallel loops for the iterations that this call or thread runs.
  virtual void all_iterations(const std::function<void(const std::string& iteration)>& body) = 0;
  /// Quotient and remainder of an iteration number by the extent of an inner parallel loop.
  virtual std::pair<std::string, std::string> divide_position(const std::string& iteration,
                                                              const std::string& extent) = 0;
  virtual void vector_loop(const loops::For& loop) = 0;
  virtual void serial_loop(const loops::For& loop) { serial(loop, "0", scope_.index(loop.extent)); }
  virtual void transpose(const loops::Transpose& tile) = 0;
  virtual void sort(const loops::Sort& sort) = 0;
  virtual void product(const loops::Product& product) = 0;
  virtual void attention(const loops::Attention& attention) = 0;
  virtual void weighed_product(const loops::WeighedProduct& product) = 0;
  /// The condition (i1) under which a scalar store happens; "" for always.
  virtual std::string store_condition(const loops::Store& store);
  /// The same for vector stores; their lane masks come on top.
  virtual std::string vector_store_condition() const { return ""; }
  /// Emits a read-modify-write store as one vector instruction, if the target has one.
  virtual bool update_vector(const loops::Store& /*store*/, const Reg& /*value*/, const std::string& /*mask*/) {
    return false;
  }
  /// Ends the block that reports an index out of bounds. `next` is the block after the check.
  virtual void leave_after_fault(const std::string& next) = 0;
  /// The index to use after its check: a valid one even if `bad`, for targets on which the kernel continues.
  virtual std::string safe_index(const std::string& bad, const std::string& index, bool vec) = 0;
  /// Carried value i after a pass; lanes outside of the mask keep `before`.
  virtual Reg next_carried(const loops::For& loop, size_t i, const Reg& before, const std::string& mask);

  // -- Loops --

  void serial(const loops::For& loop, const std::string& begin, const std::string& end);
  void serial_from(const loops::For& loop, const std::string& begin, const std::string& end, std::vector<Reg> carried,
                   int64_t step = 1, const std::string& metadata = {});
  /// A counted loop in which floating sums are cascaded, as in eager: inner loops of 32 passes sum from 0, and outer loops add
  /// their results. One long sum would lose accuracy.
  void cascaded(const loops::For& loop, const std::string& begin, const std::string& end, int64_t step,
                std::vector<Reg>& carried, const LoopBody& body, const std::string& metadata = {});
  /// `carried` becomes what two parts of it make together, in all lanes.
  void combine_parts(const loops::For& loop, const std::vector<Reg>& left, const std::vector<Reg>& right,
                     std::vector<Reg>& carried);
  /// Binds the loop variable, the lane mask ("" for all lanes) and the carried values for one pass of a vector loop. `base` is
  /// the index of its first lane.
  void begin_pass(const loops::For& loop, const std::string& base, const std::string& mask,
                  const std::vector<Reg>& carried);
  /// Emits one pass of a vector loop.
  void vector_pass(const loops::For& loop, const std::string& base, const std::string& mask, std::vector<Reg>& carried);
  /// Finds the Lets of a loop that compute `carried + x * y`. They are emitted as multiply-adds.
  void find_multiply_adds(const loops::For& loop);

  void statement(const loops::Load& load);

  EmitContext& context_;
  IrWriter& ir_;
  Scope& scope_;
  Scalars& scalars_;
  Memory& memory_;
  int site_ = 0;  // number of the next IndexValue, for fault reports; the same in all copies of a loop body
  std::unordered_map<loops::ScalarId, Reg> ready_;  // what was loaded before its statement

 private:
  void statement(const loops::Let& let);
  void statement(const loops::Store& store);
  void statement(const loops::IndexValue& index);
  void statement(const loops::If& branch);
  void statement(const loops::For& loop);
  void statement(const loops::Transpose& tile) { transpose(tile); }
  void statement(const loops::Sort& rows) { sort(rows); }
  void statement(const loops::Product& tile) { product(tile); }
  void statement(const loops::Attention& tile) { attention(tile); }
  void statement(const loops::WeighedProduct& tile) { weighed_product(tile); }
  Reg load_single(const loops::Load& load);
  Reg load_passed(const loops::Load& load);
  void store_single(const loops::Store& store);
  void store_lanes(const loops::Store& store);
  void store_lane_by_lane(const loops::Store& store, const Reg& value, const std::string& mask);
  void report_fault(const loops::IndexValue& stmt, const std::string& bad, const std::string& given, bool vec);
  /// The mask of a statement and the mask of the current pass; "" if neither restricts anything.
  std::string lane_mask(loops::ScalarId mask);
  void parallel(const loops::For& loop);
  void cascade_level(const loops::For& loop, const std::string& begin, const std::string& end, int64_t step, int level,
                     std::vector<Reg>& carried, const LoopBody& body, const std::string& metadata);

  std::unordered_map<loops::ScalarId, std::array<loops::ScalarId, 3>>
      multiply_adds_;  // (x, y, z) of x * y + z, by the scalar that it defines
};

}  // namespace tatara::codegen
