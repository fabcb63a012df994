// Sums and the like of a loop's code: of all elements, or along some dimensions.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "capture/native/loop_operations.h"
#include "support/error.h"

namespace tatara::capture::native {

using loops::Combine;
using loops::LoopKind;
using loops::ScalarOp;

namespace {

struct ReductionRow {
  const char* name;
  Fold fold;
  bool mean = false;
  bool place = false;  // of the extremum
};
constexpr ReductionRow kReductions[] = {
    {"sum", {ScalarOp::kAdd, Combine::kAdd}},
    {"prod", {ScalarOp::kMul, Combine::kMul}},
    {"max", {ScalarOp::kMax, Combine::kMax}},
    {"amax", {ScalarOp::kMax, Combine::kMax}},
    {"min", {ScalarOp::kMin, Combine::kMin}},
    {"amin", {ScalarOp::kMin, Combine::kMin}},
    {"mean", {ScalarOp::kAdd, Combine::kAdd}, true},
    {"argmax", {ScalarOp::kMax, Combine::kMax}, false, true},
    {"argmin", {ScalarOp::kMin, Combine::kMin}, false, true},
};

const ReductionRow* reduction_row(const std::string& name) {
  const auto* found = std::find_if(std::begin(kReductions), std::end(kReductions),
                                   [&](const ReductionRow& row) { return name == row.name; });
  return found != std::end(kReductions) ? found : nullptr;
}

std::string text_of_attribute(PyObject* object, const char* name) {
  const Ref found = attr_or_null(object, name);
  return found && PyUnicode_Check(found.get()) ? PyUnicode_AsUTF8(found.get()) : std::string();
}

bool is_extremum(const Fold& fold) { return fold.combine == Combine::kMin || fold.combine == Combine::kMax; }

}  // namespace

bool LoopOperations::is_reduction(const Value& callable) const {
  if (const auto* bound = std::get_if<Method>(&callable))
    return bound->self != nullptr && reduction_row(bound->name) != nullptr;
  const auto* object = std::get_if<Ref>(&callable);
  return object != nullptr && np_.is_dispatcher(object->get()) &&
         text_of_attribute(object->get(), "__module__") == "numpy" &&
         reduction_row(text_of_attribute(object->get(), "__name__")) != nullptr;
}

/// Which dimensions an axis names; without one, all.
std::vector<bool> LoopOperations::dims_of_axis(const std::optional<Value>& axis, size_t count) {
  const auto rank = static_cast<int64_t>(count);
  const auto* object = axis ? std::get_if<Ref>(&*axis) : nullptr;
  if (!axis || (object != nullptr && object->get() == Py_None)) return std::vector<bool>(count, true);
  const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&*axis);
  if (tuple != nullptr && (*tuple)->is_list) throw Unsupported("an axis that is no int");
  std::vector<bool> dims(count);
  for (const Value& each : tuple != nullptr ? (*tuple)->items : std::vector<Value>{*axis}) {
    const auto* whole = std::get_if<Whole>(&each);
    if (whole == nullptr || !whole->value.is_const()) throw Unsupported("an axis that is no int");
    const int64_t given = whole->value.const_value(), d = given < 0 ? given + rank : given;
    if (d < 0 || d >= rank || dims[static_cast<size_t>(d)]) throw Unsupported("an axis that is not there");
    dims[static_cast<size_t>(d)] = true;
  }
  return dims;
}

