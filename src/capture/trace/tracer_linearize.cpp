// torch.func.linearize while a trace is open. Torch's own traces the function with another tracer and keeps what it did on
// dual tensors. Here what the function does is recorded ahead of time and comes off the tape again; each call of the linear
// map puts it onto the tape once more, between the ends of a level of forward-mode derivatives. A recording outlives its
// trace: outside of one it runs call by call.
#include <algorithm>
#include <utility>

#include "capture/host/package.h"
#include "capture/trace/function_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "ops/core/op_def.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

/// What a function does with its tensors.
struct Recording {
  std::shared_ptr<Tape> tape;  // its nodes alone, in the slots of the trace that made it
  std::vector<int> arguments, reads, results;
  int first_level = 0;                 // the place that the first level it enters had
  int depth = 0;                       // how many levels were open around it
  std::shared_ptr<ExprContext> sizes;  // whose symbols it speaks of, where sizes vary
  std::vector<int64_t> hints;          // and their values in that call
  bool by_calls = false;               // its calls are made anew, of tensors of any sizes
};

struct RecordingObject {
  PyObject_HEAD Recording* recording;
};

PyObject* run_recording(PyObject* self, PyObject* args);

PyTypeObject* recording_type() {
  return made_once([] {
    const auto dealloc = [](PyObject* self) {
      delete reinterpret_cast<RecordingObject*>(self)->recording;
      PyTypeObject* of = Py_TYPE(self);
      of->tp_free(self);
      Py_DECREF(of);
    };
    const auto call = [](PyObject* self, PyObject* args, PyObject*) { return run_recording(self, args); };
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(static_cast<destructor>(dealloc))},
                                  {Py_tp_call, reinterpret_cast<void*>(static_cast<ternaryfunc>(call))},
                                  {0, nullptr}};
    static PyType_Spec spec = {"tatara._core.Recording", sizeof(RecordingObject), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
}

/// The Python object that stands for it: one that results may hold, where nothing in it belongs to the one call.
Ref object_of(Recording recording) {
  const bool lasting = recording.sizes == nullptr;
  auto* object = PyObject_New(RecordingObject, recording_type());
  if (object == nullptr) return {};
  object->recording = new Recording(std::move(recording));
  Ref self = Ref::steal(reinterpret_cast<PyObject*>(object));
  if (!lasting) return self;
  static PyMethodDef method = {"recording", run_recording, METH_VARARGS, "(values, arguments, level) -> results"};
  return Ref::steal(PyCFunction_New(&method, self.get()));
}

const Recording* recording_of(PyObject* object) {
  if (PyCFunction_Check(object) && PyCFunction_GET_SELF(object) != nullptr) object = PyCFunction_GET_SELF(object);
  return Py_TYPE(object) == recording_type() ? reinterpret_cast<RecordingObject*>(object)->recording : nullptr;
}

/// A step's number of its level moved.
void move_level(TapeNode& node, int shift) {
  if (auto* step = std::get_if<TransformStep>(&node.kind)) step->number += shift;
}

/// (values, arguments, torch's number of the innermost open level): runs it call by call.
PyObject* run_recording(PyObject* self, PyObject* args) {
  PyObject *values = nullptr, *arguments = nullptr;
  int level = 0;
  if (PyArg_ParseTuple(args, "O!O!i", &PyTuple_Type, &values, &PyTuple_Type, &arguments, &level) == 0) return nullptr;
  const Recording& r = *recording_of(self);
  if (static_cast<size_t>(PyTuple_GET_SIZE(values)) != r.reads.size() ||
      static_cast<size_t>(PyTuple_GET_SIZE(arguments)) != r.arguments.size()) {
    PyErr_SetString(PyExc_TypeError, "another number of tensors than were recorded");
    return nullptr;
  }
  const std::shared_ptr<Tape> tape = r.tape->detach(0, 0);
  const bool grad = TorchApi::get()->grad_enabled();
  for (TapeNode node : r.tape->nodes()) {
    move_level(node, level - r.depth);
    node.mode = node.grad = node.level < r.first_level ? grad : node.mode;
    tape->add_node(std::move(node));
  }
  tape->set_outputs(r.results);
  std::vector<Ref> env(tape->slots().size());
  const auto fill = [&env](const std::vector<int>& slots, PyObject* tensors) {
    for (size_t i = 0; i < slots.size(); ++i) {
      env[static_cast<size_t>(slots[i])] = Ref::borrow(PyTuple_GET_ITEM(tensors, static_cast<Py_ssize_t>(i)));
    }
  };
  fill(r.reads, values);
  fill(r.arguments, arguments);
  std::vector<int64_t> symbols = r.hints;
  if (!tape->run_nodes(env, 0, tape->nodes().size(), symbols)) return nullptr;
  Ref results = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(r.results.size())));
  for (size_t i = 0; i < r.results.size(); ++i) {
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i),
                     Py_NewRef(env[static_cast<size_t>(r.results[i])].get()));
  }
  return results.release();
}

