// How to build Python objects anew from a run's tensors: return values and frame states.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/host/iterator_state.h"
#include "capture/host/torch_api.h"
#include "capture/numbers/symbolic_int.h"
#include "capture/python/py.h"

namespace tatara::capture {

// Parts of a function after its globals, defaults and closure; None: no dictionary.
inline constexpr std::array kFunctionNames = {"__name__", "__qualname__", "__doc__", "__module__"};
inline constexpr std::array kFunctionDicts = {"__dict__", "__annotations__"};

/// A list of steps, each making one object from earlier ones.
class Reconstruction {
 public:
  enum class Kind : uint8_t {
    kNull,
    kConst,
    kObject,
    kTensor,
    kTuple,
    kList,
    kDict,
    kSet,
    kInstance,
    kCell,
    kReduce,
    kFunction,
    kSlice,
    kMethod,
    kInstanceDict,
    kSymbolic,
    kNumber,
    kNotANumber
  };
  struct Step {
    Kind kind = Kind::kNull;
    int index = -1;          // kObject: guarded object; kTensor, kNumber: tape slot
    Ref value;               // constant, type, callable, code; kNotANumber: a float or complex like it
    std::vector<int> parts;  // earlier steps
    std::vector<Ref> keys;   // kDict, kInstance: keys; null: the step of the same place in `made_keys`
    int base_count = 0;      // kInstance of a dict subclass: how many of the parts are dict items
    ExprProgram program;     // kSymbolic: an int computed from sizes
    std::vector<int> made_keys{};
    int traverse(const Visitor& visit) const { return visit(value, keys); }
  };

  /// Reads what the steps need of the guarded objects' sizes, before the graph runs: it may change them. False with a Python error
  /// set.
  bool read_symbols(const std::vector<PyObject*>& objects, std::vector<int64_t>& values) const;
  /// Objects of steps in `wanted()`, in order; `symbols`: of read_symbols(). False with a Python error set.
  bool build(const std::vector<Ref>& env, const std::vector<PyObject*>& objects, std::vector<int64_t> symbols,
             std::vector<Ref>& out) const;
  /// The tape slot of the only result, when that is a tensor; else -1.
  int single_tensor() const {
    return wanted_.size() == 1 && steps_[static_cast<size_t>(wanted_[0])].kind == Kind::kTensor
               ? steps_[static_cast<size_t>(wanted_[0])].index
               : -1;
  }
  /// Takes hold of the guarded objects that build() will use: while the graph runs, other threads do too.
  void hold(const std::vector<PyObject*>& objects, std::vector<Ref>& held) const;
  const std::vector<int>& wanted() const { return wanted_; }
  int traverse(const Visitor& visit) const { return visit(steps_); }
  /// Tape slots that the steps read.
  std::vector<int> slots() const;

 private:
  friend class ReconstructionBuilder;
  static bool read(const SymbolSource& source, PyObject* object, int64_t& value);
  std::vector<Step> steps_;
  std::vector<int> wanted_;
  std::vector<SymbolSource> sources_;  // of the programs' symbols; empty: no step needs one
};

/// Where an object that a trace meets comes from.
enum class Origin : uint8_t {
  kUnknown,  ///< no place that the guards watch: another call may find another object
  kValue,    ///< it never changes, nor does what it holds
  kBorn,     ///< made in the trace: each call makes its own
  kTaped,    ///< a tensor or array that the tape knows
  kGuarded,  ///< among the objects that come with each call
  kFound,    ///< at a place that a guard watches: the same object in each call
};

/// How the builder sees the trace.
struct ReconstructionWorld {
  std::function<int(PyObject*)> slot;          // tape slot of a tensor, or -1
  std::function<int(PyObject*)> object_index;  // index among the guarded objects, or -1
  std::function<Origin(PyObject*)> origin;
  std::function<void(PyObject*)> adopt;  // code in C made it, and only something that was made in the trace holds it
  std::function<PyObject*(PyObject*)> instance_of;  // the guarded object whose __dict__ a dict is, or null
  const TraceSymbols& symbols;
};

/// Objects that were made in the trace are made again, from their parts. All others are taken from where they come from; those
/// of which that is not known cannot be reconstructed.
class ReconstructionBuilder {
 public:
  ReconstructionBuilder(Reconstruction& target, const ReconstructionWorld& world, TorchApi& api)
      : target_(target), world_(world), api_(api) {}
  /// Adds `object` (may be null) as the next wanted result. False with why() set when it can't be rebuilt.
  bool want(PyObject* object);
  const std::string& why() const { return why_; }

 private:
  int add(PyObject* object);
  int add_not_a_number(PyObject* object);
  int add_held(PyObject* object);
  bool holds_scalars(PyObject* tuple) const;
  int add_new(PyObject* object);
  int add_born(PyObject* object);
  int add_born_mapping(PyObject* object);
  int add_born_iterator(PyObject* object);
  int add_dict_iterator(PyObject* object, const IteratorState& state);
  int add_arguments(PyObject* args);
  int add_parts(Reconstruction::Step step, PyObject* sequence, PyObject* dict = nullptr);
  int add_all(Reconstruction::Step step, std::initializer_list<PyObject*> parts);
  int emit(Reconstruction::Step step);
  int add_symbolic(Expr e);
  bool parts_of_dict(PyObject* dict, Reconstruction::Step& step);
  int fail(std::string why);
  Reconstruction& target_;
  const ReconstructionWorld& world_;
  TorchApi& api_;
  std::unordered_map<PyObject*, int> memo_;
  std::vector<Ref> alive_;
  std::string why_;
};

}  // namespace tatara::capture
