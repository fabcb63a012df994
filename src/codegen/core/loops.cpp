// Loops and carried values.
#include <algorithm>

#include "codegen/core/kernel_emitter.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

/// Passes of one level of a cascaded sum.
constexpr int64_t kSumBlock = 32;

bool sums_floats(const Carried& c) {
  return c.combine == Combine::kAdd && (is_floating(c.dtype) || is_complex(c.dtype));
}

}  // namespace

void KernelEmitter::counted_loop(const std::string& begin, const std::string& end, const std::string& step,
                                 const std::vector<DType>& dtypes, std::vector<Reg>& carried, const LoopBody& body,
                                 const std::string& metadata, const std::string* until) {
  const std::string head = ir_.label();
  const std::string inside = ir_.label();
  const std::string done = ir_.label();
  const std::string before = ir_.block();
  ir_.jump(head);
  const std::string counter = ir_.fresh();
  std::vector<Reg> phis;
  for (size_t i = 0; i < dtypes.size(); ++i) {
    phis.push_back({ir_.fresh(), carried[i].vec, is_complex(dtypes[i]) ? ir_.fresh() : std::string()});
  }
  std::vector<Reg> next = phis;
  std::string advanced;
  std::string last;
  const std::string body_text = ir_.apart([&] {
    ir_.start_block(inside);
    body(counter, next);
    advanced = ir_.assign("add nsw i64 " + counter + ", " + step);
    if (until != nullptr && !until->empty()) {
      ir_.branch(*until, done, head);
    } else {
      ir_.line("br label %" + head + metadata);
    }
    last = ir_.block();
  });
  ir_.start_block(head);
  const auto phi = [&](const std::string& name, const std::string& type, const std::string& first,
                       const std::string& again) {
    ir_.line(name + " = phi " + type + " [ " + first + ", %" + before + " ], [ " + again + ", %" + last + " ]");
  };
  phi(counter, "i64", begin, advanced);
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const std::string type = ir_.type_of(llvm_type(real_dtype(dtypes[i])), carried[i].vec);
    phi(phis[i].text, type, carried[i].text, next[i].text);
    if (is_complex(dtypes[i])) phi(phis[i].im, type, carried[i].im, next[i].im);
  }
  ir_.branch(ir_.assign("icmp slt i64 " + counter + ", " + end), inside, done);
  ir_.append(body_text);
  ir_.start_block(done);
  carried = phis;
}

void KernelEmitter::cascaded(const For& loop, const std::string& begin, const std::string& end, int64_t step,
                             std::vector<Reg>& carried, const LoopBody& body, const std::string& metadata) {
  const bool sums = std::any_of(loop.carried.begin(), loop.carried.end(), sums_floats);
  int levels = 1;
  if (sums && !loop.scan && loop.combine_fn == nullptr) {
    const int64_t passes = loop.extent.is_const() ? loop.extent.const_value() / step : INT64_MAX;
    for (int64_t most = 2 * kSumBlock; levels < 4 && passes > most; most *= kSumBlock) ++levels;
  }
  cascade_level(loop, begin, end, step, levels, carried, body, metadata);
}

void KernelEmitter::cascade_level(const For& loop, const std::string& begin, const std::string& end, int64_t step,
                                  int level, std::vector<Reg>& carried, const LoopBody& body,
                                  const std::string& metadata) {
  const std::vector<DType> dtypes = carried_types(loop);
  if (level == 1) {
    counted_loop(begin, end, std::to_string(step), dtypes, carried, body, metadata);
    return;
  }
  int64_t size = step;
  for (int i = 1; i < level; ++i) size *= kSumBlock;
  const std::string block = std::to_string(size);
  counted_loop(begin, end, block, dtypes, carried, [&](const std::string& base, std::vector<Reg>& values) {
    const std::string after = ir_.binary("add nsw", "i64", base, block);
    const std::string less = ir_.assign("icmp slt i64 " + after + ", " + end);
    const std::string stop = ir_.select(less, "i64", after, end, false);
    std::vector<Reg> inner = values;
    for (size_t i = 0; i < inner.size(); ++i) {
      if (!sums_floats(loop.carried[i])) continue;
      const Reg start = scalars_.identity(Combine::kAdd, dtypes[i]);
      inner[i] = values[i].vec ? widened(ir_, dtypes[i], start) : start;
    }
    cascade_level(loop, base, stop, step, level - 1, inner, body, metadata);
    for (size_t i = 0; i < inner.size(); ++i) {
      const bool sum = sums_floats(loop.carried[i]);
      values[i] = sum ? scalars_.combine(Combine::kAdd, dtypes[i], values[i], inner[i], values[i].vec) : inner[i];
    }
  });
}

