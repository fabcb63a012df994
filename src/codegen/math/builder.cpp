#include "codegen/math/builder.h"

#include <cmath>

#include "support/error.h"

namespace tatara::codegen {

namespace {

const char* lane_type(Lane lane) {
  switch (lane) {
    case Lane::kI1: return "i1";
    case Lane::kI32: return "i32";
    case Lane::kI64: return "i64";
    case Lane::kF32: return "float";
    case Lane::kF64: return "double";
  }
  throw InternalError("unknown lane type");
}

Lane integer_lane(Lane lane) { return lane == Lane::kF32 || lane == Lane::kI32 ? Lane::kI32 : Lane::kI64; }
Lane float_lane(Lane lane) { return lane == Lane::kF32 || lane == Lane::kI32 ? Lane::kF32 : Lane::kF64; }

Val call(const char* name, std::initializer_list<Val> args) {
  return args.begin()->b->intrinsic(name, {args.begin(), args.size()});
}

}  // namespace

bool is_float(Lane lane) { return lane == Lane::kF32 || lane == Lane::kF64; }

// ---- The builder -------------------------------------------------------------------------------------------------------

std::string MathBuilder::type(Lane lane) const {
  if (lanes_ == 0) return lane_type(lane);
  return "<" + std::to_string(lanes_) + " x " + lane_type(lane) + ">";
}

std::string MathBuilder::suffix(Lane lane) const {
  const char* name = lane == Lane::kF32 ? "f32" : lane == Lane::kF64 ? "f64" : lane_type(lane);
  return lanes_ == 0 ? name : "v" + std::to_string(lanes_) + name;
}

Val MathBuilder::constant(Lane lane, double number) {
  if (!is_float(lane)) return integer(lane, static_cast<int64_t>(number));
  const std::string one = float_bits(number, lane == Lane::kF32 ? DType::kFloat32 : DType::kFloat64);
  return value(lane, lanes_ == 0 ? one : "splat (" + std::string(lane_type(lane)) + " " + one + ")");
}

Val MathBuilder::integer(Lane lane, int64_t number) {
  const std::string one = lane == Lane::kI1 ? (number != 0 ? "true" : "false") : std::to_string(number);
  return value(lane, lanes_ == 0 ? one : "splat (" + std::string(lane_type(lane)) + " " + one + ")");
}

Val MathBuilder::binary(const char* op, const Val& x, const Val& y) {
  TATARA_CHECK(x.lane == y.lane, "operands of different types in a function of the math table: ", op);
  return value(x.lane, ir_.assign(std::string(op) + " " + type(x.lane) + " " + x.text + ", " + y.text));
}

Val MathBuilder::compare(const char* test, const Val& x, const Val& y) {
  TATARA_CHECK(x.lane == y.lane, "comparison of different types in a function of the math table: ", test);
  return value(Lane::kI1, ir_.assign(std::string(test) + " " + type(x.lane) + " " + x.text + ", " + y.text));
}

Val MathBuilder::convert(const char* op, const Val& x, Lane to) {
  return value(to, ir_.assign(std::string(op) + " " + type(x.lane) + " " + x.text + " to " + type(to)));
}

Val MathBuilder::intrinsic(const char* name, std::span<const Val> args) {
  const Lane lane = args[0].lane;
  const std::string full = std::string("@llvm.") + name + "." + suffix(lane);
  std::string types;
  std::string values;
  for (size_t i = 0; i < args.size(); ++i) {
    types += (i > 0 ? ", " : "") + type(lane);
    values += (i > 0 ? ", " : "") + type(lane) + " " + args[i].text;
  }
  ir_.declare("declare " + type(lane) + " " + full + "(" + types + ")");
  return value(lane, ir_.assign("call " + type(lane) + " " + full + "(" + values + ")"));
}

Val MathBuilder::ldexp(const Val& x, const Val& k) {
  const std::string full = "@llvm.ldexp." + suffix(x.lane) + "." + suffix(k.lane);
  const std::string first = type(x.lane);
  ir_.declare("declare " + first + " " + full + "(" + first + ", " + type(k.lane) + ")");
  return value(x.lane, ir_.assign("call " + first + " " + full + "(" + first + " " + x.text + ", " + type(k.lane) +
                                  " " + k.text + ")"));
}

Val MathBuilder::by_chip(const char* function, const Val& x) {
  const std::string name = std::string("@llvm.nvvm.") + function + ".approx.ftz.f";
  ir_.declare("declare float " + name + "(float)");
  if (lanes_ == 0) return value(x.lane, ir_.assign("call float " + name + "(float " + x.text + ")"));
  std::string result = "poison";
  for (int lane = 0; lane < lanes_; ++lane) {
    const std::string at = ", i64 " + std::to_string(lane);
    const std::string one = ir_.assign("extractelement " + type(x.lane) + " " + x.text + at);
    const std::string made = ir_.assign("call float " + name + "(float " + one + ")");
    result = ir_.assign("insertelement " + type(x.lane) + " " + result + ", float " + made + at);
  }
  return value(x.lane, result);
}

Val MathBuilder::power(const Val& x) { return by_chip("ex2", x); }

Val MathBuilder::reciprocal(const Val& x) { return by_chip("rcp", x); }

Val MathBuilder::select(const Val& condition, const Val& x, const Val& y) {
  TATARA_CHECK(x.lane == y.lane, "selection between different types in a function of the math table");
  return value(x.lane, ir_.assign("select " + type(Lane::kI1) + " " + condition.text + ", " + type(x.lane) + " " +
                                  x.text + ", " + type(x.lane) + " " + y.text));
}

Val MathBuilder::negate(const Val& x) {
  if (!is_float(x.lane)) return integer(x.lane, 0) - x;
  return value(x.lane, ir_.assign("fneg " + type(x.lane) + " " + x.text));
}

Val MathBuilder::freeze(const Val& x) { return value(x.lane, ir_.assign("freeze " + type(x.lane) + " " + x.text)); }

Val MathBuilder::lookup(const std::string& table, std::span<const uint32_t> words, const Val& index) {
  const std::string array = "[" + std::to_string(words.size()) + " x i32]";
  std::string items;
  for (const uint32_t word : words) items += (items.empty() ? "i32 " : ", i32 ") + std::to_string(word);
  ir_.declare("@" + table + " = internal unnamed_addr constant " + array + " [" + items + "]");
  const std::string pointers =
      ir_.assign("getelementptr inbounds i32, ptr @" + table + ", " + type(Lane::kI64) + " " + index.text);
  if (lanes_ == 0) return value(Lane::kI32, ir_.assign("load i32, ptr " + pointers + ", align 4"));
  const std::string n = std::to_string(lanes_);
  const std::string pointer_type = "<" + n + " x ptr>";
  const std::string words_type = type(Lane::kI32);
  const std::string name = "@llvm.masked.gather.v" + n + "i32.v" + n + "p0";
  ir_.declare("declare " + words_type + " " + name + "(" + pointer_type + ", " + type(Lane::kI1) + ", " + words_type +
              ")");
  return value(Lane::kI32, ir_.assign("call " + words_type + " " + name + "(" + pointer_type + " align 4 " + pointers +
                                      ", " + type(Lane::kI1) + " " + integer(Lane::kI1, 1).text + ", " + words_type +
                                      " zeroinitializer)"));
}

std::string MathBuilder::any(const Val& condition) {
  if (lanes_ == 0) return condition.text;
  const std::string packed_type = "i" + std::to_string(lanes_);
  const std::string packed = ir_.assign("bitcast " + type(Lane::kI1) + " " + condition.text + " to " + packed_type);
  return ir_.assign("icmp ne " + packed_type + " " + packed + ", 0");
}

std::vector<Val> MathBuilder::patch(const Val& condition, std::vector<Val> values,
                                    const std::function<std::vector<Val>()>& slow) {
  const std::string then = ir_.label();
  const std::string done = ir_.label();
  const std::string some = any(condition);
  const std::string before = ir_.block();
  ir_.branch(some, then, done);
  ir_.start_block(then);
  std::vector<Val> patched = slow();
  for (size_t i = 0; i < values.size(); ++i) patched[i] = select(condition, patched[i], values[i]);
  const std::string last = ir_.block();
  ir_.jump(done);
  ir_.start_block(done);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].text = ir_.assign("phi " + type(values[i].lane) + " [ " + patched[i].text + ", %" + last + " ], [ " +
                                values[i].text + ", %" + before + " ]");
  }
  return values;
}