bool has_size_refs(const TapeNode& node) {
  bool found = false;
  const auto look = [&found](PyObject* o) {
    found = found || is_size_ref(o);
    return Ref::borrow(o);
  };
  static_cast<void>(map_structure(node.args.get(), look));
  if (node.kwargs) static_cast<void>(map_structure(node.kwargs.get(), look));
  return found;
}

/// What the node writes to, or -1: nothing, or nothing that is known.
int target_of(const TapeNode& node) {
  PyObject* out = node.kwargs ? PyDict_GetItemString(node.kwargs.get(), "out") : nullptr;
  if (out == nullptr && PyTuple_GET_SIZE(node.args.get()) > 0) out = PyTuple_GET_ITEM(node.args.get(), 0);
  return out != nullptr ? slot_of(out) : -1;
}

size_t random_nodes(const Tape& tape, TorchApi& api) {
  const TapeGraph made = build_graph(tape, api);
  const std::vector<Node>& nodes = made.graph.nodes();
  return static_cast<size_t>(
      std::count_if(nodes.begin(), nodes.end(), [](const Node& node) { return node.op->draws(); }));
}

}  // namespace

/// Our function in place of torch's.
PyObject* TransformTracing::linearize(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs == 0 || kwnames != nullptr) return not_handled();
  const Ref ours = package_function(PackageFunction::kLinearize);
  return PyObject_Vectorcall(ours.get(), args, static_cast<size_t>(nargs), nullptr);
}

/// Why the nodes, made of `slots` slots or more, are no recording that can be done again; empty: they are one, and what they
/// read from outside is in `reads`.
std::string TransformTracing::recording_problem(const std::vector<TapeNode>& nodes, size_t slots,
                                                const std::vector<int>& arguments, std::vector<int>& reads) const {
  const Tape& tape = trace_->tape;
  const auto older = [&](int slot) {
    return static_cast<size_t>(slot) < slots || tape.slots()[static_cast<size_t>(slot)].input;
  };
  std::string problem;
  const auto look = [&](int slot) {
    if (!older(slot) || std::find(arguments.begin(), arguments.end(), slot) != arguments.end()) return;
    if (tape.slots()[static_cast<size_t>(slot)].number) problem = "it reads a number that varies";
    if (std::find(reads.begin(), reads.end(), slot) == reads.end()) reads.push_back(slot);
  };
  for (const TapeNode& node : nodes) {
    const bool level = step_of(node) == FuncStep::kEnter && node.name != "enter_grad" && node.name != "enter_vmap";
    const GradientPass* pass = gradient_pass(node);
    const bool of_transforms = (pass != nullptr && pass->of_level) || step_of(node) != FuncStep::kNone;
    if (!(is_operator_call(node) || of_transforms) || level) {
      return node.name + " inside of the function";
    }
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
    if (const int target = node.mutates ? target_of(node) : -1; node.mutates && (target < 0 || older(target))) {
      return node.name + " on a tensor that the function has not made";
    }
  }
  return problem;
}