void KernelEmitter::statement(const For& loop) {
  switch (loop.kind) {
    case LoopKind::kParallel: parallel(loop); return;
    case LoopKind::kVector: vector_loop(loop); return;
    case LoopKind::kSerial:
    case LoopKind::kUnroll: serial_loop(loop); return;
  }
}

/// Directly nested parallel loops are collapsed into one.
void KernelEmitter::parallel(const For& loop) {
  std::vector<const For*> chain = {&loop};
  while (chain.back()->body->stmts.size() == 1) {
    const auto* inner = std::get_if<For>(&chain.back()->body->stmts.front());
    if (inner == nullptr || inner->kind != LoopKind::kParallel) break;
    chain.push_back(inner);
  }
  all_iterations([&](const std::string& iteration) {
    std::string rest = iteration;
    for (size_t i = chain.size() - 1; i > 0; --i) {
      const std::string extent = scope_.index(chain[i]->extent);
      const auto [whole, part] = divide_position(rest, extent);
      scope_.bind(chain[i]->var, part);
      rest = whole;
    }
    scope_.bind(chain[0]->var, rest);
    block(*chain.back()->body);
  });
}

void KernelEmitter::serial(const For& loop, const std::string& begin, const std::string& end) {
  std::vector<Reg> carried;
  // Inside a vector loop all carried values are vectors, since their next values may be.
  for (const Carried& c : loop.carried) carried.push_back(widened(ir_, c.dtype, scope_.reg(c.init)));
  serial_from(loop, begin, end, std::move(carried));
}

void KernelEmitter::serial_from(const For& loop, const std::string& begin, const std::string& end,
                                std::vector<Reg> carried, int64_t step, const std::string& metadata) {
  find_multiply_adds(loop);
  if (loop.until != kNoScalar) {
    std::string until;
    counted_loop(
        begin, end, std::to_string(step), {}, carried,
        [&](const std::string& counter, std::vector<Reg>&) {
          scope_.bind(loop.var, counter);
          block(*loop.body);
          until = scope_.reg(loop.until).text;
        },
        metadata, &until);
    return;
  }
  const LoopBody body = [&](const std::string& counter, std::vector<Reg>& values) {
    scope_.bind(loop.var, counter);
    for (size_t i = 0; i < loop.carried.size(); ++i) scope_.set(loop.carried[i].arg, values[i]);
    block(*loop.body);
    for (size_t i = 0; i < loop.carried.size(); ++i) {
      const Carried& c = loop.carried[i];
      values[i] = widened(ir_, c.dtype, scope_.reg(c.next));
    }
  };
  cascaded(loop, begin, end, step, carried, body, metadata);
  for (size_t i = 0; i < loop.carried.size(); ++i) scope_.set(loop.carried[i].result, carried[i]);
}

void KernelEmitter::find_multiply_adds(const For& loop) {
  if (loop.scan || loop.combine_fn != nullptr) return;
  const auto defining = [&](ScalarId x, ScalarOp op) -> const Scalar* {
    for (const Stmt& stmt : loop.body->stmts) {
      const auto* let = std::get_if<Let>(&stmt);
      if (let != nullptr && let->dst == x && let->scalar.op == op) return &let->scalar;
    }
    return nullptr;
  };
  for (const Carried& c : loop.carried) {
    if (c.combine != Combine::kAdd || (c.dtype != DType::kFloat32 && c.dtype != DType::kFloat64)) continue;
    const Scalar* sum = defining(c.next, ScalarOp::kAdd);
    if (sum == nullptr || (sum->operands[0] == c.arg) == (sum->operands[1] == c.arg)) continue;
    const Scalar* product = defining(sum->operands[sum->operands[0] == c.arg ? 1 : 0], ScalarOp::kMul);
    if (product != nullptr) multiply_adds_[c.next] = {product->operands[0], product->operands[1], c.arg};
  }
}

// ---- Vector loops ------------------------------------------------------------------------------------------------------

void KernelEmitter::begin_pass(const For& loop, const std::string& base, const std::string& mask,
                               const std::vector<Reg>& carried) {
  scope_.bind(loop.var, base);
  scope_.set_mask(mask);
  for (size_t i = 0; i < loop.carried.size(); ++i) scope_.set(loop.carried[i].arg, carried[i]);
}

void KernelEmitter::vector_pass(const For& loop, const std::string& base, const std::string& mask,
                                std::vector<Reg>& carried) {
  begin_pass(loop, base, mask, carried);
  block(*loop.body);
  for (size_t i = 0; i < loop.carried.size(); ++i) carried[i] = next_carried(loop, i, carried[i], mask);
  scope_.set_mask("");
}

