// Loops and carried values.
#include <algorithm>
#include <cmath>

#include "codegen/core/emitter.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

/// Iterations after which a sum starts anew, see Emitter::summed.
constexpr int64_t kSumBlock = 32;

bool sums_floats(const Carried& c) {
  return c.combine == Combine::kAdd && (is_floating(c.dtype) || is_complex(c.dtype));
}

std::vector<DType> carried_types(const For& loop) {
  std::vector<DType> dtypes;
  for (const Carried& c : loop.carried) dtypes.push_back(c.dtype);
  return dtypes;
}

}  // namespace

void Emitter::counted(const std::string& begin, const std::string& end, const std::string& step,
                      const std::vector<DType>& dtypes, std::vector<Reg>& carried, const LoopBody& body,
                      bool written_out) {
  const std::string head = ir_.label();
  const std::string inside = ir_.label();
  const std::string done = ir_.label();
  const std::string before = ir_.block();
  ir_.line("br label %" + head);
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
    ir_.line("br label %" + head + (written_out ? ", !llvm.loop !4" : ""));
    gpu_written_out_ = gpu_written_out_ || written_out;
    last = ir_.block();
  });
  ir_.start_block(head);
  ir_.line(counter + " = phi i64 [ " + begin + ", %" + before + " ], [ " + advanced + ", %" + last + " ]");
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const std::string type = ir_.type_of(llvm_type(real_dtype(dtypes[i])), carried[i].vec);
    const auto phi = [&](const std::string& name, const std::string& first, const std::string& again) {
      ir_.line(name + " = phi " + type + " [ " + first + ", %" + before + " ], [ " + again + ", %" + last + " ]");
    };
    phi(phis[i].text, carried[i].text, next[i].text);
    if (is_complex(dtypes[i])) phi(phis[i].im, carried[i].im, next[i].im);
  }
  const std::string more = ir_.assign("icmp slt i64 " + counter + ", " + end);
  ir_.line("br i1 " + more + ", label %" + inside + ", label %" + done);
  ir_.append(body_text);
  ir_.start_block(done);
  carried = phis;
}

void Emitter::summed(const For& loop, const std::string& begin, const std::string& end, int64_t step,
                     std::vector<Reg>& carried, const LoopBody& body) {
  const bool sums = std::any_of(loop.carried.begin(), loop.carried.end(), sums_floats);
  int levels = 1;
  if (sums && !loop.scan && loop.combine_fn == nullptr) {
    const int64_t passes = loop.extent.is_const() ? loop.extent.const_value() / step : INT64_MAX;
    for (int64_t most = 2 * kSumBlock; levels < 4 && passes > most; most *= kSumBlock) ++levels;
  }
  sum_level(loop, begin, end, step, levels, carried, body);
}

void Emitter::sum_level(const For& loop, const std::string& begin, const std::string& end, int64_t step, int level,
                        std::vector<Reg>& carried, const LoopBody& body) {
  const std::vector<DType> dtypes = carried_types(loop);
  if (level == 1) {
    counted(begin, end, std::to_string(step), dtypes, carried, body);
    return;
  }
  int64_t size = step;
  for (int i = 1; i < level; ++i) size *= kSumBlock;
  const std::string block = std::to_string(size);
  counted(begin, end, block, dtypes, carried, [&](const std::string& base, std::vector<Reg>& values) {
    const std::string after = ir_.binary("add nsw", "i64", base, block);
    const std::string less = ir_.assign("icmp slt i64 " + after + ", " + end);
    const std::string stop = ir_.select(less, "i64", after, end, false);
    std::vector<Reg> inner = values;
    for (size_t i = 0; i < inner.size(); ++i) {
      if (!sums_floats(loop.carried[i])) continue;
      const Reg start = identity(Combine::kAdd, dtypes[i]);
      inner[i] = values[i].vec ? widened(dtypes[i], start) : start;
    }
    sum_level(loop, base, stop, step, level - 1, inner, body);
    for (size_t i = 0; i < inner.size(); ++i) {
      const bool sum = sums_floats(loop.carried[i]);
      values[i] = sum ? combine(Combine::kAdd, dtypes[i], values[i], inner[i], values[i].vec) : inner[i];
    }
  });
}