/// A call that is off the tape again, with what the tape was before it and behind.
struct TransformTracing::Attempt {
  AheadRun run;
  std::shared_ptr<Tape> before, after;
  std::vector<int64_t> versions;  // before it
};

/// Levels from `first_level` on are the call's own, and go with it.
TransformTracing::Attempt TransformTracing::attempt(PyObject* function, PyObject* tensors, int first_level) {
  Trace& t = *trace_;
  const std::vector<int> open = own_.open_levels;
  const auto tape_now = [&t] { return t.tape.detach(t.tape.nodes().size(), t.symbols.ctx().guards().size()); };
  Attempt made;
  made.versions = t.inference.versions();
  made.before = tape_now();
  made.run = functions().trace_ahead([&]() -> Ref {
    Ref returned = Ref::steal(PyObject_CallObject(function, tensors));
    const Bypass bypass(bypass_);
    made.after = tape_now();
    return returned;
  });
  own_.open_levels = open;
  own_.levels.erase(own_.levels.begin() + first_level, own_.levels.end());
  return made;
}

std::string TransformTracing::write_problem(const Attempt& attempt) const {
  const std::vector<int64_t>& versions = attempt.versions;
  const std::vector<int64_t> now = trace_->inference.versions();
  for (size_t i = 0; i < std::min(attempt.run.slots, now.size()); ++i) {
    const int64_t old = i < versions.size() ? std::max<int64_t>(versions[i], 0) : 0;
    if (now[i] > old) return "it writes to a tensor from outside of it";
  }
  return {};
}

std::string TransformTracing::draw_problem(const Attempt& attempt) const {
  try {
    const bool draws = random_nodes(*attempt.after, api_) != random_nodes(*attempt.before, api_);
    return draws ? "it draws random numbers" : std::string();
  } catch (const Error& error) {
    return error.message();
  }
}

/// (function, tensors) -> (recording, tensors that it reads beside these): what the function does, which has not happened.
PyObject* TransformTracing::record_calls(PyObject* function, PyObject* tensors) {
  Trace& t = *trace_;
  Recording made;
  std::string problem;
  if (context_.ahead != nullptr) problem = "inside of what is traced ahead";
  for (Py_ssize_t i = 0; problem.empty() && i < PyTuple_GET_SIZE(tensors); ++i) {
    made.arguments.push_back(transform_operand(PyTuple_GET_ITEM(tensors, i), problem));
    if (!problem.empty()) break;
    const Bypass bypass(bypass_);
    const TapeSlot& info = t.tape.slots()[static_cast<size_t>(made.arguments.back())];
    const DType dtype = dtype_of(info.dtype.get());
    if (!is_floating(dtype) && !is_complex(dtype)) problem = "an argument that has no derivative";
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(info.sizes.get()); ++k) {
      const bool repeated = PyLong_AsLong(PyTuple_GET_ITEM(info.strides.get(), k)) == 0 &&
                            PyLong_AsLong(PyTuple_GET_ITEM(info.sizes.get(), k)) > 1;
      if (repeated) problem = "an argument whose elements share memory";
    }
  }
  if (made.arguments.empty() && problem.empty()) problem = "a function without arguments";
  if (!problem.empty()) return transform_break("linearize: " + problem);
  made.first_level = static_cast<int>(own_.levels.size());
  made.depth = static_cast<int>(own_.open_levels.size());
  Attempt tried = attempt(function, tensors, made.first_level);
  AheadRun& run = tried.run;
  const Bypass bypass(bypass_);
  if (run.problem.empty()) run.problem = recording_problem(run.nodes, run.slots, made.arguments, made.reads);
  const bool levels = std::any_of(run.nodes.begin(), run.nodes.end(),
                                  [](const TapeNode& node) { return step_of(node) == FuncStep::kEnter; });
  for (const std::vector<int>* slots : {&std::as_const(made.arguments), &std::as_const(made.reads)}) {
    for (const int slot : *slots) {
      if (run.problem.empty() && levels && api_.grad_enabled() && histories().needs_grad(slot) != NeedsGrad::kNo) {
        run.problem = "a transform inside of the function, beside a tensor that requires grad";
      }
    }
  }
  if (run.problem.empty()) run.problem = write_problem(tried);
  for (Py_ssize_t i = 0; run.problem.empty() && i < PyList_GET_SIZE(run.returned.get()); ++i) {
    PyObject* leaf = PyList_GET_ITEM(run.returned.get(), i);
    if (!api_.is_tensor(leaf)) continue;
    const int slot = transform_operand(leaf, run.problem);
    if (!run.problem.empty()) break;
    made.results.push_back(slot);
    const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
    const bool given = static_cast<size_t>(slot) < run.slots || info.input;
    const DType dtype = dtype_of(info.dtype.get());
    if (!is_floating(dtype) && !is_complex(dtype)) run.problem = "a result that has no derivative";
    if (given && std::find(made.arguments.begin(), made.arguments.end(), slot) == made.arguments.end()) {
      run.problem = "a result that the function has not made";
    }
  }
  if (run.problem.empty()) run.problem = draw_problem(tried);
  forget_error();
  if (!run.problem.empty()) return transform_break("linearize: " + run.problem);
  bool symbolic = std::any_of(run.nodes.begin(), run.nodes.end(), has_size_refs);
  Ref values = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(made.reads.size())));
  for (size_t i = 0; i < made.reads.size(); ++i) {
    const TapeSlot& info = t.tape.slots()[static_cast<size_t>(made.reads[i])];
    PyTuple_SET_ITEM(values.get(), static_cast<Py_ssize_t>(i), Py_NewRef(info.object.get()));
  }
  made.tape = t.tape.detach(0, 0);
  for (TapeNode& node : run.nodes) {
    for (const int slot : node.outputs) {
      symbolic = symbolic || (slot >= 0 && !t.tape.slots()[static_cast<size_t>(slot)].symbolic_sizes.empty());
    }
    made.tape->add_node(std::move(node));
  }
  if (symbolic) {
    made.sizes = t.symbols.ctx_ptr();
    made.hints = t.symbols.hints();
  }
  const Ref recording = object_of(std::move(made));
  if (!recording) return nullptr;
  PyObject* pair = PyTuple_Pack(2, recording.get(), values.get());
  mark_born(values.get());
  mark_born(pair);
  return pair;
}

