#include "ops/pointwise/block_mask.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/core/op_def.h"

namespace tatara {
namespace {

constexpr int kDeepestMask = 24;

class BlockMask {
 public:
  BlockMask(GraphBuilder& b, const TensorType& scores, int64_t rows, int64_t keys)
      : b_(b),
        rows_(scores.sizes[2].const_value()),
        keys_(scores.sizes[3].const_value()),
        row_block_(rows),
        key_block_(keys),
        device_(scores.device) {}

  std::optional<ValueId> needed(ValueId scores) {
    const Node* node = producer(scores);
    while (node != nullptr && (node->op->name == "cast" || node->op->name == "view")) {
      scores = operand(*node, 0);
      node = producer(scores);
    }
    if (node == nullptr) return std::nullopt;
    const std::string& name = node->op->name;
    const bool chosen = name == "where" && is_minus_infinity(node->args[2]);
    const bool filled = name == "masked_fill" && is_minus_infinity(node->args[2]);
    if (!chosen && !filled) return std::nullopt;
    const Truth truth = truth_of(operand(*node, chosen ? 0 : 1), 0);
    const ValueId found = chosen ? truth.may_hold : truth.may_fail;
    if (found == kNoValue || !by_data_) return std::nullopt;
    std::vector<Expr> sizes = b_.type(found).sizes;
    if (sizes.size() > 4 || sizes.empty()) return std::nullopt;
    sizes.insert(sizes.begin(), 4 - sizes.size(), b_.ctx().constant(1));
    return b_.reshape(found, sizes);
  }

 private:
  /// kNoValue: it always may.
  struct Truth {
    ValueId may_hold = kNoValue, may_fail = kNoValue;
  };
  struct Bounds {
    ValueId lo, hi;
  };

  const Node* producer(ValueId v) const { return b_.graph().producer(v); }
  static ValueId operand(const Node& node, size_t place) {
    const auto* arg = std::get_if<TensorArg>(&node.args[place]);
    return arg != nullptr ? arg->value : kNoValue;
  }
  static bool is_minus_infinity(const Arg& arg) {
    const auto* scalar = std::get_if<Scalar>(&arg);
    const auto* number = scalar != nullptr ? std::get_if<double>(scalar) : nullptr;
    return number != nullptr && std::isinf(*number) && *number < 0;
  }

  ValueId both(ValueId a, ValueId b) { return a == kNoValue ? b : b == kNoValue ? a : b_.binary("logical_and", a, b); }
  ValueId either(ValueId a, ValueId b) {
    return a == kNoValue || b == kNoValue ? kNoValue : b_.binary("logical_or", a, b);
  }

  Truth truth_of(ValueId v, int depth) {
    const Node* node = v == kNoValue ? nullptr : producer(v);
    if (node == nullptr || depth > kDeepestMask || b_.type(v).dtype != DType::kBool) return {};
    const std::string name = node->op->name;
    const ValueId first = operand(*node, 0);
    // Sizes are those of the last dims; what comes before is broadcast.
    if (name == "expand" || name == "relayout" || name == "clone") return truth_of(first, depth + 1);
    if (name == "unsqueeze") return widened(first, node->args[1], depth);
    const bool all = name == "logical_and" || name == "bitwise_and", any = name == "logical_or" || name == "bitwise_or";
    if (name == "logical_not" || name == "bitwise_not") {
      const Truth own = truth_of(first, depth + 1);
      return {own.may_fail, own.may_hold};
    }
    if (all || any) {
      const ValueId second = operand(*node, 1);
      const Truth x = truth_of(first, depth + 1), y = truth_of(second, depth + 1);
      if (all) return {both(x.may_hold, y.may_hold), either(x.may_fail, y.may_fail)};
      return {either(x.may_hold, y.may_hold), both(x.may_fail, y.may_fail)};
    }
    return compared(*node, name, depth);
  }

  /// With a dim more, before the last two.
  Truth widened(ValueId v, const Arg& where, int depth) {
    const auto* scalar = std::get_if<Scalar>(&where);
    const auto* number = scalar != nullptr ? std::get_if<int64_t>(scalar) : nullptr;
    const int64_t rank = b_.type(v).dim();
    if (number == nullptr) return {};
    const int64_t behind = *number < 0 ? -1 - *number : rank - *number;  // dims behind the new one
    if (behind < 2) return {};
    Truth truth = truth_of(v, depth + 1);
    for (ValueId* may : {&truth.may_hold, &truth.may_fail}) {
      // What comes before is broadcast.
      if (*may != kNoValue && b_.type(*may).dim() > behind) *may = b_.unsqueeze(*may, b_.type(*may).dim() - behind);
    }
    return truth;
  }

