#include "schedule/loop_order.h"

#include <algorithm>
#include <set>

#include "support/error.h"

namespace tatara::sched {

using loops::LoopKind;

namespace {

constexpr int64_t kPointwiseChunk = 4096;  // elements per parallel iteration of a one-dimensional kernel
constexpr int64_t kLeastGroup = 8;         // neighbours for which one element is read, as if it were for all
constexpr int64_t kTileLanes = 64;         // elements of a tile along the vector loop
constexpr int64_t kTileRows = 16;          // and across it
constexpr int64_t kTileBytes = 1 << 17;    // of all tiles of a kernel: they stay in the cache
constexpr int64_t kGpuSegment = 256;  // bytes beside each other of a tile, read and written: fewer take longer each
constexpr int64_t kGpuTileSide = 32;  // elements of the smallest tile
constexpr int64_t kGpuMostTileSide = 128;    // of the largest one
constexpr int64_t kGpuMostTileRow = 512;     // of one whose other side is short
constexpr int64_t kGpuTileBytes = 40 << 10;  // of memory that a block's threads share, for all tiles
constexpr int64_t kGpuTilesPerProcessor = 2;
constexpr double kTiledWorth = 0.75;        // an access through a tile, beside a contiguous one
constexpr double kAcross = 5;               // an access across the vector loop takes as long as that many along it
constexpr int64_t kReductionChunk = 16384;  // elements that one piece of a split reduction folds
constexpr int64_t kMostChunks = 128;
constexpr int64_t kGpuThreads = 512;         // of a multiprocessor, that a split reduction should have at least
constexpr int64_t kGpuColumnThreads = 1024;  // the same where threads have columns of their own
constexpr int64_t kGpuColumns = 16;          // of a block whose threads share them
constexpr int64_t kGpuOneLaunch =
    16 << 20;                             // elements that one block of each multiprocessor folds while a kernel starts
constexpr int64_t kGpuLanes = 4;          // elements beside each other that a thread folds
constexpr int64_t kGpuLeastSplit = 8192;  // elements that are too many for one block
constexpr int64_t kGpuLeastChunk = 16;    // elements of a chunk
constexpr int64_t kGpuSharedRow = 512;    // elements of rows that are worth a loop of their own
constexpr int64_t kGpuEvenRow = 8;        // their length, so that all of them are read in whole vectors
constexpr int64_t kGpuRowThreads = 256;   // that share a chunk, where the reduced dimension is contiguous
constexpr int64_t kColumnChunk = 256;     // columns per parallel iteration of a reduction over rows

int64_t gpu_tile_bytes(int64_t rows, int64_t lanes, DType dtype) {
  return rows * gpu_tile_pitch(lanes, dtype) * dtype_size(dtype);
}

/// Whether the symbol stands in quotients alone: an element is read for so many neighbours (the scale of a group).
bool read_in_groups(Expr address, Expr symbol) {
  if (!address.contains(symbol)) return true;
  if (address.is_symbol()) return false;
  if (address.kind() == ExprKind::kFloorDiv && address.operands()[1].is_const()) {
    return address.operands()[1].const_value() >= kLeastGroup;
  }
  const auto parts = address.operands();
  return std::all_of(parts.begin(), parts.end(), [&](Expr e) { return read_in_groups(e, symbol); });
}

/// Whether data tell a part of the address, which is known inside of the loops alone.
bool is_looked_up(Expr address) {
  if (address.is_symbol()) return address.str().starts_with("_x");
  const auto operands = address.operands();
  return std::any_of(operands.begin(), operands.end(), is_looked_up);
}

/// Neighbouring dims that every access walks as one.
struct Merged {
  std::vector<size_t> dims;  // outermost first; the last one carries the position
  Expr extent;
  bool reduced = false;
};

class Planner {
 public:
  Planner(State& s, const Space& space, const std::vector<Access>& accesses, const std::vector<Expr>& uses)
      : s_(s), space_(space), accesses_(accesses), uses_(uses) {}

