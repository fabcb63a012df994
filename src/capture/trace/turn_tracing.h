// Turns of a loop that would be traced as the ones before were: they are copied on the tape, without running the program.
//
// `for` loops over ranges, tuples and lists of tensors (`unbind`, a tensor's own iteration), and enumerate and zip of these. Of one
// turn, the numbers that change with the turn are symbols: what the program decides by them becomes conditions, which tell how far
// the turns go the same way. All else that a turn may do is watched. Where the turn before made the same calls, and both left the
// frame's variables alike, all turns up to there are the same by induction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/trace/trace_context.h"
#include "capture/trace/turn_items.h"

namespace tatara::capture {

struct TracedCall;

class TurnTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// A frame steps an iterator that the trace has made. The item; null: there is none; not_handled(): it is stepped as usual.
  PyObject* step(Frame& f, PyObject* iterator);
  /// Whether a turn is being watched.
  bool watching() const { return own_.watched != nullptr; }
  /// What the program does in it. `odd`: something that the next turn might do otherwise, whatever it is.
  void odd(const char* what) {
    if (watching() && own_.odd == nullptr) own_.odd = what;
  }
  /// The same, and something lasting changes.
  void changes(const char* what);
  void reads(PyObject* object);
  void reads(PyObject* a, PyObject* b) {
    reads(a);
    reads(b);
  }
  void looks_up(PyObject* key);
  void shows(PyObject* value);
  void writes_to(PyObject* container, PyObject* key);
  /// At the end, or in front of all items.
  void appends(PyObject* list, PyObject* value, bool front = false);
  void builds(BuildKind kind, PyObject* object);
  void calls(const TracedCall& call, const CallPlan& plan);
  void calls_torch(const TorchFunction& fn);
  void steps(PyObject* iterator);
  /// Exceptions that functions handle are as good as anything else that they do.
  void raises(const Frame& f) {
    if (watching() && own_.frame == &f) changes("an exception");
  }
  void leaves(const Frame& f) {
    if (watching() && own_.frame == &f) stop();
    std::erase_if(own_.loops, [&f](const Loop& loop) { return loop.frame == &f; });
  }
  /// The watched turn is traced as any other from here on.
  void stop();
  /// The same, and nothing is kept of the program's.
  void end();

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

  /// Where a tensor comes from, as seen from a turn.
  struct Role {
    enum class Kind : uint8_t { kFixed, kMade, kItem };
    Kind kind = Kind::kFixed;
    int at = 0;      ///< the call of the turn; of an item the part; of what is fixed the slot
    int output = 0;  ///< of that call
    int lag = 0;     ///< how many turns ago
    friend bool operator==(const Role&, const Role&) = default;
  };
  /// What a variable of the frame holds behind a turn, or what is appended to a list.
  struct Value {
    enum class Kind : uint8_t { kSame, kTensor, kNumber, kTuple };
    Kind kind = Kind::kSame;
    Role role;                     ///< kTensor
    int64_t number = 0, step = 0;  ///< kNumber: behind the watched turn, and what each turn adds
    std::vector<Value> parts;      ///< kTuple
    Ref object;                    ///< kSame
  };
  /// A number or tensor in the arguments of a call, or another object, which is the same in all turns.
  struct Leaf {
    bool tensor = false;
    Role role;
    int64_t number = 0, step = 0;
  };
  /// An index, or the ends of a slice: the results of all turns are alike as long as it lies within the dimension.
  struct Bound {
    int64_t first = 0, last = 0, step = 0, size = 0;
    bool slice = false;
    bool fits(int64_t turns) const;
  };
  /// A call of the watched turn.
  struct Template {
    std::vector<Leaf> leaves, named;  ///< of the positional and of the keyword arguments, in order
    std::vector<Role> outputs;
    bool changes = false;  ///< some operand is another one in each turn
  };