/// The address of a variable of the stack with this value.
std::string MathBuilder::stack_slot(const Val& initial) {
  const std::string slot = ir_.fresh();
  *entry_ += "  " + slot + " = alloca " + type(initial.lane) + "\n";
  ir_.line("store " + type(initial.lane) + " " + initial.text + ", ptr " + slot);
  return slot;
}

std::vector<Val> MathBuilder::patch_each(const Val& x, const std::function<Val(const Val&)>& condition,
                                         std::vector<Val> values,
                                         const std::function<std::vector<Val>(const Val&)>& slow) {
  const Val some = condition(x);
  if (lanes_ == 0 || entry_ == nullptr) return patch(some, std::move(values), [&] { return slow(x); });
  MathBuilder scalar(ir_, {0, has_fma_, false, ""}, entry_);
  const std::string then = ir_.label();
  const std::string loop = ir_.label();
  const std::string work = ir_.label();
  const std::string next = ir_.label();
  const std::string after = ir_.label();
  const std::string done = ir_.label();
  const std::string found = any(some);
  const std::string before = ir_.block();
  ir_.branch(found, then, done);
  ir_.start_block(then);
  const std::string source = stack_slot(x);
  std::vector<std::string> slots;
  for (const Val& v : values) slots.push_back(stack_slot(v));
  ir_.jump(loop);
  ir_.start_block(loop);
  const std::string lane = ir_.fresh();
  const std::string advanced = ir_.fresh();
  ir_.line(lane + " = phi i64 [ 0, %" + then + " ], [ " + advanced + ", %" + next + " ]");
  const auto at = [&](const std::string& slot, Lane kind) {
    return ir_.assign(std::string("getelementptr ") + lane_type(kind) + ", ptr " + slot + ", i64 " + lane);
  };
  const Val one =
      scalar.value(x.lane, ir_.assign(std::string("load ") + lane_type(x.lane) + ", ptr " + at(source, x.lane)));
  ir_.branch(condition(one).text, work, next);
  ir_.start_block(work);
  const std::vector<Val> results = slow(one);
  for (size_t i = 0; i < values.size(); ++i)
    ir_.line(std::string("store ") + lane_type(values[i].lane) + " " + results[i].text + ", ptr " +
             at(slots[i], values[i].lane));
  ir_.jump(next);
  ir_.start_block(next);
  ir_.line(advanced + " = add i64 " + lane + ", 1");
  const std::string more = ir_.assign("icmp ult i64 " + advanced + ", " + std::to_string(lanes_));
  ir_.branch(more, loop, after);
  ir_.start_block(after);
  std::vector<std::string> patched;
  for (size_t i = 0; i < values.size(); ++i)
    patched.push_back(ir_.assign("load " + type(values[i].lane) + ", ptr " + slots[i]));
  ir_.jump(done);
  ir_.start_block(done);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].text = ir_.assign("phi " + type(values[i].lane) + " [ " + patched[i] + ", %" + after + " ], [ " +
                                values[i].text + ", %" + before + " ]");
  }
  return values;
}

