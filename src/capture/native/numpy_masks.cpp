// Comparisons of arrays in a loop's code, and parts of arrays that such a mask names.
#include <opcode.h>

#include <algorithm>
#include <array>
#include <utility>

#include "capture/native/loop_ints.h"
#include "capture/native/loop_operations.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

using loops::LoopKind;
using loops::ScalarOp;

namespace {

constexpr std::array<ScalarOp, 6> kOrders = {ScalarOp::kLt, ScalarOp::kLe, ScalarOp::kEq,
                                             ScalarOp::kNe, ScalarOp::kGt, ScalarOp::kGe};  // by Py_LT ... Py_GE

/// What a mask is made of, where two that are made alike are equal; empty: not known.
std::string recipe_of(int op, const Value& a, const Value& b) {
  const auto* grid = std::get_if<GridRef>(&a);
  const auto* whole = std::get_if<Whole>(&b);
  if (grid == nullptr || !(*grid)->view || whole == nullptr) return {};
  const View& view = *(*grid)->view;
  std::string text = str_cat(op, " ", whole->value.str(), " a", view.array, " ", view.offset.str());
  for (const std::vector<Expr>* each : {&view.extents, &view.strides}) {
    for (const Expr e : *each) text += str_cat(" ", e.str());
  }
  return text;
}

bool is_same_mask(const GridRef& a, const GridRef& b) {
  return a == b || (a->view && a->view == b->view) || (!a->recipe.empty() && a->recipe == b->recipe);
}

}  // namespace

/// `op`: as of Py_LT.
GridRef LoopOperations::comparison(int op, const Value& a, const Value& b) {
  const DType dtype = joined(a, b);
  const bool ordered = op != Py_EQ && op != Py_NE;
  if (is_complex(dtype) && ordered) throw Unsupported("an order of complex numbers");
  auto result = std::make_shared<Grid>(*combine(kOrders.at(static_cast<size_t>(op)), a, b, DType::kBool));
  result->recipe = recipe_of(op, a, b);
  return result;
}

/// np.where(condition, a, b).
GridRef LoopOperations::selection(const Value& condition, const Value& a, const Value& b) {
  const auto* mask = std::get_if<GridRef>(&condition);
  if (mask == nullptr || (*mask)->dtype != DType::kBool) throw Unsupported("np.where of other values");
  // Sums with nothing join sizes and types.
  const DType dtype = joined(a, b);
  GridRef both = combine(ScalarOp::kAdd, a, b, dtype);
  auto result = std::make_shared<Grid>(*both);
  const GridRef x = as_grid(a, dtype), y = as_grid(b, dtype), test = (*mask)->costly ? materialise(*mask) : *mask;
  result->extents = joined_extents(both->extents, test->extents);
  result->reads.insert(result->reads.end(), test->reads.begin(), test->reads.end());
  result->at = [this, dtype, test, x, y](const std::vector<Expr>& at) {
    const ScalarId chosen = element_of(test, at, DType::kBool), left = element_of(x, at, dtype);
    return builder_->emit(ScalarOp::kSelect, dtype, {chosen, left, element_of(y, at, dtype)});
  };
  return result;
}

Value LoopOperations::masked_item(const GridRef& source, const GridRef& mask) {
  if (source->extents != mask->extents) throw Unsupported("a mask of another size");
  return Masked{source, mask};
}

/// An operator on the elements of a mask and on numbers, or on two such parts.
Value LoopOperations::with_mask(const Value& a, const Value& b,
                                const std::function<Value(const Value&, const Value&)>& f) {
  const auto* x = std::get_if<Masked>(&a);
  const auto* y = std::get_if<Masked>(&b);
  const bool fits = x != nullptr && y != nullptr ? is_same_mask(x->mask, y->mask)
                                                 : !std::holds_alternative<GridRef>(x != nullptr ? b : a);
  if (!fits) throw Unsupported("parts of arrays by different masks");
  const Value result = f(x != nullptr ? Value(x->elements) : a, y != nullptr ? Value(y->elements) : b);
  const auto* grid = std::get_if<GridRef>(&result);
  if (grid == nullptr) throw Unsupported("an operator on a part of an array");
  return Masked{*grid, x != nullptr ? x->mask : y->mask};
}

/// What is not stored is not computed: it may warn.
void LoopOperations::set_masked(const GridRef& array, const GridRef& mask, const Value& value) {
  if (!array->view || array->extents != mask->extents) throw Unsupported("a mask of another size");
  const View target = *array->view;
  const auto* part = std::get_if<Masked>(&value);
  if (part != nullptr && !is_same_mask(part->mask, mask)) throw Unsupported("parts of arrays by different masks");
  if (std::holds_alternative<GridRef>(value)) throw Unsupported("an array that is stored by a mask");
  const GridRef elements = part != nullptr ? part->elements : as_grid(value, array->dtype);
  check_stored(array->dtype, elements->dtype);
  const auto apart_or_same = [&](const Read& read) {
    return (read.same_place && read.view == target) || apart(read.view, target);
  };
  if (!std::all_of(elements->reads.begin(), elements->reads.end(), apart_or_same))
    throw Unsupported("a part of an array that is stored into itself");
  const bool safe = !mask->costly && std::all_of(mask->reads.begin(), mask->reads.end(), apart_or_same);
  const GridRef test = safe ? mask : materialise(mask);
  std::vector<Expr> at;
  bounded_.clear();
  for (const Expr extent : target.extents) {
    at.push_back(builder_->new_variable(extent));
    builder_->open_loop(at.back(), extent, LoopKind::kSerial);
  }
  builder_->when(test->at(at), [&] {
    builder_->store(target.array, address(target, at), element_of(elements, at, elements->dtype));
  });
  for (size_t n = 0; n < at.size(); ++n) builder_->close_loop();
  bounded_.clear();
  written(target.array);
}

}  // namespace tatara::capture::native
