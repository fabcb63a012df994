// Indices, slices and stores of a loop's code.
#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "capture/native/loop_operations.h"
#include "support/error.h"

namespace tatara::capture::native {

using loops::LoopKind;

Expr LoopOperations::address(const View& view, const std::vector<Expr>& at) {
  ExprContext& ctx = builder_->ctx();
  Expr place = view.offset;
  for (size_t d = 0; d < at.size(); ++d) place = ctx.add(place, ctx.mul(at[d], view.strides[d]));
  return place;
}

GridRef LoopOperations::view_grid(View view) {
  auto grid = std::make_shared<Grid>();
  grid->dtype = program_->buffers[static_cast<size_t>(view.array)].dtype;
  grid->extents = view.extents;
  grid->reads = {{view, true}};
  grid->at = [this, view](const std::vector<Expr>& at) { return builder_->load(view.array, address(view, at)); };
  grid->view = std::move(view);
  return grid;
}

/// A number at once, as the program reads it now.
Value LoopOperations::element_or_view(View view) {
  if (!view.extents.empty()) return view_grid(std::move(view));
  const DType dtype = program_->buffers[static_cast<size_t>(view.array)].dtype;
  const ScalarId loaded = builder_->load(view.array, view.offset);
  if (dtype == DType::kBool) return Condition{std::nullopt, loaded, Strength::kStrong};
  return Number{loaded, dtype, Strength::kStrong, is_integral(dtype) ? view.array : -1, view.offset};
}

/// An int of an array as one of Python's, from 0 up to `most`, or with `wrap` from the end; other values stop the kernel. The same
/// element that nothing has written meanwhile is the same int.
Whole LoopOperations::bounded_int(const Number& number, Expr most, bool wrap) {
  if (!is_integral(number.dtype) || !builder_->is_known(most))
    throw Unsupported("an index that is no int, or into a part");
  const auto key = std::tuple(number.array, number.place, most, wrap);
  const auto found =
      std::find_if(bounded_.begin(), bounded_.end(), [&](const auto& each) { return each.first == key; });
  if (number.array >= 0 && found != bounded_.end()) return found->second;
  // Large unsigned ints would seem to count from the end.
  const bool from_end = wrap && number.dtype != DType::kUInt64;
  const Expr value = builder_->checked(number.id, builder_->ctx().add(most, builder_->constant(1)), from_end);
  const Whole whole{value, {0, range_of(most).hi}};
  if (number.array >= 0) bounded_.emplace_back(key, whole);
  return whole;
}

/// One dimension by an array of ints.
GridRef LoopOperations::gather(const GridRef& source, const GridRef& places) {
  const View view = *source->view;
  if (view.extents.size() != 1 || !builder_->is_known(view.extents[0]) || !is_integral(places->dtype))
    throw Unsupported("an index by an array");
  auto result = std::make_shared<Grid>();
  result->dtype = source->dtype;
  result->extents = places->extents;
  for (const Read& read : places->reads) result->reads.push_back(read);
  result->reads.push_back({view, false});
  result->at = [this, view, places](const std::vector<Expr>& at) {
    const Expr place = builder_->checked(places->at(at), view.extents[0], true);
    return builder_->load(view.array, address(view, {place}));
  };
  return result;
}

Expr LoopOperations::place_of_index(const Whole& index, Expr extent) {
  ExprContext& ctx = builder_->ctx();
  const IntRange size = range_of(extent);
  const Expr from_end = ctx.add(index.value, extent);
  if (index.range.lo >= 0 && (index.range.hi < size.lo || range_of(ctx.sub(extent, index.value)).lo > 0))
    return index.value;
  if (index.range.hi < 0 && (index.range.lo >= -size.lo || range_of(from_end).lo >= 0)) return from_end;
  if (!builder_->is_known(extent)) throw Unsupported("an index that is not known to be inside");
  return builder_->checked(builder_->index(index.value, DType::kInt64), extent, true);
}

void LoopOperations::slice_dimension(const Slice& slice, Expr extent, Expr stride, View& result) {
  ExprContext& ctx = builder_->ctx();
  if (slice.reversed) {
    result.offset = ctx.add(result.offset, ctx.mul(ctx.sub(extent, ctx.constant(1)), stride));
    result.extents.push_back(extent);
    result.strides.push_back(ctx.neg(stride));
    return;
  }
  const IntRange size = range_of(extent);
  const auto bound = [&](const std::optional<Value>& value, Expr otherwise) {
    if (!value) return otherwise;
    const auto* number = std::get_if<Number>(&*value);
    const Whole whole = number != nullptr ? bounded_int(*number, extent, false) : std::get<Whole>(*value);
    const Whole* const given = &whole;
    if (given->range.lo >= 0) {
      const bool inside = given->range.hi <= size.lo || range_of(ctx.sub(extent, given->value)).lo >= 0;
      return inside ? given->value : ctx.min(given->value, extent);
    }
    if (given->range.hi >= 0) throw Unsupported("a slice that begins or ends at an int whose sign varies");
    const Expr from_end = ctx.add(given->value, extent);
    return given->range.lo >= -size.lo || range_of(from_end).lo >= 0 ? from_end : ctx.max(from_end, ctx.constant(0));
  };
  const Expr from = bound(slice.from, ctx.constant(0));
  Expr length = ctx.sub(bound(slice.to, extent), from);
  if (range_of(length).lo < 0) length = ctx.max(length, ctx.constant(0));
  result.offset = ctx.add(result.offset, ctx.mul(from, stride));
  result.extents.push_back(length);
  result.strides.push_back(stride);
}

View LoopOperations::index_view(const View& view, const Value& key) {
  const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&key);
  if (tuple != nullptr && (*tuple)->is_list) throw Unsupported("an index by a list");
  const std::vector<Value> keys = tuple != nullptr ? (*tuple)->items : std::vector<Value>{key};
  View result{view.array, view.offset, {}, {}};
  ExprContext& ctx = builder_->ctx();
  size_t d = 0;
  for (const Value& each : keys) {
    const auto* object = std::get_if<Ref>(&each);
    if (object != nullptr && object->get() == Py_None) {
      result.extents.push_back(ctx.constant(1));
      result.strides.push_back(ctx.constant(0));
      continue;
    }
    if (d == view.extents.size()) throw Unsupported("too many indices");
    const Expr extent = view.extents[d], stride = view.strides[d];
    ++d;
    if (const auto* number = std::get_if<Number>(&each)) {
      const Whole inside = bounded_int(*number, ctx.sub(extent, ctx.constant(1)), true);
      result.offset = ctx.add(result.offset, ctx.mul(inside.value, stride));
    } else if (const auto* whole = std::get_if<Whole>(&each)) {
      result.offset = ctx.add(result.offset, ctx.mul(place_of_index(*whole, extent), stride));
    } else if (const auto* slice = std::get_if<std::shared_ptr<Slice>>(&each)) {
      slice_dimension(**slice, extent, stride, result);
    } else {
      throw Unsupported("an index that is no int and no slice");
    }
  }
  for (; d < view.extents.size(); ++d) {
    result.extents.push_back(view.extents[d]);
    result.strides.push_back(view.strides[d]);
  }
  return result;
}

