// NumPy while a trace is open. Each call runs for real where the program makes it, so results, warnings and exceptions are
// NumPy's own, and then goes onto the tape. Arrays in the frames are therefore real objects; what must never happen is that
// their values flow on unseen, into a branch or a Python number. So each operation on an array is either recorded or breaks
// the graph, and C code gets arrays only where it is known not to read them (numpy_calls.cpp).
#include <opcode.h>

#include <cstring>
#include <unordered_set>

#include "capture/host/numpy_alone.h"
#include "capture/host/numpy_api.h"
#include "capture/host/object_kinds.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/turn_tracing.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

constexpr int kMaxLooked = 4000;

/// Functions of the `operator` module and the ufuncs that they end in, by the number of BINARY_OP.
struct BinaryName {
  const char* op;
  const char* ufunc;
};
constexpr BinaryName kBinary[] = {
    {"add", "add"},        {"and_", "bitwise_and"},   {"floordiv", "floor_divide"}, {"lshift", "left_shift"},
    {"matmul", "matmul"},  {"mul", "multiply"},       {"mod", "remainder"},         {"or_", "bitwise_or"},
    {"pow", "power"},      {"rshift", "right_shift"}, {"sub", "subtract"},          {"truediv", "divide"},
    {"xor", "bitwise_xor"}};
constexpr const char* kInplace[] = {"iadd", "iand", "ifloordiv", "ilshift", "imatmul",  "imul", "imod",
                                    "ior",  "ipow", "irshift",   "isub",    "itruediv", "ixor"};

PyObject* operator_function(const char* name) {
  static PyObject* module = PyImport_ImportModule("operator");
  return PyObject_GetAttrString(module, name);
}

struct SeqIter {
  PyObject_HEAD Py_ssize_t index;
  PyObject* sequence;
};

/// Looks through containers and iterators of the interpreter for an object of interest.
struct Search {
  bool (*wanted)(PyObject*, void*);
  void* data;
  bool found = false;
  int looked = 0;
  std::vector<PyObject*> todo;

  static int visit(PyObject* object, void* self) {
    auto* search = static_cast<Search*>(self);
    if (search->wanted(object, search->data)) search->found = true;
    if (opens(object)) search->todo.push_back(object);
    return search->found ? 1 : 0;
  }
  /// Containers, iterators, partials and methods: C objects that hand on what they hold. Not modules, classes, functions and
  /// instances of Python classes, whose contents C code reaches through their methods only.
  static bool opens(PyObject* o) {
    const PyTypeObject* type = Py_TYPE(o);
    if ((type->tp_flags & Py_TPFLAGS_HAVE_GC) == 0 || type->tp_traverse == nullptr) return false;
    if (PyTuple_Check(o) || PyList_Check(o) || PyDict_Check(o) || PyAnySet_Check(o)) return true;
    if (PyModule_Check(o) || PyType_Check(o) || PyFunction_Check(o) || PyGen_Check(o) || PyFrame_Check(o)) return false;
    if (std::strncmp(type->tp_name, "torch", 5) == 0) return false;
    return is_c_iterator(o) || PySlice_Check(o) || PyMethod_Check(o) ||
           std::strcmp(type->tp_name, "functools.partial") == 0 || std::strncmp(type->tp_name, "dict_", 5) == 0 ||
           is_deque(o);
  }
  bool run(PyObject* start) {
    if (visit(start, this) != 0) return true;
    std::vector<PyObject*> seen;
    while (!todo.empty() && !found) {
      PyObject* next = todo.back();
      todo.pop_back();
      if (++looked > kMaxLooked) return true;
      Py_TYPE(next)->tp_traverse(next, visit, this);
    }
    return found;
  }
};

}  // namespace

bool NumpyTracing::numpy_value(PyObject* o) const {
  const NumpyApi* np = api_.numpy;
  if (np == nullptr || o == nullptr) return false;
  if (np->is_any_array(o)) return true;
  // Scalars from outside are constants guarded by value, but for those among the roots.
  return np->is_scalar(o) && (trace_->tape.find(o) >= 0 || trace_->index_of(o) >= 0);
}

