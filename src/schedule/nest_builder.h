// Builds the statements of a kernel: composes element functions, shares equal scalars, and puts each into the outermost
// loop in which its operands exist.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory_resource>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "schedule/internal.h"
#include "support/inline_vec.h"

namespace tatara::sched {

inline loops::Scalar make_scalar(ScalarOp op, DType dtype, std::vector<ScalarId> operands = {}) {
  loops::Scalar s{};
  s.op = op;
  s.dtype = dtype;
  s.operands = std::move(operands);
  return s;
}

class NestBuilder {
 public:
  /// What becomes of statements. kNone: a trial, which finds what is read and how much is computed.
  enum class Statements : uint8_t { kKept, kNone };
  NestBuilder(State& state, loops::Kernel& kernel, Statements statements = Statements::kKept);

  /// How a root value is had at the given indices; nullopt: inline it.
  using AccessFn = std::function<std::optional<ScalarId>(ValueId, const std::vector<Expr>&, ScalarId mask)>;
  AccessFn access;
  /// From dims to loop variables.
  ExprMap substitution;

  State& state() { return state_; }
  ExprContext& ctx() { return state_.ctx; }
  loops::Kernel& kernel() { return kernel_; }
  DType dtype(ScalarId id) const { return kernel_.scalar_types[static_cast<size_t>(id)]; }

  // -- scopes --
  void open_loop(Expr var, Expr extent, loops::LoopKind kind, std::vector<loops::Carried> carried = {},
                 bool scan = false);
  /// Ends the innermost loop and puts it into its parent. `next` in the order of `carried`.
  /// Returns the final values.
  std::vector<ScalarId> close_loop(const std::vector<ScalarId>& next,
                                   std::unique_ptr<loops::CombineFn> combine = nullptr);
  /// Opens the loop over a product's columns, in which its rows are known too.
  void open_product(loops::Product& product, Expr column, Expr columns);
  void close_product(loops::Product product);
  /// The loop over keys, in which shares are computed; for each sum one over elements of a result's row, in which results are stored; the
  /// end.
  void open_attention(loops::Attention& attention, Expr key, Expr keys);
  void end_scores(loops::Attention& attention);
  void begin_results(const loops::Attention& attention, loops::Attention::Sum& sum, Expr element, Expr elements);
  void end_results(const loops::Attention& attention, loops::Attention::Sum& sum);
  void close_attention(loops::Attention attention);
  /// The loop over words, in which weights are computed; the one over results, in which elements are stored; the end.
  void begin_weights(const loops::WeighedProduct& product, Expr word, Expr words);
  void end_weights(loops::WeighedProduct& product);
  void begin_elements(loops::WeighedProduct& product, Expr result, Expr results);
  void close_weighed(loops::WeighedProduct product);
  /// The carried values inside the innermost loop.
  std::vector<ScalarId> carried_args() const;
  /// A block of its own that shares nothing with the scopes around it.
  void open_isolated();
  loops::Block close_isolated();
  loops::Block take_body();
  ScalarId new_scalar(DType dtype);  // defined in the present scope

  // -- statements --
  ScalarId emit(loops::Scalar scalar);
  ScalarId constant_int(int64_t value, DType dtype);
  ScalarId zero(DType dtype);
  ScalarId cast(ScalarId x, DType dtype);
  ScalarId index_value(Expr index, DType dtype);
  Expr indirect(ScalarId value, Expr size, bool wrap, bool check, ScalarId mask);
  /// Element of a value's memory, in its compute dtype.
  ScalarId load(ValueId v, const Storage& storage, const std::vector<Expr>& indices, ScalarId mask, ScalarId other);
  void store(ValueId v, const Storage& storage, const std::vector<Expr>& indices, ScalarId value,
             loops::StoreMode mode = loops::StoreMode::kSet, ScalarId mask = loops::kNoScalar, bool atomic = false);
  /// Element `dims_address` (over dims) of a buffer, as it is stored, from where it was redirected to.
  ScalarId load_element(BufferId buffer, DType stored, Expr dims_address);
  /// Element `address` (over loop variables) of a buffer, as it is stored.
  ScalarId load_at(BufferId buffer, DType stored, Expr address, ScalarId mask = loops::kNoScalar,
                   ScalarId other = loops::kNoScalar);
  void store_at(BufferId buffer, Expr address, ScalarId value, ScalarId mask = loops::kNoScalar,
                loops::StoreMode mode = loops::StoreMode::kSet, bool atomic = false);
  /// Value v at indices, in its compute dtype, rounded as eager rounds.
  ScalarId eval(ValueId v, std::vector<Expr> indices, ScalarId mask = loops::kNoScalar);
  /// `x` as storing it and loading it again would give it.
  ScalarId round(ScalarId x, DType storage_dtype);
  void remember(ValueId v, const std::vector<Expr>& indices, ScalarId x);
  int buffer_arg(BufferId buffer, bool written);
  /// Memory of the thread itself, as a buffer for load_at and store_at.
  BufferId add_local(DType dtype, int64_t numel);
  /// From now on loads of that element of the buffer (an address over dims) are loads of `local` at `place`.
  void redirect(BufferId buffer, Expr dims_address, BufferId local, Expr place);
  void transpose(loops::Transpose tile) { put(depth(), std::move(tile)); }
  void sort(loops::Sort rows) { put(depth(), std::move(rows)); }
  Expr address_of(const Storage& storage, const std::vector<Expr>& indices);
  /// Simplified and rewritten to loop variables.
  Expr finalize(Expr e);

