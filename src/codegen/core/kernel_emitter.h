// Statements and loops of a kernel as LLVM IR: what is the same for all targets. Each target derives a class that says how
// parallel and vector loops are run, and what only it has.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/core/emission.h"
#include "codegen/core/memory.h"
#include "codegen/core/scalars.h"

namespace tatara::codegen {

class KernelEmitter {
 public:
  KernelEmitter(Emission& emission, Scalars& scalars, Memory& memory)
      : emission_(emission), ir_(emission.ir), scope_(emission.scope), scalars_(scalars), memory_(memory) {}
  KernelEmitter(const KernelEmitter&) = delete;
  KernelEmitter& operator=(const KernelEmitter&) = delete;
  virtual ~KernelEmitter() = default;

  void block(const loops::Block& block);

  using LoopBody = std::function<void(const std::string& counter, std::vector<Reg>& carried)>;
  /// A loop from begin to end by step, with carried values of the given types; body() reads `carried` and replaces them.
  /// `metadata` stands behind the branch back to the head.
  void counted(const std::string& begin, const std::string& end, const std::string& step,
               const std::vector<DType>& dtypes, std::vector<Reg>& carried, const LoopBody& body,
               const std::string& metadata = {});
  /// The statements of a scan; step(let, i) is called in place of the Let that makes the next value of carried value i.
  void scan_body(const loops::For& loop, const std::function<void(const loops::Let&, size_t)>& step);
  /// The element that a scan's Let adds to the total.
  Reg scan_element(const loops::Carried& carried, const loops::Let& let) const;
  /// Each lane gets the total of the lanes up to it.
  Reg scan_lanes(const loops::Carried& c, Reg sum, const Reg& nothing);
  /// Combines the two halves of the lanes until one value is left.
  void reduce_lanes(const loops::For& loop, std::vector<Reg>& carried);
  /// Runs `body` where the condition (i1) holds; "" for always.
  void run_if(const std::string& condition, const std::function<void()>& body);

 protected:
  // -- What each target has of its own --

  /// The body for all iterations of the parallel loops, which are one loop over their product.
  virtual void all_iterations(const std::function<void(const std::string& iteration)>& body) = 0;
  /// Quotient and remainder of an iteration's number by an extent.
  virtual std::pair<std::string, std::string> divided(const std::string& iteration, const std::string& extent) = 0;
  virtual void vector_loop(const loops::For& loop) = 0;
  virtual void serial_loop(const loops::For& loop) { serial(loop, "0", scope_.index(loop.extent)); }
  virtual void transpose(const loops::Transpose& tile) = 0;
  virtual void sort(const loops::Sort& sort) = 0;
  /// Where the store of a single element takes place (i1); "" for always.
  virtual std::string store_condition(const loops::Store& store);
  /// The same for stores of vectors, beside their masks.
  virtual std::string vector_store_condition() const { return ""; }
  /// A read-modify-write of whole vectors, where the target has an instruction for it.
  virtual bool update_vector(const loops::Store& /*store*/, const Reg& /*value*/, const std::string& /*mask*/) {
    return false;
  }
  /// The end of the block that has reported an index out of bounds; `next` is the block where the kernel goes on.
  virtual void leave_after_fault(const std::string& next) = 0;
  /// An index that may be used even where `bad` holds, since the kernel goes on.
  virtual std::string safe_index(const std::string& bad, const std::string& index, bool vec) = 0;
  /// What carried value i becomes by a pass, where the mask says so.
  virtual Reg next_carried(const loops::For& loop, size_t i, const Reg& before, const std::string& mask);

  // -- Loops --

  void serial(const loops::For& loop, const std::string& begin, const std::string& end);
  void serial_from(const loops::For& loop, const std::string& begin, const std::string& end, std::vector<Reg> carried);
  /// A counted loop that adds floating numbers in levels, as eager's cascades do: each level starts from 0 again after some
  /// passes, since one long sum would lose accuracy.
  void summed(const loops::For& loop, const std::string& begin, const std::string& end, int64_t step,
              std::vector<Reg>& carried, const LoopBody& body);
  /// Sets the names for one pass of a vector loop whose first lane has the index `base`. Only lanes of the mask count; "" for
  /// all.
  void begin_pass(const loops::For& loop, const std::string& base, const std::string& mask,
                  const std::vector<Reg>& carried);
  /// The whole pass.
  void vector_pass(const loops::For& loop, const std::string& base, const std::string& mask, std::vector<Reg>& carried);
  /// Finds the carried sums of products, whose Lets become multiply-adds: no less accurate, and one instruction less.
  void note_products(const loops::For& loop);

  Emission& emission_;
  IrWriter& ir_;
  Scope& scope_;
  Scalars& scalars_;
  Memory& memory_;
  int site_ = 0;  // number of the next IndexValue; all copies of a loop's body number theirs alike

 private:
  void statement(const loops::Let& let);
  void statement(const loops::Load& load);
  void statement(const loops::Store& store);
  void statement(const loops::IndexValue& index);
  void statement(const loops::If& branch);
  void statement(const loops::For& loop);
  void statement(const loops::Transpose& tile) { transpose(tile); }
  void statement(const loops::Sort& rows) { sort(rows); }
  Reg load_single(const loops::Load& load);
  Reg load_passed(const loops::Load& load);
  void store_single(const loops::Store& store);
  void store_lanes(const loops::Store& store);
  void store_lane_by_lane(const loops::Store& store, const Reg& value, const std::string& mask);
  void report_fault(const loops::IndexValue& stmt, const std::string& bad, const std::string& given, bool vec);
  /// Lanes where the mask of a statement holds (none: all) and that count in the present pass.
  std::string lane_mask(loops::ScalarId mask);
  void parallel(const loops::For& loop);
  void sum_level(const loops::For& loop, const std::string& begin, const std::string& end, int64_t step, int level,
                 std::vector<Reg>& carried, const LoopBody& body);
  void combine_halves(const loops::For& loop, const std::vector<Reg>& left, const std::vector<Reg>& right,
                      std::vector<Reg>& carried);

  std::unordered_map<loops::ScalarId, std::array<loops::ScalarId, 3>> products_;  // x * y + z, by what they define
};

}  // namespace tatara::codegen
