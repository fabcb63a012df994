// How a kernel's iterations are shared among the threads of a GPU.
#include <algorithm>
#include <bit>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "loops/attention_layout.h"
#include "loops/find.h"
#include "loops/product_layout.h"
#include "loops/weighed_layout.h"
#include "schedule/internal.h"
#include "support/error.h"
#include "symbolic/multiples.h"

namespace tatara::sched {

using namespace loops;

namespace {

constexpr int kWarp = 32;
constexpr int64_t kSmallStep = 4;         // between elements of neighbouring lanes, that one line of the cache holds
constexpr int kLanesApart = 4;            // that are read one by one
constexpr int64_t kShortColumn = 8;       // elements that a thread reads from as many lines
constexpr int64_t kVectorsPerThread = 8;  // of a row: loads in flight at once, and registers that hold the row
constexpr int kFlatThreads = 256;         // of a block whose threads have nothing to do with each other
constexpr int64_t kLeastNeighbours = 16;  // threads of a row that make several passes
constexpr int64_t kTileThreads = 256;     // of a block that copies tiles, at most
constexpr int64_t kTileShare = 64;        // bytes of tiles for each of them: four vectors under way
constexpr int kRowThreads = 128;          // of a block that holds several rows
constexpr int64_t kOnceThreads = 256;     // of a row that is walked once
constexpr int64_t kManyRows = 32;         // for each multiprocessor
constexpr int64_t kSortedAtLeast = 4;     // elements of a row for each thread
constexpr int64_t kThreadsPerProcessor = 1024;
constexpr int64_t kLeastShared = 16;       // passes of a serial loop that threads share
constexpr int64_t kPassesPerThread = 8;    // of it, if there are threads enough
constexpr int64_t kLine = 128;             // bytes beside each other that the threads of a block read
constexpr int64_t kSector = 32;            // of them at least
constexpr int64_t kColumnLanes = 8;        // groups of neighbours in it
constexpr int64_t kColumnThreads = 512;    // of a block, or all it can have where there are few blocks
constexpr int64_t kColumnWords = 3 << 10;  // of shared memory

/// What the loops of a kernel say about the lanes and threads that suit them.
class Survey {
 public:
  Survey(const Kernel& kernel, int vector_bytes) : kernel_(kernel), lanes(vector_bytes) {
    smallest_ = vector_bytes;
    kernel_stores_ = vector_stores(kernel.body, false);
    block(kernel.body, nullptr);
    lanes = std::min(lanes, vector_bytes / smallest_);
    // Neighbouring threads' stores are to be neighbours in memory.
    if (widest_store_ > 0) lanes = std::min(lanes, vector_bytes / widest_store_);
    lanes = std::clamp(lanes, 1, 8);
  }

  const For* vector = nullptr;  // the longest vector loop
  int vectors = 0;
  bool carries = false;         // some vector loop carries values
  bool stores_outside = false;  // of vector loops
  bool vector_in_serial = false;
  bool tiles = false;
  bool looks_up = false;  // an index, before the vector loop
  const Kernel& kernel_;
  int lanes;

 private:
  void block(const Block& b, const For* inside, bool serial = false) {
    for (const Stmt& stmt : b.stmts) {
      if (const auto* let = std::get_if<Let>(&stmt)) {
        const std::vector<ScalarId>& from = let->scalar.operands;
        const bool index = let->scalar.index.valid() && inside != nullptr && let->scalar.index.contains(inside->var);
        lets_.emplace(let->dst, &let->scalar);
        if (index || std::any_of(from.begin(), from.end(), [&](ScalarId x) { return varies(x); })) {
          varying_.insert(let->dst);
        }
      } else if (const auto* load = std::get_if<Load>(&stmt)) {
        const bool masked = load->mask != kNoScalar;
        const bool whole = masked && inside != nullptr && follows(load->index, inside);
        while (whole && lanes > 1 && !steady(load->mask, inside, lanes)) lanes /= 2;
        access(load->buffer, load->index, masked && !whole, false, inside);
        if (inside != nullptr && (moves(load->index, inside) || varies(load->mask) || varies(load->other))) {
          varying_.insert(load->dst);
        }
      } else if (const auto* store = std::get_if<Store>(&stmt)) {
        if (inside == nullptr) stores_outside = true;
        const bool adds = store->mode == StoreMode::kAdd &&
                          kernel_.buffers[static_cast<size_t>(store->buffer)].dtype == DType::kFloat32;
        access(store->buffer, store->index, store->mask != kNoScalar || (store->mode != StoreMode::kSet && !adds), true,
               inside);
        if (adds && inside != nullptr) lanes = std::min(lanes, 4);
      } else if (const auto* branch = std::get_if<If>(&stmt)) {
        block(*branch->body, inside, serial);
      } else if (const auto* lookup = std::get_if<IndexValue>(&stmt)) {
        looks_up = looks_up || inside == nullptr;
        if (inside != nullptr && varies(lookup->value)) lookups_.push_back(lookup->symbol);
      } else if (const auto* loop = std::get_if<For>(&stmt)) {
        enter(*loop, inside, serial);
      } else if (std::holds_alternative<Transpose>(stmt)) {
        tiles = true;
      }
    }
  }

