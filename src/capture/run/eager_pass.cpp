#include "capture/run/eager_pass.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "capture/entries/guards.h"
#include "capture/host/autocast.h"
#include "capture/host/package.h"
#include "capture/host/without_modes.h"
#include "capture/run/replay.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

struct Remembered {
  std::shared_ptr<const EagerPass> pass;
  struct Value {
    Ref held;           // a weak reference to a tensor, or a number
    long version = -1;  // of a tensor
    Ref layout;         // of a tensor whose sizes alone count: what torch.empty_strided wants
    bool needs = false;
  };
  std::vector<Value> values;  // of pass->read
  std::vector<Ref> states;    // of pass->generators, before the run
};

/// The states of generators. False with a Python error set.
bool read_states(const std::vector<Ref>& generators, std::vector<Ref>& states) {
  for (const Ref& generator : generators) {
    states.push_back(Ref::steal(PyObject_CallMethod(generator.get(), "get_state", nullptr)));
    if (!states.back()) return false;
  }
  return true;
}

bool set_states(const std::vector<Ref>& generators, const std::vector<Ref>& states) {
  for (size_t i = 0; i < states.size(); ++i) {
    if (!Ref::steal(PyObject_CallMethod(generators[i].get(), "set_state", "O", states[i].get()))) return false;
  }
  return true;
}

/// While it lives, the generators are where they were before the remembered run.
class DrawnAgain {
 public:
  explicit DrawnAgain(const Remembered& run) : run_(run) {
    fine_ = read_states(run.pass->generators, now_) && set_states(run.pass->generators, run.states);
  }
  ~DrawnAgain() {
    const ErrorAside aside;
    if (!set_states(run_.pass->generators, now_)) forget_error();
  }
  DrawnAgain(const DrawnAgain&) = delete;
  DrawnAgain& operator=(const DrawnAgain&) = delete;
  bool fine() const { return fine_; }

 private:
  const Remembered& run_;
  std::vector<Ref> now_;
  bool fine_ = false;
};

/// The generators that the tape's calls may draw from.
std::vector<Ref> generators_of(const Tape& tape) {
  const TorchApi& api = *TorchApi::get();
  std::vector<Ref> found;
  const auto add = [&found](Ref generator) {
    const auto same = [&generator](const Ref& other) { return other.get() == generator.get(); };
    if (generator && std::none_of(found.begin(), found.end(), same)) found.push_back(std::move(generator));
  };
  add(attr_or_null(api.torch.get(), "default_generator"));
  const std::vector<Ref> of_gpus = gpu_generators(api);
  for (const TapeSlot& slot : tape.slots()) {
    const Ref kind = slot.device ? attr_or_null(slot.device.get(), "type") : Ref();
    if (!kind || text_of(kind.get()) != "cuda") continue;
    const Ref index = attr_or_null(slot.device.get(), "index");
    const size_t device = index && PyLong_Check(index.get()) != 0 ? PyLong_AsSize_t(index.get()) : 0;
    if (device < of_gpus.size()) add(of_gpus[device]);
  }
  for (const TapeNode& node : tape.nodes()) {
    if (node.generator != nullptr) add(Ref::borrow(node.generator));
  }
  forget_error();
  return found;
}

struct RememberedObject {
  PyObject_HEAD Remembered* run;
};

/// Of a tensor. -1: it has none, an inference tensor.
long version_of(PyObject* tensor) {
  const Ref version = attr_or_null(tensor, "_version");
  const long result = version ? PyLong_AsLong(version.get()) : -1;
  forget_error();
  return result;
}

/// Arguments of torch.empty_strided for such a tensor.
Ref layout_of(PyObject* tensor) {
  const Ref sizes = attr_or_null(tensor, "shape"), dtype = attr_or_null(tensor, "dtype");
  const Ref strides = Ref::steal(PyObject_CallMethod(tensor, "stride", nullptr));
  const Ref device = attr_or_null(tensor, "device");
  const Ref keywords = dtype && device ? Ref::steal(PyDict_New()) : Ref();
  if (!sizes || !strides || !keywords) return {};
  if (PyDict_SetItemString(keywords.get(), "dtype", dtype.get()) != 0 ||
      PyDict_SetItemString(keywords.get(), "device", device.get()) != 0) {
    return {};
  }
  return Ref::steal(Py_BuildValue("((OO)O)", sizes.get(), strides.get(), keywords.get()));
}

