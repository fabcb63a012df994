// What the operators and functions of a loop's code do with its values.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capture/native/loop_program.h"
#include "capture/native/loop_values.h"

namespace tatara::capture::native {

class LoopOperations {
 protected:
  explicit LoopOperations(const NumpyApi& np) : np_(np) {}

  // loop_conditions.cpp
  Condition truth(const Value& value);
  Condition compare(int op, const Value& a, const Value& b);
  Condition opposite(const Condition& condition);

  // loop_arithmetic.cpp
  Value binary(int op, const Value& a, const Value& b);
  std::optional<Value> whole_binary(int op, const Whole& a, const Whole& b);
  Value number_binary(int op, const Number& a, const Number& b);
  Value negative(const Value& value);
  Value inverted(const Value& value);
  Value as_int(const Condition& condition);
  Number as_number(const Value& value, DType dtype);
  Whole as_whole(const Value& value);
  GridRef as_grid(const Value& value, DType dtype);
  /// `result`: the type of what the operator gives, where it is another one.
  GridRef combine(loops::ScalarOp op, const Value& a, const Value& b, std::optional<DType> result = std::nullopt);
  ScalarId element_of(const GridRef& grid, const std::vector<Expr>& at, DType dtype);
  ScalarId emit_function(loops::ScalarOp op, DType dtype, std::vector<ScalarId> operands);
  Value apply_unary(loops::ScalarOp op, const Value& value, bool python);
  Value apply_binary(loops::ScalarOp op, const Value& a, const Value& b);
  Value extremum(bool largest, const Value& a, const Value& b);
  // loop_lists.cpp
  static std::vector<Value> keys_of_rows(const Value& key);
  Value whole_of(size_t n);
  GridRef get_rows(const GridRef& source, const std::vector<Value>& keys);
  void set_rows(const GridRef& array, const std::vector<Value>& keys, const Value& value);

  // loop_kinds.cpp
  ScalarId tag_in(const Value& value, DType dtype);
  ScalarId joined_tag(const Value& a, const Value& b, DType dtype, bool divided);
  Value mixed_extremum(bool largest, const Value& a, const Value& b);
  Value dot(const Value& a, const Value& b);
  Value outer(loops::ScalarOp op, const Value& a, const Value& b);
  GridRef reversed(const GridRef& grid);
  GridRef transposed(const GridRef& grid);
  GridRef difference(const GridRef& grid, size_t d);
  /// Whether NumPy lays a new array with these elements out row by row.
  static bool is_in_order(const Grid& made);
  GridRef joined_arrays(const Value& parts, std::optional<int64_t> axis);
  size_t dimension_of(int64_t axis, const GridRef& grid) const;
  Value matrix_product(const GridRef& a, const GridRef& b);
  Value method(const Method& method, const std::vector<Value>& arguments);
  Value function(PyObject* callable, const std::vector<Value>& arguments);
  /// A call whose one keyword is `axis`.
  Value along_axis(PyObject* callable, const Value& argument, int64_t axis);
  Value attribute_of_number(const Number& number, const std::string& name);
  Value python_type(PyObject* type, const Value& argument);
  Value python_complex(const std::vector<Value>& arguments);
  Value sign(const Value& value);
  Value math_function(const std::string& name, const std::vector<Value>& arguments);
  std::vector<Expr> joined_extents(const std::vector<Expr>& a, const std::vector<Expr>& b);

  // numpy_masks.cpp
  GridRef comparison(int op, const Value& a, const Value& b);
  GridRef selection(const Value& condition, const Value& a, const Value& b);
  Value masked_item(const GridRef& source, const GridRef& mask);
  Value with_mask(const Value& a, const Value& b, const std::function<Value(const Value&, const Value&)>& f);
  void set_masked(const GridRef& array, const GridRef& mask, const Value& value);

  // numpy_folds.cpp
  bool is_reduction(const Value& callable) const;
  Value reduction(const Value& callable, std::vector<Value> arguments, PyObject* names);
  std::vector<bool> dims_of_axis(const std::optional<Value>& axis, size_t count);
  Number fold_all(const GridRef& grid, const Fold& fold);
  ScalarId place_along(const GridRef& source, std::vector<Expr> at, size_t d, bool largest);
  Value places(const GridRef& grid, const std::vector<bool>& dims, bool largest, bool keep);
  GridRef fold_along(const GridRef& grid, const std::vector<bool>& dims, const Fold& fold, bool keep);

  // loop_indexing.cpp
  Value get_item(const Value& container, const Value& key);
  void set_item(const Value& container, const Value& key, const Value& value);
  Value in_place(int op, const Value& target, const Value& operand);
  View index_view(const View& view, const Value& key);
  Expr place_of_index(const Whole& index, Expr extent);
  void slice_dimension(const Slice& slice, Expr extent, Expr stride, View& result);
  bool apart(const View& a, const View& b);
  GridRef view_grid(View view);
  Whole bounded_int(const Number& number, Expr most, bool wrap);
  GridRef gather(const GridRef& source, const GridRef& places);
  Value element_or_view(View view);
  void check_stored(DType target, DType value) const;
  void assign(const View& target, const GridRef& value);
  void store_elements(const View& target, const GridRef& value);
  GridRef materialise(const GridRef& value);
  GridRef temporary(DType dtype, const std::vector<Expr>& extents);
  Expr address(const View& view, const std::vector<Expr>& at);
  void written(int array);
  IntRange range_of(Expr e) { return builder_->ctx().range(e); }

  const NumpyApi& np_;
  std::unique_ptr<LoopProgram> program_;
  std::unique_ptr<LoopBuilder> builder_;
  std::vector<Value> stack_;  // of the code
  std::set<int> replaced_;    // buffers of locals that each turn gives another array: nothing else writes to them
  // Ints that were read from arrays in the present block, by buffer, place, bound and whether they count from the end.
  std::vector<std::pair<std::tuple<int, Expr, Expr, bool>, Whole>> bounded_;
};

}  // namespace tatara::capture::native