bool NumpyTracing::numpy_inside(PyObject* o) const {
  if (api_.numpy == nullptr || o == nullptr) return false;
  if (!Search::opens(o)) return numpy_value(o);
  Search search{[](PyObject* each, void* self) { return static_cast<const NumpyTracing*>(self)->numpy_value(each); },
                const_cast<NumpyTracing*>(this),
                false,
                0,
                {}};
  return search.run(o);
}

PyObject* NumpyTracing::numpy_break(const std::string& reason) { return graph_break(reason) ? not_handled() : nullptr; }

// ---- The tape --------------------------------------------------------------------------------------------------------

namespace {

bool make_slot(const NumpyApi& np, PyObject* value, TapeSlot& slot) {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes, strides;
  if (!np.describe(value, dtype, sizes, strides)) return false;
  slot.object = Ref::borrow(value);
  slot.dtype = attr(value, "dtype");
  slot.sizes = int_tuple(sizes);
  slot.strides = int_tuple(strides);
  slot.scalar = !np.is_array(value);
  slot.owns = !slot.scalar && NumpyApi::owns_memory(value);
  slot.fresh = !slot.scalar && np.fresh_memory(value);
  slot.read_only = !slot.scalar && !np.writeable(value);
  return true;
}

}  // namespace

int NumpyTracing::numpy_slot(PyObject* value) {
  Trace& t = *trace_;
  if (const int known = t.tape.find(value); known >= 0) return known;
  TapeSlot slot;
  if (!make_slot(*api_.numpy, value, slot)) return -1;
  slot.input = true;
  slot.guard_index = t.index_of(value);
  // An array that is neither an argument nor was read from an older object was made by code that nobody saw.
  if (slot.guard_index < 0 && t.constants.has_array(value)) return constant_slot(value, std::move(slot));
  if (slot.guard_index < 0 && !t.object_guards.seen_objects().contains(value)) return -1;
  return t.tape.add_value(std::move(slot));
}

Ref NumpyTracing::numpy_to_tape(PyObject* value, bool& uses, std::string& problem) {
  return map_structure(value, [&](PyObject* o) -> Ref {
    if (numpy_value(o)) {
      uses = true;
      if (!api_.numpy->is_array(o) && !api_.numpy->is_scalar(o)) problem = "an array of type " + type_name(o);
      const int slot = problem.empty() ? numpy_slot(o) : -1;
      if (slot >= 0) return make_slot_ref(slot);
      if (problem.empty()) problem = "an array of unknown origin or unsupported element type or layout";
    } else if (api_.is_torch_tensor(o)) {
      problem = "a torch tensor in a NumPy call";
    } else if (Search::opens(o) && numpy_inside(o)) {
      problem = "arrays inside a " + type_name(o);
    } else if (api_.numpy->makes_array(o)) {
      problem = "an object of type " + type_name(o) + ", of which NumPy makes an array";
    }
    return Ref::borrow(o);
  });
}

/// Arrays in the result get slots. `problem` is set for what the tape cannot hold.
void NumpyTracing::numpy_take(PyObject* result, TapeNode& node, bool constant, std::string& problem) {
  Trace& t = *trace_;
  const NumpyApi& np = *api_.numpy;
  if (PyTuple_Check(result) || PyList_CheckExact(result)) {
    node.sequence = true;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(result, i);
      numpy_take(item, node, constant, problem);
    }
    return;
  }
  if (np.is_bool_scalar(result)) {
    // np.True_ and np.False_ are the only objects of their type: they cannot stand for one value of the trace.
    problem = "the value of a NumPy bool";
    return;
  }
  if (!np.is_array(result) && !np.is_scalar(result)) {
    if (problem.empty()) problem = "the result is of type " + type_name(result);
    return;
  }
  if (const int known = t.tape.find(result); known >= 0) {
    node.outputs.push_back(known);
    return;
  }
  if (t.index_of(result) >= 0) {
    node.outputs.push_back(numpy_slot(result));
    return;
  }
  TapeSlot slot;
  if (!make_slot(np, result, slot)) {
    problem = "the element type or layout of a result";
    return;
  }
  slot.constant = constant;
  node.outputs.push_back(t.tape.add_value(std::move(slot)));
}