void Emitter::statement(const For& loop) {
  switch (loop.kind) {
    case LoopKind::kParallel: parallel(loop); return;
    case LoopKind::kVector:
      if (on_gpu()) {
        gpu_vector(loop);
      } else {
        vector(loop);
      }
      return;
    case LoopKind::kSerial:
    case LoopKind::kUnroll:
      if (gpu_tiles_) {
        gpu_tile_rows(loop);
      } else {
        serial(loop, "0", index(loop.extent));
      }
      return;
  }
}

/// A chain of parallel loops is one loop over [begin, end) of their product.
void Emitter::parallel(const For& loop) {
  std::vector<const For*> chain = {&loop};
  while (chain.back()->body->stmts.size() == 1) {
    const auto* inner = std::get_if<For>(&chain.back()->body->stmts.front());
    if (inner == nullptr || inner->kind != LoopKind::kParallel) break;
    chain.push_back(inner);
  }
  const auto run = [&](const std::string& flat) {
    std::string rest = flat;
    for (size_t i = chain.size(); i-- > 0;) {
      if (i == 0) {
        symbols_[chain[0]->var] = {rest, false};
      } else {
        const std::string extent = index(chain[i]->extent);
        if (on_gpu()) {
          const auto [whole, part] = gpu_divided(rest, extent);
          symbols_[chain[i]->var] = {part, false};
          rest = whole;
        } else {
          symbols_[chain[i]->var] = {ir_.binary("urem", "i64", rest, extent), false};
          rest = ir_.binary("udiv", "i64", rest, extent);
        }
      }
    }
    block(*chain.back()->body);
  };
  if (on_gpu()) {
    run(gpu_iteration_);
    return;
  }
  std::vector<Reg> none;
  counted("%begin", "%end", "1", {}, none, [&](const std::string& flat, std::vector<Reg>&) { run(flat); });
}

void Emitter::serial(const For& loop, const std::string& begin, const std::string& end) {
  std::vector<Reg> carried;
  // Inside a vector loop everything carried is a vector, for its next value may be one.
  for (const Carried& c : loop.carried) carried.push_back(widened(c.dtype, reg(c.init)));
  serial_from(loop, begin, end, std::move(carried));
}

void Emitter::note_products(const For& loop) {
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
    if (product != nullptr) products_[c.next] = {product->operands[0], product->operands[1], c.arg};
  }
}

void Emitter::serial_from(const For& loop, const std::string& begin, const std::string& end, std::vector<Reg> carried) {
  note_products(loop);
  summed(loop, begin, end, 1, carried, [&](const std::string& counter, std::vector<Reg>& values) {
    symbols_[loop.var] = {counter, false};
    for (size_t i = 0; i < loop.carried.size(); ++i) set(loop.carried[i].arg, values[i]);
    block(*loop.body);
    for (size_t i = 0; i < loop.carried.size(); ++i) {
      const Carried& c = loop.carried[i];
      values[i] = widened(c.dtype, reg(c.next));
    }
  });
  for (size_t i = 0; i < loop.carried.size(); ++i) set(loop.carried[i].result, carried[i]);
}

// ---- The vector loop ---------------------------------------------------------------------------------------------------

namespace {

/// What the lanes of a loop's body cost, in simple instructions of one vector.
class BodyCost {
 public:
  explicit BodyCost(const Kernel& kernel) : kernel_(kernel) {}
  int bytes = 1;     // of the widest part of a scalar
  int smallest = 8;  // of the narrowest element in memory
  int weight = 0;
  int carried = 0;  // registers carried by inner loops

  void block(const Block& b) {
    for (const Stmt& stmt : b.stmts) std::visit([&](const auto& s) { add(s); }, stmt);
  }

