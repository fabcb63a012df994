// Integers of a program whose value may differ from call to call: sizes of inputs and what is computed from them.
//
// While a trace is open such an integer is an object of a C type of its own, which is no subclass of int: C code that wants
// its value has to ask one of its slots, so nothing can read the value behind the trace's back. Arithmetic gives new
// expressions; whatever needs a concrete value (a branch, a hash, range(), an index of a list) gets the value of the present
// call, and what was decided by it becomes a guard. To Python it answers as an int does (`isinstance`, `__class__`, repr).
// When the trace ends every such object turns into a plain int in place, so none is ever seen outside of a trace.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/python/py.h"
#include "symbolic/expr.h"

namespace tatara::capture {

/// Where the value of a symbol is found when an entry is called.
struct SymbolSource {
  enum : int { kInt = -1, kFloatHigh = -2, kFloatLow = -3 };
  int object = -1;      // index among the guarded objects
  int dim = kInt;       // of that tensor, or which part of a number
  bool stride = false;  // the stride of `dim`, not its size
  int slot = -1;        // of the tape, in place of `object`: data decide the value while the tape runs
};

/// Places of a program that decide by what data decide. A trace takes such a decision as it falls in its own call, and each run
/// looks whether it falls so again. Where one did not, the next trace takes it once more, as it falls then: what a first call makes
/// ready stays so. Where that did not hold either, later traces end.
struct DataDecisions {
  static constexpr size_t kMost = 3;  ///< each costs a call in eager and a compilation: behind these no more are taken
  static constexpr int kVaries = 2;
  struct Place {
    int otherwise = 0;  ///< how often the decision has fallen otherwise than in a trace that could know better
    size_t last = 0;    ///< the surprise that this was
  };
  std::map<std::string, Place> places;  ///< by "file:line"
  size_t found = 0;                     ///< how often any has
  size_t surprises = 0;                 ///< those of older traces, too
  bool varies(const std::string& place) const {
    const auto seen = places.find(place);
    return seen != places.end() && seen->second.otherwise >= kVaries;
  }
  void set_varies(const std::string& place) { places[place].otherwise = kVaries; }
  /// In a run of a trace that was made after so many surprises. One from before the place's last surprise (of another size) took the
  /// decision as it fell before that: it says nothing new.
  void fell_otherwise(const std::string& place, size_t before) {
    ++surprises;
    Place& seen = places[place];
    if (seen.last > before) return;
    ++seen.otherwise;
    ++found;
    seen.last = surprises;
  }
};

/// The symbols of one trace and the placeholder integers made of them.
class TraceSymbols {
 public:
  TraceSymbols() : ctx_(std::make_shared<ExprContext>()) {}
  ~TraceSymbols() { settle(); }
  TraceSymbols(const TraceSymbols&) = delete;
  TraceSymbols& operator=(const TraceSymbols&) = delete;

  ExprContext& ctx() const { return *ctx_; }
  const std::shared_ptr<ExprContext>& ctx_ptr() const { return ctx_; }
  Expr add(int64_t hint, SymbolSource source, IntRange range);
  /// A size of the result in this slot, or the number there, which data decide. What is inferred by it, or decided by the program,
  /// holds for this call's value and is looked at in each run.
  Expr add_made(int64_t hint, int slot, int dim, IntRange range);
  /// The number of a loop's turn as the only symbol, while one turn is traced for many (TurnTracing). `other`: called before another
  /// symbol is made; it ends that.
  Expr begin_turn(int64_t hint, IntRange range, std::function<void()> other);
  /// Its numbers become plain ints where they are, and nothing is left of the symbol.
  void end_turn();
  bool in_turn() const { return static_cast<bool>(other_); }
  /// What the tape has of a number is the value of this call from then on, where it outlives its symbol.
  void note_size_ref(const Ref& size) {
    if (in_turn()) turn_refs_.push_back(size);
  }
  /// Whether such a symbol is part of the expression.
  bool is_made(Expr e) const;
  bool has_made() const { return !made_symbols_.empty(); }
  /// `decisions`: null where none may be taken. `undecided`: the program decides all the same, or where decisions vary, and the trace is
  /// to end before this instruction.
  void set_decisions(std::shared_ptr<DataDecisions> decisions, std::function<void()> undecided) {
    decisions_ = std::move(decisions);
    undecided_ = std::move(undecided);
  }
  const std::shared_ptr<DataDecisions>& decisions() const { return decisions_; }
  /// Of a guard that the program's own decision has made: its place.
  std::string place_of_decision(size_t guard) const {
    return program_guards_.contains(guard) ? places_[guard] : std::string();
  }
  /// Whether the program may decide here by what data decide.
  bool may_decide() const {
    return decisions_ != nullptr && place_ && !settled_ && decisions_->found < DataDecisions::kMost &&
           !decisions_->varies(place_());
  }
  /// Whether the condition holds: known, or for this call's values with a guard.
  bool decide(Expr condition);
  bool empty() const { return symbols_.empty() && made_floats_.empty() && made_derived_.empty(); }
  const std::vector<Expr>& symbols() const { return symbols_; }
  const std::vector<int64_t>& hints() const { return hints_; }
  /// As given to add(): what later facts say is not in them.
  const std::vector<IntRange>& ranges() const { return ranges_; }
  const std::vector<SymbolSource>& sources() const { return sources_; }
  /// A program over the values of all symbols.
  ExprProgram program(Expr e) const { return ExprProgram(e, symbols_); }