  std::vector<Access> accesses;
  std::vector<Expr> index_uses;      // index expressions other than addresses, over dims
  std::vector<BufferId> buffer_ids;  // per kernel buffer
  std::vector<std::string> fault_sites;
  const SourceLocation* location = nullptr;  // of the node being lowered
  std::vector<std::string> fused_ops;        // operators inlined, in order, without repetition
  std::vector<NodeId> fused_nodes;           // and views, for the report
  struct Work {
    int operations = 0;
    int functions = 0;  // of these, exp, sin and the like: a dozen instructions or more each
    double cost = 0;    // of the operations, transcendentals and divisions counted for what they take
  };
  Work work;
  void fused(const LoweredNode& node);

 private:
  using ScalarKey = std::tuple<int, int, InlineVec<ScalarId, 4>, int64_t, const ExprNode*, int>;
  using EvalKey = std::tuple<ValueId, InlineVec<const ExprNode*, 6>, ScalarId>;
  using LoadKey = std::tuple<int, const ExprNode*, ScalarId, ScalarId>;
  using IndirectKey = std::tuple<ScalarId, const ExprNode*, bool, bool, ScalarId>;
  /// Of the scopes' maps: thousands of trials would scatter small pieces over the heap of a large graph.
  struct MapMemory {
    std::array<std::byte, 8192> first;
    std::pmr::monotonic_buffer_resource resource{first.data(), first.size()};
  };
  struct Scope {
    explicit Scope(std::pmr::memory_resource* memory)
        : scalars(memory), evals(memory), loads(memory), indirects(memory) {}
    loops::Block block;
    loops::For loop;
    bool is_loop = false;
    int outer_floor = 0;  // the floor before a loop without iterations was opened
    std::pmr::map<ScalarKey, ScalarId> scalars;
    std::pmr::map<EvalKey, ScalarId> evals;
    std::pmr::map<LoadKey, ScalarId> loads;
    std::pmr::map<IndirectKey, Expr> indirects;
  };

  /// The element at these indices of what is computed in blocks, where they tell which of its block: the others are remembered.
  std::optional<ScalarId> eval_block(class NodeBuilder& builder, const LoweredNode& node, size_t output,
                                     const std::vector<Expr>& indices);

  std::unique_ptr<loops::For> take_loop(Expr row);
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  int depth_of(Expr e) const;
  int clamp_depth(int d) const { return d < floor_ ? floor_ : d; }
  Scope& at(int d) { return scopes_[static_cast<size_t>(d)]; }
  template <typename T>
  void put(int d, T&& statement) {
    if (keeps_) at(d).block.stmts.emplace_back(std::forward<T>(statement));
  }
  ScalarId define(int d, DType dtype);

  State& state_;
  loops::Kernel& kernel_;
  bool keeps_;
  MapMemory memory_;
  std::vector<Scope> scopes_;
  std::vector<int> scalar_depth_;
  /// An integer scalar is not negative and at most that; INT64_MAX: nothing is known of it.
  int64_t largest(ScalarId x) const;
  void note_largest(const loops::Scalar& s, ScalarId id);

  /// Of scalars of which more than the type is known.
  struct Known {
    ScalarId narrow = loops::kNoScalar;  // of a half type, which it is in its compute dtype
    int64_t largest = INT64_MAX;         // of an integer that is not negative
    bool is_constant = false;
  };
  std::unordered_map<ScalarId, Known> known_;
  std::unordered_map<Expr, int, ExprHash> symbol_depth_;
  std::unordered_map<Expr, size_t, ExprHash> indirect_count_;
  std::map<BufferId, int> buffer_args_;
  std::vector<std::pair<DType, int64_t>> locals_;
  std::map<std::pair<BufferId, const ExprNode*>, std::pair<BufferId, Expr>> redirected_;
  std::vector<bool> written_;
  std::vector<int> floors_;
  int floor_ = 0;
};

/// The LoopBuilder that a node's functions see.
class NodeBuilder final : public LoopBuilder {
 public:
  NodeBuilder(NestBuilder& nest, const LoweredNode& node, ScalarId mask) : nest_(nest), node_(node), mask_(mask) {}

  ExprContext& ctx() override { return nest_.ctx(); }
  DType dtype(ScalarId id) const override { return nest_.dtype(id); }
  ScalarId constant(double value, DType dtype) override;
  ScalarId constant_int(int64_t value, DType dtype) override { return nest_.constant_int(value, dtype); }
  ScalarId constant_complex(double re, double im, DType dtype) override;
  ScalarId index_value(Expr index, DType dtype) override { return nest_.index_value(index, dtype); }
  ScalarId apply(ScalarOp op, DType result, std::span<const ScalarId> operands) override;
  ScalarId cast(ScalarId x, DType dtype) override { return nest_.cast(x, dtype); }
  Expr indirect(ScalarId value, Expr size, bool wrap, bool check) override;
  ScalarId load(int operand, std::span<const Expr> indices) override;
  ScalarId load_masked(int operand, std::span<const Expr> indices, ScalarId mask, ScalarId other) override;

 private:
  NestBuilder& nest_;
  const LoweredNode& node_;
  ScalarId mask_;
};

}  // namespace tatara::sched