 private:
  static int part_size(DType dtype) { return dtype_size(real_dtype(dtype)); }
  DType buffer(int b) const { return kernel_.buffers[static_cast<size_t>(b)].dtype; }
  void memory(DType dtype, Expr index) {
    bytes = std::max(bytes, part_size(dtype));
    smallest = std::min(smallest, part_size(dtype));
    (void)index;
    weight += is_complex(dtype) ? 3 : 1;
  }
  void add(const Let& let) {
    const Scalar& s = let.scalar;
    // Index values are usually converted at once; they do not decide the width.
    if (s.op != ScalarOp::kIndex) bytes = std::max(bytes, part_size(s.dtype));
    int cost = 1;
    if (s.op == ScalarOp::kConst) cost = 0;
    if (s.op == ScalarOp::kDiv || s.op == ScalarOp::kSqrt || s.op == ScalarOp::kReciprocal) cost = 4;
    if (s.op == ScalarOp::kCast && is_low_precision(s.dtype)) cost = 5;
    if (s.op >= ScalarOp::kRsqrt && s.op <= ScalarOp::kLogNdtr && s.op != ScalarOp::kCopysign) cost = 20;
    if (s.op == ScalarOp::kFloorDiv || s.op == ScalarOp::kMod || s.op == ScalarOp::kFmod || s.op == ScalarOp::kTruncDiv)
      cost = 20;
    if (s.op == ScalarOp::kPhilox) cost = 60;
    weight += is_complex(s.dtype) ? 3 * cost : cost;
  }
  void add(const Load& load) { memory(buffer(load.buffer), load.index); }
  void add(const Store& store) {
    memory(buffer(store.buffer), store.index);
    if (store.mode != StoreMode::kSet) weight += 20;
  }
  void add(const IndexValue&) { weight += 20; }
  void add(const Transpose&) {}  // stands outside of vector loops
  void add(const Sort&) {}       // likewise
  void add(const If& branch) { block(*branch.body); }
  void add(const For& loop) {
    carried += static_cast<int>(loop.carried.size());
    block(*loop.body);
  }

  const Kernel& kernel_;
};

}  // namespace

/// Lanes of a vector loop: those of a register, or several registers' where the body is light. Wider ones hide the latency
/// of carried values behind each other, read longer runs of memory where an inner loop goes from row to row, and leave
/// splitting into registers to LLVM.
Emitter::VectorShape Emitter::vector_shape(const For& loop) const {
  BodyCost cost(kernel_);
  cost.block(*loop.body);
  const bool known = loop.extent.is_const();
  const int64_t extent = known ? loop.extent.const_value() : INT64_MAX;
  VectorShape shape;
  if (extent < 2) return shape;
  const int width = std::max(target_.vector_bytes() / std::clamp(cost.bytes, 4, 8), 1);
  shape.lanes = width;
  while (shape.lanes / 2 >= extent) shape.lanes /= 2;
  shape.masks = target_.isa == VectorIsa::kAvx512 || (target_.isa == VectorIsa::kAvx2 && cost.smallest >= 4);
  shape.heavy = cost.weight > 60;
  shape.light = cost.weight <= 16 && cost.carried == 0;
  if (width < 4 || loop.scan) return shape;
  int parts = cost.carried;
  for (const Carried& c : loop.carried) parts += is_complex(c.dtype) ? 2 : 1;
  const int registers = target_.isa == VectorIsa::kAvx512 ? 16 : 8;
  for (const int times : {4, 2}) {
    const int64_t lanes = int64_t{width} * times;
    const bool fits = !known || extent % lanes == 0 || extent >= 4 * lanes;
    if (lanes <= 64 && fits && cost.weight * times <= 40 && parts * times <= registers) {
      shape.lanes = static_cast<int>(lanes);
      break;
    }
  }
  return shape;
}