/// np.sum(x, axis=..., keepdims=...), x.sum(...) and the like; `names`: of the last arguments, or null.
Value LoopOperations::reduction(const Value& callable, std::vector<Value> arguments, PyObject* names) {
  const auto* bound = std::get_if<Method>(&callable);
  const std::string name =
      bound != nullptr ? bound->name : text_of_attribute(std::get<Ref>(callable).get(), "__name__");
  const ReductionRow& row = *reduction_row(name);
  std::optional<Value> axis;
  bool keep = false;
  for (Py_ssize_t n = names != nullptr ? PyTuple_GET_SIZE(names) : 0; n-- > 0;) {
    PyObject* const keyword = PyTuple_GET_ITEM(names, n);
    const Value given = std::move(arguments.back());
    arguments.pop_back();
    const auto* flag = std::get_if<Condition>(&given);
    if (PyUnicode_CompareWithASCIIString(keyword, "axis") == 0) {
      axis = given;
    } else if (PyUnicode_CompareWithASCIIString(keyword, "keepdims") == 0 && flag != nullptr && flag->known) {
      keep = *flag->known;
    } else {
      throw Unsupported("a reduction with keywords");
    }
  }
  if (bound != nullptr) arguments.insert(arguments.begin(), bound->self);
  if (arguments.empty() || arguments.size() > 2 || (arguments.size() == 2 && axis))
    throw Unsupported("a reduction of other arguments");
  if (arguments.size() == 2) axis = arguments[1];
  const auto* given = std::get_if<GridRef>(&arguments[0]);
  if (given == nullptr) throw Unsupported("a reduction of a number");
  const GridRef grid = *given;
  const DType dtype = grid->dtype;
  const bool whole = is_integral(dtype) || dtype == DType::kBool;
  // NumPy adds narrow ints up as wide ones, and means of ints are floats.
  if (whole && !(is_extremum(row.fold) && is_integral(dtype)) && (dtype != DType::kInt64 || row.mean))
    throw Unsupported("a sum of ints");
  if (is_complex(dtype) && (is_extremum(row.fold) || row.mean)) throw Unsupported("a reduction of complex numbers");
  const std::vector<bool> dims = dims_of_axis(axis, grid->extents.size());
  Whole count{builder_->constant(1), {1, 1}};
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!dims[d]) continue;
    const IntRange extent = range_of(grid->extents[d]);
    if (extent.lo <= 0 && (is_extremum(row.fold) || row.mean)) throw Unsupported("a reduction of nothing");
    count.value = builder_->ctx().mul(count.value, grid->extents[d]);
    count.range = range_of(count.value);
  }
  const bool all = std::all_of(dims.begin(), dims.end(), [](bool folded) { return folded; });
  if (row.place) return places(grid, dims, row.fold.combine == Combine::kMax, keep);
  if (all && !keep) {
    const Number total = fold_all(grid, row.fold);
    if (!row.mean) return total;
    return Number{builder_->emit(ScalarOp::kDiv, dtype, {total.id, as_number(count, dtype).id}), dtype,
                  Strength::kStrong};
  }
  const GridRef folded = fold_along(grid, dims, row.fold, keep);
  return row.mean ? combine(ScalarOp::kDiv, folded, count) : folded;
}

/// Of the first extremum along one dimension; the first NaN is one.
ScalarId LoopOperations::place_along(const GridRef& source, std::vector<Expr> at, size_t d, bool largest) {
  const DType dtype = source->dtype, index = DType::kInt64;
  at[d] = builder_->constant(0);
  const ScalarId first = source->at(at), none = builder_->index(at[d], index);
  at[d] = builder_->new_variable(source->extents[d]);
  builder_->open_loop(at[d], source->extents[d], LoopKind::kSerial);
  const ScalarId best = builder_->carried(dtype, first);
  const ScalarId where = builder_->carried(index, none);
  const ScalarId x = source->at(at);
  const auto test = [&](ScalarOp op, ScalarId a, ScalarId b) { return builder_->emit(op, DType::kBool, {a, b}); };
  ScalarId better = test(largest ? ScalarOp::kGt : ScalarOp::kLt, x, best);
  if (is_floating(dtype)) {
    const ScalarId nan = test(ScalarOp::kAnd, test(ScalarOp::kNe, x, x), test(ScalarOp::kEq, best, best));
    better = test(ScalarOp::kOr, better, nan);
  }
  const auto chosen = [&](DType of, ScalarId a, ScalarId b) {
    return builder_->emit(ScalarOp::kSelect, of, {better, a, b});
  };
  builder_->carry_on({chosen(dtype, x, best), chosen(index, builder_->index(at[d], index), where)});
  return builder_->close_carried(1);
}

