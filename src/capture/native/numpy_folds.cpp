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
};
constexpr ReductionRow kReductions[] = {
    {"sum", {ScalarOp::kAdd, Combine::kAdd}},        {"prod", {ScalarOp::kMul, Combine::kMul}},
    {"max", {ScalarOp::kMax, Combine::kMax}},        {"amax", {ScalarOp::kMax, Combine::kMax}},
    {"min", {ScalarOp::kMin, Combine::kMin}},        {"amin", {ScalarOp::kMin, Combine::kMin}},
    {"mean", {ScalarOp::kAdd, Combine::kAdd}, true},
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
  if (all && !keep) {
    const Number total = fold_all(grid, row.fold);
    if (!row.mean) return total;
    return Number{builder_->emit(ScalarOp::kDiv, dtype, {total.id, as_number(count, dtype).id}), dtype,
                  Strength::kStrong};
  }
  const GridRef folded = fold_along(grid, dims, row.fold, keep);
  return row.mean ? combine(ScalarOp::kDiv, folded, count) : folded;
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