 private:
  /// The frame where a turn begins.
  struct Turn {
    size_t nodes = 0, slots = 0, writes = 0, appends = 0;
    std::vector<Ref> locals, stack, item;  // the parts of the item that are no tuples
    bool grad = false;
  };
  struct Loop {
    const Frame* frame = nullptr;
    PyObject* iterator = nullptr;
    int offset = 0, depth = 0;
    std::vector<Turn> turns;  // the last ones
    int64_t count = 0;        // turns begun
    int64_t wait = 0;         // no turn before this one is watched
    int64_t tried = 0;        // without success
    int64_t left = 0;         // turns behind the last one begun
  };
  struct Appended {
    Ref list, object;
    Value value;
    bool front = false;
  };
  using Roles = std::unordered_map<int, Role>;

  bool may_copy(const Frame& f) const;
  Loop& loop_of(const Frame& f, PyObject* iterator);
  bool worth_watching(const Loop& loop) const;
  bool same_calls(const Turn& before, const Turn& turn, size_t end) const;
  void watch(Frame& f, Loop& loop, const std::vector<TurnItems>& items);
  Ref in_turns(PyObject* number, int64_t step);
  Ref with_symbols(PyObject* item, size_t part);
  bool born_in_turn(PyObject* object) const;

  // turn_matching.cpp
  void copy_turns(Frame& f, Loop& loop, const std::vector<TurnItems>& items);
  bool match_turns(Frame& f, const Loop& loop);
  bool map_roles(const std::vector<Turn>& turns, size_t last, Roles& roles) const;
  bool match(size_t call, size_t now, size_t then, Template& made);
  bool match_arguments(PyObject* now, PyObject* then, std::vector<Leaf>& leaves);
  bool match_object(PyObject* now, PyObject* then) const;
  bool match_outputs(size_t call, size_t now, size_t then, Template& made);
  bool bound_indices(size_t node, const Template& made);
  bool bound_key(PyObject* key, const std::vector<Leaf>& leaves, const SlotLayout& layout, size_t& leaf);
  bool match_value(PyObject* after, PyObject* at, PyObject* before, Value& value) const;
  bool match_frame(const Frame& f, const Turn& before, const Turn& turn);
  bool match_appended(const Turn& before, const Turn& turn);
  bool describe(PyObject* object, Value& value);
  bool affine(PyObject* number, int64_t& value, int64_t& step) const;
  bool give_up(const std::string& why);
  int64_t turns_alike(const Turn& watched, const std::vector<TurnItems>& items,
                      const std::vector<ExprProgram>& conditions) const;
  void settle();

  // turn_copies.cpp
  /// What the slots of a turn are, while turns are copied.
  struct Copied {
    struct Made {
      std::vector<std::vector<int>> slots;  // by call
      std::vector<Ref> item;
    };
    std::vector<Made> turns;  // the latest first
    int64_t turn = 0;         // behind the watched one
  };
  void append_turns(Frame& f, const Loop& loop, int64_t turns);
  void append_turn(Copied& at, bool last);
  int slot_of_role(const Copied& at, const Role& role) const;
  Ref fill(const Copied& at, const Ref& arguments, const std::vector<Leaf>& leaves) const;
  Ref build(const Copied& at, const Value& value);

  /// Of one trace.
  struct Own {
    std::vector<Loop> loops;
    size_t writes = 0, births = 0;  // so far; and what was born before the last turn of any loop
    std::vector<PyObject*> filled;  // lists, to be compared alone
    // The watched turn.
    PyObject* watched = nullptr;  // its iterator; null: none is
    const Frame* frame = nullptr;
    int depth = 0;
    size_t first_node = 0, first_slot = 0;
    int64_t turn = 0;
    Expr symbol;
    std::vector<std::optional<int64_t>> steps;  // of the item's parts
    const char* odd = nullptr;
    bool opaque = false;  // code in C got what it may look into
    std::unordered_set<PyObject*> read;
    std::vector<Appended> appended;
    // What it is for the next ones.
    Roles now, then;
    std::vector<Template> calls;
    std::vector<Value> locals;
    std::vector<Bound> bounds;
    std::unordered_set<int64_t> seen;  // results that the program may see behind it
    std::string why;
  };
  Own own_;
};

}  // namespace tatara::capture