/// What a function of torch.cond does with the tensors, which has not happened.
TransformTracing::Branch TransformTracing::record_branch(PyObject* function, PyObject* tensors) {
  Trace& t = *trace_;
  Branch branch;
  Recording made;
  for (Py_ssize_t i = 0; branch.problem.empty() && i < PyTuple_GET_SIZE(tensors); ++i) {
    made.arguments.push_back(transform_operand(PyTuple_GET_ITEM(tensors, i), branch.problem));
  }
  if (!branch.problem.empty()) return branch;
  made.first_level = static_cast<int>(own_.levels.size());
  Attempt tried = attempt(function, tensors, made.first_level);
  AheadRun& run = tried.run;
  const Bypass bypass(bypass_);
  branch.problem = run.problem;
  if (branch.problem.empty()) branch.problem = recording_problem(run.nodes, run.slots, made.arguments, made.reads);
  if (branch.problem.empty()) branch.problem = write_problem(tried);
  for (const TapeNode& node : run.nodes) {
    const bool switched = node.mode != api_.grad_enabled() || step_of(node) != FuncStep::kNone;
    if (branch.problem.empty() && switched) branch.problem = "it switches gradients";
    if (branch.problem.empty() && has_size_refs(node)) branch.problem = "its sizes vary";
  }
  if (branch.problem.empty()) branch.problem = draw_problem(tried);
  std::vector<Ref> types;
  const auto take = [&](PyObject* o) -> Ref {
    const int slot = api_.is_tensor(o) ? t.tape.find(o) : -1;
    if (slot < 0 || static_cast<size_t>(slot) < run.slots || t.tape.slots()[static_cast<size_t>(slot)].input ||
        t.tape.slots()[static_cast<size_t>(slot)].number) {
      branch.problem = "it gives what it has not made";
      return Ref::borrow(o);
    }
    const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
    types.push_back(
        Ref::steal(PyTuple_Pack(4, info.dtype.get(), info.sizes.get(), info.strides.get(), info.device.get())));
    made.results.push_back(slot);
    return Ref::steal(PyLong_FromSize_t(types.size() - 1));
  };
  if (branch.problem.empty()) branch.structure = map_structure(run.returned.get(), take);
  if (branch.problem.empty() && types.empty()) branch.problem = "it gives no tensors";
  forget_error();
  if (!branch.problem.empty()) return branch;
  branch.reads = made.reads;
  branch.types = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(types.size())));
  for (size_t i = 0; i < types.size(); ++i) {
    PyTuple_SET_ITEM(branch.types.get(), static_cast<Py_ssize_t>(i), types[i].release());
  }
  branch.uses = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(made.arguments.size())));
  for (size_t i = 0; i < made.arguments.size(); ++i) {
    bool used = false;
    const auto look = [&](int slot) { used = used || slot == made.arguments[i]; };
    for (const TapeNode& node : run.nodes) {
      for_each_slot(node.args.get(), look);
      for_each_slot(node.kwargs.get(), look);
    }
    PyTuple_SET_ITEM(branch.uses.get(), static_cast<Py_ssize_t>(i), PyBool_FromLong(used ? 1 : 0));
  }
  made.tape = t.tape.detach(0, 0);
  made.by_calls = true;
  for (TapeNode& node : run.nodes) made.tape->add_node(std::move(node));
  branch.recording = object_of(std::move(made));
  if (!branch.recording) branch.problem = take_error_text();
  return branch;
}