std::vector<Val> MathBuilder::repeat(std::vector<Val> state, const std::function<Val(const std::vector<Val>&)>& more,
                                     const std::function<std::vector<Val>(const std::vector<Val>&)>& step) {
  const std::string head = ir_.label();
  const std::string body = ir_.label();
  const std::string done = ir_.label();
  const std::string before = ir_.block();
  ir_.jump(head);
  std::vector<Val> carried = state;
  for (Val& c : carried) c.text = ir_.fresh();
  // The phis name values of the body, so the rest is written first.
  std::string last;
  std::vector<Val> next;
  const std::string rest = ir_.apart([&] {
    ir_.continue_block(head);
    const std::string go_on = any(more(carried));
    ir_.branch(go_on, body, done);
    ir_.start_block(body);
    next = step(carried);
    last = ir_.block();
    ir_.jump(head);
  });
  ir_.start_block(head);
  for (size_t i = 0; i < state.size(); ++i) {
    ir_.line(carried[i].text + " = phi " + type(state[i].lane) + " [ " + state[i].text + ", %" + before + " ], [ " +
             next[i].text + ", %" + last + " ]");
  }
  ir_.append(rest);
  ir_.start_block(done);
  return carried;
}

// ---- Operators -----------------------------------------------------------------------------------------------------------