Reg Emitter::identity(Combine combine, DType dtype) const {
  if (is_complex(dtype)) {
    const DType part = real_dtype(dtype);
    if (combine == Combine::kAdd) return {float_bits(-0.0, part), false, float_bits(-0.0, part)};
    if (combine == Combine::kMul) return {float_bits(1.0, part), false, float_bits(0.0, part)};
    throw InternalError("complex numbers have no order, in " + kernel_.name);
  }
  const bool floating = is_floating(dtype);
  const bool truth = dtype == DType::kBool;
  switch (combine) {
    case Combine::kAdd: return {floating ? float_bits(-0.0, dtype) : (truth ? "false" : "0"), false};
    case Combine::kMul: return {floating ? float_bits(1.0, dtype) : (truth ? "true" : "1"), false};
    case Combine::kOr:
    case Combine::kXor: return {truth ? "false" : "0", false};
    case Combine::kAnd: return {truth ? "true" : "-1", false};
    case Combine::kMin:
    case Combine::kMax: {
      const bool largest = combine == Combine::kMin;
      if (floating) return {float_bits(largest ? INFINITY : -INFINITY, dtype), false};
      if (truth) return {largest ? "true" : "false", false};
      const int bits = dtype_size(dtype) * 8;
      if (!is_signed(dtype)) return {largest ? "-1" : "0", false};
      const int64_t top = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
      return {std::to_string(largest ? top : -top - 1), false};
    }
    case Combine::kNone:
    case Combine::kCustom: break;
  }
  throw InternalError("a sequential value carried by a vector loop in " + kernel_.name);
}

Reg Emitter::combine(Combine how, DType dtype, const Reg& a, const Reg& b, bool vec) {
  Scalar s{};
  s.dtype = dtype;
  const bool truth = dtype == DType::kBool;
  switch (how) {
    case Combine::kAdd: s.op = truth ? ScalarOp::kOr : ScalarOp::kAdd; break;
    case Combine::kMul: s.op = truth ? ScalarOp::kAnd : ScalarOp::kMul; break;
    case Combine::kMin: s.op = truth ? ScalarOp::kAnd : ScalarOp::kMin; break;
    case Combine::kMax: s.op = truth ? ScalarOp::kOr : ScalarOp::kMax; break;
    case Combine::kAnd: s.op = ScalarOp::kAnd; break;
    case Combine::kOr: s.op = ScalarOp::kOr; break;
    case Combine::kXor: s.op = ScalarOp::kXor; break;
    case Combine::kNone:
    case Combine::kCustom: throw InternalError("no simple combine function");
  }
  const Reg operands[] = {a, b};
  return arithmetic(s, operands, vec);
}

void Emitter::scan_body(const For& loop, const std::function<void(const Let&, size_t)>& step) {
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

void Emitter::vector_pass(const For& loop, const std::string& base, const std::string& mask,
                          std::vector<Reg>& carried) {
  symbols_[loop.var] = {base, false};
  vector_mask_ = mask;
  for (size_t i = 0; i < loop.carried.size(); ++i) set(loop.carried[i].arg, carried[i]);
  if (loop.scan) {
    scan_body(loop, [&](const Let& let, size_t i) { scan_step(loop, let, i, mask, carried); });
    vector_mask_.clear();
    return;
  }
  block(*loop.body);
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    if (!gpu_same_.empty() && gpu_same_[i]) {
      carried[i] = reg(c.next);
      continue;
    }
    const Reg next = widened(c.dtype, reg(c.next));
    carried[i] = mask.empty() ? next : choose(c.dtype, {mask, true}, next, carried[i], true);
  }
  vector_mask_.clear();
}

void Emitter::scan_step(const For& loop, const Let& let, size_t i, const std::string& mask, std::vector<Reg>& carried) {
  const Carried& c = loop.carried[i];
  TATARA_CHECK(let.scalar.operands.size() == 2, "a scan by ", scalar_op_name(let.scalar.op), " in ", kernel_.name);
  const ScalarId element = let.scalar.operands[let.scalar.operands[0] == c.arg ? 1 : 0];
  const Reg nothing = widened(c.dtype, identity(c.combine, c.dtype));
  Reg sum = widened(c.dtype, reg(element));
  if (!mask.empty()) sum = choose(c.dtype, {mask, true}, sum, nothing, true);
  sum = scan_lanes(c, std::move(sum), nothing);
  sum = combine(c.combine, c.dtype, carried[i], sum, true);
  set(c.next, sum);
  const std::string type = llvm_type(real_dtype(c.dtype));
  const std::vector<int> last(static_cast<size_t>(ir_.lanes()), ir_.lanes() - 1);
  carried[i] = {ir_.shuffle(type, ir_.lanes(), sum.text, sum.text, last), true};
  if (is_complex(c.dtype)) carried[i].im = ir_.shuffle(type, ir_.lanes(), sum.im, sum.im, last);
}