  void enter(const For& loop, const For* inside, bool serial) {
    if (loop.kind != LoopKind::kVector) {
      block(*loop.body, inside, serial || loop.kind != LoopKind::kParallel);
      return;
    }
    ++vectors;
    carries = carries || !loop.carried.empty();
    vector_in_serial = vector_in_serial || serial;
    if (vector == nullptr || hint(loop.extent) > hint(vector->extent)) vector = &loop;
    extents_.push_back(loop.extent);
    block(*loop.body, &loop, serial);
  }

  /// Whether it differs from lane to lane of the loop around it.
  bool varies(ScalarId x) const { return x != kNoScalar && varying_.contains(x); }
  bool moves(Expr index, const For* inside) const {
    return index.contains(inside->var) ||
           std::any_of(lookups_.begin(), lookups_.end(), [&](Expr x) { return index.contains(x); });
  }

  /// Whether neighbouring lanes read neighbours.
  bool follows(Expr index, const For* inside) const {
    const Expr step = index.coefficient_of(inside->var);
    return step.valid() && step.is_const(1) &&
           std::none_of(lookups_.begin(), lookups_.end(), [&](Expr x) { return index.contains(x); });
  }

  /// Whether the mask is the same for all of `n` neighbouring lanes: a position compared with a number, both at multiples of n.
  bool steady(ScalarId mask, const For* inside, int n) const {
    if (!varies(mask)) return true;
    const auto found = lets_.find(mask);
    if (found == lets_.end()) return false;
    const loops::Scalar& s = *found->second;
    const auto all = [&] {
      return std::all_of(s.operands.begin(), s.operands.end(), [&](ScalarId x) { return steady(x, inside, n); });
    };
    if (s.op == ScalarOp::kAnd || s.op == ScalarOp::kOr || s.op == ScalarOp::kNot) return all();
    const bool less = s.op == ScalarOp::kLt || s.op == ScalarOp::kLe;
    if (!less && s.op != ScalarOp::kGt && s.op != ScalarOp::kGe) return false;
    const auto scalar = [&](ScalarId x) {
      const auto at = lets_.find(x);
      return at == lets_.end() ? nullptr : at->second;
    };
    const loops::Scalar *a = scalar(s.operands[0]), *b = scalar(s.operands[1]);
    if (a == nullptr || b == nullptr) return false;
    const bool first = a->op == ScalarOp::kIndex;  // the position stands first
    const loops::Scalar &place = first ? *a : *b, &number = first ? *b : *a;
    if (place.op != ScalarOp::kIndex || number.op != ScalarOp::kConst || is_floating(number.dtype)) return false;
    // The first position where the comparison turns.
    const bool strict = s.op == ScalarOp::kLt || s.op == ScalarOp::kGt;
    const int64_t turn = number.const_int + (strict == (less == first) ? 0 : 1);
    const Expr step = place.index.coefficient_of(inside->var);
    if (!step.valid() || !step.is_const(1) || turn % n != 0) return false;
    const Expr rest = kernel_.ctx->sub(place.index, inside->var);
    return !rest.contains(inside->var) && multiple_of(rest, n);
  }

  /// Whether the loop walks a column of a small matrix, whose rows threads beside each other read: together they use whole lines.
  bool turns(Expr index, const For& loop) const {
    if (!loop.extent.is_const() || loop.extent.const_value() > kShortColumn) return false;
    for (const Block* at = &kernel_.body; at != nullptr;) {
      const auto found = std::find_if(at->stmts.begin(), at->stmts.end(), [](const Stmt& stmt) {
        const auto* outer = std::get_if<For>(&stmt);
        return outer != nullptr && outer->kind == LoopKind::kParallel;
      });
      if (found == at->stmts.end()) return false;
      const auto& outer = std::get<For>(*found);
      const Expr step = index.coefficient_of(outer.var);
      if (step.valid() && step.is_const(1)) return hint(outer.extent) >= kShortColumn;
      at = outer.body.get();
    }
    return false;
  }