  NestPlan plan(bool vectorise_reduced, Expr lanes) {
    merge();
    const int wanted = lanes.valid() ? loop_of(lanes) : -1;
    return build(wanted >= 0 ? wanted : choose_vector(vectorise_reduced));
  }

  NestEstimate estimate() {
    merge();
    const int vector = choose_vector(true);
    NestEstimate result;
    std::vector<Access> tiled;
    if (vector >= 0) choose_tile(static_cast<size_t>(vector), tiled);
    double elements = 1;
    for (const Expr extent : space_.dims) elements *= static_cast<double>(std::max<int64_t>(s_.hint(extent, 64), 1));
    for (const Access& access : accesses_) {
      double times = 1;
      const Expr c =
          vector < 0 ? s_.ctx.constant(0) : stride_of(s_.ctx, access.address, position(static_cast<size_t>(vector)));
      const bool is_tiled = std::any_of(tiled.begin(), tiled.end(), [&](const Access& other) {
        return other.buffer == access.buffer && other.address == access.address;
      });
      if (is_tiled) {
        times = 1 / kTiledWorth;
      } else if (!c.valid() || !(c.is_const(0) || c.is_const(1) || c.is_const(-1))) {
        times = kAcross;
      }
      result.bytes.push_back(times * traffic(access) * elements * static_cast<double>(dtype_size(access.dtype)));
    }
    result.plan = build(vector);
    return result;
  }

 private:
  /// Dims by falling stride of the first store that has them (loads where nothing is stored).
  std::vector<size_t> by_stride() {
    std::vector<size_t> order;
    for (size_t d = 0; d < space_.dims.size(); ++d) order.push_back(d);
    std::vector<int64_t> weight(order.size(), 0);
    for (size_t d = 0; d < order.size(); ++d) {
      for (const bool store : {true, false}) {
        for (const Access& a : accesses_) {
          if (a.store != store || weight[d] != 0) continue;
          const Expr c = stride_of(s_.ctx, a.address, space_.symbols[d]);
          if (c.valid() && !c.is_const(0)) weight[d] = std::abs(s_.hint(c, 1));
        }
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (weight[a] == 0 || weight[b] == 0) return false;
      return weight[a] > weight[b];
    });
    return order;
  }

  bool mergeable(size_t outer, size_t inner, Expr inner_extent) {
    const Expr a = space_.symbols[outer];
    const Expr b = space_.symbols[inner];
    for (const Expr use : uses_) {
      if (use.contains(a) || use.contains(b)) return false;
    }
    for (const Access& access : accesses_) {
      const Expr ca = stride_of(s_.ctx, access.address, a);
      const Expr cb = stride_of(s_.ctx, access.address, b);
      if (!ca.valid() || !cb.valid()) return false;
      if (!(ca == s_.simplify(cb * inner_extent))) return false;
    }
    return !neighbours_meet(inner_extent);
  }

  /// On a GPU: whether rows of that length read what two rows beside them read. Threads are to compute several of them then
  /// (share_rows).
  bool neighbours_meet(Expr row) const {
    if (!s_.options.gpu || space_.has_reduction || !row.is_const()) return false;
    const int64_t length = row.const_value();
    if (length < kGpuSharedRow || length % kGpuEvenRow != 0) return false;
    for (const Access& a : accesses_) {
      std::set<int64_t> rows;
      for (const Access& b : accesses_) {
        if (a.store || b.store || a.buffer != b.buffer) continue;
        const Expr apart = s_.simplify(a.address - b.address);
        if (apart.is_const() && apart.const_value() % length == 0) rows.insert(apart.const_value());
      }
      if (rows.size() > 2) return true;
    }
    return false;
  }

