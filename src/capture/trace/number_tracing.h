// Python numbers that vary from call to call, while a trace is open: symbolic ints and floats (symbolic_calls.cpp), what the
// tape computes of them (tracer_numbers.cpp), and what code in C gets (number_boundary.cpp).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

struct KnownCall;

class NumberTracing final : public TraceFeature {
 public:
  using TraceFeature::TraceFeature;

  /// An operation on such numbers; `function`: null for that of Python's `operator`; `extreme`: it is max or min. Null without an error set: by value.
  Ref derive_number(const char* name, PyObject* a, PyObject* b, PyObject* function = nullptr, bool extreme = false);
  void need_number(int slot);
  /// The program decides by a size that data decide.
  void need_decided();
  /// `item in container` and `container[key]` by numbers that vary, where the container holds plain data: what comes of it is
  /// guarded, or computed by the tape. Null without an error set: by value. `absent`: what a missing key gives; null: by value.
  Ref number_in(PyObject* container, PyObject* item);
  Ref number_item(PyObject* container, PyObject* key, PyObject* absent = nullptr);
  /// tensor.item() of a counter, as a float of the tape; null without an error set where that is not known.
  PyObject* item_number(PyObject* func, PyObject* tensor);
  /// Keys of dicts from before the trace that are ints which vary: numbers of hooks, say (number_keys.cpp). Whether the dict may be
  /// asked for `key` without its value: no key that it has is equal to it in this call but by what it was made of.
  bool is_free_key(PyObject* dict, PyObject* key) const;
  /// Whether the dict has it, with guards that tell it from all others. Nothing: not such a dict, or not such a key.
  std::optional<bool> has_free_key(PyObject* dict, PyObject* key);
  /// The trace has written under such a key. Until it ends, code in C that looks into the dict gets plain ints.
  void note_free_key(PyObject* dict, PyObject* key);
  /// `dict[key]` for these; not_handled() for others.
  PyObject* free_item(PyObject* dict, PyObject* key);
  /// Whether some are in their dicts still, also as plain ints.
  bool holds_free_keys() const;
  /// Whether this is such a dict, a view of one, or holds one.
  bool has_free_keys(PyObject* object, int depth = 2) const;
  /// An operation may look for keys in it: those of such dicts become plain, guarded by value.
  void settle_free_keys(PyObject* object);
  void settle_free_keys(PyObject* callable, std::string_view name, std::span<PyObject* const> args);
  /// list.extend() by a view of such a dict; false for others.
  bool extend_by_table(PyObject* list, PyObject* view);
  void settle_for_arrays(PyObject* left, PyObject* right);
  /// Whether a call whose types the host infers keeps numbers that vary: they decide nothing but values.
  bool keeps_number(const std::string& function, PyObject* args, PyObject* kwargs);
  /// That the number in the slot lies within these is a guard; false where it does not now, or a tensor decides
  /// it and not every number is within.
  bool keep_within(int slot, const Within& within);
  /// What a trace goes on with for a value that it reads from a dict, list or cell, where earlier calls have found another one: a
  /// placeholder for a number, any other object itself, guarded by its structure. Null: it is guarded as the object that it is.
  PyObject* watched(ReadPlace place, PyObject* value);
  /// Guards what a dict has under a key, which C code looks for.
  void watch_key(PyObject* dict, PyObject* key);
  /// Guards what was at this place when the trace began by its structure, where it is no number and held another object before.
  bool watch_item(ReadPlace place, PyObject* item);
  /// `arguments`: the roots, where they are those of a call.
  void place_symbols(Frame& f, const std::vector<int>& places, const std::vector<PyObject*>& arguments);
  void take_back_symbols();
  /// Places that symbols can stand in: locals of the frame or, from kStarredArgument on, arguments that are in its *args or **kwargs.
  static constexpr int kStarredArgument = 1 << 20;
  std::vector<int> argument_places(const Frame& f, const std::vector<PyObject*>& roots) const;
  /// Numbers that code in C may find from `object` on become plain ones, guarded by value.
  void settle_reachable(PyObject* object);
  /// The same for what a call of `callable` gives to code in C; false where that keeps them as they are.
  bool settle_arguments(PyObject* callable, const KnownCall& known, PyObject* const* args, Py_ssize_t nargs,
                        Py_ssize_t keywords);
  bool holds_numbers(PyObject* container) const;
  void settle_operands(PyObject* left, PyObject* right);
  PyObject* is_number(PyObject* left, PyObject* right, bool invert);
  PyObject* identity_of_numbers(PyObject* callable, std::string_view name, PyObject* const* args, Py_ssize_t nargs);
  /// What a function in Python gives to code in C that called it.
  void settle_result(const Frame& f, PyObject* result);
  bool symbolic_arguments(PyObject* callable, PyObject* const* args, Py_ssize_t count);
  PyObject* symbolic_call(PyObject* callable, const KnownCall& known, PyObject* args, PyObject* kwargs);
  PyObject* symbolic_binary(int op, PyObject* left, PyObject* right);
  PyObject* symbolic_compare(int op, PyObject* left, PyObject* right);
  /// A function of the module `operator`, by its name.
  PyObject* symbolic_function(const char* name, PyObject* left, PyObject* right);
  PyObject* symbolic_slice(PyObject* size, PyObject* key);
  PyObject* symbolic_metadata(const TorchFunction& fn, int slot, PyObject* args, PyObject* kwargs);
  bool specialize_operands(PyObject* args, PyObject* kwargs);
  /// Puts a call onto the tape that gives a Python number, `value` in this call.
  Ref record_number(TapeNode node, PyObject* value);