  int64_t hint(Expr e) const { return kernel_.ctx->evaluate_hint(e).value_or(1 << 20); }

  /// Lanes are neighbours in memory or share one element. What is read at small distances or looked up may be read one by one;
  /// all else is better off with a thread for each element.
  void access(int buffer, Expr index, bool masked, bool written, const For* inside) {
    if (inside == nullptr) return;
    const DType dtype = kernel_.buffers[static_cast<size_t>(buffer)].dtype;
    if (!moves(index, inside) && !masked) return;
    smallest_ = std::min(smallest_, dtype_size(dtype));
    if (written) widest_store_ = std::max(widest_store_, dtype_size(dtype));
    ExprContext& ctx = *kernel_.ctx;
    const Expr step = index.coefficient_of(inside->var);
    if (masked || is_complex(dtype) || !step.valid() || !step.is_const()) {
      lanes = 1;
      return;
    }
    const Expr rest = ctx.sub(index, ctx.mul(step, inside->var));
    if (rest.contains(inside->var)) lanes = 1;
    const bool varies = std::any_of(lookups_.begin(), lookups_.end(), [&](Expr x) { return rest.contains(x); });
    if (varies || !step.is_const(1)) {
      // Reductions read what lies apart with a thread for each element: neighbours share the lines they come in.
      const bool far = std::abs(step.const_value()) > kSmallStep && !turns(index, *inside);
      const bool alone = written || !inside->carried.empty() || far;
      if (!alone && !varies && std::abs(step.const_value()) > kSmallStep) return;
      lanes = alone ? 1 : std::min(lanes, kLanesApart);
      return;
    }
    if (written || kernel_stores_ == 0) {
      while (lanes > 1 && !multiple_of(rest, lanes)) lanes /= 2;
    }
  }

 public:
  /// Whether whole vectors fill all vector loops.
  bool even(int n) const {
    return std::all_of(extents_.begin(), extents_.end(), [&](Expr e) { return multiple_of(e, n); });
  }
  int smallest() const { return smallest_; }
  int64_t length() const { return vector == nullptr ? 1 : std::max<int64_t>(hint(vector->extent), 1); }

 private:
  /// Stores inside of vector loops. Where there are some, what is read may lie anywhere: it is then read one by one.
  static int vector_stores(const Block& b, bool inside) {
    int count = 0;
    for (const Stmt& stmt : b.stmts) {
      if (std::holds_alternative<Store>(stmt)) count += inside ? 1 : 0;
      if (const auto* branch = std::get_if<If>(&stmt)) count += vector_stores(*branch->body, inside);
      if (const auto* loop = std::get_if<For>(&stmt)) {
        count += vector_stores(*loop->body, inside || loop->kind == LoopKind::kVector);
      }
    }
    return count;
  }