  Truth compared(const Node& node, const std::string& name, int depth) {
    const bool order = name == "lt" || name == "le" || name == "gt" || name == "ge",
               equal = name == "eq" || name == "ne";
    if (!order && !equal) return {};
    const std::vector<Arg> args = node.args;
    const std::optional<Bounds> x = bounds_of(args[0], depth + 1), y = bounds_of(args[1], depth + 1);
    if (!x || !y) return {};
    if (order) {
      const bool less = name[0] == 'l', strict = name[1] == 't';
      const Bounds &small = less ? *x : *y, &large = less ? *y : *x;
      return {b_.binary(strict ? "lt" : "le", small.lo, large.hi), b_.binary(strict ? "ge" : "gt", small.hi, large.lo)};
    }
    const ValueId meet = b_.binary("logical_and", b_.binary("le", x->lo, y->hi), b_.binary("le", y->lo, x->hi));
    const ValueId apart = b_.binary("logical_or", b_.binary("ne", x->lo, y->hi), b_.binary("ne", x->hi, y->lo));
    return name == "eq" ? Truth{meet, apart} : Truth{apart, meet};
  }

  std::optional<Bounds> bounds_of(const Arg& arg, int depth) {
    if (const auto* scalar = std::get_if<Scalar>(&arg)) {
      const auto* number = std::get_if<int64_t>(scalar);
      if (number == nullptr) return std::nullopt;
      const ValueId v = b_.op("full", {SymInts{}, Scalar(*number), Arg(DType::kInt64), Arg(NoneArg{}), Arg(device_),
                                       Arg(NoneArg{}), Scalar(false)});
      return Bounds{v, v};
    }
    const auto* tensor = std::get_if<TensorArg>(&arg);
    return tensor == nullptr ? std::nullopt : bounds_of(tensor->value, depth);
  }

  std::optional<Bounds> bounds_of(ValueId v, int depth) {
    const TensorType type = b_.type(v);
    if (!is_integral(type.dtype) || type.dtype == DType::kBool || dtype_size(type.dtype) < 4 || depth > kDeepestMask)
      return std::nullopt;
    const size_t rank = type.sizes.size();
    const auto size = [&](size_t back) { return rank >= back ? type.sizes[rank - back].const_value() : 1; };
    const Node* node = producer(v);
    if (node != nullptr && (node->op->name == "expand" || node->op->name == "relayout"))
      return bounds_of(operand(*node, 0), depth + 1);
    if (size(1) == 1 || size(2) == 1) return of_blocks(v, size(2) != 1, size(1) != 1);
    if (node == nullptr || (node->op->name != "add" && node->op->name != "sub") || !plain(*node)) return std::nullopt;
    const bool sum = node->op->name == "add";
    const std::vector<Arg> args = node->args;
    const std::optional<Bounds> x = bounds_of(args[0], depth + 1), y = bounds_of(args[1], depth + 1);
    if (!x || !y) return std::nullopt;
    if (sum) return Bounds{b_.binary("add", x->lo, y->lo), b_.binary("add", x->hi, y->hi)};
    return Bounds{b_.binary("sub", x->lo, y->hi), b_.binary("sub", x->hi, y->lo)};
  }

  /// Without a factor.
  static bool plain(const Node& node) {
    if (node.args.size() < 3) return true;
    const auto* alpha = std::get_if<Scalar>(&node.args[2]);
    const auto* one = alpha != nullptr ? std::get_if<int64_t>(alpha) : nullptr;
    return one != nullptr && *one == 1;
  }

  /// The smallest and largest of each block along rows or keys.
  std::optional<Bounds> of_blocks(ValueId v, bool rows, bool keys) {
    by_data_ = by_data_ || !is_place(v, 0);
    if (!rows && !keys) return Bounds{v, v};
    std::vector<Expr> sizes = b_.type(v).sizes;
    const size_t at = sizes.size() - (rows ? 2 : 1);
    const int64_t length = rows ? rows_ : keys_, block = rows ? row_block_ : key_block_;
    if (!sizes[at].is_const(length) || length % block != 0) return std::nullopt;
    sizes[at] = b_.ctx().constant(length / block);
    sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(at) + 1, b_.ctx().constant(block));
    const ValueId split = b_.reshape(v, sizes);
    const std::vector<int64_t> along{static_cast<int64_t>(at) + 1};
    return Bounds{b_.reduce("amin", split, along, false), b_.reduce("amax", split, along, false)};
  }

  /// Whether it is computed from numbers and ranges alone.
  bool is_place(ValueId v, int depth) const {
    const Node* node = producer(v);
    if (node == nullptr || depth > kDeepestMask) return false;
    bool all =
        node->op->kind == OpKind::kPointwise || node->op->kind == OpKind::kView || node->op->kind == OpKind::kCreation;
    for_each_operand(*node, [&](ValueId each) { all = all && is_place(each, depth + 1); });
    return all;
  }

  GraphBuilder& b_;
  const int64_t rows_, keys_, row_block_, key_block_;
  const Device device_;
  bool by_data_ = false;
};

}  // namespace

std::optional<ValueId> needed_blocks(GraphBuilder& b, ValueId scores, int64_t rows, int64_t keys) {
  const TensorType type = b.type(scores);
  const std::vector<Expr>& sizes = type.sizes;
  if (sizes.size() != 4 || !sizes[2].is_const() || !sizes[3].is_const()) return std::nullopt;
  if (sizes[2].const_value() % rows != 0 || sizes[3].const_value() % keys != 0) return std::nullopt;
  return BlockMask(b, type, rows, keys).needed(scores);
}

}  // namespace tatara
