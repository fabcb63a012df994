// From nodes of a tape that are NumPy calls to an ir::Graph. Element types are the ones that NumPy chose (its promotion is
// asked, not copied): operands are cast to the loop's types first, so operators see equal types.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "capture/graph/graph_from_tape.h"
#include "capture/host/numpy_api.h"
#include "ops/core/builder.h"

namespace tatara::capture {

class NumpyGraph {
 public:
  using ArrayRef = Functionalizer::TensorRef;

  /// What the graph is for: to be compiled, or to be called on tensors (numpy_program.h). The latter holds every call: those
  /// without a rule as nodes of call_operator(), and results lie as torch has them.
  enum class For : uint8_t { kArrays, kTensors };

  /// How values are looked at that may come from a floating-point fault, of which NumPy warns. kNone: they are not. kTogether: one
  /// test for what elementwise calls make of each other, since what is not finite stays so. It also stops at what came from outside.
  /// kEach: one for each call, with its operands, which stops where the call made what is not finite.
  enum class Tests : uint8_t { kNone, kTogether, kEach };

  NumpyGraph(const Tape& tape, const NumpyApi& np, For purpose = For::kArrays, Tests tests = Tests::kNone);
  /// Adds the call. Throws Unsupported, with nothing that matters changed, when NumPy has to run it.
  void add(const TapeNode& node);
  bool empty() const { return nodes_ == 0; }
  bool is_for_arrays() const { return purpose_ == For::kArrays; }
  /// The errstate at the beginning of the tape.
  void set_errstate(PyObject* errstate) { errstate_ = Ref::borrow(errstate); }
  /// Whether the slot was made by a call in this graph.
  bool made(int slot) const { return made_[static_cast<size_t>(slot)]; }
  /// The graph, whose outputs are the slots given. Throws Unsupported.
  TapeGraph finish(std::vector<int> wanted);

  /// A result that the graph computes with as if it were a copy, and that is a view of the memory of `base`, `offset` elements
  /// behind its first one, with the strides of its slot.
  struct LateView {
    int slot, base;
    int64_t offset;
  };
  /// Whether the graph itself looks whether a Python int is what it was in the trace.
  static bool tests_decision(const TapeNode& node);
  /// Whether the plan stops where the call's result has another size than in the trace.
  static bool tests_size(const TapeNode& node);
  /// Those among the results that were wanted.
  const std::vector<LateView>& late_views() const { return late_views_; }

  /// The operator of calls without a rule, whose one argument is the list of arrays among the call's.
  static const OpDef& call_operator();
  /// Of such a node, by its first result.
  struct Call {
    const TapeNode* node;
    std::vector<int> slots;  // of the arrays, in order
    std::string why;         // it has no rule
  };
  const std::map<ValueId, Call>& calls() const { return calls_; }

 private:
  friend struct NumpyRules;
  /// A tensor, or a number of the program.
  struct Operand {
    ArrayRef ref = -1;
    PyObject* number = nullptr;
  };

  /// Unsupported for what is no array.
  const TapeSlot& slot(int index) const;
  ArrayRef ref_of_slot(int index);
  /// The tensor of an argument; Unsupported for what is no array.
  ArrayRef tensor(PyObject* argument);
  DType type_of(PyObject* list) const;
  Operand operand(PyObject* argument);
  ValueId read(PyObject* argument) { return fz_.read(tensor(argument)); }
  DType dtype_of_slot(int index) const { return dtype_of(slot(index).dtype.get()); }
  std::vector<Expr> exprs(PyObject* tuple);
  std::vector<int64_t> shape(ValueId v) const;
  ValueId as_dtype(const Operand& o, DType dtype);
  Scalar number_as(PyObject* number, DType dtype) const;
  ValueId with_layout(ValueId value, int slot);
  bool is_dense(int slot);
  ArrayRef view(const char* op, std::vector<Arg> args);
  void write(ArrayRef target, ValueId value);
  ArrayRef flipped(ArrayRef source, const std::vector<int64_t>& dims);
  ArrayRef as_copy(ArrayRef ref);
  bool is_copy(ArrayRef ref) const;
  void set_late_view(const TapeNode& node, int base, int64_t offset, ArrayRef copy, size_t k = 0);
  void set_view_of_copy(const TapeNode& node, size_t k, ArrayRef ref);
  void set_result(const TapeNode& node, size_t k, ArrayRef ref);
  void add_call(const TapeNode& node, std::string why);
  void add_zeros(const TapeNode& node);
  TensorType type_of_slot(int index);
  void set_value(const TapeNode& node, size_t k, ValueId value);

  // numpy_faults.cpp: tests of values, after which NumPy runs the calls again.
  void begin_tests(const TapeNode& node);
  void end_tests(const TapeNode& node);
  void settle(ArrayRef ref);
  bool reads_all(const TapeNode& node) const;
  void compute_in_full(std::vector<ArrayRef>& outputs, const std::vector<int>& wanted);
  ValueId tested(const std::string& name, ValueId value, const std::vector<ValueId>& operands, double number = 0,
                 const std::vector<int64_t>& dims = {}, bool keepdims = false);
  ValueId tested_widely(const std::string& name, ValueId value, const std::vector<ValueId>& operands);
  ValueId tested_cast(ValueId from, ValueId value);
  ValueId tested_scalar(const std::string& name, std::string_view op, ValueId value,
                        const std::vector<ValueId>& operands, const std::optional<Scalar>& number);
  ValueId stop_where(ValueId value, ValueId fault);
  ValueId stop_unless_finite(ValueId value);
  ValueId either(std::string_view test, ValueId value);

  const Tape& tape_;
  const NumpyApi& np_;
  TapeGraph result_;
  GraphBuilder builder_;
  Functionalizer fz_;
  std::vector<ArrayRef> refs_;
  std::vector<bool> made_;
  size_t nodes_ = 0;
  For purpose_;
  bool writes_;  // some call of the tape does
  std::map<ValueId, Call> calls_;
  /// Of what has strides below zero.
  struct Copies {
    std::vector<ArrayRef> all;
    std::vector<std::pair<ArrayRef, ArrayRef>>
        views;                    // what runs backwards, and its copy, where tensors have no such views
    std::vector<ArrayRef> stale;  // copies whose memory was written since
  };
  Copies copies_;
  struct TurnedInput {
    ArrayRef copy, memory;
    std::vector<int64_t> dims;
  };
  std::vector<TurnedInput> turned_inputs_;  // those among them that came in so
  std::vector<LateView> late_views_;
  bool late_ = false;  // the result that is being set is one
  Tests tests_;
  Ref errstate_;
  FloatFaults faults_;     // of the call that is being added
  bool hands_on_ = false;  // its result tells of its operands
  // Tests count when they are made. What may be read in part, or by nobody, is an output of its own.
  size_t tests_made_ = 0, tests_before_ = 0;  // in all, and before the present call
  std::vector<bool> holds_tests_, is_read_;   // slots that are computed with tests; read as a whole by a later call
  std::vector<ValueId> in_full_;              // to be computed in full
  std::set<ValueId> untested_;                // values of which a later test tells
};

}  // namespace tatara::capture
