// Reads the bytecode of a loop once, with symbols for what changes from turn to turn, and makes the program of it. Nothing of the
// program runs meanwhile.
#pragma once

#include <map>
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

/// What is known of the code of one instruction.
struct Instruction {
  int opcode = 0, oparg = 0;
  int at = 0, next = 0;  // code units: of its first prefix, and behind its caches
};
Instruction instruction_at(PyCodeObject* code, int at);
bool jumps_back(const Instruction& i, int head);
/// Where the loop of a FOR_ITER goes on when its iterator is at its end.
int exit_of_loop(const Instruction& head);
/// Of a conditional jump: where it goes, and for which value of its condition.
struct Branch {
  int target = 0;
  bool when = false;
};
std::optional<Branch> branch_of(const Instruction& i);
/// Whether code that begins at this place (in code units) may read the local before it assigns it.
bool is_read_behind(PyCodeObject* code, int place, int local);
/// Whether a FOR_ITER of a range at this place may be worth native code.
bool holds_loop(PyCodeObject* code, int head);

/// Thrown where a local turns out to be of another kind than was taken so far: the code is read once more.
struct NewType {};

class LoopReader {
 public:
  LoopReader(const Frame& f, const NumpyApi& np, int head, LoopRange range);
  LoopReader(const LoopReader&) = delete;
  LoopReader& operator=(const LoopReader&) = delete;

  /// The program without its code, and its kernel. Throws Unsupported with the reason.
  std::unique_ptr<LoopProgram> read(loops::Kernel& kernel);

 private:
  struct NumberType {
    DType dtype = DType::kFloat64;
    Strength strength = Strength::kWeak;
    friend bool operator==(const NumberType&, const NumberType&) = default;
  };
  struct Local {
    enum class State : uint8_t { kGiven, kUnknown, kNumber, kKnown } state = State::kGiven;
    Value value;  // kKnown
  };

  void read_once();
  void body(int from, int to, int head);
  int read_branch(const Instruction& i, const Branch& branch, int to, int head);
  void read_if(ScalarId condition, bool when, int from, int to, int head);
  std::set<int> assigned_between(int from, int to) const;
  Condition compare(int op, const Value& a, const Value& b);
  Condition opposite(const Condition& condition);
  /// The instruction; the place of the next one.
  int step(const Instruction& i);
  bool step_stack(const Instruction& i);
  bool step_name(const Instruction& i);
  bool step_value(const Instruction& i);
  std::shared_ptr<Slice> pop_slice(const Value& by);
  int nested_loop(const Instruction& head);
  void loop_turns(const Range& range, int head, bool outermost);
  void forget_assigned(const std::set<int>& assigned);
  void keep_numbers(const std::set<int>& assigned);
  std::set<int> assigned_in(int head) const;

  Value read_call(PyObject* function, std::vector<Value> arguments);
  PyObject* given_object(int local) const { return base_ == 0 ? f_.local(local) : nullptr; }
  Value load_local(int local);
  Value given_local(int local);
  void store_local(int local, Value value);
  void keep_array(int local, const Grid& made, const View& view);
  bool is_in_order(const Grid& made) const;
  void check_lost_arrays() const;
  void store_number(int local, const Number& number, NumberTag tag);
  int number_slot(int local);
  int whole_slot(int local);
  Value load_global(PyObject* name);
  Value load_attribute(const Value& owner, PyObject* name);
  Value constant_of(PyObject* object);
  Value call(const Value& callable, std::vector<Value> arguments);

  Value pop();
  void push(Value value) { stack_.push_back(std::move(value)); }
  Value& peek(int n) { return stack_[stack_.size() - static_cast<size_t>(n)]; }

  // loop_arithmetic.cpp
  Value binary(int op, const Value& a, const Value& b);
  Value whole_binary(int op, const Whole& a, const Whole& b);
  Value number_binary(int op, const Number& a, const Number& b);
  Value negative(const Value& value);
  Number as_number(const Value& value, DType dtype);
  GridRef as_grid(const Value& value, DType dtype);
  static DType joined_types(DType a, DType b);
  Value small_int_binary(int op, const Number& a, const Number& b);
  GridRef combine(loops::ScalarOp op, const Value& a, const Value& b);
  Value apply_unary(loops::ScalarOp op, const Value& value, bool python);
  Value apply_binary(loops::ScalarOp op, const Value& a, const Value& b);
  Value extremum(bool largest, const Value& a, const Value& b);
  Value dot(const Value& a, const Value& b);
  Value outer(loops::ScalarOp op, const Value& a, const Value& b);
  GridRef reversed(const GridRef& grid);
  Value total(const Value& value);
  Value matrix_product(const GridRef& a, const GridRef& b);
  Value method(const Method& method, const std::vector<Value>& arguments);
  Value function(PyObject* callable, const std::vector<Value>& arguments);
  DType joined(const Value& a, const Value& b) const;
  std::vector<Expr> joined_extents(const std::vector<Expr>& a, const std::vector<Expr>& b);

  // loop_indexing.cpp
  Value get_item(const Value& container, const Value& key);
  void set_item(const Value& container, const Value& key, const Value& value);
  Value in_place(int op, const Value& target, const Value& operand);
  View index_view(const View& view, const Value& key);
  Expr place_of(const Whole& index, Expr extent);
  void slice_dimension(const Slice& slice, Expr extent, Expr stride, View& result);
  bool apart(const View& a, const View& b);
  GridRef view_grid(View view);
  Whole bounded_int(const Number& number, Expr most);
  GridRef gather(const GridRef& source, const GridRef& places);
  Value element_or_view(View view);
  void assign(const View& target, const GridRef& value);
  void store_elements(const View& target, const GridRef& value);
  GridRef materialise(const GridRef& value);
  Expr address(const View& view, const std::vector<Expr>& at);
  void written(int array);
  IntRange range_of(Expr e) { return builder_->ctx().range(e); }

  const Frame& f_;
  const NumpyApi& np_;
  PyCodeObject* code_;  // that is read now: the frame's, or of a function that is called
  int base_ = 0;        // the number of its first local
  int calls_ = 0;
  const int head_;
  const LoopRange range_;
  std::set<int> rebound_;            // locals that are given arrays
  std::set<int> lost_;               // of these, locals whose arrays the frame does not get
  std::set<int> assigned_;           // locals that the loop assigns
  std::map<int, NumberType> types_;  // of locals that are numbers, as far as it is known
  std::unique_ptr<LoopProgram> program_;
  std::unique_ptr<LoopBuilder> builder_;
  std::map<int, Local> locals_;
  std::map<PyObject*, int> arrays_;  // buffers by array
  std::map<int, int> number_slots_, whole_slots_;
  std::vector<Value> stack_;
  size_t floor_ = 0;  // values that the present loop or call has not made
  // Ints that were read from arrays in the present block, by buffer, place and bound.
  std::vector<std::pair<std::tuple<int, Expr, Expr>, Whole>> bounded_;
  int numbers_ = -1, tags_ = -1, wholes_ = -1;  // buffers
};

}  // namespace tatara::capture::native
