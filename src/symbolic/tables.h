// What an ExprContext owns, each part with the rules of its own data: symbols, nodes, facts, caches.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "support/arena.h"
#include "symbolic/node.h"

namespace tatara {

struct SymbolInfo {
  std::string_view name;
  NodePtr node;
  IntRange declared;
  IntRange range;  // narrowed by facts
  std::optional<int64_t> hint;
};

class SymbolTable {
 public:
  /// Names are copied to `arena`.
  explicit SymbolTable(BumpArena& arena) : arena_(arena) {}
  /// Null where no symbol has the name.
  const SymbolInfo* find(std::string_view name) const;
  /// The caller gives it its node.
  SymbolInfo& add(std::string_view name, IntRange range, std::optional<int64_t> hint);
  /// A symbol's node has its index as its value.
  SymbolInfo& operator[](NodePtr symbol) { return all_[static_cast<size_t>(symbol->value)]; }
  const SymbolInfo& operator[](NodePtr symbol) const { return all_[static_cast<size_t>(symbol->value)]; }
  const std::vector<SymbolInfo>& all() const { return all_; }
  /// s0, s1, ... that no symbol has.
  std::string next_size_name();
  /// Of loop variables: null for other symbols.
  NodePtr loop_extent(NodePtr symbol) const;
  void set_loop_extent(NodePtr symbol, NodePtr extent) { loop_extents_[symbol] = extent; }

 private:
  BumpArena& arena_;
  std::vector<SymbolInfo> all_;
  std::unordered_map<std::string_view, uint32_t> by_name_;
  uint32_t next_size_ = 0;
  std::unordered_map<NodePtr, NodePtr> loop_extents_;
};

/// Every node once: equal expressions are one pointer.
class NodeTable {
 public:
  /// Keeps references; nodes belong to `owner`.
  NodeTable(ExprContext& owner, BumpArena& arena, const SymbolTable& symbols)
      : owner_(owner), arena_(arena), symbols_(symbols), slots_(64, nullptr) {}
  NodePtr intern(ExprKind kind, int64_t value, std::span<const NodePtr> operands, NodePtr base);
  NodePtr constant(int64_t value) {
    const auto index = static_cast<uint64_t>(value) - static_cast<uint64_t>(kSmallestCached);
    if (index >= kMostCached) return intern(ExprKind::kConst, value, {}, nullptr);
    if (index >= small_constants_.size()) small_constants_.resize(std::min(std::bit_ceil(index + 1), kMostCached));
    NodePtr& cached = small_constants_[index];
    if (cached == nullptr) cached = intern(ExprKind::kConst, value, {}, nullptr);
    return cached;
  }
  uint32_t count() const { return count_; }

 private:
  uint64_t order_key(ExprKind kind, int64_t value, std::span<const NodePtr> operands) const;
  void grow();

  ExprContext& owner_;
  BumpArena& arena_;
  const SymbolTable& symbols_;
  std::vector<NodePtr> slots_;  // open addressing, a power of two
  uint32_t count_ = 0;
  static constexpr int64_t kSmallestCached = -64;
  static constexpr uint64_t kMostCached = 1088;  // up to 1023
  std::vector<NodePtr> small_constants_;         // as far as asked for: each kernel has a context of its own
};

/// What is known to hold. Learning makes a new state (`epoch`), for which what was computed before is not valid.
class FactTable {
 public:
  uint32_t epoch() const { return epoch_; }
  void changed() { ++epoch_; }

  // Whole conditions.
  std::optional<bool> known(NodePtr condition) const;
  void set_known(NodePtr condition, bool value) { known_[condition] = value; }
  void add_assumed(NodePtr condition) { assumed_.push_back(condition); }
  const std::vector<NodePtr>& assumed() const { return assumed_; }  // in order, for printing
  void add_guard(Expr condition) { guards_.push_back(condition); }
  const std::vector<Expr>& guards() const { return guards_; }
  void drop_guards() {
    guards_.clear();
    checked = 0;
  }
  size_t checked = 0;  // guards that each call checks: the first ones

  // Linear facts d <= 0, for the search.
  bool no_linear() const { return linear_.empty(); }
  /// `terms` are those of d.
  void add_linear(NodePtr d, const Linear& terms);
  NodePtr linear(uint32_t index) const { return linear_[index]; }
  /// Indices of the facts that have the atom first in a term; null: none has.
  const std::vector<uint32_t>* linear_with(NodePtr atom) const;

  // Ranges of sums without constant, with content 1 and positive first coefficient.
  bool no_bounds() const { return bounds_.empty(); }
  const IntRange* bound_of(NodePtr key) const;
  IntRange& bound(NodePtr key) { return bounds_[key]; }

  // Equations of symbols; null: none.
  NodePtr value_of(NodePtr symbol) const;
  void set_value(NodePtr symbol, NodePtr value) { values_[symbol] = value; }

  // Facts x % m == 0.
  bool no_multiples() const { return multiples_.empty(); }
  void add_multiple(NodePtr x, int64_t m);
  /// A number that divides the product.
  int64_t divisor_of(NodePtr base) const;

 private:
  uint32_t epoch_ = 1;
  std::unordered_map<NodePtr, bool> known_;
  std::vector<NodePtr> assumed_;
  std::vector<Expr> guards_;
  std::vector<NodePtr> linear_;
  std::unordered_map<NodePtr, std::vector<uint32_t>> by_atom_;
  std::unordered_map<NodePtr, IntRange> bounds_;
  std::unordered_map<NodePtr, NodePtr> values_;
  std::unordered_map<NodePtr, int64_t> multiples_;
};

/// Results by the id of a node, each valid for one epoch.
template <typename Value>
class NodeCache {
 public:
  /// Null: none of this epoch.
  const Value* find(NodePtr e, uint32_t epoch) const {
    return e->id < slots_.size() && slots_[e->id].epoch == epoch ? &slots_[e->id].value : nullptr;
  }
  /// `count`: how many nodes there are.
  void put(NodePtr e, uint32_t epoch, Value value, size_t count) {
    if (e->id >= slots_.size()) slots_.resize(std::max<size_t>(count, e->id + 1) + 64);
    slots_[e->id] = {value, epoch};
  }
  void reserve(size_t count) {
    if (slots_.size() < count) slots_.resize(count + count / 2);
  }

 private:
  struct Slot {
    Value value{};
    uint32_t epoch = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace tatara