/// Makes the calls of a recording once more, in a trace whose sizes may be others. Null with a Python error set.
Ref make_calls(const Recording& r, PyObject* values, PyObject* arguments) {
  std::vector<Ref> env(r.tape->slots().size());
  const auto fill = [&env](const std::vector<int>& slots, PyObject* tensors) {
    for (size_t i = 0; i < slots.size(); ++i) {
      env[static_cast<size_t>(slots[i])] = Ref::borrow(PyTuple_GET_ITEM(tensors, static_cast<Py_ssize_t>(i)));
    }
  };
  fill(r.reads, values);
  fill(r.arguments, arguments);
  const auto present = [&env](PyObject* o) {
    const int slot = slot_of(o);
    return slot >= 0 ? env[static_cast<size_t>(slot)] : Ref::borrow(o);
  };
  for (const TapeNode& node : r.tape->nodes()) {
    const Ref args = map_structure(node.args.get(), present);
    const Ref kwargs = node.kwargs ? map_structure(node.kwargs.get(), present) : Ref();
    const Ref result = args ? Ref::steal(PyObject_Call(node.func.get(), args.get(), kwargs.get())) : Ref();
    if (!result) return {};
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] < 0) continue;
      PyObject* each = result.get();
      if (node.sequence) each = PySequence_Fast_GET_ITEM(result.get(), static_cast<Py_ssize_t>(i));
      env[static_cast<size_t>(node.outputs[i])] = Ref::borrow(each);
    }
  }
  Ref results = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(r.results.size())));
  for (size_t i = 0; i < r.results.size(); ++i) {
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i),
                     Py_NewRef(env[static_cast<size_t>(r.results[i])].get()));
  }
  return results;
}