bool NumpyTracing::constant(int slot) const {
  return slot >= 0 && trace_->tape.slots()[static_cast<size_t>(slot)].constant;
}

bool NumpyTracing::plain(PyObject* o) const {
  return is_atom(o, api_) || PyType_Check(o) || api_.numpy->is_dtype(o) || o == Py_Ellipsis ||
         (api_.numpy->is_scalar(o) && !numpy_value(o));
}

/// Whether a call among torch's has no operands but constants, arrays among them.
bool NumpyTracing::of_constants(const NumpyCall& call) const {
  bool alone = !call.name.starts_with("empty") && call.name != "fromiter";
  const auto look = [&](PyObject* o) {
    alone = alone && (trace_->constants.has_array(o) || (!numpy_value(o) && plain(o)));
    return Ref::borrow(o);
  };
  map_structure(call.args.get(), look);
  if (call.kwargs) map_structure(call.kwargs.get(), look);
  return alone;
}

/// False: it is nothing that a later call can make anew.
bool NumpyTracing::note_constant(PyObject* result) {
  if (result == Py_None || api_.numpy->is_scalar(result)) return true;
  if (!api_.numpy->is_array(result)) return false;
  trace_->constants.add_array(result);
  mark_born(result);
  return true;
}

bool NumpyTracing::constants_alone(const TapeNode& node) const {
  bool alone = true;
  // Objects of other kinds may make something else of themselves each time (__array__).
  const auto look = [&](PyObject* o) {
    const int slot = slot_of(o);
    alone = alone && (slot >= 0 ? constant(slot) : plain(o));
    return Ref::borrow(o);
  };
  map_structure(node.args.get(), look);
  if (node.kwargs) map_structure(node.kwargs.get(), look);
  return alone;
}

/// Values that may vary were written to one of the call's operands: what shares its memory is no constant any more.
void NumpyTracing::vary_written(const TapeNode& node) {
  const auto memory = [](PyObject* o) {
    Ref at = Ref::borrow(o);
    for (Ref base = at; base && base.get() != Py_None; base = attr_or_null(at.get(), "base")) at = base;
    return at.get();
  };
  Tape& tape = trace_->tape;
  std::unordered_set<PyObject*> written;
  const auto note = [&](int slot) { written.insert(memory(tape.slots()[static_cast<size_t>(slot)].object.get())); };
  for_each_slot(node.args.get(), note);
  if (node.kwargs) for_each_slot(node.kwargs.get(), note);
  for (size_t s = 0; s < tape.slots().size(); ++s) {
    const TapeSlot& slot = tape.slots()[s];
    if (slot.constant && slot.object && written.contains(memory(slot.object.get())))
      tape.set_varying(static_cast<int>(s));
  }
}

/// What a call gives for operands that are the same in each call; null without an error: the call raises.
Ref NumpyTracing::numpy_constant(const NumpyCall& call) {
  ++bypass_;
  Ref result = Ref::steal(PyObject_Call(call.func.get(), call.args.get(), call.kwargs.get()));
  --bypass_;
  if (!result) forget_error();
  return result;
}