Val like(const Val& x, double value) { return x.b->constant(x.lane, value); }

Val operator+(const Val& x, const Val& y) { return x.b->binary(is_float(x.lane) ? "fadd" : "add", x, y); }
Val operator-(const Val& x, const Val& y) { return x.b->binary(is_float(x.lane) ? "fsub" : "sub", x, y); }
Val operator*(const Val& x, const Val& y) { return x.b->binary(is_float(x.lane) ? "fmul" : "mul", x, y); }
Val operator/(const Val& x, const Val& y) { return x.b->binary("fdiv", x, y); }
Val operator&(const Val& x, const Val& y) { return x.b->binary("and", x, y); }
Val operator|(const Val& x, const Val& y) { return x.b->binary("or", x, y); }
Val operator^(const Val& x, const Val& y) { return x.b->binary("xor", x, y); }
Val operator<(const Val& x, const Val& y) { return x.b->compare(is_float(x.lane) ? "fcmp olt" : "icmp slt", x, y); }
Val operator<=(const Val& x, const Val& y) { return x.b->compare(is_float(x.lane) ? "fcmp ole" : "icmp sle", x, y); }
Val operator>(const Val& x, const Val& y) { return x.b->compare(is_float(x.lane) ? "fcmp ogt" : "icmp sgt", x, y); }
Val operator>=(const Val& x, const Val& y) { return x.b->compare(is_float(x.lane) ? "fcmp oge" : "icmp sge", x, y); }
Val operator==(const Val& x, const Val& y) { return x.b->compare(is_float(x.lane) ? "fcmp oeq" : "icmp eq", x, y); }
Val operator!=(const Val& x, const Val& y) { return x.b->compare(is_float(x.lane) ? "fcmp une" : "icmp ne", x, y); }
Val operator-(const Val& x) { return x.b->negate(x); }
Val operator!(const Val& condition) { return condition ^ condition.b->integer(Lane::kI1, 1); }

Val shl(const Val& x, int bits) { return x.b->binary("shl", x, x.b->integer(x.lane, bits)); }
Val lshr(const Val& x, int bits) { return x.b->binary("lshr", x, x.b->integer(x.lane, bits)); }
Val ashr(const Val& x, int bits) { return x.b->binary("ashr", x, x.b->integer(x.lane, bits)); }
Val funnel_left(const Val& x, const Val& y, const Val& n) { return call("fshl", {x, y, n}); }

Val select(const Val& condition, const Val& x, const Val& y) { return x.b->select(condition, x, y); }
Val select(const Val& condition, const Val& x, double y) { return select(condition, x, like(x, y)); }
Val select(const Val& condition, double x, const Val& y) { return select(condition, like(y, x), y); }
Val is_nan(const Val& x) { return x.b->compare("fcmp uno", x, x); }