  /// Where there were other objects before.
  const VaryingPlaces& varying() const { return own_.varying; }
  void set_varying(const VaryingPlaces& places) { own_.varying = places; }

  /// Nothing is left of the last trace.
  void reset() { own_ = {}; }

 private:
  struct Placed {
    Ref holder, key, number, value;
  };

  Ref decide_number(const char* name, PyObject* a, PyObject* b);
  bool stays_a_float(const char* name, PyObject* a, PyObject* b, bool of_python);
  /// `max` or `min` of two floats of which a tensor decides one. Null without an error set: of others.
  Ref larger_or_smaller(const char* name, PyObject* a, PyObject* b, PyObject* function);
  bool from_numbers(int slot) const;  // a number that no tensor decides
  /// Placeholders for numbers in containers: until the trace ends they hold these. Gives the roots of the guard that are tuples
  /// with such numbers, and what stands for each.
  std::vector<std::pair<size_t, Ref>> place_items(ValueGuard& guard);
  static void place_starred(Frame& f, const std::vector<PyObject*>& roots, size_t k, PyObject* number);
  /// A call of Python's own with numbers that vary: types as functions, `round`, the module math. Null without an error set:
  /// it is none of these.
  Ref number_call(PyObject* callable, const KnownCall& known, PyObject* args);
  Ref dict_get(PyObject* callable, PyObject* args);
  Ref ask_table(PyObject* table, const char* method, PyObject* key, bool decides);
  Ref value_of(int slot);
  int record_number_node(TapeNode node, PyObject* value, Ref guarded = {});
  /// An operand of such arithmetic: its value now, and how it stands on the tape. False for what is no number.
  bool number_operand(PyObject* operand, Ref& value, Ref& on_tape, bool& of_tensor);
  /// The placeholder for a guarded number, whose symbol (of a float: the first) is `symbol`.
  Ref number_on_tape(int object, Expr symbol);
  /// A tuple with such numbers among its items, in the place of one from outside.
  PyObject* watched_number(ReadPlace place, PyObject* value);
  /// `replaceable`: the trace goes on with what this gives.
  PyObject* watched_value(ReadPlace place, PyObject* value, bool replaceable);
  PyObject* watched_tuple(ReadPlace place, PyObject* tuple);
  Ref small_number(Expr symbol, PyObject* value);
  /// Whether an operator with a number that varies and `other` needs no value.
  bool meets_numbers(PyObject* other) const;
  void settle_floats(std::span<PyObject* const> objects);
  PyObject* symbolic_length(PyObject* tensor);
  PyObject* symbolic_operator(PyObject* tensor, const char* method, PyObject* other);
  bool specialize_slot(int slot);
  PyObject* symbolic_size(const std::vector<Expr>& sizes);

  /// Of one trace.
  struct Own {
    VaryingPlaces varying;
    std::map<ReadPlace, Ref> numbers;
    std::set<ReadPlace> values;          // other objects than numbers
    std::unordered_set<int> of_tensors;  // slots of numbers that tensors decide
    std::unordered_set<int> rounded;     // of those: made by functions whose last bit the graph may round otherwise
    std::unordered_set<int> read;        // of those: not of counters, so that they may be anything
    std::unordered_set<int> positive;    // of these: never zero
    std::unordered_set<int> needed;      // slots of numbers that the tape computes and whose values are guarded
    std::set<std::tuple<int, std::string, double>> kept;  // guards that a number is within others
    std::vector<std::pair<Ref, Ref>> free_keys;           // dicts, and what they have as keys
    std::vector<Placed> placed;   // placeholders in lists and dicts of the caller, which get the values back
    bool hidden_readers = false;  // iterators of C code that read the numbers that go through them
  };
  Own own_;
};

}  // namespace tatara::capture
