// Reads the bytecode of a loop once, with symbols for what changes from turn to turn, and makes the program of it. Nothing of the
// program runs meanwhile.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "capture/native/code_flow.h"
#include "capture/native/loop_code.h"
#include "capture/native/loop_operations.h"
#include "capture/native/loop_program.h"

namespace tatara::capture::native {

constexpr int kLocalsOfCall = 1000;  // numbers that are kept for a call's locals

/// Thrown where a local turns out to be of another kind than was taken so far: the code is read once more.
struct NewType {};

/// How a part of the code ends: it comes to its end; it has left its turn or call; one or the other, as it comes.
enum class Way : uint8_t { kOn, kGone, kMaybe };

class LoopReader final : private LoopOperations {
 public:
  /// `before`: a program whose sizes differ from the present ones; those that do are symbols. Null: none is.
  LoopReader(const LoopPlace& place, const NumpyApi& np, int head, const LoopRange& range, const LoopProgram* before);
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
  /// The turns of a loop, or a call, that are read now.
  struct Region {
    const CodePart* part = nullptr;
    size_t depth = 0;          // of the stack
    int gone = -1, exit = -1;  // flags: the turn or call has ended; the loop has, by which exit
    int ifs = 0;               // open branches
    bool outermost = false;
    Expr turn;
    std::vector<LoopExit> exits;    // in code units
    std::optional<Value> returned;  // by a call, under conditions
  };
  /// What runs under a condition: the code from a place on.
  struct Side {
    ScalarId when = loops::kNoScalar;
    int from = 0;
    int iterators = 0;           // of loops that it comes out of, on the stack
    std::optional<Value> value;  // on top of them
  };
  struct Ended {
    Way way = Way::kOn;
    bool has_value = false;
    size_t low = 0;  // the values on the stack that it has not touched
  };
  /// What is carried over to the next reading.
  struct Types {
    std::map<int, NumberType> of;              // locals that are numbers in memory, as far as it is known
    std::map<int, NumberType> stored;          // what locals were given
    std::map<std::pair<int, int>, int> joins;  // names for values of branches, by call and place
    std::set<int> rebound;                     // locals that are given arrays
    std::set<int> carried;                     // of these: the ones that a later turn reads
    bool fuel = false;                         // there is a loop by a condition within the loop
  };
  /// Buffers of the kernel, and slots in them.
  struct Memory {
    int numbers = -1, tags = -1, wholes = -1, flags = -1;
    std::map<int, int> number_slots, whole_slots;  // of locals
    std::map<int, NumberTag> given_tags;           // what the frame's numbers are
    std::map<int, size_t> tuples;                  // locals that are given tuples, and how many items these have
    int flag_slots = 0, number_count = 0;
  };

  void read_once();
  // loop_branches.cpp
  CodeFlow& flow();
  Way read_from(int from, int to);
  Way step_to(int place);
  Way read_sides(const std::vector<Side>& sides, int join, int to);
  Ended read_side(const Side& side, int to);
  void guarded(ScalarId condition, const std::function<void()>& body);
  void merge_locals(const std::map<int, Local>& before, const std::vector<std::map<int, Local>>& ways);
  void store_joint(int join, const Value& value);
  int joint_local(int join);
  Way leave_call(Value value);
  std::vector<Side> sides_of_branch(const Instruction& i, const Branch& branch);
  std::vector<Side> sides_of_loop(int head);
  ScalarId flag_is(int slot, int64_t value);
  void set_flag(int slot, int64_t value);
  // loop_turns.cpp
  Value iterated(const LoopRange& range, int& array);
  Value value_of_item(const Value& value, Expr turn, const IntRange& turns);
  std::pair<Expr, IntRange> turns_of(const Value& value);
  Region read_loop(const Value& given, int head, bool outermost);
  void read_items(const Sequence& items, int head);
  void read_turn(Region& region, const Value& iterated, const std::set<int>& assigned, const IntRange& turns);
  Value iteration_of(PyObject* type, const std::vector<Value>& arguments);
  void forget_assigned(const std::set<int>& assigned);
  void keep_numbers(const std::set<int>& assigned);
  std::set<int> assigned_in(const CodePart& part) const;