  void merge() {
    const std::vector<size_t> order = by_stride();
    for (const bool reduced : {false, true}) {
      for (const size_t d : order) {
        if (space_.reduced[d] != reduced) continue;
        Merged* last = merged_.empty() || merged_.back().reduced != reduced ? nullptr : &merged_.back();
        if (last != nullptr && mergeable(last->dims.back(), d, space_.dims[d])) {
          last->dims.push_back(d);
          last->extent = s_.simplify(last->extent * space_.dims[d]);
        } else {
          merged_.push_back({{d}, space_.dims[d], reduced});
        }
      }
    }
  }

  /// How much of the kernel's traffic an access is: what stands outside of the reduced loops, or is broadcast, counts little.
  double traffic(const Access& access) const {
    double share = 1;
    for (size_t d = 0; d < space_.dims.size(); ++d) {
      if (!access.address.contains(space_.symbols[d])) {
        share /= static_cast<double>(std::max<int64_t>(s_.hint(space_.dims[d], 64), 1));
      }
    }
    return std::max(share, 1e-6) * (access.store ? 2.0 : 1.0);
  }

  /// Each access votes for the dim over which it is contiguous, and against those it would have to gather along.
  int choose_vector(bool vectorise_reduced) {
    int best = -1;
    double best_score = -1;
    for (size_t m = 0; m < merged_.size(); ++m) {
      if (merged_[m].reduced && !vectorise_reduced) continue;
      const Expr symbol = space_.symbols[merged_[m].dims.back()];
      double score = 0;
      double total = 0;
      for (const Access& access : accesses_) {
        const double weight = traffic(access);
        total += weight;
        const Expr c = stride_of(s_.ctx, access.address, symbol);
        if (!c.valid()) {
          if (read_in_groups(access.address, symbol)) score += 0.4 * weight;
          continue;
        }
        if (c.is_const(1)) score += weight;
        if (c.is_const(0)) score += 0.4 * weight;
        if (crossing(m, access) >= 0) score += kTiledWorth * weight;
      }
      score = total > 0 ? score / total : 0;
      const int64_t extent = s_.hint(merged_[m].extent, 64);
      score *= std::min(1.0, static_cast<double>(extent) / 8.0);
      if (score >= best_score) {
        best_score = score;
        best = static_cast<int>(m);
      }
    }
    return best;
  }

  /// The loop whose neighbours are those of a dim; -1: there is none.
  int loop_of(Expr dim) const {
    for (size_t m = 0; m < merged_.size(); ++m) {
      if (position(m) == dim) return static_cast<int>(m);
    }
    return -1;
  }

  Expr position(size_t m) const { return space_.symbols[merged_[m].dims.back()]; }

  /// The dim across the vector loop `v` along which the access is contiguous; -1: there is none, or no tile can hold it.
  int crossing(size_t v, const Access& access) const {
    if (access.store || access.masked || access.buffer < 0 || is_complex(access.dtype)) return -1;
    if (is_looked_up(access.address)) return -1;  // tiles are read before the loops that look it up
    if (s_.options.gpu && space_.has_reduction) return -1;
    const Merged& lane = merged_[v];
    if (space_.has_reduction) {
      const bool only = std::count_if(merged_.begin(), merged_.end(), [](const Merged& m) { return m.reduced; }) == 1;
      if (!lane.reduced || !only || !lane.extent.is_const()) return -1;
      if (lane.extent.const_value() * kTileRows * dtype_size(access.dtype) > kTileBytes) return -1;
    }
    if (s_.hint(lane.extent, 64) < 8) return -1;
    const Expr along = stride_of(s_.ctx, access.address, position(v));
    if (!along.valid() || along.is_const(0) || along.is_const(1) || along.is_const(-1)) return -1;
    for (const Access& other : accesses_) {
      if (other.store && other.buffer == access.buffer) return -1;
    }
    int found = -1;
    for (size_t m = 0; m < merged_.size(); ++m) {
      const Expr c = stride_of(s_.ctx, access.address, position(m));
      if (!c.valid()) return -1;  // not affine
      if (m == v || merged_[m].reduced || !c.is_const(1)) continue;
      const int64_t length = s_.hint(merged_[m].extent, 64);
      // A small matrix lies in few lines, all of which the threads beside each other use.
      const bool small = s_.options.gpu && length * s_.hint(lane.extent, 64) < kGpuTileSide * kGpuTileSide;
      if (length >= 8 && !small) found = static_cast<int>(m);
    }
    return found;
  }