Value LoopOperations::get_item(const Value& container, const Value& key) {
  if (const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&container)) {
    const auto* index = std::get_if<Whole>(&key);
    const auto size = static_cast<int64_t>((*tuple)->items.size());
    if (index == nullptr || !index->value.is_const()) throw Unsupported("an item of a tuple by a value");
    const int64_t n = index->value.const_value();
    if (n < -size || n >= size) throw Unsupported("an index outside of a tuple");
    return (*tuple)->items[static_cast<size_t>(n < 0 ? n + size : n)];
  }
  const auto* grid = std::get_if<GridRef>(&container);
  if (grid == nullptr) throw Unsupported("an item of something else than an array");
  const GridRef source = (*grid)->view ? *grid : materialise(*grid);
  if (const auto* places = std::get_if<GridRef>(&key))
    return (*places)->dtype == DType::kBool ? masked_item(source, *places) : gather(source, *places);
  if (const std::vector<Value> keys = keys_of_rows(key); !keys.empty()) return get_rows(source, keys);
  return element_or_view(index_view(*source->view, key));
}

void LoopOperations::check_stored(DType target, DType value) const {
  const bool kinds_differ = is_integral(target) || target == DType::kBool || value == DType::kBool;
  if ((kinds_differ && value != target) || (is_complex(value) && !is_complex(target)))
    throw Unsupported("a store of another kind of numbers");
}

