// Shared state of the scheduler: lowered nodes, groups of values that become one kernel, units in order of execution.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"
#include "ops/core/lowering.h"
#include "ops/core/op_def.h"
#include "schedule/schedule.h"
#include "schedule/unit_graph.h"
#include "support/flat_set.h"
#include "support/inline_vec.h"

namespace tatara::sched {

inline int64_t up_to_power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

/// What OpDef::lower said about a node. Element functions keep references to it, so it lives as long as the schedule. What readers ask
/// lies in the first cache lines.
class alignas(64) LoweredNode final : public LowerContext {
 public:
  enum class Kind : uint8_t {
    kElement,
    kView,
    kReduction,
    kScan,
    kScatter,
    kSort,
    kProduct,
    kScores,
    kAttention,
    kWeighed,
    kHost
  };

  LoweredNode(const Graph& graph, NodeId id);

  const Graph& graph() const override { return graph_; }
  const Node& node() const override { return node_; }
  const TensorType& operand(int i) const override { return graph_.type(operands[static_cast<size_t>(i)]); }
  int num_operands() const override { return static_cast<int>(operands.size()); }
  int operand_number(size_t arg) const override {
    return arg < numbers_.size() && numbers_[arg] != kNotKnown ? numbers_[arg] : LowerContext::operand_number(arg);
  }
  const TensorType& result(int i = 0) const override {
    return i == 0 ? *first_result_ : graph_.type(node_.outputs[static_cast<size_t>(i)]);
  }
  const ReductionDef& reduction_def() const { return *reduction_; }  // kReduction and kScan
  const ScatterDef& scatter_def() const { return *scatter_; }
  const SortDef& sort_def() const { return *sort_; }
  /// What an output is element by element; not of every kind.
  bool has_element(size_t output) const {
    return output == 0 ? static_cast<bool>(first_element_)
                       : output <= other_elements_.size() && other_elements_[output - 1];
  }
  /// An output whose elements are computed in blocks of its last dimensions.
  struct Block {
    size_t dims = 0;
    int64_t elements = 1;
    BlockFn all;
  };
  /// Null: it is none.
  const Block* block_of(size_t output) const { return output < blocks_.size() ? blocks_[output].get() : nullptr; }
  const ElementFn& element(size_t output) const { return output == 0 ? first_element_ : other_elements_[output - 1]; }
  /// Of a view: where in the operand an element lies.
  std::vector<Expr> view_map(std::span<const Expr> indices) const { return view_map_(indices); }
  void pointwise(int output, ElementFn fn) override;
  void block(int output, size_t dims, BlockFn fn) override;
  void view(std::function<std::vector<Expr>(std::span<const Expr>)> map) override;
  void reduction(ReductionDef def) override;
  void scan(ReductionDef def, bool is_reverse) override;
  void scatter(ScatterDef def) override;
  void sort(SortDef def) override;
  void product(ProductKind of) override {
    kind = Kind::kProduct;
    form = of;
  }
  void attention_scores() override { kind = Kind::kScores; }
  void attention() override { kind = Kind::kAttention; }
  void weighed_product() override { kind = Kind::kWeighed; }

  /// Whether a kernel of its own has the result's elements in registers, for what is done with each.
  bool gives_tiles() const { return kind == Kind::kProduct || kind == Kind::kAttention || kind == Kind::kWeighed; }

  Kind kind = Kind::kHost;
  ProductKind form = ProductKind::kWhole;
  bool reverse = false;
  bool written_out = false;        // an element function that was a reduction of a few elements
  const NodeId id;                 // in the graph
  InlineVec<ValueId, 4> operands;  // tensor operands, flattened

