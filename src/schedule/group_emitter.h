// The statements of a group's kernel, inside of the loops of its plan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "schedule/emit.h"

namespace tatara::sched {

/// A reduction in two kernels: the first one folds chunks into partial results in memory, the second one combines these.
enum class Phase : uint8_t { kWhole, kPartial, kFinal };

/// Memory of the partial results: a buffer per reduction and accumulator, over the rows and the chunks.
struct Partials {
  LoopSpec chunks;
  std::vector<Expr> columns;  // variables of the loops inside of the chunks, whose elements lie beside each other
  bool is_column(Expr var) const { return std::find(columns.begin(), columns.end(), var) != columns.end(); }
  std::map<std::pair<NodeId, size_t>, BufferId> buffers;
};

/// What a group reads from a copy: `from` (an address over dims) lies at `place` of the buffer `to`.
struct RowCopy {
  Access from;
  BufferId to = -1;
  Expr place;
};
/// On a GPU, where a reduction reads a tensor across the order in which it writes: emits a copy through tiles into that order, and
/// changes the accesses to it. Each walk would take several times as long.
std::vector<RowCopy> copy_into_row_order(State& s, const Group& group, std::vector<Access>& accesses, Expr elements);

/// Walks the reduced dims once for each stage of the group: folds, then stores.
class GroupEmitter {
 public:
  using Kept = NestPlan::Kept;
  GroupEmitter(State& s, int unit, NestBuilder& nest, const NestPlan& plan, Phase phase = Phase::kWhole,
               Partials* partials = nullptr);
  void emit();
  /// Dear values that two walks of the row need.
  std::set<Kept> needed_twice() const;

 private:
  const LoweredNode& node_of(const Member& m) const { return *s_.nodes[static_cast<size_t>(m.node)]; }
  std::optional<ScalarId> read(ValueId v, const std::vector<Expr>& indices, ScalarId mask);
  /// A dear value that several walks over a row need: computed in the first, kept in memory of the thread.
  std::optional<ScalarId> kept_between_walks(ValueId v, const std::vector<Expr>& indices);
  /// The store of the result whose memory keeps the value until then; null: none.
  const Member* host_of(const Kept& key) const;
  std::optional<ScalarId> read_memory(ValueId v, const std::vector<Expr>& indices, ScalarId mask);
  ScalarId value_of(const Member& m);
  /// The element of a member's space that an iteration works on: of the present copy, where a thread has several.
  std::vector<Expr> index_of(const Member& m) const;
  /// Where along its dim the k-th copy is.
  Expr place_of(const NestPlan::Copies& c, int64_t k) const;
  template <typename Fn>
  void for_each_copy(Fn&& fn);
  void store(const Member& m, ScalarId x);
  void store_value(const Member& m) { store(m, value_of(m)); }
  /// The i-th value that a reduction carries, before its first element.
  static loops::Carried carried_from(const LoweredNode& node, size_t i, ScalarId init);
  /// One pass over the reduced dims (or none, where nothing is reduced).
  void walk(const std::vector<const Member*>& folds, const std::vector<const Member*>& stores);
  /// Where a chunk's part of the result lies: rows, then chunks, then the columns of a vector loop.
  Expr partial_address(std::vector<Expr>& sizes) const;
  void deposit(const Member& m, std::span<const ScalarId> acc);
  /// The second kernel's share of a reduction: all chunks combined.
  void gather(const Member& m);
  template <typename Fn>
  std::vector<ScalarId> fold_in(const std::vector<const Member*>& folds, const std::vector<ScalarId>& now, Fn&& after);
  void finish(const Member& m, std::span<const ScalarId> acc);

  State& s_;
  int unit_;
  const Group& group_;
  NestBuilder& nest_;
  const NestPlan& plan_;
  const Phase phase_;
  Partials* const partials_;
  int stage_ = 0;
  int64_t copy_ = 0;
  ValueId current_ = kNoValue;
  std::vector<ValueId> computing_;
  std::map<Kept, std::pair<int, int>> seen_;       // dear values: the first and the last walk that needs them
  std::map<Kept, std::pair<BufferId, int>> kept_;  // where, and since which walk
  std::map<ValueId, int> stored_in_;
  mutable std::map<std::pair<const ExprNode*, int64_t>, Expr> places_;  // of copies along merged dims
};

}  // namespace tatara::sched