void LoopOperations::set_item(const Value& container, const Value& key, const Value& value) {
  const auto* grid = std::get_if<GridRef>(&container);
  if (grid == nullptr || !(*grid)->view) throw Unsupported("a store into something else than an array");
  if (const auto* mask = std::get_if<GridRef>(&key); mask != nullptr && (*mask)->dtype == DType::kBool) {
    set_masked(*grid, *mask, value);
    return;
  }
  if (const std::vector<Value> keys = keys_of_rows(key); !keys.empty()) {
    set_rows(*grid, keys, value);
    return;
  }
  const View target = index_view(*(*grid)->view, key);
  if (const auto* condition = std::get_if<Condition>(&value); condition != nullptr && (*grid)->dtype == DType::kBool) {
    const ScalarId id = condition->known ? builder_->number(*condition->known ? 1 : 0, DType::kBool) : condition->id;
    assign(target, as_grid(Number{id, DType::kBool, Strength::kStrong}, DType::kBool));
    return;
  }
  if (!std::holds_alternative<Number>(value) && !std::holds_alternative<Whole>(value) &&
      !std::holds_alternative<GridRef>(value)) {
    throw Unsupported("an object that is stored into an array");
  }
  const DType dtype = (*grid)->dtype;
  const GridRef elements = as_grid(value, dtype);
  check_stored(dtype, elements->dtype);
  if (elements->view && *elements->view == target) return;  // the end of `a[i] += b`
  assign(target, elements);
}

Value LoopOperations::in_place(int op, const Value& target, const Value& operand) {
  const auto* grid = std::get_if<GridRef>(&target);
  if (grid == nullptr || !(*grid)->view) return binary(op, target, operand);
  const Value result = binary(op, target, operand);
  const auto* elements = std::get_if<GridRef>(&result);
  if (elements == nullptr || (*elements)->extents != (*grid)->extents ||
      (is_integral((*grid)->dtype) && (*elements)->dtype != (*grid)->dtype) ||
      (is_complex((*elements)->dtype) && !is_complex((*grid)->dtype)))
    throw Unsupported("an operator in place of another size");
  assign(*(*grid)->view, *elements);
  return target;
}

/// Whether no element of one is an element of the other.
bool LoopOperations::apart(const View& a, const View& b) {
  if (a.array != b.array) return true;
  const Expr distance = builder_->ctx().sub(a.offset, b.offset);
  if (a.strides != b.strides || !distance.is_const()) return false;
  int64_t reach = 0, common = 0;
  for (size_t d = 0; d < a.strides.size(); ++d) {
    if (!a.strides[d].is_const()) return false;
    const int64_t stride = std::abs(a.strides[d].const_value());
    const int64_t extent = std::max(range_of(a.extents[d]).hi, range_of(b.extents[d]).hi);
    reach += std::max<int64_t>(extent - 1, 0) * stride;
    common = std::gcd(common, stride);
  }
  const int64_t far = std::abs(distance.const_value());
  return far > reach || (common != 0 && far % common != 0);
}