 private:
  const Graph& graph_;
  const Node& node_;
  static constexpr int8_t kNotKnown = INT8_MAX;
  std::array<int8_t, 8> numbers_;  // operand_number() of the first arguments, which is asked again and again
  const TensorType* first_result_;
  ElementFn first_element_;
  std::function<std::vector<Expr>(std::span<const Expr>)> view_map_;
  // Most nodes have none of these, and a large graph has many nodes.
  std::vector<ElementFn> other_elements_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<ReductionDef> reduction_;
  std::unique_ptr<ScatterDef> scatter_;
  std::unique_ptr<SortDef> sort_;
};

/// Memory of a realised value: element strides relative to the buffer's base.
struct Storage {
  BufferId buffer = -1;
  const std::vector<Expr>* strides = nullptr;  // of a type of the graph, or of the State
  Expr offset;
};

/// What readers ask first lies in one cache line: they come back to values of long ago.
struct alignas(64) ValueInfo {
  bool needed = false;
  bool root = false;       // input, host result, or computed by a member of a group: never inlined across units
  bool stored = false;     // some other unit, an output or a host call reads it from memory
  bool elsewhere = false;  // computed into memory that somebody else owns (an input that is written)
  bool moved = false;      // its producer copies to strides of its own choice
  bool has_short = false;  // the inlined expression has a reduction of a few elements
  bool inside = false;     // of an attention: computed from its scores, and nowhere but in its kernel
  int near = 0;            // readers that are attentions, or what only these read, for an element of each row and key
  int unit = -1;
  std::optional<Storage> storage;
  double elements = 1;  // under the hints
  double cost = 0;      // scalar operations per element when inlined
  // The rest is asked while roots are chosen.
  double functions = 0;  // of these operations, elementary functions
  double loads = 0;      // elements read from memory per element; small operands that are broadcast count as a fraction
  double bytes = 0;      // of these loads
  int depth = 0;         // of the inlined expression
};

/// A memory access as the loop order sees it: the address over the dims of the group.
struct Access {
  Expr address;
  bool store = false;
  DType dtype = DType::kFloat32;
  BufferId buffer = -1;
  bool masked = false;
};

/// One value (or reduction) computed by a group.
struct Member {
  enum class Kind : uint8_t { kStore, kReduce };
  Kind kind = Kind::kStore;
  NodeId node = -1;
  ValueId value = kNoValue;                  // kStore
  bool full = true;                          // iterates over all dims, else over those that are not reduced
  int stage = 0;                             // number of the inner loop it is computed in
  const std::vector<Expr>* sizes = nullptr;  // of its iteration space: those of its type, or of what it reduces
  /// While groups form, when nothing has memory yet: what it accesses, values standing for their buffers.
  std::vector<Access> accesses = {};
  std::vector<Expr> index_uses = {};  // index expressions other than addresses
};

/// What a kernel iterates over.
struct Space {
  std::vector<Expr> dims;     // extents, none of them the constant 1, in logical order
  std::vector<bool> reduced;  // per dim
  std::vector<Expr> symbols;  // per dim: which ones follows from the dims
  bool has_reduction = false;
  friend bool operator==(const Space&, const Space&) = default;
};

/// Each space once: most groups of a large graph have one of few.
class SpacePool {
 public:
  /// Stays where it is for the life of the pool.
  const Space* intern(Space space) { return &*spaces_.insert(std::move(space)).first; }

 private:
  struct Hash {
    size_t operator()(const Space& space) const;
  };
  std::unordered_set<Space, Hash> spaces_;
};

/// Values computed by one kernel over a common iteration space.
struct Group {
  const Space* space = nullptr;
  std::vector<Member> members;
};

/// A step of the plan in the making.
struct Unit {
  enum class Kind : uint8_t { kGroup, kScan, kScatter, kSort, kProduct, kHost, kCopy };
  Kind kind = Kind::kGroup;
  NodeId node = -1;
  Group group;
  ValueId value = kNoValue;  // kCopy: into input `input`
  int input = -1;
  FlatSet<ValueId> reads;
  FlatSet<ValueId> operand_reads;  // kScatter: without those for the base
};

/// A kernel with a context of its own, and what its launches have in common.
struct DetachedKernel {
  std::shared_ptr<loops::Kernel> kernel;
  std::vector<Expr> sizes;
  Expr gpu_blocks;
};

/// Thrown when a trial finds that a member cannot join a group.
struct CannotFuse {
  std::string reason;
};

struct State {
  State(const Graph& g, const ScheduleOptions& o) : graph(g), ctx(g.ctx()), options(o) {}

  const Graph& graph;
  ExprContext& ctx;
  ScheduleOptions options;
  std::deque<LoweredNode> lowered;  // in few pieces of memory, the last node first
  std::vector<LoweredNode*> nodes;  // the same per node of the graph; null: not needed
  std::vector<ValueInfo> values;
  SpacePool spaces;
  std::vector<Unit> units;
  UnitGraph needs;                         // of the units
  std::vector<int> order;                  // units in order of execution
  std::vector<InlineVec<int, 2>> readers;  // per value, once units are formed: those that read it from memory
  std::vector<int> uses;                   // per value: by nodes that are needed, outputs and writes
  std::vector<int> uses_beyond_views;      // by nodes that are no views, of the value or of what is a view of it
  /// storage_strides() by type, for values that lie as their producers copy them and for all others.
  std::unordered_map<const TensorType*, std::vector<Expr>> strides_as_copied, strides_of_type;
  /// Of steps, in order: a buffer written whose elements take the place of the same elements of a buffer read.
  struct InPlace {
    size_t step;
    BufferId target, source;
  };
  std::vector<InPlace> in_place;
  /// By kernel_key(): layers of a model and updates of parameters give the same kernels again and again.
  std::unordered_map<std::string, DetachedKernel> kernels;
  Schedule out;