  /// The accesses that go through tiles, all of them contiguous along one dim.
  int choose_tile(size_t v, std::vector<Access>& tiled) const {
    int along = -1;
    int64_t bytes = 0;
    const bool gpu = s_.options.gpu.has_value();
    const int64_t rows = gpu ? kGpuTileSide : kTileRows;
    for (const Access& access : accesses_) {
      const int m = crossing(v, access);
      if (m < 0 || (along >= 0 && m != along)) continue;
      const bool known = std::any_of(tiled.begin(), tiled.end(), [&](const Access& other) {
        return other.buffer == access.buffer && other.address == access.address;
      });
      if (known) continue;
      const int64_t lanes = merged_[v].reduced ? merged_[v].extent.const_value() : gpu ? kGpuTileSide : kTileLanes;
      bytes += gpu ? gpu_tile_bytes(rows, lanes, access.dtype) : lanes * rows * dtype_size(access.dtype);
      if (bytes > (gpu ? kGpuTileBytes : kTileBytes)) break;
      along = m;
      tiled.push_back(access);
    }
    return along;
  }

  struct TileShape {
    int64_t rows, lanes;
  };

  /// Elements of a tile across the vector loop `v` and along it.
  TileShape tile_shape(size_t v, size_t across, const std::vector<Access>& tiled) const {
    if (!s_.options.gpu) return {kTileRows, merged_[v].reduced ? merged_[v].extent.const_value() : kTileLanes};
    int read = 16;
    int written = 16;
    for (const Access& access : tiled) read = std::min(read, dtype_size(access.dtype));
    for (const Access& access : accesses_) {
      if (access.store) written = std::min(written, dtype_size(access.dtype));
    }
    const auto most = [&](size_t m) {
      const Expr extent = merged_[m].extent;
      const int64_t n = extent.is_const() ? extent.const_value() : kGpuMostTileRow;
      return std::min(up_to_power_of_two(n), kGpuMostTileRow);
    };
    const int64_t rows = std::clamp(kGpuSegment / read, kGpuTileSide, kGpuMostTileSide);
    const int64_t lanes = std::clamp(kGpuSegment / written, kGpuTileSide, kGpuMostTileSide);
    TileShape shape{std::min(rows, most(across)), std::min(lanes, most(v))};
    // Where one side is short the other is longer, for as many elements.
    while (shape.rows * shape.lanes < rows * lanes && shape.lanes < most(v)) shape.lanes *= 2;
    while (shape.rows * shape.lanes < rows * lanes && shape.rows < most(across)) shape.rows *= 2;
    const auto halve = [&] { (shape.lanes >= shape.rows ? shape.lanes : shape.rows) /= 2; };
    const auto bytes = [&] {
      int64_t sum = 0;
      for (const Access& access : tiled) sum += gpu_tile_bytes(shape.rows, shape.lanes, access.dtype);
      return sum;
    };
    while (bytes() > kGpuTileBytes && shape.rows * shape.lanes > kGpuTileSide * kGpuTileSide) halve();
    int64_t elements = 1;
    for (const Merged& m : merged_) elements *= std::max<int64_t>(s_.hint(m.extent, 64), 1);
    const int64_t least = kGpuTilesPerProcessor * s_.options.gpu->multiprocessors;
    while (elements < least * shape.rows * shape.lanes && shape.rows * shape.lanes > kGpuTileSide * kGpuTileSide) {
      halve();
    }
    return shape;
  }