/// Hillis and Steele: after the step of distance d each lane has the total of its last 2d elements.
Reg Emitter::scan_lanes(const Carried& c, Reg sum, const Reg& nothing) {
  const std::string type = llvm_type(real_dtype(c.dtype));
  for (int distance = 1; distance < ir_.lanes(); distance *= 2) {
    std::vector<int> lanes;
    for (int lane = 0; lane < ir_.lanes(); ++lane) lanes.push_back(lane < distance ? ir_.lanes() : lane - distance);
    Reg moved{ir_.shuffle(type, ir_.lanes(), sum.text, nothing.text, lanes), true};
    if (is_complex(c.dtype)) moved.im = ir_.shuffle(type, ir_.lanes(), sum.im, nothing.im, lanes);
    sum = combine(c.combine, c.dtype, moved, sum, true);
  }
  return sum;
}

/// Halves the lanes until one is left: the upper half is combined into the lower one.
void Emitter::reduce_lanes(const For& loop, std::vector<Reg>& carried) {
  while (ir_.lanes() > 1) {
    const int all = ir_.lanes();
    const int half = all / 2;
    std::vector<int> low;
    std::vector<int> high;
    for (int i = 0; i < half; ++i) {
      low.push_back(i);
      high.push_back(half + i);
    }
    const auto take = [&](const std::string& element, const std::string& v, bool upper) {
      if (half == 1)
        return ir_.assign("extractelement " + ir_.vec_type(element) + " " + v + (upper ? ", i64 1" : ", i64 0"));
      return ir_.shuffle(element, all, v, "poison", upper ? high : low);
    };
    std::vector<Reg> left;
    std::vector<Reg> right;
    for (size_t i = 0; i < carried.size(); ++i) {
      const DType dtype = loop.carried[i].dtype;
      const std::string element = llvm_type(real_dtype(dtype));
      for (const bool upper : {false, true}) {
        Reg part{take(element, carried[i].text, upper), half > 1};
        if (is_complex(dtype)) part.im = take(element, carried[i].im, upper);
        (upper ? right : left).push_back(part);
      }
    }
    ir_.set_lanes(half);
    if (loop.combine_fn == nullptr) {
      for (size_t i = 0; i < carried.size(); ++i) {
        carried[i] = combine(loop.carried[i].combine, loop.carried[i].dtype, left[i], right[i], half > 1);
      }
      continue;
    }
    const CombineFn& fn = *loop.combine_fn;
    for (size_t i = 0; i < carried.size(); ++i) {
      set(fn.left[i], left[i]);
      set(fn.right[i], right[i]);
    }
    block(*fn.body);
    for (size_t i = 0; i < carried.size(); ++i) carried[i] = widened(loop.carried[i].dtype, reg(fn.result[i]));
  }
}

/// Lanes below `left`, which is at most 2^31.
std::string Emitter::mask_below(const std::string& left) {
  std::string ids;
  for (int i = 0; i < ir_.lanes(); ++i) ids += (i > 0 ? ", i32 " : "i32 ") + std::to_string(i);
  const std::string narrow = ir_.assign("trunc i64 " + left + " to i32");
  return ir_.assign("icmp sgt " + ir_.vec_type("i32") + " " + ir_.splat("i32", narrow) + ", <" + ids + ">");
}