/// Whether memory that the trace found, and that is no argument's, may be written to.
bool NumpyTracing::writes_outside(const NumpyCall& call) const {
  const auto outside = [this](PyObject* o) {
    for (Ref at = Ref::borrow(o); at && at.get() != Py_None; at = attr_or_null(at.get(), "base")) {
      const int slot = trace_->tape.find(at.get());
      if (slot < 0 ? trace_->object_guards.seen_objects().contains(at.get())
                   : trace_->tape.slots()[static_cast<size_t>(slot)].input &&
                         trace_->tape.slots()[static_cast<size_t>(slot)].guard_index < 0) {
        return true;
      }
    }
    return false;
  };
  PyObject* out = call.kwargs ? PyDict_GetItemString(call.kwargs.get(), "out") : nullptr;
  bool found = PyTuple_GET_SIZE(call.args.get()) > 0 && outside(PyTuple_GET_ITEM(call.args.get(), 0));
  if (out != nullptr && out != Py_None) {
    found = !PyTuple_Check(out) && outside(out);
    for (Py_ssize_t i = 0; PyTuple_Check(out) && i < PyTuple_GET_SIZE(out); ++i) {
      found = found || outside(PyTuple_GET_ITEM(out, i));
    }
  } else if (api_.numpy->is_ufunc(call.func.get())) {
    const Py_ssize_t inputs = PyLong_AsSsize_t(attr(call.func.get(), "nin").get());
    if (PyTuple_GET_SIZE(call.args.get()) > inputs) found = false;
    for (Py_ssize_t i = inputs; i < PyTuple_GET_SIZE(call.args.get()); ++i) {
      found = found || outside(PyTuple_GET_ITEM(call.args.get(), i));
    }
  }
  return found;
}

PyObject* NumpyTracing::numpy_record(NumpyCall call) {
  Trace& t = *trace_;
  if (holds_tensor(call.args.get(), call.kwargs.get())) return cross(std::move(call));
  std::string problem;
  bool uses = false;
  // NumPy would take a placeholder for an object of its own kind.
  numbers().settle_reachable(call.args.get());
  numbers().settle_reachable(call.kwargs.get());
  if (!tracing()) return PyObject_Call(call.func.get(), call.args.get(), call.kwargs.get());
  if (takes_many_scalars(call)) return run_behind("a list of many NumPy scalars (" + call.name + ")", call);
  reads().watch_lists({call.args.get(), call.kwargs.get()});
  if (t.tape.nodes().size() >= kMostArrayCalls) {
    const bool whole = owner_.fullgraph || !context_.whole.empty();
    if (!graph_break("the graph grew to " + std::to_string(kMostArrayCalls) + " operations", !whole)) return nullptr;
    return PyObject_Call(call.func.get(), call.args.get(), call.kwargs.get());
  }
  const bool among_torchs = !t.tape.nodes().empty() && !is_numpy_tape(t.tape);
  Ref made;  // ahead of the tape
  if (among_torchs && of_constants(call)) made = numpy_constant(call);
  if (made && note_constant(made.get())) return made.release();
  TapeNode node;
  node.args = numpy_to_tape(call.args.get(), uses, problem);
  if (call.kwargs) node.kwargs = numpy_to_tape(call.kwargs.get(), uses, problem);
  if (call.sized && node.args && constants_alone(node)) call.sized = false;
  if (problem.empty()) problem = catch_up();
  if (problem.empty() && writes().has_changed_filters()) problem = "NumPy calls under other filters of warnings";
  if (!problem.empty() || !node.args) {
    forget_error();
    if (!graph_break(problem + " (" + call.name + ")")) return nullptr;
    if (made) return made.release();
    return PyObject_Call(call.func.get(), call.args.get(), call.kwargs.get());
  }
  if (call.mutates && numpy_alone() && writes_outside(call))
    return run_behind("a write to an array that is no argument (" + call.name + ")", call);
  const int target = call.mutates ? young_target(call) : -1;
  if (call.mutates && target < 0) t.transaction.lose("NumPy has written to an array");
  std::string decides;
  if (call.sized && (call.mutates || !may_decide(decides)))
    return run_behind("a NumPy value decides the size of an array (" + call.name + ")", call);
  ++bypass_;
  Ref result = Ref::steal(PyObject_Call(call.func.get(), call.args.get(), call.kwargs.get()));
  --bypass_;
  if (!result) {
    // The next run makes this call for real, and its own error.
    const ErrorAside aside;
    if (!graph_break(call.name + " raised an exception")) postpone_error();
    return nullptr;
  }
  // What np.empty gives is not the same in each call.
  const bool constant = constants_alone(node) && !call.name.starts_with("empty") && call.name != "fromiter";
  if (constant && !call.mutates && api_.numpy->is_scalar(result.get())) return result.release();
  if (call.mutates && !constant) vary_written(node);
  Ref fell;
  const bool pythons = PyBool_Check(result.get()) || PyLong_CheckExact(result.get());
  if ((pythons || api_.numpy->is_bool_scalar(result.get())) && may_decide(decides)) {
    fell = result;
    TapeSlot slot;
    if (!pythons) make_slot(*api_.numpy, result.get(), slot);
    slot.object = Ref();  // np.True_ is the only one of its kind
    node.outputs.push_back(t.tape.add_value(std::move(slot)));
  } else if (result.get() != Py_None || !call.mutates) {
    numpy_take(result.get(), node, constant, problem);
  }
  if (!problem.empty()) {
    t.mutated = t.mutated || call.mutates;
    if (!graph_break(call.name + ": " + problem)) return nullptr;
    return result.release();
  }
  node.func = std::move(call.func);
  node.name = std::move(call.name);
  node.mutates = call.mutates;
  const Ref errstate = api_.numpy->errstate();
  node.kind = NumpyOperation{.errstate = errstate.get() != t.state.errstate.get() ? errstate : Ref(),
                             .as_it_stands = call.sized || (fell && pythons),
                             .target = target,
                             .decides = std::move(decides),
                             .fell = fell};
  node.location = user_location();
  t.tape.add_node(std::move(node));
  return result.release();
}

