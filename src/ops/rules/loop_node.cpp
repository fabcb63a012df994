#include "ops/rules/loop_node.h"

#include <algorithm>
#include <utility>

#include "ops/core/parse.h"
#include "ops/rules/derivative.h"
#include "support/error.h"

namespace tatara {
namespace {

enum : size_t { kOperands, kBody, kShape, kBackward, kLinks };
enum : size_t { kTurns, kCarries, kScans, kReverse, kFirst };
constexpr size_t kScanNumbers = 4;

std::vector<int64_t> numbers_of(const Arg& arg) {
  std::vector<int64_t> numbers;
  for (const Expr e : std::get<SymInts>(arg).values) numbers.push_back(e.const_value());
  return numbers;
}

Arg numbers_arg(ExprContext& ctx, const std::vector<int64_t>& numbers) {
  SymInts list;
  for (const int64_t n : numbers) list.values.push_back(ctx.constant(n));
  return list;
}

TensorType stacked_type(ExprContext& ctx, TensorType type, int64_t rows) {
  if (rows >= 0) type.sizes.insert(type.sizes.begin(), ctx.constant(rows));
  type.strides = contiguous_strides(ctx, type.sizes);
  type.is_wrapped_number = false;
  return type;
}

/// Rows of a tensor by turn, in the whole: what slices of it had the gradients `rows`.
ValueId in_place(GraphBuilder& b, ValueId rows, const LoopScan& scan, const TensorType& whole) {
  const int64_t rank = b.type(rows).dim();
  std::vector<int64_t> order;
  for (int64_t d = 1; d < rank; ++d) order.push_back(d);
  order.insert(order.begin() + scan.dim, 0);
  ValueId part = rank > 1 && scan.dim > 0 ? b.permute(rows, order) : rows;
  ExprContext& ctx = b.ctx();
  const int64_t turns = b.type(rows).sizes[0].const_value();
  int64_t first = scan.start, step = scan.step;
  if (step < 0) {
    part = b.op("flip", {TensorArg{part}, numbers_arg(ctx, {scan.dim})});
    first += step * (turns - 1);
    step = -step;
  }
  int64_t end = first + step * (turns - 1) + 1;
  if (scan.width >= 0) {  // parts lie side by side: one dimension again
    std::vector<Expr> sizes = b.type(part).sizes;
    const auto at = static_cast<size_t>(scan.dim);
    sizes[at] = ctx.mul(sizes[at], sizes[at + 1]);
    sizes.erase(sizes.begin() + scan.dim + 1);
    part = b.reshape(part, sizes);
    end = first + step * turns;
    step = 1;
  }
  const int64_t length = whole.sizes[static_cast<size_t>(scan.dim)].const_value();
  if (first == 0 && step == 1 && end == length) {
    const std::vector<Expr> strides = contiguous_strides(ctx, b.type(part).sizes);  // as eager's sum of parts
    return b.type(part).strides == strides ? part : b.op("relayout", {TensorArg{part}, SymInts{strides}});
  }
  return b.op("slice_scatter", {TensorArg{zeros_of(b, whole)}, TensorArg{part}, Scalar(scan.dim), Scalar(first),
                                Scalar(end), Scalar(step)});
}

/// What the loop of gradients is given and gives.
class LoopReverse {
 public:
  explicit LoopReverse(VjpContext& v)
      : v_(v),
        b_(v.builder()),
        form_(read_loop(v.node().args, v.builder().graph().ctx_ptr())),
        links_(LoopLinks::decode(form_.links)) {
    for (size_t i = 0; i < v.node().outputs.size(); ++i) has_grad_.push_back(v.has_grad(i));
  }