Reg KernelEmitter::next_carried(const For& loop, size_t i, const Reg& before, const std::string& mask) {
  const Carried& c = loop.carried[i];
  const Reg next = widened(ir_, c.dtype, scope_.reg(c.next));
  return mask.empty() ? next : choose(ir_, c.dtype, {mask, true}, next, before, true);
}

void KernelEmitter::scan_body(const For& loop, const std::function<void(const Let&, size_t)>& step) {
  for (const Stmt& stmt : loop.body->stmts) {
    const auto* let = std::get_if<Let>(&stmt);
    const auto total = std::find_if(loop.carried.begin(), loop.carried.end(),
                                    [&](const Carried& c) { return let != nullptr && c.next == let->dst; });
    if (total == loop.carried.end()) {
      std::visit([&](const auto& s) { statement(s); }, stmt);
    } else {
      step(*let, static_cast<size_t>(total - loop.carried.begin()));
    }
  }
}

Reg KernelEmitter::scan_element(const Carried& carried, const Let& let) const {
  TATARA_CHECK(let.scalar.operands.size() == 2, "a scan by ", scalar_op_name(let.scalar.op), " in ",
               context_.kernel.name);
  return scope_.reg(let.scalar.operands[let.scalar.operands[0] == carried.arg ? 1 : 0]);
}

/// Hillis and Steele (Communications of the ACM 29, 1986): after the step with distance d, each lane has the sum of the last
/// 2d lanes.
Reg KernelEmitter::scan_lanes(const Carried& c, Reg sum, const Reg& nothing) {
  const std::string type = llvm_type(real_dtype(c.dtype));
  const int count = ir_.lanes();
  for (int distance = 1; distance < count; distance *= 2) {
    std::vector<int> lanes;
    for (int lane = 0; lane < count; ++lane) lanes.push_back(lane < distance ? count : lane - distance);
    Reg moved{ir_.shuffle(type, count, sum.text, nothing.text, lanes), true};
    if (is_complex(c.dtype)) moved.im = ir_.shuffle(type, count, sum.im, nothing.im, lanes);
    sum = scalars_.combine(c.combine, c.dtype, moved, sum, true);
  }
  return sum;
}

namespace {

/// The lower or upper half of the lanes.
Reg half_of(IrWriter& ir, DType dtype, const Reg& value, bool upper) {
  const int half = ir.lanes() / 2;
  const std::string element = llvm_type(real_dtype(dtype));
  const auto take = [&](const std::string& v) {
    if (half == 1)
      return ir.assign("extractelement " + ir.vec_type(element) + " " + v + (upper ? ", i64 1" : ", i64 0"));
    std::vector<int> lanes;
    for (int i = 0; i < half; ++i) lanes.push_back(upper ? half + i : i);
    return ir.shuffle(element, ir.lanes(), v, "poison", lanes);
  };
  Reg part{take(value.text), half > 1};
  if (is_complex(dtype)) part.im = take(value.im);
  return part;
}

}  // namespace

void KernelEmitter::reduce_lanes(const For& loop, std::vector<Reg>& carried) {
  while (ir_.lanes() > 1) {
    std::vector<Reg> left;
    std::vector<Reg> right;
    for (size_t i = 0; i < carried.size(); ++i) {
      left.push_back(half_of(ir_, loop.carried[i].dtype, carried[i], false));
      right.push_back(half_of(ir_, loop.carried[i].dtype, carried[i], true));
    }
    ir_.set_lanes(ir_.lanes() / 2);
    combine_parts(loop, left, right, carried);
  }
}

void KernelEmitter::combine_parts(const For& loop, const std::vector<Reg>& left, const std::vector<Reg>& right,
                                  std::vector<Reg>& carried) {
  if (loop.combine_fn == nullptr) {
    for (size_t i = 0; i < carried.size(); ++i) {
      const Carried& c = loop.carried[i];
      carried[i] = scalars_.combine(c.combine, c.dtype, left[i], right[i], ir_.lanes() > 1);
    }
    return;
  }
  const CombineFn& fn = *loop.combine_fn;
  for (size_t i = 0; i < carried.size(); ++i) {
    scope_.set(fn.left[i], left[i]);
    scope_.set(fn.right[i], right[i]);
  }
  block(*fn.body);
  for (size_t i = 0; i < carried.size(); ++i) {
    carried[i] = widened(ir_, loop.carried[i].dtype, scope_.reg(fn.result[i]));
  }
}

}  // namespace tatara::codegen
