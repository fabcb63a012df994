// Where in its buffers a kernel begins: what reads row 5 of a tensor and what reads row 6 of it is one kernel, launched with other offsets.
// So the turns of an unrolled loop are compiled once.
#include <algorithm>

#include "schedule/internal.h"

namespace tatara::sched {
namespace {

/// Every index into each buffer; none of a buffer that is walked by a statement with a shape of its own.
class Accesses {
 public:
  explicit Accesses(loops::Kernel& kernel) : of_buffer_(kernel.buffers.size()), fixed_(kernel.buffers.size(), false) {
    collect(kernel.body);
  }
  const std::vector<Expr*>* of(size_t buffer) const { return fixed_[buffer] ? nullptr : &of_buffer_[buffer]; }

 private:
  void collect(loops::Block& block) {
    for (loops::Stmt& stmt : block.stmts) std::visit([this](auto& s) { add(s); }, stmt);
  }
  void add(loops::Let& /*let*/) {}
  void add(loops::IndexValue& /*value*/) {}
  void add(loops::Load& load) { of_buffer_[static_cast<size_t>(load.buffer)].push_back(&load.index); }
  void add(loops::Store& store) { of_buffer_[static_cast<size_t>(store.buffer)].push_back(&store.index); }
  void add(loops::For& loop) {
    if (loop.combine_fn) collect(*loop.combine_fn->body);
    collect(*loop.body);
  }
  void add(loops::If& branch) { collect(*branch.body); }
  template <typename Other>
  void add(Other& /*other*/) {
    std::fill(fixed_.begin(), fixed_.end(), true);
  }

  std::vector<std::vector<Expr*>> of_buffer_;
  std::vector<bool> fixed_;
};

int64_t constant_term(Expr e) {
  if (e.is_const()) return e.const_value();
  if (e.kind() != ExprKind::kAdd) return 0;
  int64_t sum = 0;
  for (const Expr term : e.operands()) sum += term.is_const() ? term.const_value() : 0;
  return sum;
}

}  // namespace

void lift_offsets(State& s, loops::Kernel& kernel, KernelLaunch& launch) {
  if (s.options.gpu) return;
  std::vector<Expr> offsets;
  bool lifted = false;
  const Accesses accesses(kernel);
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    loops::BufferArg& arg = kernel.buffers[b];
    if (arg.kind == loops::ArgKind::kScratch) continue;
    Expr& offset = offsets.emplace_back();
    const std::vector<Expr*>* indices = accesses.of(b);
    if (indices == nullptr || indices->empty() || !arg.numel.is_const()) continue;
    int64_t first = INT64_MAX, last = 0;
    for (const Expr* index : *indices) {
      first = std::min(first, constant_term(*index));
      last = std::max(last, s.ctx.range(*index).hi);
    }
    if (first <= 0 || last >= arg.numel.const_value()) continue;
    offset = s.ctx.constant(first);
    for (Expr* index : *indices) *index = s.simplify(s.ctx.sub(*index, offset));
    arg.numel = s.ctx.constant(last + 1 - first);
    lifted = true;
  }
  if (lifted) launch.buffer_offsets = std::move(offsets);
}

}  // namespace tatara::sched