void Emitter::vector(const For& loop) {
  const VectorShape shape = vector_shape(loop);
  const std::string extent = index(loop.extent);
  if (shape.lanes == 1) {
    serial(loop, "0", extent);
    return;
  }
  const int lanes = shape.lanes;
  const bool custom = loop.combine_fn != nullptr;
  std::vector<Reg> inits;
  for (const Carried& c : loop.carried) inits.push_back(reg(c.init));
  ir_.set_lanes(lanes);
  vector_var_ = loop.var;
  note_products(loop);
  // Where sums come first, computing them leaves the memory time enough; short runs seldom go on where they end.
  folds_ = folds_ || !loop.carried.empty();
  streams_ = shape.light && !folds_ && (!loop.extent.is_const() || loop.extent.const_value() >= 256);
  std::vector<Reg> carried;
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    // A custom reduction starts from its neutral element in every lane; the simple ones from theirs, the given start is
    // combined at the end.
    carried.push_back(widened(c.dtype, custom || loop.scan ? inits[i] : identity(c.combine, c.dtype)));
  }
  const int site = site_;
  const auto pass = [&](const std::string& base, const std::string& mask, std::vector<Reg>& values) {
    site_ = site;  // all copies of the body have the same sites
    vector_pass(loop, base, mask, values);
  };
  const bool known = loop.extent.is_const();
  const int64_t count = known ? loop.extent.const_value() : 0;
  const bool even = known && count % lanes == 0;
  const std::string whole =
      known ? std::to_string(count / lanes * lanes) : ir_.binary("and", "i64", extent, std::to_string(-lanes));
  if (shape.heavy && shape.masks && !even && (!known || count > lanes)) {
    // One copy of a long body, with a mask that is full but for the last pass.
    summed(loop, "0", extent, lanes, carried, [&](const std::string& base, std::vector<Reg>& values) {
      const std::string left = ir_.binary("sub", "i64", extent, base);
      const std::string less = ir_.assign("icmp slt i64 " + left + ", " + std::to_string(lanes));
      pass(base, mask_below(ir_.select(less, "i64", left, std::to_string(lanes), false)), values);
    });
  } else {
    if (!known || count >= lanes) {
      summed(loop, "0", whole, lanes, carried,
             [&](const std::string& base, std::vector<Reg>& values) { pass(base, "", values); });
    }
    if (!even && shape.masks) masked_rest(loop, extent, whole, carried, pass);
  }
  if (loop.scan) {
    // Every lane has the total.
    for (size_t i = 0; i < carried.size(); ++i) carried[i] = lane_of(loop.carried[i].dtype, carried[i], 0);
  } else {
    reduce_lanes(loop, carried);
  }
  ir_.set_lanes(1);
  vector_var_ = Expr();
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    set(c.result, custom || loop.scan ? carried[i] : combine(c.combine, c.dtype, inits[i], carried[i], false));
  }
  if (even || shape.masks) return;
  // Without masks in the instruction set the rest goes one by one, from what the lanes gave.
  site_ = site;
  std::vector<Reg> rest;
  for (const Carried& c : loop.carried) rest.push_back(reg(c.result));
  serial_from(loop, whole, extent, std::move(rest));
}

/// The elements after the whole passes, under a mask; skipped when there are none.
template <typename Pass>
void Emitter::masked_rest(const For& loop, const std::string& extent, const std::string& whole,
                          std::vector<Reg>& carried, Pass&& pass) {
  const std::string then = ir_.label();
  const std::string done = ir_.label();
  const std::string left = ir_.binary("sub", "i64", extent, whole);
  const std::string any = ir_.assign("icmp sgt i64 " + left + ", 0");
  const std::string before = ir_.block();
  ir_.line("br i1 " + any + ", label %" + then + ", label %" + done);
  ir_.start_block(then);
  std::vector<Reg> tail = carried;
  pass(whole, mask_below(left), tail);
  const std::string last = ir_.block();
  ir_.line("br label %" + done);
  ir_.start_block(done);
  for (size_t i = 0; i < carried.size(); ++i) {
    const DType dtype = loop.carried[i].dtype;
    const std::string type = ir_.vec_type(llvm_type(real_dtype(dtype)));
    const auto merge = [&](const std::string& a, const std::string& b) {
      return ir_.assign("phi " + type + " [ " + a + ", %" + last + " ], [ " + b + ", %" + before + " ]");
    };
    carried[i].text = merge(tail[i].text, carried[i].text);
    if (is_complex(dtype)) carried[i].im = merge(tail[i].im, carried[i].im);
  }
}

}  // namespace tatara::codegen