/// All elements of the value are known before the first one is stored.
void LoopOperations::assign(const View& target, const GridRef& value) {
  const std::vector<Expr> joint = joined_extents(target.extents, value->extents);
  // Leading dimensions of one element may be dropped; the extents that are left are the target's.
  if (joint != target.extents) throw Unsupported("a store of more elements than there is place for");
  const bool safe = std::all_of(value->reads.begin(), value->reads.end(), [&](const Read& read) {
    return (read.same_place && read.view == target) || apart(read.view, target);
  });
  const bool again = value->costly && value->extents != target.extents;
  store_elements(target, safe && !again ? value : materialise(value));
}

void LoopOperations::store_elements(const View& target, const GridRef& value) {
  // The innermost loop goes along the memory.
  std::vector<size_t> order(target.extents.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_partition(order.begin(), order.end(), [&](size_t d) { return !target.strides[d].is_const(1); });
  std::vector<Expr> at(order.size(), builder_->constant(0));
  std::erase_if(order, [&](size_t d) { return target.extents[d].is_const(1); });
  for (size_t n = 0; n < order.size(); ++n) {
    const Expr extent = target.extents[order[n]];
    at[order[n]] = builder_->new_variable(extent);
    builder_->open_loop(at[order[n]], extent, n + 1 == order.size() ? LoopKind::kVector : LoopKind::kSerial);
  }
  std::vector<Expr> own(at.end() - static_cast<std::ptrdiff_t>(value->extents.size()), at.end());
  for (size_t d = 0; d < own.size(); ++d) {
    if (value->extents[d].is_const(1)) own[d] = builder_->constant(0);
  }
  builder_->store(target.array, address(target, at), value->at(own));
  for (size_t n = 0; n < order.size(); ++n) builder_->close_loop();
  written(target.array);
}

/// An array of its own with these elements.
GridRef LoopOperations::materialise(const GridRef& value) {
  const GridRef made = temporary(value->dtype, value->extents);
  store_elements(*made->view, value);
  return made;
}

/// Memory for an array whose elements come.
GridRef LoopOperations::temporary(DType dtype, const std::vector<Expr>& extents) {
  View view;
  ExprContext& ctx = builder_->ctx();
  Expr numel = ctx.constant(1);
  view.strides.resize(extents.size());
  for (size_t d = extents.size(); d-- > 0;) {
    const Expr most = builder_->most_of(extents[d]);
    constexpr int64_t kMost = int64_t{1} << 28;
    if (most.is_const() &&
        (most.const_value() > kMost || (numel.is_const() && numel.const_value() * most.const_value() > kMost)))
      throw Unsupported("a temporary array that may be large");
    view.strides[d] = numel;
    numel = ctx.mul(numel, range_of(most).lo >= 1 ? most : ctx.max(most, ctx.constant(1)));
  }
  view.extents = extents;
  view.offset = builder_->constant(0);
  view.array = builder_->add_buffer("temporary", dtype, numel);
  LoopProgram::Buffer buffer{LoopProgram::Buffer::Kind::kScratch, dtype, -1, true, 0, 0, std::nullopt};
  if (numel.is_const()) {
    buffer.numel = numel.const_value();
  } else {
    buffer.varying = builder_->program_of(numel);
  }
  program_->buffers.push_back(std::move(buffer));
  return view_grid(std::move(view));
}

void LoopOperations::written(int array) {
  if (replaced_.contains(array)) throw Unsupported("an array that is replaced and written to");
  program_->buffers[static_cast<size_t>(array)].written = true;
  std::erase_if(bounded_, [array](const auto& each) { return std::get<0>(each.first) == array; });
  const auto check = [array](const GridRef& grid) {
    for (const Read& read : grid->reads) {
      if (read.view.array == array) throw Unsupported("an array that is written while an expression of it waits");
    }
  };
  for (const Value& each : stack_) {
    if (const auto* grid = std::get_if<GridRef>(&each); grid != nullptr && !(*grid)->view) check(*grid);
    if (const auto* part = std::get_if<Masked>(&each)) {
      check(part->elements);
      check(part->mask);
    }
  }
}

}  // namespace tatara::capture::native