  int smallest_ = 16;
  int widest_store_ = 0;
  int kernel_stores_ = 0;
  std::unordered_set<ScalarId> varying_;
  std::unordered_map<ScalarId, const loops::Scalar*> lets_;
  std::vector<Expr> lookups_;  // index values that differ from lane to lane
  std::vector<Expr> extents_;
};

}  // namespace

namespace {

/// Of ProductLayout and AttentionLayout: all threads of a block do a tile together.
template <typename Layout>
GpuMapping tile_mapping(const Layout& layout) {
  GpuMapping mapping;
  mapping.threads = mapping.row = static_cast<int>(layout.threads());
  mapping.lanes = 2;
  mapping.shared = layout.shared_bytes();
  mapping.resident = static_cast<int>(layout.resident());
  return mapping;
}

/// Threads of a row that is sorted: what each holds stays in registers. Up to a warp, so that few values go through shared memory.
GpuMapping sort_mapping(const Sort& sort, DType dtype, const GpuShape& gpu, int64_t rows) {
  const int64_t held = Sort::kept_by_thread(dtype);
  int64_t row;
  if (sort.selects()) {
    // Each thread keeps the first of its own share.
    const int64_t kept = up_to_power_of_two(sort.count);
    const int64_t most = std::min<int64_t>(up_to_power_of_two((sort.extent + kept - 1) / kept), gpu.max_threads / 2);
    row = std::min<int64_t>(up_to_power_of_two(sort.extent / (kept * kVectorsPerThread)), most);
    row = std::max<int64_t>(row, std::min<int64_t>(most, kWarp));
    while (row < most && rows * row < kThreadsPerProcessor * gpu.multiprocessors) row *= 2;
  } else {
    const int64_t padded = up_to_power_of_two(sort.extent);
    row = std::max<int64_t>(std::min<int64_t>(kWarp, padded / kSortedAtLeast), padded / held);
  }
  GpuMapping mapping;
  mapping.row = static_cast<int>(std::max<int64_t>(row, 1));
  mapping.threads = mapping.row > kWarp ? mapping.row : kRowThreads;
  return mapping;
}

/// The serial loops that stand directly in the vector loop of a kernel whose threads are independent.
struct SerialLoops {
  int64_t longest = 0;  // passes
  int reading = 0;      // loops that read memory
  int64_t parts = 1;    // of what one of them carries, at most
  bool known = true;    // how many passes they have; loops for any number need more registers
};

bool reads(const Block& block) {
  return std::any_of(block.stmts.begin(), block.stmts.end(), [](const Stmt& stmt) {
    if (const auto* loop = std::get_if<For>(&stmt)) return reads(*loop->body);
    if (const auto* branch = std::get_if<If>(&stmt)) return reads(*branch->body);
    return std::holds_alternative<Load>(stmt);
  });
}

/// Nullopt: there is a loop that threads can't share.
std::optional<SerialLoops> serial_loops(const Kernel& kernel, const For& vector) {
  SerialLoops found;
  for (const Stmt& stmt : vector.body->stmts) {
    if (std::holds_alternative<If>(stmt)) return std::nullopt;
    const auto* loop = std::get_if<For>(&stmt);
    if (loop == nullptr) continue;
    int64_t parts = 0;
    for (const Carried& c : loop->carried) {
      if (c.combine == Combine::kNone) return std::nullopt;
      parts += is_complex(c.dtype) ? 2 : 1;
    }
    found.parts = std::max(found.parts, parts);
    found.longest = std::max(found.longest, kernel.ctx->evaluate_hint(loop->extent).value_or(1));
    found.known = found.known && loop->extent.is_const();
    if (reads(*loop->body)) ++found.reading;
  }
  return found;
}

/// Several threads for each group of neighbours, where the threads would be few or walk over their columns more than once: what a
/// block has read is then still near. Leaves the mapping alone where that gains nothing.
void set_columns(const Kernel& kernel, const Survey& survey, const GpuShape& gpu, int64_t rows, GpuMapping& mapping) {
  if (survey.vector == nullptr || mapping.passes > 1) return;
  const std::optional<SerialLoops> loops = serial_loops(kernel, *survey.vector);
  if (!loops || loops->longest < kLeastShared) return;
  const int64_t wanted = kThreadsPerProcessor * gpu.multiprocessors;
  const int64_t elements = rows * survey.length();
  if (loops->reading < 2 && elements / mapping.lanes >= wanted) return;
  int64_t bytes = kLine;
  while (bytes > kSector && elements * survey.smallest() / bytes < gpu.multiprocessors) bytes /= 2;
  const int64_t width = std::max<int64_t>(bytes / survey.smallest(), kColumnLanes);
  int64_t lanes = std::min<int64_t>(mapping.lanes, width / kColumnLanes);
  while (lanes > 1 && !survey.even(static_cast<int>(lanes))) lanes /= 2;
  const auto words = [&](int64_t all) { return all * lanes * loops->parts; };
  int64_t columns = width / lanes;
  const int64_t threads = loops->known ? gpu.max_threads : kColumnThreads;
  const int64_t most = std::min<int64_t>(up_to_power_of_two(loops->longest), threads / columns);
  int64_t column = std::min(most, up_to_power_of_two(loops->longest) / kPassesPerThread);
  column = std::max<int64_t>(std::min(column, kColumnThreads / columns), 2);
  while (column < most && elements / lanes * column < wanted) column *= 2;
  while (lanes > 1 && words(columns * column) > kColumnWords) {
    lanes /= 2;
    columns *= 2;
    column = std::max<int64_t>(column / 2, 2);
  }
  while (column > 2 && words(columns * column) > kColumnWords) column /= 2;
  if (words(columns * column) > kColumnWords) return;
  while (columns * column < kRowThreads) columns *= 2;
  mapping.lanes = static_cast<int>(lanes);
  mapping.column = static_cast<int>(column);
  mapping.threads = static_cast<int>(columns * column);
}

}  // namespace

GpuMapping gpu_mapping(const Kernel& kernel, const GpuShape& gpu, int64_t rows) {
  if (const auto* product = find_statement<Product>(kernel.body)) return tile_mapping(ProductLayout::of(*product));
  if (const auto* attention = find_statement<Attention>(kernel.body))
    return tile_mapping(AttentionLayout::of(*attention));
  if (const auto* weighed = find_statement<WeighedProduct>(kernel.body)) {
    const WeighedLayout layout = WeighedLayout::of(*weighed);
    GpuMapping mapping;
    mapping.threads = mapping.row = static_cast<int>(layout.threads());
    mapping.shared = layout.shared_bytes();
    return mapping;
  }
  if (const auto* sort = find_statement<Sort>(kernel.body)) {
    return sort_mapping(*sort, kernel.buffers[static_cast<size_t>(sort->from.buffer)].dtype, gpu, rows);
  }
  Survey survey(kernel, gpu.vector_bytes);
  GpuMapping mapping;
  const bool flat = !survey.carries && !survey.vector_in_serial && survey.vectors <= 1 &&
                    (survey.vectors == 0 || !survey.stores_outside);
  mapping.lanes = survey.vectors == 0 ? 1 : survey.lanes;
  const int64_t length = survey.length();
  if (flat) {
    while (mapping.lanes > 1 && length < mapping.lanes) mapping.lanes /= 2;
    mapping.threads = kFlatThreads;
    // Loads that wait for a look-up: a thread waits for several at once.
    if (survey.looks_up && survey.vector != nullptr && survey.vector->extent.is_const()) {
      const int64_t most = rows * length / (mapping.lanes * kThreadsPerProcessor * gpu.multiprocessors);
      for (const int passes : {4, 2}) {
        const int64_t step = int64_t{mapping.lanes} * passes;
        if (mapping.passes > 1 || passes > most || length % step != 0 || length / step < kLeastNeighbours) continue;
        mapping.passes = passes;
      }
    }
    set_columns(kernel, survey, gpu, rows, mapping);
    return mapping;
  }
  while (mapping.lanes > 1 && !survey.even(mapping.lanes)) mapping.lanes /= 2;
  if (survey.tiles) {
    const int64_t row = up_to_power_of_two(kernel.ctx->range(survey.vector->extent).hi) / mapping.lanes;
    int64_t bytes = 0;
    for (const BufferArg& buffer : kernel.buffers) {
      if (buffer.kind == ArgKind::kScratch) bytes += buffer.numel.const_value() * dtype_size(buffer.dtype);
    }
    const auto threads = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes / kTileShare)));
    mapping.threads = static_cast<int>(std::clamp<int64_t>(threads, kWarp, kTileThreads));
    mapping.row = static_cast<int>(std::clamp<int64_t>(row, 1, mapping.threads));
    mapping.tiles = true;
    return mapping;
  }
  const int64_t vectors = (length + mapping.lanes - 1) / mapping.lanes;
  const int64_t most = std::min<int64_t>(up_to_power_of_two(vectors), gpu.max_threads);
  int64_t row = up_to_power_of_two((vectors + kVectorsPerThread - 1) / kVectorsPerThread);
  row = std::max<int64_t>(row, std::min<int64_t>(most, kWarp));
  // A row that is walked once need not stay in registers: smaller blocks, of which others go on where one combines its values.
  if (survey.vectors == 1 && !survey.vector->scan && rows >= kManyRows * gpu.multiprocessors)
    row = std::min(row, kOnceThreads);
  // Few rows: more threads for each, so that the machine is full.
  while (row < most && rows * row < kThreadsPerProcessor * gpu.multiprocessors) row *= 2;
  row = std::clamp<int64_t>(row, 1, most);
  mapping.row = static_cast<int>(row);
  mapping.threads = row > kWarp ? mapping.row : kRowThreads;
  return mapping;
}

Expr gpu_blocks(State& s, const GpuMapping& mapping, Expr parallel_iterations, Expr vector_extent) {
  ExprContext& ctx = s.ctx;
  if (mapping.tiles) return parallel_iterations;
  if (mapping.resident > 0) {
    return s.simplify(ctx.min(parallel_iterations, ctx.constant(mapping.resident * s.options.gpu->multiprocessors)));
  }
  if (mapping.row > 0) {
    return s.simplify(ctx.ceildiv(parallel_iterations, ctx.constant(mapping.threads / mapping.row)));
  }
  Expr units = parallel_iterations;
  if (vector_extent.valid()) units = units * ctx.ceildiv(vector_extent, ctx.constant(mapping.lanes * mapping.passes));
  return s.simplify(ctx.ceildiv(units, ctx.constant(mapping.threads / mapping.column)));
}

}  // namespace tatara::sched