/// Another tensor in place of one that is gone, with zeros. Null with a Python error set.
Ref blank(const Remembered::Value& value) {
  const Ref make = attr(TorchApi::get()->torch.get(), "empty_strided");
  Ref made = Ref::steal(
      PyObject_Call(make.get(), PyTuple_GET_ITEM(value.layout.get(), 0), PyTuple_GET_ITEM(value.layout.get(), 1)));
  const Ref zeros = Ref::steal(made ? PyObject_CallMethod(made.get(), "zero_", nullptr) : nullptr);
  if (!zeros) return {};
  return value.needs ? Ref::steal(PyObject_CallMethod(made.get(), "requires_grad_", nullptr)) : made;
}

/// The tensor, if it is there, and as it was. Null, perhaps with an error, if not.
Ref unchanged(const Remembered::Value& value) {
  Ref tensor = Ref::steal(PyObject_CallNoArgs(value.held.get()));
  if (tensor && tensor.get() == Py_None && value.layout) return blank(value);
  if (!tensor || tensor.get() == Py_None) return {};
  // Torch may hold a tensor whose Python object is in nobody's hands: it is ours now.
  const Ref taken = Ref::steal(PyObject_CallMethod(tensor.get(), "_fix_weakref", nullptr));
  if (!taken || (!value.layout && version_of(tensor.get()) != value.version)) return {};
  return tensor;
}

/// An input as the calls are to see it: its own leaf, or with `again` the same tensor with its history. Null with a Python error
/// set.
Ref stand_in(PyObject* tensor, bool again) {
  if (again) return call_package<PackageFunction::kSame>(tensor);
  const Ref apart = Ref::steal(PyObject_CallMethod(tensor, "detach", nullptr));
  return apart ? Ref::steal(PyObject_CallMethod(apart.get(), "requires_grad_", nullptr)) : Ref();
}

/// The tape's inputs in that run. False where one is gone, or is not what it was.
bool fill(const Remembered& run, const Tape& tape, std::vector<Ref>& env) {
  for (size_t i = 0; i < env.size(); ++i) {
    const TapeSlot& slot = tape.slots()[i];
    if (slot.input && slot.guard_index < 0) env[i] = slot.object;
  }
  for (size_t i = 0; i < run.values.size(); ++i) {
    const Remembered::Value& value = run.values[i];
    Ref& here = env[static_cast<size_t>(run.pass->read[i].slot)];
    here = PyWeakref_Check(value.held.get()) ? unchanged(value) : value.held;
    if (!here) return false;
  }
  return true;
}

/// Runs the tape; each input of the stage that requires grad is another tensor for what follows. `outputs` are the stage's as
/// far as the tape has them. False with a Python error set.
bool record(const Replay& replay, const EagerPass::Stage& stage, bool again, std::vector<Ref>& env,
            std::vector<Ref>& inputs, std::vector<Ref>& outputs) {
  const auto replace = [&] {
    for (size_t i = 0; i < inputs.size(); ++i) {
      Ref* const here = stage.inputs[i] < 0 ? nullptr : &env[static_cast<size_t>(stage.inputs[i])];
      if (inputs[i] || here == nullptr || !*here || !attribute_is_true(here->get(), "requires_grad")) continue;
      if (!(*here = stand_in(here->get(), again))) return false;
      inputs[i] = *here;
    }
    return true;
  };
  const auto collect = [&] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i] && stage.outputs[i] >= 0) outputs[i] = env[static_cast<size_t>(stage.outputs[i])];
    }
    return true;
  };
  size_t first = 0;
  bool done = replace();
  for (const size_t cut : stage.cuts) {
    done = done && replay.run(env, first, cut) && collect() && replace();
    first = cut;
  }
  return done;
}

Ref optional_tuple(const std::vector<Ref>& items) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t i = 0; tuple && i < items.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(items[i] ? items[i].get() : Py_None));
  }
  return tuple;
}