  void run() {
    LoopForm back;
    back.body = std::make_shared<const Graph>(parse_loop_text(form_.backward, b_.graph().ctx_ptr()));
    back.turns = form_.turns;
    back.reverse = !form_.reverse;
    back.history.assign(links_.carries.size(), false);
    std::vector<ValueId> operands;
    for (const LoopLinks::Link& link : links_.carries) {
      const auto index = static_cast<size_t>(link.index);
      operands.push_back(link.kind == LoopLinks::Kind::kCarry ? given(index) : zeros(operand(index)));
    }
    for (const LoopLinks::Link& link : links_.scans) {
      operands.push_back(scanned(link, back));
    }
    for (const LoopLinks::Link& link : links_.stays) operands.push_back(operand(static_cast<size_t>(link.index)));
    const std::vector<ValueId> results = add_loop(b_, back, operands);
    for (size_t k = 0; k < links_.carries.size(); ++k) {
      if (!is_reached(links_.reached_by[k])) continue;
      const auto index = static_cast<size_t>(links_.carries[k].index);
      ValueId gradient = results[k];
      if (links_.carries[k].kind == LoopLinks::Kind::kCarry && form_.history[index] &&
          v_.has_grad(form_.history_result(index))) {
        const int64_t row = form_.history_row(0);
        const ValueId first =
            b_.op("select", {TensorArg{v_.grad(form_.history_result(index))}, Scalar(int64_t{0}), Scalar(row)});
        gradient = b_.binary("add", gradient, first);
      }
      v_.give(0, index, gradient);
    }
    for (size_t k = 0; k < links_.stacked.size(); ++k) {
      if (!is_reached(links_.reached_by[links_.carries.size() + k])) continue;
      const auto scan = static_cast<size_t>(links_.stacked[k]);
      const size_t place = form_.carries() + scan;
      ValueId rows = results[back.stack_result(k)];
      // Rows of gradients are by turn of the loop where that goes forwards.
      LoopScan where = form_.scans[scan];
      if (form_.reverse) {
        where.start += where.step * (form_.turns - 1);
        where.step = -where.step;
      }
      v_.give(0, place, in_place(b_, rows, where, b_.type(operand(place))));
    }
  }

 private:
  ValueId operand(size_t i) const { return loop_operands(v_.node())[i]; }
  ValueId zeros(ValueId like) {
    TensorType type = b_.type(like);
    type.strides = contiguous_strides(b_.ctx(), type.sizes);
    return zeros_of(b_, type);
  }
  /// Whether one of the results has a cotangent.
  bool is_reached(const std::vector<bool>& results) const {
    for (size_t i = 0; i < results.size(); ++i) {
      const size_t carries = form_.carries(), carry = i - carries;
      const bool history = i >= carries && i < 2 * carries;
      if (!results[i] || (history && !form_.history[carry])) continue;
      const size_t result = history       ? form_.history_result(carry)
                            : i < carries ? i
                                          : form_.stack_result(i - 2 * carries);
      if (has_grad_[result]) return true;
    }
    return false;
  }
  /// The cotangent of a result, zeros where none comes.
  ValueId given(size_t result) { return v_.grad(result); }

  /// Rows, read from that of the last turn on.
  ValueId rows(ValueId stack, LoopForm& back, int64_t offset, bool has_more) const {
    LoopScan scan;
    const int64_t last = form_.turns - 1;
    scan.start = form_.reverse ? (has_more ? 1 - offset : 0) : last + offset;
    scan.step = form_.reverse ? 1 : -1;
    back.scans.push_back(scan);
    return stack;
  }

  ValueId scanned(const LoopLinks::Link& link, LoopForm& back) {
    using Kind = LoopLinks::Kind;
    const auto index = static_cast<size_t>(link.index);
    switch (link.kind) {
      case Kind::kScan: {
        LoopScan scan = form_.scans[index];
        scan.start += scan.step * (form_.turns - 1);
        scan.step = -scan.step;
        back.scans.push_back(scan);
        return operand(form_.carries() + index);
      }
      case Kind::kStack: return rows(v_.out(form_.stack_result(index)), back, 0, false);
      case Kind::kHistory: return rows(v_.out(form_.history_result(index)), back, 0, true);
      case Kind::kNext: return rows(v_.out(form_.history_result(index)), back, 1, true);
      case Kind::kStackGiven: return rows(given(form_.stack_result(index)), back, 0, false);
      case Kind::kHistoryGiven: return rows(given(form_.history_result(index)), back, 1, true);
      case Kind::kCarry:
      case Kind::kSum:
      case Kind::kStays: break;
    }
    throw InternalError("a loop of gradients scans what it does not");
  }