  /// Loops over tiles: parallel over blocks, serial over the rows of a tile, the vector loop innermost.
  void tile(NestPlan& plan, size_t v, size_t across, std::vector<Access> tiled) {
    NestPlan::Tile tile;
    const TileShape shape = tile_shape(v, across, tiled);
    tile.accesses = std::move(tiled);
    tile.lane_dim = position(v);
    const auto blocks = [&](size_t m, int64_t size, size_t number) {
      ExprContext& ctx = s_.ctx;
      const Expr extent = merged_[m].extent;
      const Expr step = ctx.constant(size);
      const Expr block = s_.pooled_symbol(s_.simplify(ctx.ceildiv(extent, step)), number);
      const bool even = extent.is_const() && extent.const_value() % size == 0;
      const Expr inside = even ? step : ctx.min(step, extent - block * step);
      const Expr at = s_.pooled_symbol(inside, number + 1);
      plan.outer.push_back({block, s_.simplify(ctx.ceildiv(extent, step)), LoopKind::kParallel, Expr(), Expr()});
      plan.substitution[position(m)] = block * step + at;
      return LoopSpec{at, inside, LoopKind::kSerial, Expr(), step};
    };
    LoopSpec lane{s_.pooled_symbol(merged_[v].extent, 100 + v), merged_[v].extent, LoopKind::kVector, position(v),
                  Expr()};
    // On a GPU neighbouring blocks write neighbours: it is stores in pieces that memory takes badly.
    LoopSpec row;
    if (s_.options.gpu) row = blocks(across, shape.rows, 206);
    if (!merged_[v].reduced) lane = blocks(v, shape.lanes, 204);
    if (!s_.options.gpu) row = blocks(across, shape.rows, 206);
    plan.outer.push_back(row);
    lane.kind = LoopKind::kVector;
    (merged_[v].reduced ? plan.inner : plan.outer).push_back(lane);
    tile.row = row.var;
    tile.rows = row.extent;
    tile.lane = lane.var;
    tile.lanes = lane.extent;
    tile.most_rows = shape.rows;
    tile.most_lanes = shape.lanes;
    plan.tile = std::move(tile);
  }

  NestPlan build(int vector) {
    NestPlan plan;
    std::vector<Access> tiled;
    const int across = vector < 0 ? -1 : choose_tile(static_cast<size_t>(vector), tiled);
    const Expr zero = s_.ctx.constant(0);
    int64_t rows = 1;
    for (size_t m = 0; m < merged_.size(); ++m) {
      const Merged& merged = merged_[m];
      for (const size_t d : merged.dims) plan.substitution[space_.symbols[d]] = zero;
      const Expr var = s_.pooled_symbol(merged.extent, 100 + m);
      plan.substitution[space_.symbols[merged.dims.back()]] = var;
      if (static_cast<int>(m) == vector || static_cast<int>(m) == across) continue;
      if (merged.reduced) {
        plan.inner.push_back({var, merged.extent, LoopKind::kSerial, space_.symbols[merged.dims.back()], Expr()});
      } else {
        plan.outer.push_back({var, merged.extent, LoopKind::kParallel, space_.symbols[merged.dims.back()], Expr()});
        rows *= std::max<int64_t>(s_.hint(merged.extent, 64), 1);
      }
    }
    if (vector < 0) return plan;
    if (across >= 0) {
      tile(plan, static_cast<size_t>(vector), static_cast<size_t>(across), std::move(tiled));
      return plan;
    }
    const Merged& merged = merged_[static_cast<size_t>(vector)];
    const Expr var = s_.pooled_symbol(merged.extent, 100 + static_cast<size_t>(vector));
    if (merged.reduced) {
      plan.inner.push_back({var, merged.extent, LoopKind::kVector, space_.symbols[merged.dims.back()], Expr()});
      return plan;
    }
    if (s_.options.gpu) {
      plan.outer.push_back({var, merged.extent, LoopKind::kVector, space_.symbols[merged.dims.back()], Expr()});
      return plan;
    }
    const int64_t chunk = space_.has_reduction ? kColumnChunk : kPointwiseChunk;
    const int64_t extent = s_.hint(merged.extent, 2 * chunk + 1);
    if (s_.options.num_threads > 1 && rows < 4 * s_.options.num_threads && extent > chunk) {
      split(plan, merged, chunk);
    } else {
      plan.outer.push_back({var, merged.extent, LoopKind::kVector, space_.symbols[merged.dims.back()], Expr()});
    }
    return plan;
  }