PyObject* record_again(PyObject* self, PyObject* args, PyObject*) {
  Py_ssize_t number = 0;
  int again = 0;
  PyObject* wanted = nullptr;
  if (PyArg_ParseTuple(args, "nO!p", &number, &PyTuple_Type, &wanted, &again) == 0) return nullptr;
  const Remembered& run = *reinterpret_cast<RememberedObject*>(self)->run;
  const EagerPass::Stage& stage = run.pass->stages.at(static_cast<size_t>(number));
  const std::shared_ptr<const Tape> tape = run.pass->tape.lock();
  const auto computed = [&tape](int slot) { return tape->makes(slot); };
  if (tape == nullptr) Py_RETURN_NONE;
  // Such an input has the history of another stage, and no tensor here stands for it.
  if (again != 0 && std::any_of(stage.inputs.begin(), stage.inputs.end(), computed)) Py_RETURN_NONE;
  const TorchApi& api = *TorchApi::get();
  const WithoutModes unseen(api.torch.get());
  const AutocastOff off(api);
  std::vector<Ref> env(tape->slots().size()), inputs(stage.inputs.size()), outputs(stage.outputs.size()), asked;
  if (!fill(run, *tape, env)) {
    forget_error();
    Py_RETURN_NONE;
  }
  std::vector<int64_t> symbols;
  const bool known = tape->symbol_values(env, *TorchApi::get(), symbols);
  const Replay replay(tape, std::move(symbols));
  const DrawnAgain drawn(run);
  if (!known || !drawn.fine() || !record(replay, stage, again != 0, env, inputs, outputs)) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) return nullptr;
    forget_error();
    Py_RETURN_NONE;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(wanted); ++i) {
    Ref& output = outputs.at(PyLong_AsSize_t(PyTuple_GET_ITEM(wanted, i)));
    if (!output || !attribute_is_true(output.get(), "requires_grad")) Py_RETURN_NONE;
    asked.push_back(output);
  }
  const Ref from = optional_tuple(inputs), results = optional_tuple(asked);
  return from && results ? PyTuple_Pack(2, from.get(), results.get()) : nullptr;
}

PyTypeObject* remembered_type() {
  return made_once([] {
    const auto dealloc = [](PyObject* self) {
      delete reinterpret_cast<RememberedObject*>(self)->run;
      PyTypeObject* const type = Py_TYPE(self);
      type->tp_free(self);
      Py_DECREF(type);
    };
    const auto hooked = [](PyObject* self, void*) {
      return PyBool_FromLong(reinterpret_cast<RememberedObject*>(self)->run->pass->hooked ? 1 : 0);
    };
    static PyGetSetDef getters[] = {{"hooked", static_cast<getter>(hooked), nullptr,
                                     "Whether the graph puts a hook on a tensor of its own.", nullptr},
                                    {}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(static_cast<destructor>(dealloc))},
                                  {Py_tp_call, reinterpret_cast<void*>(record_again)},
                                  {Py_tp_getset, getters},
                                  {0, nullptr}};
    static PyType_Spec spec = {"tatara._core.RememberedRun", sizeof(RememberedObject), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
}

/// By slot: the last node that makes the tensor the result of a user's autograd.Function.
std::unordered_map<int, size_t> function_histories(const std::vector<TapeNode>& nodes) {
  std::unordered_map<int, size_t> last;
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (function_end(nodes[n]) == nullptr) continue;
    for (const int slot : nodes[n].outputs) last[slot] = n;
  }
  return last;
}

}  // namespace