/// x.argmax(axis) and x.argmin(axis).
Value LoopOperations::places(const GridRef& grid, const std::vector<bool>& dims, bool largest, bool keep) {
  if (std::count(dims.begin(), dims.end(), true) != 1) throw Unsupported("a place in several dimensions");
  if (grid->dtype == DType::kBool) throw Unsupported("a place of a bool");
  const auto d = static_cast<size_t>(std::find(dims.begin(), dims.end(), true) - dims.begin());
  const GridRef source = grid->costly ? materialise(grid) : grid;
  if (dims.size() == 1 && !keep)
    return Number{place_along(source, {Expr()}, 0, largest), DType::kInt64, Strength::kStrong};
  auto result = std::make_shared<Grid>();
  result->dtype = DType::kInt64;
  result->extents = source->extents;
  if (keep) {
    result->extents[d] = builder_->constant(1);
  } else {
    result->extents.erase(result->extents.begin() + static_cast<std::ptrdiff_t>(d));
  }
  for (const Read& read : source->reads) result->reads.push_back({read.view, false});
  result->costly = true;
  result->at = [this, source, d, largest, keep](const std::vector<Expr>& at) {
    std::vector<Expr> own = at;
    if (!keep) own.insert(own.begin() + static_cast<std::ptrdiff_t>(d), Expr());
    return place_along(source, std::move(own), d, largest);
  };
  return result;
}

Number LoopOperations::fold_all(const GridRef& grid, const Fold& fold) {
  std::vector<Expr> at;
  const std::function<ScalarId()> fold_from = [&]() -> ScalarId {
    if (at.size() == grid->extents.size()) return grid->at(at);
    const Expr extent = grid->extents[at.size()];
    const Expr variable = builder_->new_variable(extent);
    const bool last = at.size() + 1 == grid->extents.size() && !builder_->in_vector_loop();
    at.push_back(variable);
    const ScalarId result =
        builder_->fold(fold, variable, extent, last ? LoopKind::kVector : LoopKind::kSerial, grid->dtype, fold_from);
    at.pop_back();
    return result;
  };
  return Number{fold_from(), grid->dtype, Strength::kStrong};
}

/// Along some of the dimensions; the others are left, or with `keep` all of them, those with one element.
GridRef LoopOperations::fold_along(const GridRef& grid, const std::vector<bool>& dims, const Fold& fold, bool keep) {
  const GridRef source = grid->costly ? materialise(grid) : grid;
  auto result = std::make_shared<Grid>();
  result->dtype = source->dtype;
  std::vector<size_t> place(dims.size());  // of a dimension that is left, in the result
  for (size_t d = 0; d < dims.size(); ++d) {
    place[d] = result->extents.size();
    if (!dims[d] || keep) result->extents.push_back(dims[d] ? builder_->constant(1) : source->extents[d]);
  }
  for (const Read& read : source->reads) result->reads.push_back({read.view, false});
  result->costly = true;
  result->at = [this, source, dims, place, fold](const std::vector<Expr>& at) {
    std::vector<Expr> own;
    const std::function<ScalarId()> fold_from = [&]() -> ScalarId {
      const size_t d = own.size();
      if (d == dims.size()) return source->at(own);
      const Expr variable = dims[d] ? builder_->new_variable(source->extents[d]) : at[place[d]];
      own.push_back(variable);
      const ScalarId folded =
          dims[d] ? builder_->fold(fold, variable, source->extents[d], LoopKind::kSerial, source->dtype, fold_from)
                  : fold_from();
      own.pop_back();
      return folded;
    };
    return fold_from();
  };
  return result;
}

}  // namespace tatara::capture::native