  void split(NestPlan& plan, const Merged& merged, int64_t chunk) {
    ExprContext& ctx = s_.ctx;
    const Expr size = ctx.constant(chunk);
    const Expr count = s_.simplify(ctx.ceildiv(merged.extent, size));
    const Expr block = s_.pooled_symbol(count, 200);
    const bool even = merged.extent.is_const() && merged.extent.const_value() % chunk == 0;
    const Expr extent = even ? size : ctx.min(size, merged.extent - block * size);
    const Expr lane = s_.pooled_symbol(extent, 201);
    plan.outer.push_back({block, count, LoopKind::kParallel, Expr(), Expr()});
    plan.outer.push_back({lane, extent, LoopKind::kVector, Expr(), size});
    plan.substitution[space_.symbols[merged.dims.back()]] = block * size + lane;
  }

  State& s_;
  const Space& space_;
  const std::vector<Access>& accesses_;
  const std::vector<Expr>& uses_;
  std::vector<Merged> merged_;
};

}  // namespace

Expr merged_dim(const Space& space, const LoopSpec& loop) {
  const auto d = std::find(space.symbols.begin(), space.symbols.end(), loop.dim) - space.symbols.begin();
  const Expr own = space.dims[static_cast<size_t>(d)];
  return own == loop.extent ? Expr() : own;
}

NestPlan plain_nest(const Space& space) {
  NestPlan plan;
  for (size_t d = 0; d < space.dims.size(); ++d) {
    (space.reduced[d] ? plan.inner : plan.outer)
        .push_back({space.symbols[d], space.dims[d], LoopKind::kSerial, space.symbols[d], Expr()});
  }
  return plan;
}

NestPlan plan_nest(State& s, const Space& space, const std::vector<Access>& accesses,
                   const std::vector<Expr>& index_uses, bool vectorise_reduced, Expr lanes) {
  return Planner(s, space, accesses, index_uses).plan(vectorise_reduced, lanes);
}

NestEstimate estimate_nest(State& s, const Space& space, const std::vector<Access>& accesses,
                           const std::vector<Expr>& index_uses) {
  return Planner(s, space, accesses, index_uses).estimate();
}

namespace {

/// Whether that many results keep a GPU's threads busy.
bool fills_gpu(State& s, const NestPlan& whole, int64_t results, int64_t row) {
  const int64_t processors = s.options.gpu->multiprocessors;
  const bool rows = std::any_of(whole.inner.begin(), whole.inner.end(),
                                [](const LoopSpec& loop) { return loop.kind == LoopKind::kVector; });
  if (rows) return results >= 2 * processors;
  if (results / kGpuLanes >= processors * kGpuThreads / 2) return true;
  // Threads that share columns are enough where these are short: they save a launch.
  return results >= processors * kGpuColumns && results * row <= kGpuOneLaunch && whole.inner.size() == 1;
}

/// The outermost of the inner loops, or where that has too few iterations for so many chunks, the longest.
size_t loop_to_cut(State& s, const NestPlan& whole, int64_t chunks) {
  size_t best = 0;
  if (whole.inner.front().kind == LoopKind::kVector || s.hint(whole.inner.front().extent, 64) >= chunks) return best;
  for (size_t i = 1; i < whole.inner.size(); ++i) {
    const LoopSpec& loop = whole.inner[i];
    if (loop.kind == LoopKind::kVector) continue;
    if (s.hint(loop.extent, 64) > s.hint(whole.inner[best].extent, 64)) best = i;
  }
  return best;
}

}  // namespace

std::optional<ChunkedNest> split_reduction(State& s, const NestPlan& whole) {
  if (s.options.num_threads <= 1 || whole.inner.empty() || whole.tile) return std::nullopt;
  int64_t pieces = 1;
  int64_t work = 1;
  for (const LoopSpec& loop : whole.outer) {
    const int64_t extent = std::max<int64_t>(s.hint(loop.extent, 64), 1);
    if (loop.kind == LoopKind::kParallel) pieces *= extent;
    work *= extent;
  }
  int64_t row = 1;
  for (const LoopSpec& loop : whole.inner) row *= std::max<int64_t>(s.hint(loop.extent, 64), 1);
  work *= row;
  const bool balanced = s.options.gpu ? fills_gpu(s, whole, work / row, row)
                                      : pieces >= 2 * s.options.num_threads || pieces % s.options.num_threads == 0;
  if (balanced || work < (s.options.gpu ? kGpuLeastSplit : 2 * kReductionChunk)) return std::nullopt;
  // Chunks of the same number of elements whatever the shape, but not so many that combining them costs time.
  int64_t wanted = std::clamp<int64_t>(work / kReductionChunk / pieces, 2, kMostChunks);
  if (s.options.gpu) {
    const bool along = whole.inner.front().kind == LoopKind::kVector;
    const int64_t threads = (along ? kGpuThreads : kGpuColumnThreads) * s.options.gpu->multiprocessors;
    wanted = std::clamp<int64_t>(threads * kGpuLanes / (work / row), 2, std::max<int64_t>(row / kGpuLeastChunk, 2));
    if (along) wanted = std::min(wanted, threads / kGpuRowThreads);
  }
  const size_t cut = loop_to_cut(s, whole, wanted);
  const LoopSpec& loop = whole.inner[cut];
  const int64_t extent = s.hint(loop.extent, 64);
  const bool is_vector = loop.kind == LoopKind::kVector;
  const int64_t unit = is_vector ? 64 : 1;
  if (extent < 2 * unit) return std::nullopt;
  const int64_t size = ((extent + wanted - 1) / wanted + unit - 1) / unit * unit;
  ExprContext& ctx = s.ctx;
  const Expr length = ctx.constant(size);
  const Expr count = s.simplify(ctx.ceildiv(loop.extent, length));
  if (count.is_const(1) || loop.extent.is_const(0)) return std::nullopt;
  const bool even = loop.extent.is_const() && extent % size == 0;
  ChunkedNest result{whole, {}};
  const Expr chunk = s.pooled_symbol(count, 202);
  const Expr inside = even ? length : ctx.min(length, loop.extent - chunk * length);
  const Expr at = s.pooled_symbol(inside, 203);
  result.chunks = {chunk, count, LoopKind::kParallel, Expr(), Expr()};
  result.nest.inner[cut] = {at, inside, loop.kind, Expr(), length};
  result.nest.substitution[loop.dim] = chunk * length + at;
  // After the parallel loops, before the vector loop.
  auto& outer = result.nest.outer;
  const auto place =
      std::find_if(outer.begin(), outer.end(), [](const LoopSpec& l) { return l.kind != LoopKind::kParallel; });
  outer.insert(place, result.chunks);
  return result;
}

Expr parallel_iterations(State& s, const NestPlan& plan) {
  Expr product = s.ctx.constant(1);
  for (const LoopSpec& loop : plan.outer) {
    if (loop.kind == LoopKind::kParallel) product = product * loop.extent;
  }
  return s.simplify(product);
}

}  // namespace tatara::sched