PyObject* NumpyTracing::numpy_operator(const char* op, const char* name, std::initializer_list<PyObject*> operands,
                                       bool mutates, bool sized) {
  Ref args = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(operands.size())));
  Py_ssize_t i = 0;
  for (PyObject* each : operands) PyTuple_SET_ITEM(args.get(), i++, Py_NewRef(each));
  return numpy_record({Ref::steal(operator_function(op)), std::move(args), {}, name, mutates, sized});
}

// ---- Operators -------------------------------------------------------------------------------------------------------

PyObject* Tracer::unary_op(Frame&, UnaryOp op, PyObject* value) {
  if (!tracing()) return not_handled();
  turns().reads(value);
  if (!numpy().numpy_value(value)) return reads().watch_contents(value, Reading::kItems) ? not_handled() : nullptr;
  switch (op) {
    case UnaryOp::kPositive: return numpy().numpy_operator("pos", "positive", {value});
    case UnaryOp::kNegative: return numpy().numpy_operator("neg", "negative", {value});
    case UnaryOp::kInvert: return numpy().numpy_operator("invert", "invert", {value});
    case UnaryOp::kNot: return numpy().numpy_break("truth of an array");
  }
  return not_handled();
}

PyObject* NumpyTracing::numpy_binary(int op, PyObject* left, PyObject* right) {
  constexpr int kCount = 13;
  const bool first = numpy_value(left);
  if (!first && !numpy_value(right)) {
    if (!numpy_inside(left) && !numpy_inside(right)) return not_handled();
    // list + list and the like hand on their items; formatting reads them.
    if (PyUnicode_Check(left)) return numpy_break("an array in a text");
    return not_handled();
  }
  if (PyUnicode_Check(left) || PyBytes_Check(left)) return numpy_break("an array in a text");
  if (PyList_Check(left) && PyLong_Check(right) == 0 && !api_.numpy->is_any_array(right)) {
    return numpy_break("a sequence and a NumPy scalar");
  }
  const BinaryName& name = kBinary[op % kCount];
  if (PyObject* done = tensor_operator(op, name.op, left, right); done != not_handled() || !tracing()) return done;
  // In place only on arrays: scalars make new ones.
  const bool inplace = op >= kCount && api_.numpy->is_any_array(left);
  return numpy_operator(inplace ? kInplace[op % kCount] : name.op, name.ufunc, {left, right}, inplace);
}