Val abs(const Val& x) { return call("fabs", {x}); }
Val sqrt(const Val& x) { return call("sqrt", {x}); }
Val floor(const Val& x) { return call("floor", {x}); }
Val trunc(const Val& x) { return call("trunc", {x}); }
Val round_even(const Val& x) { return call("roundeven", {x}); }
Val copysign(const Val& magnitude, const Val& sign) { return call("copysign", {magnitude, sign}); }
Val fma(const Val& x, const Val& y, const Val& z) { return x.b->has_fma() ? call("fma", {x, y, z}) : x * y + z; }
Val fma(const Val& x, const Val& y, double z) { return fma(x, y, like(x, z)); }
Val fma(const Val& x, double y, const Val& z) { return fma(x, like(x, y), z); }
Val fma(const Val& x, double y, double z) { return fma(x, like(x, y), like(x, z)); }
Val least(const Val& x, const Val& y) { return select(x < y, x, y); }
Val largest(const Val& x, const Val& y) { return select(x > y, x, y); }

Val within(const Val& x, double low, double high) {
  return call("minnum", {call("maxnum", {x, like(x, low)}), like(x, high)});
}

Val to_f64(const Val& x) { return x.b->convert("fpext", x, Lane::kF64); }
Val to_f32(const Val& x) { return x.b->convert("fptrunc", x, Lane::kF32); }
// 64-bit conversions of vectors are slow or missing on many machines; adding 3 * 2^51 leaves a small integer in the low
// bits of a float64.
Val to_float(const Val& x) {
  if (x.lane == Lane::kI32) return x.b->convert("sitofp", x, Lane::kF32);
  const Val magic = x.b->constant(Lane::kF64, 0x1.8p52);
  return from_bits(x + bits(magic)) - magic;
}
Val to_int(const Val& x) {
  if (x.lane == Lane::kF32) return x.b->freeze(x.b->convert("fptosi", x, Lane::kI32));
  const Val magic = x.b->constant(Lane::kF64, 0x1.8p52);
  return bits(x + magic) - bits(magic);
}
Val to_i64(const Val& x) { return x.b->convert("sext", x, Lane::kI64); }
Val to_i64_unsigned(const Val& x) { return x.b->convert("zext", x, Lane::kI64); }
Val to_i32(const Val& x) { return x.b->convert("trunc", x, Lane::kI32); }
Val bits(const Val& x) { return x.b->convert("bitcast", x, integer_lane(x.lane)); }
Val from_bits(const Val& x) { return x.b->convert("bitcast", x, float_lane(x.lane)); }

Val poly(const Val& x, std::span<const double> coefficients) {
  Val sum = like(x, coefficients.back());
  for (size_t i = coefficients.size() - 1; i-- > 0;) sum = fma(sum, x, coefficients[i]);
  return sum;
}

Pair two_sum(const Val& x, const Val& y) {
  const Val sum = x + y;
  const Val part = sum - x;
  return {sum, (x - (sum - part)) + (y - part)};
}

Pair fast_two_sum(const Val& x, const Val& y) {
  const Val sum = x + y;
  return {sum, y - (sum - x)};
}

Pair two_product(const Val& x, const Val& y) {
  const Val product = x * y;
  if (x.b->has_fma()) return {product, fma(x, y, -product)};
  if (x.lane == Lane::kF32) return {product, to_f32(to_f64(x) * to_f64(y) - to_f64(product))};
  // Veltkamp's splitting into halves of 26 bits.
  const auto split = [](const Val& v) {
    const Val scaled = v * 134217729.0;
    const Val high = scaled - (scaled - v);
    return Pair{high, v - high};
  };
  const Pair a = split(x);
  const Pair c = split(y);
  const Val error = ((a.high * c.high - product) + a.high * c.low + a.low * c.high) + a.low * c.low;
  return {product, error};
}

}  // namespace tatara::codegen