std::shared_ptr<const EagerPass> eager_pass(const std::shared_ptr<const Tape>& tape, const TapeGraph& made,
                                            const std::vector<GraphStage>& stages,
                                            const std::vector<std::vector<bool>>& values_matter, bool draws) {
  const std::vector<TapeNode>& nodes = tape->nodes();
  const bool writes = std::any_of(nodes.begin(), nodes.end(), [](const TapeNode& node) { return node.mutates; });
  if (!made.graph.input_writes().empty() || !made.late_nodes.empty() || !Replay::possible(*tape) ||
      (stages.size() > 1 && (writes || tape->has_transforms()))) {
    return nullptr;
  }
  const auto given = [](const TapeNode& node) { return node.generator_slot >= 0; };
  if (draws && std::any_of(nodes.begin(), nodes.end(), given)) return nullptr;  // whose state nobody has kept
  auto pass = std::make_shared<EagerPass>();
  pass->tape = tape;
  pass->hooked = tape->has_hooked_results();
  if (draws) pass->generators = generators_of(*tape);
  const auto slot_of = [&made, &stages](int value) {
    const auto at = static_cast<size_t>(value);
    const size_t inputs = made.inputs.size(), outputs = made.graph.outputs().size();
    if (at < inputs) return made.inputs[at];
    if (at < inputs + made.outputs.size()) return made.outputs[at - inputs];
    if (at < inputs + outputs) return -1;
    const auto found = made.slots.find(stages.front().crossing.at(at - inputs - outputs));
    return found == made.slots.end() ? -1 : found->second;
  };
  const std::unordered_map<int, size_t> histories = function_histories(nodes);
  const auto gets_history_after = [&histories](size_t n, int slot) {
    const auto found = histories.find(slot);
    return found != histories.end() && found->second > n;
  };
  const std::unordered_set<int> results(made.outputs.begin(), made.outputs.end());
  for (const GraphStage& part : stages) {
    EagerPass::Stage& stage = pass->stages.emplace_back();
    for (size_t i = 0; i < part.inputs.size(); ++i) {
      stage.inputs.push_back(slot_of(part.inputs[i]));
      if (part.needs[i] && stage.inputs.back() < 0) return nullptr;
    }
    for (const int value : part.outputs) stage.outputs.push_back(slot_of(value));
    const std::unordered_set<int> begins(stage.inputs.begin(), stage.inputs.end());
    const std::unordered_set<int> ends(stage.outputs.begin(), stage.outputs.end());
    for (size_t n = 0; n < nodes.size(); ++n) {
      const bool makes = std::any_of(nodes[n].outputs.begin(), nodes[n].outputs.end(), [&](int slot) {
        if (slot < 0 || gets_history_after(n, slot)) return false;
        return begins.contains(slot) || (ends.contains(slot) && !results.contains(slot));
      });
      if (makes && Replay::cuts_region(*tape, n + 1)) return nullptr;
      if (makes) stage.cuts.push_back(n + 1);
    }
    stage.cuts.push_back(nodes.size());
  }
  for (size_t i = 0; i < tape->slots().size(); ++i) {
    const TapeSlot& slot = tape->slots()[i];
    if (!slot.input || slot.guard_index < 0 || slot.derived) continue;
    bool used = false, matters = false;
    for (size_t k = 0; k < stages.size(); ++k) {
      const std::vector<int>& inputs = pass->stages[k].inputs;
      const auto place = std::find(inputs.begin(), inputs.end(), static_cast<int>(i)) - inputs.begin();
      if (static_cast<size_t>(place) == inputs.size()) continue;
      used = true;
      matters = matters || values_matter[k][static_cast<size_t>(place)];
    }
    pass->read.push_back({static_cast<int>(i), used && !matters});
  }
  return pass;
}

Ref remember_run(const std::shared_ptr<const EagerPass>& pass, const std::vector<Ref>& env) {
  auto run = std::make_unique<Remembered>();
  run->pass = pass;
  run->values.reserve(pass->read.size());
  for (const EagerPass::Read& read : pass->read) {
    const Ref& value = env[static_cast<size_t>(read.slot)];
    Remembered::Value& kept = run->values.emplace_back();
    if (!TorchApi::get()->is_tensor(value.get())) {
      kept.held = value;
    } else {
      kept.held = Ref::steal(PyWeakref_NewRef(value.get(), nullptr));
      if (!kept.held) return {};
      if (!read.sizes_only || attribute_is_true(value.get(), "is_leaf")) {  // a leaf is in the program's hands
        kept.version = version_of(value.get());
      } else {
        kept.layout = layout_of(value.get());
        kept.needs = attribute_is_true(value.get(), "requires_grad");
        if (!kept.layout) return {};
      }
    }
  }
  if (!read_states(pass->generators, run->states)) return {};
  auto* object = PyObject_New(RememberedObject, remembered_type());
  if (object == nullptr) return {};
  object->run = run.release();
  return Ref::steal(reinterpret_cast<PyObject*>(object));
}

}  // namespace tatara::capture