PyObject* NumpyTracing::numpy_compare(int op, PyObject* left, PyObject* right) {
  static constexpr BinaryName kCompare[] = {{"lt", "less"},      {"le", "less_equal"}, {"eq", "equal"},
                                            {"ne", "not_equal"}, {"gt", "greater"},    {"ge", "greater_equal"}};
  if (numpy_value(left) || numpy_value(right)) {
    return numpy_operator(kCompare[op].op, kCompare[op].ufunc, {left, right});
  }
  // A container and a number compare as objects.
  const auto number = [](PyObject* o) { return PyLong_CheckExact(o) || PyFloat_CheckExact(o) || o == Py_None; };
  const auto listed = [](PyObject* o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); };
  constexpr int kEqual = 2, kUnequal = 3;
  const bool apart = (listed(left) && number(right)) || (listed(right) && number(left));
  if (apart && (op == kEqual || op == kUnequal)) return Py_NewRef(op == kEqual ? Py_False : Py_True);
  if (numpy_inside(left) || numpy_inside(right)) return numpy_break("comparison of containers that hold arrays");
  return not_handled();
}

PyObject* ReadTracing::show(PyObject* value) {
  if (!tracing()) return not_handled();
  if (numpy().numpy_inside(value)) return numpy().numpy_break("an array in a text");
  return watch_contents(value, Reading::kAll) ? not_handled() : nullptr;
}

PyObject* Tracer::format_value(Frame&, PyObject* value, int, PyObject*) {
  if (tracing()) turns().shows(value);
  return reads().show(value);
}

PyObject* Tracer::convert_value(Frame&, PyObject* value, int) {
  if (tracing()) turns().shows(value);
  return reads().show(value);
}

int Tracer::set_add(Frame&, PyObject* set, PyObject* value) {
  if (tracing()) turns().writes_to(nullptr, nullptr);
  if (!reads().break_if_begun(set)) return -1;
  if (tracing()) origins().pin(value);
  if (!tracing() || !numpy().numpy_inside(value)) return kNotHandled;
  return graph_break("the hash of a NumPy value") ? kNotHandled : -1;
}

int Tracer::map_add(Frame&, PyObject* dict, PyObject* key, PyObject*) {
  if (tracing()) turns().writes_to(nullptr, nullptr);
  if (!reads().break_if_begun(dict)) return -1;
  if (tracing()) origins().pin(key);
  if (!tracing() || !numpy().numpy_inside(key)) return kNotHandled;
  return graph_break("the hash of a NumPy value") ? kNotHandled : -1;
}

// ---- Items and iteration ---------------------------------------------------------------------------------------------

namespace {

/// Whether an index holds booleans, so that the number of items it picks depends on values.
bool has_mask(const NumpyApi& np, PyObject* key, bool top = true) {
  if (np.is_any_array(key) || np.is_scalar(key)) {
    DType dtype = DType::kFloat32;
    std::vector<int64_t> sizes, strides;
    return !np.describe(key, dtype, sizes, strides) || dtype == DType::kBool;
  }
  if (PyBool_Check(key)) return true;
  if (PySlice_Check(key)) return false;
  if (PyTuple_Check(key) || PyList_Check(key)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(key); ++i) {
      if (has_mask(np, PySequence_Fast_GET_ITEM(key, i), false)) return true;
    }
    return false;
  }
  (void)top;
  return false;
}

}  // namespace

PyObject* NumpyTracing::numpy_get_item(PyObject* container, PyObject* key) {
  if (numpy_value(container)) {
    const auto slice_reads = [this](PyObject* k) { return PySlice_Check(k) && numpy_inside(k); };
    bool sliced = slice_reads(key);
    for (Py_ssize_t i = 0; PyTuple_Check(key) && i < PyTuple_GET_SIZE(key); ++i) {
      sliced = sliced || slice_reads(PyTuple_GET_ITEM(key, i));
    }
    Ref whole = Ref::borrow(key);
    if (sliced) whole = with_whole_slices(key);
    if (sliced && PyErr_Occurred() != nullptr) return nullptr;
    if (!whole) return tracing() ? numpy_break("a slice whose bounds are NumPy values") : not_handled();
    return numpy_operator("getitem", "getitem", {container, whole.get()}, false, has_mask(*api_.numpy, key));
  }
  if (numpy_inside(key)) {
    if (const Ref places = tensor_key(container, key)) return PyObject_GetItem(container, places.get());
    if (PyErr_Occurred() != nullptr) return nullptr;
    if (!tracing()) return not_handled();
    return numpy_break("a NumPy value as index of a " + type_name(container));
  }
  // numpy.flatiter and numpy.nditer read the array that they go over; no guard looks inside of them.
  if (is_c_iterator(container)) return numpy_break("an item of a " + type_name(container));
  return not_handled();
}

