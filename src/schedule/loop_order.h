// The loops of a kernel: which dims are merged, which one is the vector loop, what runs in parallel.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "schedule/nest_builder.h"

namespace tatara::sched {

struct LoopSpec {
  Expr var;
  Expr extent;
  loops::LoopKind kind = loops::LoopKind::kSerial;
  Expr dim;    // symbol of the group that the loop stands for; invalid for the halves of a split loop
  Expr bound;  // largest extent, where it varies: the inner half of a split loop
};

struct NestPlan {
  std::vector<LoopSpec> outer;  // over dims that are not reduced
  std::vector<LoopSpec> inner;  // over the reduced ones, inside of outer
  ExprMap substitution;         // dims -> loop variables

  /// Inputs that are contiguous across the vector loop: before the serial loop `row` over neighbouring elements, a tile of each
  /// is copied into local memory so that the vector loop (`lane`) finds it contiguous.
  struct Tile {
    Expr row, rows;    // variable and extent
    Expr lane, lanes;  // of the vector loop
    Expr lane_dim;     // the dim it stands for
    int64_t most_rows = 0, most_lanes = 0;
    std::vector<Access> accesses;
  };
  /// Values at indices that the first walk over a row keeps for the later ones.
  using Kept = std::pair<ValueId, std::vector<const ExprNode*>>;
  std::set<Kept> kept;
  /// Those of `kept` that wait in the memory of a result, named here, which the last walk writes over them.
  std::map<Kept, ValueId> kept_in_result;
  std::optional<Tile> tile;
  /// A dim of which an iteration computes several elements side by side, since they need the same values.
  struct Copies {
    Expr dim;
    int64_t count = 1;
    bool follow = false;  // the dim has a loop, over groups of so many elements; else it has none, and these are all
    Expr last = {};       // where the last group is not full: the last element, which is computed again
    Expr merged = {};     // the dim's own extent, where its loop stands for dims before it, too
  };
  std::vector<Copies> copies;
  int64_t side_by_side() const {
    int64_t all = 1;
    for (const Copies& c : copies) all *= c.count;
    return all;
  }
};

/// Elements from row to row of a tile in memory that a GPU's threads share. It has 32 banks of 4 bytes: rows of an odd number of
/// words keep the elements of a column in different ones.
inline int64_t gpu_tile_pitch(int64_t lanes, DType dtype) { return lanes + std::max(1, 4 / dtype_size(dtype)); }

/// Coefficient of `symbol` in the address: 0 when absent, invalid when the address is not affine in it.
inline Expr stride_of(ExprContext& ctx, Expr address, Expr symbol) {
  return address.contains(symbol) ? address.coefficient_of(symbol) : ctx.constant(0);
}

/// The extent of the dim of a loop that stands for dims before it, too; invalid: it stands for its own alone.
Expr merged_dim(const Space& space, const LoopSpec& loop);
/// Each dim a serial loop: for finding out what is accessed.
NestPlan plain_nest(const Space& space);
/// `lanes`: the dim of the vector loop; invalid: chosen by how memory is accessed.
NestPlan plan_nest(State& s, const Space& space, const std::vector<Access>& accesses,
                   const std::vector<Expr>& index_uses, bool vectorise_reduced = true, Expr lanes = Expr());
/// On a GPU, where rows read what their neighbours read, too: a thread computes several of them. `ops`: scalar operators of one.
void share_rows(State& s, const Group& group, const std::vector<Access>& accesses, int ops, NestPlan& plan);
/// A product with few rows: all of them, and some results of each, are done side by side. False: the group is none.
bool share_weight(State& s, const Group& group, NestPlan& plan);
/// The nest where elements along a short last dim are chosen from several parts, on a CPU: all of them are computed side by side.
std::optional<NestPlan> parts_side_by_side(State& s, const Group& group, const std::vector<Access>& accesses,
                                           const std::vector<Expr>& index_uses, const NestPlan& chosen,
                                           double operations);
/// The nest of which an iteration computes all elements of a matrix; nullopt: the group has no matrices.
std::optional<NestPlan> whole_blocks(State& s, const Group& group, const std::vector<Access>& accesses,
                                     const std::vector<Expr>& index_uses);
/// Throws CannotFuse where that would no longer be possible.
void keep_blocks_whole(State& s, const std::vector<Member>& others, const Member& member);
/// The dim along which products on a CPU want the vector loop; invalid: there are none.
Expr product_lanes(State& s, const Group& group);
/// Products on a CPU: several rows side by side in registers, and chunks of columns that stay in the cache. False: the group has none.
bool tile_products(State& s, const Group& group, const std::vector<Access>& accesses, NestPlan& plan);
/// Throws CannotFuse where that would no longer be possible.
void keep_products_plain(State& s, const std::vector<Member>& others, const Member& member);
/// How the loops of such a nest access memory.
struct NestEstimate {
  NestPlan plan;
  /// Per access: the bytes moved, each as often as a contiguous access moves one in the same time.
  std::vector<double> bytes;
};
NestEstimate estimate_nest(State& s, const Space& space, const std::vector<Access>& accesses,
                           const std::vector<Expr>& index_uses);
/// A nest whose outermost reduced loop is cut into chunks that run in parallel; each leaves its part of the result in memory.
struct ChunkedNest {
  NestPlan nest;    // the last parallel loop is the one over chunks
  LoopSpec chunks;  // that loop
};
/// Where a reduction has too few rows for the threads and each row is long: the nest cut into chunks. Nullopt: leave it whole.
std::optional<ChunkedNest> split_reduction(State& s, const NestPlan& whole);
/// Product of the parallel loops' extents.
Expr parallel_iterations(State& s, const NestPlan& plan);

}  // namespace tatara::sched