  /// The instruction; the place of the next one.
  int step(const Instruction& i);
  bool step_stack(const Instruction& i);
  bool step_name(const Instruction& i);
  bool step_value(const Instruction& i);
  std::shared_ptr<Slice> pop_slice(const Value& by);

  Value read_call(PyObject* function, std::vector<Value> arguments);
  PyObject* given_object(int local) const { return base_ == 0 ? place_.frame.local(local) : nullptr; }
  Value load_local(int local);
  Value given_local(int local);
  GridRef given_array(PyObject* object, LocalFact fact);
  void find_terms(LocalFact& fact);
  Expr term(int64_t before, int64_t now, const SizePlace& place, SizeTerm& term);
  [[noreturn]] void promote(int local);
  Value load_number(int local, bool checked);
  void store_local(int local, Value value);
  void store_array(int local, const GridRef& grid);
  // loop_appends.cpp
  int log_buffer(int& buffer, DType dtype);
  ScalarId append_site(AppendSite site, bool numpys);
  void append(PyObject* list, const Value& value);
  // loop_tuples.cpp
  void store_tuple(int local, const std::shared_ptr<Sequence>& tuple);
  LocalResult result_of(int local, int slot, bool number) const;
  void note_results();
  void keep_array(int local, const Grid& made, const View& view);
  // loop_carries.cpp
  GridRef carry(int local);
  void store_carried(int local, const GridRef& grid);
  void check_carried() const;
  void check_lost_arrays() const;
  void forget_number(int local, DType dtype);
  Value given_number(int local, PyObject* object, LocalFact fact);
  static std::optional<NumberType> number_type(const Value& value);
  static NumberType joined_number(const NumberType& a, const NumberType& b);
  bool note_type(int local, const Value& value);
  void store_number(int local, const Value& value);
  int number_slot(int local);
  int whole_slot(int local);
  Value load_global(PyObject* name);
  Value load_attribute(const Value& owner, PyObject* name);
  Value constant_of(PyObject* object);
  void push_rows(const GridRef& grid, int count);
  Whole forwards(const Whole& step);
  Value call(const Value& callable, std::vector<Value> arguments);
  Value call_with_keywords(const Value& callable, std::vector<Value> arguments, PyObject* names);

  Value pop();
  void push(Value value) { stack_.push_back(std::move(value)); }
  Value& peek(int n) { return stack_[stack_.size() - static_cast<size_t>(n)]; }

  const LoopPlace& place_;
  const int head_;
  const LoopRange& range_;
  const LoopProgram* const before_;
  SizeSymbols sizes_;
  PyCodeObject* code_;  // that is read now: the frame's, or of a function that is called
  int base_ = 0;        // the number of its first local
  int calls_ = 0;
  int read_ = 0;                  // instructions
  PyObject* keywords_ = nullptr;  // names of the last arguments of the call that comes (3.11)
  Region* region_ = nullptr;
  std::map<PyCodeObject*, CodeFlow> flows_;
  std::set<int> lost_;      // locals that are given arrays which the frame does not get
  std::set<int> assigned_;  // locals of the frame that the loop assigns
  std::set<int> stored_;    // locals that the present branch assigns
  Types types_;
  std::map<int, Local> locals_;
  std::map<PyObject*, int> arrays_;  // buffers by array
  std::map<PyObject*, int> lists_;   // locals by list
  std::map<int, GridRef> carried_;   // by local
  Memory memory_;
  size_t low_ = 0;    // values that the present branch has not touched
  size_t floor_ = 0;  // values that the present loop or call has not made
};

}  // namespace tatara::capture::native