int NumpyTracing::numpy_set_item(PyObject* container, PyObject* key, PyObject* value) {
  if (numpy_value(container)) {
    if (value == nullptr) return kNotHandled;  // an error
    const Ref done = Ref::steal(numpy_operator("setitem", "setitem", {container, key, value}, true));
    return done ? 0 : -1;
  }
  if (is_c_iterator(container)) {
    return graph_break("an item of a " + type_name(container)) ? kNotHandled : -1;
  }
  if (!numpy_inside(key)) return kNotHandled;
  if (value != nullptr) {
    if (const Ref places = tensor_key(container, key)) return PyObject_SetItem(container, places.get(), value);
    if (PyErr_Occurred() != nullptr) return -1;
    if (!tracing()) return kNotHandled;
  }
  return graph_break("a NumPy value as index of a " + type_name(container)) ? kNotHandled : -1;
}

PyObject* NumpyTracing::numpy_iterate(PyObject* iterator) {
  if (api_.numpy == nullptr || Py_TYPE(iterator) != &PySeqIter_Type) return not_handled();
  auto* it = reinterpret_cast<SeqIter*>(iterator);
  // Of one that existed before the trace nothing tells later calls where it is.
  if (it->sequence == nullptr || !numpy_value(it->sequence) || reads().outside_iterator(iterator)) return not_handled();
  PyObject* array = it->sequence;
  if (NumpyApi::ndim(array) == 0 || it->index >= NumpyApi::dim(array, 0)) return not_handled();
  const Ref index = Ref::steal(PyLong_FromSsize_t(it->index));
  const Ref alive = Ref::borrow(array);
  PyObject* item = numpy_operator("getitem", "getitem", {array, index.get()});
  if (item != nullptr) {
    ++it->index;
    if (context_.state == State::kTracing) trace_->mutated = trace_->mutated || context_.frames.back() != context_.root;
  }
  return item;
}

int NumpyTracing::numpy_unpack(PyObject* sequence, int before, int after, PyObject** out) {
  if (!numpy_value(sequence)) return kNotHandled;
  const NumpyApi& np = *api_.numpy;
  if (after >= 0 || !np.is_array(sequence) || NumpyApi::ndim(sequence) == 0 || NumpyApi::dim(sequence, 0) != before) {
    return graph_break("an array is unpacked") ? kNotHandled : -1;
  }
  for (int i = 0; i < before; ++i) {
    const Ref index = Ref::steal(PyLong_FromLong(i));
    out[i] = numpy_operator("getitem", "getitem", {sequence, index.get()});
    if (out[i] != nullptr) continue;
    while (i-- > 0) Py_DECREF(out[i]);
    return -1;
  }
  return 0;
}

// ---- Attributes ------------------------------------------------------------------------------------------------------

PyObject* NumpyTracing::numpy_attribute(PyObject* owner, PyObject* name) {
  const std::string text = text_of(name);
  for (const char* metadata : {"shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags", "device"}) {
    if (text == metadata) return not_handled();
  }
  for (const char* recorded : {"T", "mT", "real", "imag"}) {
    if (text != recorded) continue;
    const Ref args = Ref::steal(PyTuple_Pack(2, owner, name));
    const Ref builtins = Ref::steal(PyImport_ImportModule("builtins"));
    return numpy_record({attr(builtins.get(), "getattr"), args, {}, text, false});
  }
  PyObject* found = _PyType_Lookup(Py_TYPE(owner), name);
  if (found == nullptr || Py_TYPE(found) == &PyMethodDescr_Type || Py_TYPE(found) == &PyWrapperDescr_Type ||
      text == "__class__") {
    return not_handled();
  }
  return numpy_break("attribute " + text + " of an array");
}

}  // namespace tatara::capture
