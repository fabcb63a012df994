// Stencils on a GPU: where an element is computed from neighbours in several rows, a thread computes several rows, and reads what they
// share once. With a thread for each element the rows above and below would come from the second cache again and again.
#include <algorithm>
#include <set>

#include "schedule/loop_order.h"
#include "support/error.h"

namespace tatara::sched {

namespace {

constexpr int64_t kLineBytes = 128;
constexpr size_t kMostReads = 32;  // addresses that a thread reads from, so that what is read stays in registers
constexpr int64_t kMostOps = 256;  // of a thread, so that the code stays short
constexpr double kWorth = 0.7;     // of the traffic, at most, is to be left
constexpr int64_t kResidentThreads = 1024;  // that are left, at least
constexpr int64_t kLanes = 4;               // of a thread, about

/// What the kernel reads and writes in an iteration of `rows` neighbouring rows, in elements of the vector loop.
struct Traffic {
  double bytes = 0;
  size_t reads = 0;  // different addresses
};

class Rows {
 public:
  Rows(State& s, const std::vector<Access>& accesses, Expr dim, Expr along)
      : s_(s), accesses_(accesses), dim_(dim), along_(along) {}

  Traffic of(int64_t rows) const {
    Traffic result;
    std::set<std::pair<BufferId, const ExprNode*>> seen;
    std::vector<std::pair<BufferId, Expr>> lines;
    for (const Access& access : accesses_) {
      const int size = dtype_size(access.dtype);
      for (int64_t k = 0; k < rows; ++k) {
        const Expr at = row(access.address, k);
        if (access.store) {
          result.bytes += size;
          continue;
        }
        if (!seen.emplace(access.buffer, at.node()).second) continue;
        ++result.reads;
        // What does not move along the rows, or in a row, is in the nearest cache.
        if (!access.address.contains(dim_) || !access.address.contains(along_)) continue;
        const bool known = std::any_of(lines.begin(), lines.end(), [&](const auto& line) {
          const Expr apart = line.first == access.buffer ? s_.simplify(at - line.second) : Expr();
          if (!contiguous(at)) return false;
          return apart.valid() && apart.is_const() && std::abs(apart.const_value()) * size < kLineBytes;
        });
        if (known) continue;
        lines.emplace_back(access.buffer, at);
        result.bytes += size;
      }
    }
    return result;
  }

 private:
  bool contiguous(Expr address) const {
    const Expr step = address.coefficient_of(along_);
    return step.valid() && step.is_const(1);
  }
  Expr row(Expr address, int64_t k) const {
    if (k == 0 || !address.contains(dim_)) return address;
    return s_.simplify(s_.ctx.substitute(address, {{dim_, dim_ + s_.ctx.constant(k)}}));
  }

  State& s_;
  const std::vector<Access>& accesses_;
  const Expr dim_;
  const Expr along_;  // the vector loop's dim
};

/// The last rows may be computed twice, for nothing is read that is written. Reading under conditions keeps loads from sharing.
bool plain(const std::vector<Access>& accesses) {
  return std::all_of(accesses.begin(), accesses.end(), [&](const Access& a) {
    if (a.masked) return false;
    return a.store || std::none_of(accesses.begin(), accesses.end(),
                                   [&](const Access& b) { return b.store && b.buffer == a.buffer; });
  });
}

}  // namespace

void share_rows(State& s, const Group& group, const std::vector<Access>& accesses, int ops, NestPlan& plan) {
  if (!s.options.gpu || group.space->has_reduction || plan.tile || !plain(accesses)) return;
  const bool full = std::all_of(group.members.begin(), group.members.end(), [](const Member& m) {
    return m.kind == Member::Kind::kStore && m.full && m.stage == 0;
  });
  if (!full) return;
  int64_t elements = 1;
  Expr along;
  for (const LoopSpec& loop : plan.outer) {
    if (!loop.extent.is_const() || loop.extent.const_value() <= 0) return;
    elements *= loop.extent.const_value();
    if (loop.kind == loops::LoopKind::kVector) along = loop.dim;
  }
  if (!along.valid()) return;
  const int64_t threads = kResidentThreads * s.options.gpu->multiprocessors;
  LoopSpec* best = nullptr;
  int64_t copies = 1;
  double least = kWorth;
  for (LoopSpec& loop : plan.outer) {
    if (loop.kind != loops::LoopKind::kParallel || !loop.dim.valid()) continue;
    const Rows rows(s, accesses, loop.dim, along);
    const Traffic one = rows.of(1);
    for (const int64_t n : {int64_t{2}, int64_t{4}, int64_t{8}}) {
      if (loop.extent.const_value() < 2 * n || elements / (n * kLanes) < threads || ops * n > kMostOps) break;
      const Traffic several = rows.of(n);
      const double share = several.bytes / (one.bytes * static_cast<double>(n));
      if (several.reads > kMostReads || share >= least) continue;
      least = share;
      best = &loop;
      copies = n;
    }
  }
  if (best == nullptr) return;
  ExprContext& ctx = s.ctx;
  const Expr step = ctx.constant(copies);
  const Expr count = s.simplify(ctx.ceildiv(best->extent, step));
  const Expr block = s.pooled_symbol(count, 208);
  const bool even = best->extent.const_value() % copies == 0;
  plan.substitution[best->dim] = even ? block * step : ctx.min(block * step, best->extent - step);
  plan.copies = {{best->dim, copies, true, {}, merged_dim(*group.space, *best)}};
  *best = {block, count, loops::LoopKind::kParallel, Expr(), Expr()};
  s.note(s.name_of(group.members.front().value), str_cat("a thread computes ", copies, " rows, which read the same"));
}

}  // namespace tatara::sched