/// (recording, values, arguments) -> results: puts the recording onto the tape once more.
PyObject* TransformTracing::replay_calls(PyObject* recorded, PyObject* values, PyObject* arguments) {
  Trace& t = *trace_;
  const Recording* recording = recording_of(recorded);
  if (recording == nullptr) return not_handled();
  const Recording& r = *recording;
  if (r.by_calls) {
    Ref results = make_calls(r, values, arguments);
    if (results) mark_born(results.get());
    return results.release();
  }
  std::string problem;
  if (r.sizes && r.sizes != t.symbols.ctx_ptr()) problem = "a linear map from another call, whose sizes vary";
  std::vector<int> now(r.tape->slots().size(), -1);
  const auto bring = [&](const std::vector<int>& slots, PyObject* tensors) {
    for (size_t i = 0; problem.empty() && i < slots.size(); ++i) {
      PyObject* tensor = PyTuple_GET_ITEM(tensors, static_cast<Py_ssize_t>(i));
      now[static_cast<size_t>(slots[i])] = transform_operand(tensor, problem);
    }
  };
  bring(r.reads, values);
  bring(r.arguments, arguments);
  const std::vector<TapeNode>& nodes = r.tape->nodes();
  const auto in_gradients = [this](int level) {
    return own_.levels[static_cast<size_t>(level)].kind == Level::Kind::kGrad;
  };
  if (std::any_of(nodes.begin(), nodes.end(), [](const TapeNode& n) { return step_of(n) == FuncStep::kEnter; }) &&
      std::any_of(own_.open_levels.begin(), own_.open_levels.end(), in_gradients) && !api_.grad_enabled()) {
    problem = "a transform inside of another where gradients are switched off";
  }
  if (!problem.empty()) return transform_break("linearize: " + problem);
  const int around = innermost(), first_level = static_cast<int>(own_.levels.size());
  const int shift = static_cast<int>(own_.open_levels.size()) - r.depth;
  const auto moved = [&](int level) { return level < r.first_level ? around : first_level + level - r.first_level; };
  const auto to_slot = [&now](PyObject* o) {
    const int slot = slot_of(o);
    return slot >= 0 ? make_slot_ref(now[static_cast<size_t>(slot)]) : Ref::borrow(o);
  };
  const Bypass bypass(bypass_);
  for (TapeNode node : nodes) {
    for (int& output : node.outputs) {
      if (output < 0) continue;
      int& place = now[static_cast<size_t>(output)];
      if (place < 0) {
        const TapeSlot& info = r.tape->slots()[static_cast<size_t>(output)];
        const Ref made = api_.empty_meta(info.sizes.get(), info.strides.get(), info.dtype.get());
        if (!made) return nullptr;
        place = t.tape.add_placeholder(made.get(), info.device);
        if (!info.symbolic_sizes.empty()) t.tape.set_layout(place, info.symbolic_sizes, info.symbolic_strides);
        t.tape.set_level(place, moved(info.level));
      }
      output = place;
    }
    move_level(node, shift);
    node.args = map_structure(node.args.get(), to_slot);
    if (node.kwargs) node.kwargs = map_structure(node.kwargs.get(), to_slot);
    // Torch's graph knows nothing of switches outside of a level.
    note_modes(node, node.level < r.first_level ? api_.grad_enabled() : node.mode);
    const FuncStep step = step_of(node);
    if (step == FuncStep::kWrap) own_.wraps[node.outputs[0]] = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
    Level level;
    level.kind = node.name == "enter_vmap" ? Level::Kind::kVmap : Level::Kind::kGrad;
    level.outer_grad = level.kind == Level::Kind::kVmap || api_.grad_enabled();
    level.number = static_cast<int>(own_.open_levels.size()) + 1;
    if (auto* entered = std::get_if<TransformStep>(&node.kind); entered != nullptr && step == FuncStep::kEnter) {
      entered->number = static_cast<int>(own_.levels.size());
    }
    t.tape.add_node(std::move(node));
    if (step == FuncStep::kEnter) {
      own_.levels.push_back(std::move(level));
      own_.open_levels.push_back(static_cast<int>(own_.levels.size()) - 1);
    }
    if (step == FuncStep::kExit) own_.open_levels.pop_back();
  }
  PyObject* results = PyTuple_New(static_cast<Py_ssize_t>(r.results.size()));
  for (size_t i = 0; i < r.results.size(); ++i) {
    const TapeSlot& info = t.tape.slots()[static_cast<size_t>(now[static_cast<size_t>(r.results[i])])];
    PyTuple_SET_ITEM(results, static_cast<Py_ssize_t>(i), Py_NewRef(info.object.get()));
  }
  mark_born(results);
  return results;
}

}  // namespace tatara::capture