  VjpContext& v_;
  GraphBuilder& b_;
  LoopForm form_;
  LoopLinks links_;
  std::vector<bool> has_grad_;  // per result, before zeros stand in
};

void loop_rule(VjpContext& v) {
  if (std::get<std::string>(v.node().args[kBackward]).empty()) throw InternalError("a loop without its gradients");
  LoopReverse(v).run();
}

}  // namespace

size_t LoopForm::histories() const { return static_cast<size_t>(std::count(history.begin(), history.end(), true)); }

size_t LoopForm::history_result(size_t carry) const {
  return carries() +
         static_cast<size_t>(std::count(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(carry), true));
}

std::vector<int64_t> LoopLinks::encode() const {
  std::vector<int64_t> numbers;
  const auto list = [&](const std::vector<Link>& links) {
    numbers.push_back(static_cast<int64_t>(links.size()));
    for (const Link& link : links) {
      numbers.push_back(static_cast<int64_t>(link.kind));
      numbers.push_back(link.index);
    }
  };
  list(carries);
  list(scans);
  list(stays);
  numbers.push_back(static_cast<int64_t>(stacked.size()));
  numbers.insert(numbers.end(), stacked.begin(), stacked.end());
  for (const std::vector<bool>& results : reached_by) {
    numbers.push_back(static_cast<int64_t>(results.size()));
    for (const bool reached : results) numbers.push_back(reached ? 1 : 0);
  }
  for (const bool need : needs) numbers.push_back(need ? 1 : 0);
  return numbers;
}

LoopLinks LoopLinks::decode(std::span<const int64_t> numbers) {
  LoopLinks links;
  size_t at = 0;
  const auto next = [&] {
    if (at >= numbers.size()) throw InternalError("links of a loop that end");
    return numbers[at++];
  };
  const auto list = [&](std::vector<Link>& into) {
    for (int64_t n = next(); n > 0; --n) {
      const auto kind = static_cast<Kind>(next());
      into.push_back({kind, next()});
    }
  };
  list(links.carries);
  list(links.scans);
  list(links.stays);
  for (int64_t n = next(); n > 0; --n) links.stacked.push_back(next());
  for (size_t k = 0; k < links.carries.size() + links.stacked.size(); ++k) {
    std::vector<bool>& results = links.reached_by.emplace_back();
    for (int64_t n = next(); n > 0; --n) results.push_back(next() != 0);
  }
  while (at < numbers.size()) links.needs.push_back(next() != 0);
  return links;
}

bool is_loop(const OpDef& op) { return op.host_name == kLoopCall || op.host_name == kDrawsCall; }

const std::vector<ValueId>& loop_operands(const Node& node) {
  return std::get<TensorList>(node.args[kOperands]).values;
}

std::string loop_text(const Graph& body) {
  std::string text = print_graph(body);
  for (char& c : text) {
    if (c == '\'' || c == '|') throw Unsupported("a loop whose text has quotes");
    c = c == '\n' ? '|' : c == '"' ? '\'' : c;
  }
  return text;
}

Graph parse_loop_text(std::string_view text, const std::shared_ptr<ExprContext>& ctx) {
  std::string lines(text);
  for (char& c : lines) c = c == '|' ? '\n' : c == '\'' ? '"' : c;
  return parse_graph(lines, ctx);
}

LoopForm read_loop(std::span<const Arg> args, const std::shared_ptr<ExprContext>& ctx) {
  LoopForm form;
  form.body = std::make_shared<const Graph>(parse_loop_text(std::get<std::string>(args[kBody]), ctx));
  const std::vector<int64_t> shape = numbers_of(args[kShape]);
  if (shape.size() < kFirst) throw InternalError("a loop without its shape");
  form.turns = shape[kTurns];
  form.reverse = shape[kReverse] != 0;
  const auto carries = static_cast<size_t>(shape[kCarries]), scans = static_cast<size_t>(shape[kScans]);
  if (shape.size() != kFirst + carries + kScanNumbers * scans) throw InternalError("a loop of another shape");
  for (size_t k = 0; k < carries; ++k) form.history.push_back(shape[kFirst + k] != 0);
  for (size_t at = kFirst + carries; at < shape.size(); at += kScanNumbers) {
    form.scans.push_back({shape[at], shape[at + 1], shape[at + 2], shape[at + 3]});
  }
  form.backward = std::get<std::string>(args[kBackward]);
  form.links = numbers_of(args[kLinks]);
  return form;
}

namespace {

std::vector<ValueId> add_loop_node(const char* op, GraphBuilder& builder, const LoopForm& form,
                                   std::vector<ValueId> operands) {
  ExprContext& ctx = builder.ctx();
  std::vector<int64_t> shape(kFirst);
  shape[kTurns] = form.turns;
  shape[kCarries] = static_cast<int64_t>(form.carries());
  shape[kScans] = static_cast<int64_t>(form.scans.size());
  shape[kReverse] = form.reverse ? 1 : 0;
  for (const bool history : form.history) shape.push_back(history ? 1 : 0);
  for (const LoopScan& scan : form.scans) {
    shape.insert(shape.end(), {scan.dim, scan.start, scan.step, scan.width});
  }
  const auto type_of = [&](size_t output) -> const TensorType& {
    return form.body->type(form.body->outputs()[output].value);
  };
  std::vector<TensorType> types;
  for (size_t k = 0; k < form.carries(); ++k) types.push_back(stacked_type(ctx, type_of(k), -1));
  for (size_t k = 0; k < form.carries(); ++k) {
    if (form.history[k]) types.push_back(stacked_type(ctx, type_of(k), form.turns + 1));
  }
  for (size_t k = form.carries(); k < form.body->outputs().size(); ++k) {
    types.push_back(stacked_type(ctx, type_of(k), form.turns));
  }
  return builder.host_call(OpRegistry::global().get(op),
                           {TensorList{std::move(operands)}, loop_text(*form.body), numbers_arg(ctx, shape),
                            form.backward, numbers_arg(ctx, form.links)},
                           std::move(types));
}

}  // namespace

std::vector<ValueId> add_loop(GraphBuilder& builder, const LoopForm& form, std::vector<ValueId> operands) {
  return add_loop_node("loop", builder, form, std::move(operands));
}

std::vector<ValueId> add_draw_loop(GraphBuilder& builder, const LoopForm& form) {
  return add_loop_node("draw_loop", builder, form, {});
}

ValueId add_number_table(GraphBuilder& builder, const std::vector<double>& numbers, DType dtype) {
  TensorType type;
  type.dtype = dtype;
  type.sizes = {builder.ctx().constant(static_cast<int64_t>(numbers.size()))};
  type.strides = contiguous_strides(builder.ctx(), type.sizes);
  return builder.host_call(OpRegistry::global().get("table"), {numbers}, {std::move(type)})[0];
}

namespace {

/// An operator that has a step of its own in plans.
OpDef host_step(const char* name, const char* schema, std::string_view host_name) {
  OpDef def;
  def.name = name;
  def.kind = OpKind::kHost;
  def.schema_text = schema;
  def.host_name = host_name;
  def.host_overload = "out";
  def.has_out = false;
  return def;
}

}  // namespace

void register_loops(OpRegistry& r) {
  const char* const schema = "(Tensor[] operands, str body, int[] shape, str backward, int[] links) -> Tensor[]";
  OpDef loop = host_step("loop", schema, kLoopCall);
  loop.vjp = loop_rule;
  r.add(std::move(loop));
  OpDef draws = host_step("draw_loop", schema, kDrawsCall);
  draws.not_differentiable = true;
  draws.nondeterministic = true;
  r.add(std::move(draws));
  OpDef table = host_step("table", "(float[] numbers) -> Tensor", kTableCall);
  table.not_differentiable = true;
  r.add(std::move(table));
}

}  // namespace tatara