  /// The Python integer that is `e`: a plain int where facts make it constant. An Error where it may not be one, since later
  /// calls would leave 64 bits.
  Ref make(Expr e);
  /// The two halves of a float's bits as symbols, and the float that they stand for: `slot` has it on the tape.
  std::pair<Expr, Expr> add_float(PyObject* value, int object);
  Ref make_float(PyObject* value, std::pair<Expr, Expr> bits, int object, int slot);
  /// A float that the tape computes in `slot`; `value` is that of this call.
  Ref make_derived(PyObject* value, int slot);
  /// The same for an int of at most 64 bits.
  Ref make_derived_int(PyObject* value, int slot);
  /// The slot of a number of these two, or -1.
  int derived_slot(PyObject* object) const;
  /// Records arithmetic on floats that vary: a function of Python's `operator` with its operands (the second may be null). Null
  /// without an error set: not recorded.
  using Derive = std::function<Ref(const char* name, PyObject* a, PyObject* b)>;
  /// Somebody asks for the value of what the tape computes in this slot.
  using Need = std::function<void(int slot)>;
  void set_derive(Derive derive, Need need) {
    derive_ = std::move(derive);
    need_ = std::move(need);
  }
  Ref derive(const char* name, PyObject* a, PyObject* b) const {
    return derive_ && !in_turn() ? derive_(name, a, b) : Ref();
  }
  void need(int slot) const {
    if (need_) need_(slot);
  }
  /// The guarded object that a float of make_float() is in each call; -1 for other objects.
  int float_object(PyObject* object) const;
  /// The value of `e` in this call, guarded.
  int64_t specialize(Expr e);
  /// All integers made so far become plain ints.
  void settle();
  /// The same while the trace goes on: each is guarded by value.
  void settle_all();
  /// Dicts may look for placeholder ints while this lives: by their values, which are no guards. Who looks decides what
  /// has to hold for it in later calls.
  class KeyLookup {
   public:
    explicit KeyLookup(TraceSymbols& symbols) : symbols_(symbols) { ++symbols_.lookups_; }
    ~KeyLookup() { --symbols_.lookups_; }
    KeyLookup(const KeyLookup&) = delete;
    KeyLookup& operator=(const KeyLookup&) = delete;

   private:
    TraceSymbols& symbols_;
  };
  bool looks_up() const { return lookups_ > 0; }

  /// What `object` was made of, also after it became a plain int; invalid for other objects. A plain int among the values
  /// of a frame may be the value of an expression that was only asked for after the guards of that frame end.
  Expr made_of(PyObject* object) const;

  /// Tells where in the program the trace is.
  void set_place(std::function<std::string()> place) { place_ = std::move(place); }
  /// Gives the guards that were made since the last call the present place.
  void note_guards();
  /// A guard of the context with the place that made it.
  std::string guard_text(size_t guard) const;

 private:
  /// Python's integers have no end: a guard where the value of `e` may leave 64 bits.
  void keep_in_words(Expr e, int64_t hint);
  std::shared_ptr<ExprContext> ctx_;
  std::vector<Expr> symbols_;
  std::vector<int64_t> hints_;
  std::vector<IntRange> ranges_;
  std::vector<SymbolSource> sources_;
  std::vector<Expr> made_symbols_;
  std::shared_ptr<DataDecisions> decisions_;
  std::function<void()> undecided_;
  std::set<size_t> program_guards_;
  int64_t take_decision(const std::function<int64_t()>& decide);
  bool settled_ = false;
  std::function<void()> other_;
  std::vector<Ref> turn_refs_;
  int lookups_ = 0;
  std::unordered_map<PyObject*, Ref> made_, made_floats_;
  std::unordered_map<PyObject*, std::pair<Ref, int>> made_derived_;  // ints, with their slots
  std::function<std::string()> place_;
  Derive derive_;
  Need need_;
  std::vector<std::string> places_;  // of the context's guards
};

bool is_symbolic_int(PyObject* object);
/// Its expression; invalid for other objects.
Expr symbolic_expr(PyObject* object);
/// The plain int that a placeholder is in this call; no guard is made.
Ref int_now(PyObject* object);
/// The plain int of a placeholder, guarded by value. The object itself when it is none.
Ref plain_int(PyObject* object);

bool is_symbolic_float(PyObject* object);
/// An int that the tape computes: it has no expression.
bool is_derived_int(PyObject* object);
inline bool is_symbolic_number(PyObject* object) {
  return is_symbolic_int(object) || is_symbolic_float(object) || is_derived_int(object);
}
int derived_int_slot(PyObject* object);
/// Its value in this call, `guarded` or for a look alone.
Ref derived_int_value(PyObject* object, bool guarded);
void settle_derived_int(PyObject* object);
/// The slot of a placeholder float on the tape, or -1.
int float_slot(PyObject* object);
/// As plain_int(), for all kinds.
Ref plain_number(PyObject* object);
/// The value of a placeholder float in this call; no guard is made.
double float_value(PyObject* object);
/// A placeholder float becomes a plain one; no guard is made.
void settle_float(PyObject* object);
/// What a symbol with this `dim` (no tensor's) is for `number`.
int64_t number_part(PyObject* number, int dim);

/// Turns the placeholder numbers among the object's items into plain ints where they are, guarded by value.
void settle_in(PyObject* object, int depth = 6);

/// Some placeholder number is among the object's items (tuples, lists, dicts, slices; to a small depth).
bool holds_symbolic_number(PyObject* object, int depth = 4);

// ---- On the tape -----------------------------------------------------------------------------------------------------

/// Marks the place of a symbolic integer in recorded arguments.
Ref make_size_ref(Expr e, TraceSymbols& symbols);
bool is_size_ref(PyObject* object);
Expr size_ref_expr(PyObject* object);
bool holds_size_ref(PyObject* object);
/// The value under the symbols' values. Null with a Python error set.
Ref size_ref_value(PyObject* object, std::span<const int64_t> symbol_values);

}  // namespace tatara::capture