  /// ctx.simplify, remembered.
  Expr simplify(Expr e);
  /// The n-th symbol with range [0, extent) of the pool for that extent.
  Expr pooled_symbol(Expr extent, size_t n);
  void note(std::string subject, std::string text);
  /// Steps so far that use the buffer, in order.
  const std::vector<size_t>& steps_with(BufferId buffer);
  /// Units, all but `except`, that read the value from memory.
  bool read_by_others(ValueId v, int except) const {
    const InlineVec<int, 2>& list = readers[static_cast<size_t>(v)];
    return std::any_of(list.begin(), list.end(), [&](int unit) { return unit != except; });
  }
  const LoweredNode* producer(ValueId v) const {
    const NodeId id = graph.value(v).producer;
    return id < 0 ? nullptr : nodes[static_cast<size_t>(id)];
  }
  /// Asks for the memory of nodes that come soon after this one. Each lies in a few places of its own, those of a large graph are in
  /// no cache, and to wait for one place after the other takes long.
  void prefetch_nodes(size_t number) const;
  /// Elements by the hints; `otherwise` when unknown.
  int64_t hint(Expr e, int64_t otherwise) const;
  std::string name_of(ValueId v) const;

 private:
  std::unordered_map<Expr, Expr, ExprHash> simplified_;
  std::unordered_map<BufferId, std::vector<size_t>> steps_with_;  // of the first steps
  size_t known_steps_ = 0;
  std::unordered_map<Expr, std::vector<Expr>, ExprHash> pool_;
};

// ---- short_reductions.cpp ----
/// On a GPU, a reduction of a known few elements becomes an expression of these, which may be part of others.
void write_out_short(State& s, LoweredNode& node);

// ---- realize.cpp ----
void lower_nodes(State& s);
void choose_roots(State& s);
/// The value that `v` is a view of by an address map that is affine in the indices of v: its base, strides and offset into
/// the base's element addresses under `base_strides`. Nullopt when the chain is not affine.
struct ViewOf {
  ValueId base = kNoValue;
  std::vector<Expr> strides;
  Expr offset;
};
std::optional<ViewOf> affine_view(State& s, ValueId v);
/// Whether a scatter reads, of what it starts from, only elements that it does not write, and each that it does write in its turn.
bool reads_apart(State& s, const LoweredNode& node);
/// Whether some elements are one in memory, along dimensions of stride 0.
bool repeats(const TensorType& type);
/// The value in memory behind `v`.
ValueId base_of(State& s, ValueId v);
/// Strides a realised value gets: its type's when these are dense, else contiguous ones.
const std::vector<Expr>& storage_strides(State& s, ValueId v);

// ---- fuse.cpp ----
void form_units(State& s);
/// Indices of a tensor of `sizes` over the dims of the group (those not reduced when !full); nullopt: no match.
std::optional<std::vector<Expr>> index_map(State& s, const Space& space, const std::vector<Expr>& sizes, bool full);
/// Output indices of a reduction from its input's.
std::vector<Expr> reduced_indices(const LoweredNode& node, const std::vector<Expr>& input);

// ---- unit_order.cpp ----
void order_units(State& s);
/// Unsupported, where a plan writes to an input before it has looked at all conditions that the program asks for.
void check_decisions(const Plan& plan);
/// Of a tensor of the value's type, under the hints.
int64_t bytes_of(State& s, ValueId v);

// ---- delay_units.cpp ----
/// Moves units of the order to right before their first readers, where that leaves less in memory.
void delay_units(State& s);

// ---- fusion_cost.cpp ----
/// What a kernel of these members costs, by their accesses: bytes as one thread reads them one after the other.
double kernel_cost(State& s, const Space& space, const std::vector<const Member*>& members);
/// On a CPU, takes constants that all indices into a buffer have in common out of them, to where the launch says that the buffer begins.
void lift_offsets(State& s, loops::Kernel& kernel, KernelLaunch& launch);
/// Whether a kernel that reads both would read more tensors than its registers have addresses for: a sum of a thousand matrices is
/// added up in several kernels, which need not wait for all of them.
bool too_many(const FlatSet<ValueId>& some, const FlatSet<ValueId>& others);
/// Whether a GPU's threads all have work, or each of them little, in a kernel that walks so many rows of a reduction again: such a
/// reduction can't be split into chunks.
bool fills_gpu_again(State& s, const Space& space, const std::vector<const Member*>& members, int64_t rows,
                     int64_t row);

// ---- emit_nest.cpp ----
void emit_group(State& s, int unit);
/// Whether the unit reads the input only at the position of the element it computes (all members of the input's sizes).
bool reads_elementwise(State& s, int unit, ValueId input);
void emit_scan(State& s, int unit);
void emit_scatter(State& s, int unit);
void emit_copy(State& s, int unit);

// ---- emit_sort.cpp ----
/// Whether a kernel of ours sorts these rows; else the host's does.
bool sorts_rows(State& s, const LoweredNode& node);
void emit_sort(State& s, int unit);

// ---- emit_product.cpp ----
/// The matrices of an operand of half type as the copy engine takes them from memory; nullopt: it doesn't.
std::optional<loops::Product::Matrices> product_matrices(State& s, ValueId v);
/// How many parts each operand of a product has.
size_t product_parts(const LoweredNode& node);
/// Whether a product's kernel does `member`, too, with so many scalar operators for each element.
bool product_takes(State& s, const Unit& unit, const Member& member, double ops);
/// A product, and the members of its group element by element as its tiles are done.
void emit_product(State& s, int unit);

// ---- emit_attention.cpp ----

/// Puts the matrices that an attention, or its scores, multiply where its kernel can load them.
void realise_matrices(State& s, const LoweredNode& node, const std::function<void(ValueId)>& realise,
                      const std::function<void(ValueId)>& copy);
/// What an operator with a step of its own reads from memory.
FlatSet<ValueId> operator_reads(State& s, const LoweredNode& node);
/// Operands of an attention that are computed from its scores.
std::vector<ValueId> read_inside(const LoweredNode& node);
void emit_attention(State& s, int unit);

// ---- emit_weighed.cpp ----
/// The rows of a matrix as they lie in memory, known in all but their number; nullopt: threads can't read 16 bytes at once.
std::optional<ViewOf> rows_in_memory(State& s, ValueId v);
/// What a product with a computed weight reads from memory.
FlatSet<ValueId> weighed_reads(State& s, const LoweredNode& node);
void emit_weighed(State& s, int unit);

// ---- host_calls.cpp ----
void emit_host_call(State& s, int unit);

// ---- memory_plan.cpp ----
void create_buffers(State& s);
/// A buffer of the arena that belongs to no value: partial results.
BufferId add_scratch(State& s, DType dtype, const std::vector<Expr>& sizes);
void plan_outputs(State& s);
void plan_arena(State& s);

// ---- kernel_key.cpp ----
/// Equal for kernels, not detached yet, that are equal in all but where they lie.
std::string kernel_key(const loops::Kernel& kernel, Expr parallel_iterations);

// ---- finish.cpp ----
/// Gives the kernel a context of its own with canonical names, and collects its size symbols.
loops::Kernel detach_kernel(State& s, loops::Kernel kernel, std::vector<Expr>& sizes);
void collect_plan_symbols(State& s);
void find_first_write(State& s);

// ---- kernel_lists.cpp ----
/// On a GPU, launches that differ in nothing but operands and one extent become one for all of them, where that needs no more
/// memory. Comes before the arena is planned.
void form_lists(State& s);

// ---- gpu_mapping.cpp ----
/// Threads and lanes for a kernel with canonical loops; `rows`: iterations of its parallel space, by the hints.
loops::GpuMapping gpu_mapping(const loops::Kernel& kernel, const GpuShape& gpu, int64_t rows);
/// Blocks of its launch; the vector loop's extent counts where every lane has a thread of its own.
Expr gpu_blocks(State& s, const loops::GpuMapping& mapping, Expr parallel_iterations, Expr vector_extent);

/// Symbols that occur in the expression, added to `found` in order of appearance.

inline std::vector<Expr> without_ones(const std::vector<Expr>& sizes) {
  std::vector<Expr> result;
  for (const Expr e : sizes) {
    if (!e.is_const(1)) result.push_back(e);
  }
  return result;
}

}  // namespace tatara::sched
