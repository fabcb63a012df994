// Runs tapes: node by node, in the grad modes and levels that they were recorded in.
#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "capture/host/known_calls.h"
#include "capture/host/numpy_api.h"
#include "capture/host/object_kinds.h"
#include "capture/host/package.h"
#include "capture/tape/tape.h"
#include "capture/tape/transaction.h"
#include "capture/tape/view_origins.h"
#include "support/str_cat.h"

namespace tatara::capture {

void flatten_result(PyObject* result, std::vector<PyObject*>& out) {
  if (PyTuple_Check(result) || PyList_Check(result)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(result);
    for (Py_ssize_t i = 0; i < n; ++i) flatten_result(PySequence_Fast_GET_ITEM(result, i), out);
  } else {
    out.push_back(result);
  }
}

namespace {

Ref call_node(const TapeNode& node, const std::vector<Ref>& env, std::span<const int64_t> symbols) {
  if (!node.func && function_end(node) != nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "tatara: an autograd.Function cannot run apart from its program");
    return {};
  }
  if (!node.func) return Ref::borrow(Py_None);  // the end of a region
  const auto fill = [&env, symbols](PyObject* object) {
    if (is_size_ref(object)) return size_ref_value(object, symbols);
    const int slot = slot_of(object);
    return slot < 0 ? Ref::borrow(object) : env[static_cast<size_t>(slot)];
  };
  const Ref args = call_arguments(node, map_structure(node.args.get(), fill));
  if (!args) return {};
  Ref kwargs;
  if (node.kwargs) {
    kwargs = map_structure(node.kwargs.get(), fill);
    if (!kwargs) return {};
  }
  const auto* numpy = std::get_if<NumpyOperation>(&node.kind);
  if (numpy != nullptr && numpy->errstate) {
    return NumpyApi::get()->call_with(numpy->errstate.get(), node.func.get(), args.get(), kwargs.get());
  }
  return Ref::steal(PyObject_Call(node.func.get(), args.get(), kwargs.get()));
}

/// Puts the thread into the grad modes that nodes were recorded in, and back.
class GradModes {
 public:
  explicit GradModes(bool active) : active_(active) {
    if (active_) first_ = now_ = TorchApi::get()->grad_enabled();
  }
  ~GradModes() {
    if (active_ && now_ != first_) set(first_);
  }
  GradModes(const GradModes&) = delete;
  GradModes& operator=(const GradModes&) = delete;
  void want(const TapeNode& node) {
    if (active_ && node.mode != now_) set(node.mode);
  }

 private:
  void set(bool on) {
    now_ = on;
    TorchApi::get()->set_grad(on);
  }
  bool active_, first_ = false, now_ = false;
};

/// The levels that a run of nodes has entered and not left. Those of a run that fails are left again.
class OpenLevels {
 public:
  explicit OpenLevels(const std::vector<TapeNode>& nodes) : nodes_(nodes) {}
  ~OpenLevels() {
    const ErrorAside aside;
    while (!kept_ && !open_.empty()) leave();
  }
  OpenLevels(const OpenLevels&) = delete;
  OpenLevels& operator=(const OpenLevels&) = delete;

  void done(size_t node) {
    if (step_of(nodes_[node]) == FuncStep::kEnter) open_.push_back(node);
    if (step_of(nodes_[node]) == FuncStep::kExit) open_.pop_back();
  }
  /// Leaves these levels, and enters those that are open after all nodes.
  void go_to_end(std::span<const int64_t> symbols) {
    const ErrorAside aside;
    while (!open_.empty()) leave();
    for (size_t n = 0; n < nodes_.size(); ++n) done(n);
    for (const size_t n : open_) {
      if (!call_node(nodes_[n], {}, symbols)) forget_error();
    }
    keep();
  }
  /// They stay open: the program goes on inside of them.
  void keep() {
    kept_ = true;
    Transaction* const transaction = Transaction::current();
    for (size_t i = 0; i < open_.size() && transaction != nullptr; ++i) {
      transaction->on_undo([name = nodes_[open_[i]].name] { return leave_level(name); });
    }
  }

 private:
  static bool leave_level(const std::string& name) {
    const Ref text = Ref::steal(PyUnicode_FromString(name.c_str()));
    return text && call_package<PackageFunction::kLeaveLevel>(text.get());
  }
  void leave() {
    if (!leave_level(nodes_[open_.back()].name)) forget_error();
    open_.pop_back();
  }

  const std::vector<TapeNode>& nodes_;
  std::vector<size_t> open_;
  bool kept_ = false;
};

/// After a failure between both ends of regions: torch's hooks on saved tensors go off again. Where a region has no end on the
/// tape the program itself is inside, and leaves it.
void abandon_regions(const std::vector<TapeNode>& nodes, size_t done) {
  std::vector<size_t> open;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const RegionMark* mark = region_mark(nodes[n]);
    if (mark != nullptr && mark->begins) open.push_back(n);
    if (mark == nullptr || mark->begins || open.empty()) continue;
    if (open.back() < done && n >= done) {
      const ErrorAside aside;
      const Ref state = Ref::borrow(PyTuple_GET_ITEM(nodes[n].args.get(), 0));
      if (!Ref::steal(PyObject_CallMethod(state.get(), "abandon", nullptr))) forget_error();
    }
    open.pop_back();
  }
}

}  // namespace

namespace {

Ref view_of(TorchApi& api, PyObject* tensor) {
  return Ref::steal(PyObject_CallFunctionObjArgs(api.functions.view_as.get(), tensor, tensor, nullptr));
}

/// Makes the placeholder the real tensor.
bool swap(const TorchApi& api, PyObject* placeholder, PyObject* value) {
  return static_cast<bool>(
      Ref::steal(PyObject_CallFunctionObjArgs(api.functions.swap_impl.get(), placeholder, value, nullptr)));
}

/// Another tensor with the result's memory. A view made inside of a level would belong to it, so a tensor that leaves one gets
/// its view before.
Ref alias_of(TorchApi& api, const TapeNode& node, const std::vector<Ref>& env, PyObject* result,
             std::span<const int64_t> symbols) {
  if (step_of(node) != FuncStep::kUnwrap) return view_of(api, result);
  const auto inside = static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), 0)));
  std::vector<Ref> changed = env;
  changed[inside] = view_of(api, env[inside].get());
  return changed[inside] ? Tape::call_object(node, changed, symbols) : Ref();
}

}  // namespace

void Tape::note_writes(const TapeNode& node, const std::vector<Ref>& env) const {
  Transaction* const transaction = Transaction::current();
  if (transaction == nullptr) return;
  if (draws_by_numpy(node)) {
    PyObject* const source = PyTuple_GET_ITEM(node.args.get(), 0);
    if (slot_of(source) < 0) transaction->keep_numpy_generator(source);
  }
  transaction->keep_operands(node, env, *TorchApi::get());
}

namespace {

/// Whether tensors of the same sizes lie in memory alike.
bool same_strides(const TorchApi& api, PyObject* a, PyObject* b) {
  TensorRef one, other;
  if (api.view(a, one) && api.view(b, other) && one.rank == other.rank && one.strides != nullptr &&
      other.strides != nullptr) {
    bool same = true;
    for (int32_t d = 0; d < one.rank; ++d) {
      if (one.sizes[d] == 0) return true;
      same = same && (one.sizes[d] == 1 || one.strides[d] == other.strides[d]);
    }
    return same;
  }
  forget_error();
  const auto part = [](PyObject* tensor, const char* name) {
    Ref made = Ref::steal(PyObject_CallMethod(tensor, name, nullptr));
    if (!made) forget_error();
    return made;
  };
  const Ref sizes = part(a, "size"), ours = part(a, "stride"), theirs = part(b, "stride"), count = part(a, "numel");
  if (!sizes || !ours || !theirs || !count || PyObject_IsTrue(count.get()) == 0) return true;
  for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(sizes.get()); ++d) {
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(sizes.get(), d)) == 1) continue;
    const auto at = [d](const Ref& strides) { return PyLong_AsLongLong(PyTuple_GET_ITEM(strides.get(), d)); };
    if (at(ours) != at(theirs)) return false;
  }
  return true;
}

}  // namespace

namespace {

/// The gradient of a leaf lies as later calls lay it out, also in dimensions of one element: guards compare its strides. False with
/// a Python error set.
bool lie_as(const TorchApi& api, PyObject* gradient, PyObject* placeholder) {
  const Ref sizes = Ref::steal(PyObject_CallMethod(gradient, "size", nullptr));
  const Ref ours = Ref::steal(PyObject_CallMethod(gradient, "stride", nullptr));
  const Ref wanted = Ref::steal(PyObject_CallMethod(placeholder, "stride", nullptr));
  if (!sizes || !ours || !wanted) return false;
  const int same = PyObject_RichCompareBool(ours.get(), wanted.get(), Py_EQ);
  if (same != 0 || !same_strides(api, placeholder, gradient)) return same >= 0;
  return static_cast<bool>(Ref::steal(PyObject_CallMethod(gradient, "as_strided_", "OO", sizes.get(), wanted.get())));
}

}  // namespace

/// In what a result is other than was inferred; empty: in nothing. How it lies in memory counts where the program has asked for
/// it; what else follows from it is looked at elsewhere.
std::string Tape::differs(const TapeNode& node, size_t output, PyObject* value, const std::vector<Ref>& env, bool real,
                          const TorchApi& api) const {
  const auto slot = static_cast<size_t>(node.outputs[output]);
  if (!api.is_tensor(value)) return real ? "" : "gives a tensor where its kernel gives none";
  if (node.level != 0 || slots_[slot].level != 0 || slots_[slot].number) return {};
  if (real) {
    const auto earlier = node.outputs.begin() + static_cast<std::ptrdiff_t>(output);
    const bool operand = !node.mutates && std::find(node.outputs.begin(), earlier, node.outputs[output]) == earlier;
    return operand && value != env[slot].get() ? "gives its operand where its kernel gives a tensor of its own" : "";
  }
  if (api.numpy != nullptr && api.numpy->is_array(value)) return {};
  // The placeholder may have changed its shape since.
  const bool later = reshaped_.contains(node.outputs[output]);
  if (slots_[slot].foreign && !api.is_foreign(value)) return "gives a tensor of another layout than its kernel";
  for (const char* name : {"dtype", "shape"}) {
    const bool sizes = later && std::strcmp(name, "shape") == 0;
    const Ref inferred = sizes ? slots_[slot].sizes : attr_or_null(env[slot].get(), name);
    const Ref given = attr_or_null(value, name);
    if (!inferred || !given || PyObject_RichCompareBool(inferred.get(), given.get(), Py_EQ) != 1) {
      return str_cat("gives a tensor of another ", name, " than its kernel");
    }
  }
  if (later) {
    const Ref strides = Ref::steal(PyObject_CallMethod(value, "stride", nullptr));
    if (!strides || PyObject_RichCompareBool(strides.get(), slots_[slot].strides.get(), Py_EQ) != 1) {
      forget_error();
      return "gives a tensor of other strides than its kernel";
    }
  } else if (slots_[slot].layout_read && !same_strides(api, env[slot].get(), value)) {
    return "gives a tensor of other strides than its kernel";
  }
  return {};
}

namespace {

/// Gives back the memory of results that nothing wants any more, as eager does: neither a later node nor the program, which
/// holds no reference to the placeholder. That becomes again what it was before the run.
class Unwanted {
 public:
  Unwanted(const Tape& tape, const TorchApi& api, std::vector<Ref>& env, const HeldObjects& held)
      : tape_(tape),
        api_(api),
        env_(env),
        held_(held),
        before_(env.size()),
        delay_(env.size(), 1),
        after_(tape.tensors_by_last_use()) {}

  /// `before`: what the placeholder was, now in a tensor of its own.
  void made(int slot, Ref before) { before_[static_cast<size_t>(slot)] = std::move(before); }
  /// The same; null: it is no result of the run, or is what it was again.
  Ref before(size_t slot) const { return slot < before_.size() ? before_[slot] : Ref(); }

  /// Whether the placeholder of a result of this node goes with it: what it was taken for is the same to all then.
  bool nobody_has(size_t node, int slot) const {
    const std::vector<int>& last = after_[node];
    if (!tape_.slots()[static_cast<size_t>(slot)].object) return false;
    PyObject* const tensor = env_[static_cast<size_t>(slot)].get();
    return std::find(last.begin(), last.end(), slot) != last.end() && Py_REFCNT(tensor) == references(slot);
  }

  void drop_after(size_t node) {
    for (const int each : std::exchange(after_[node], {})) {
      const auto slot = static_cast<size_t>(each);
      if (!tape_.slots()[slot].object) env_[slot] = Ref();  // nobody ever sees it
      if (!before_[slot]) continue;
      if (drop(slot)) {
        before_[slot] = Ref();
        continue;
      }
      // A view of it, or what was saved with it, may go in a while.
      if (node + delay_[slot] < after_.size()) after_[node + delay_[slot]].push_back(each);
      delay_[slot] *= 2;
    }
  }

 private:
  /// To the placeholder: of the tape, of its run and of the trace.
  Py_ssize_t references(int slot) const {
    PyObject* const tensor = env_[static_cast<size_t>(slot)].get();
    const auto held = held_.find(tensor);
    const bool meta = tape_.slots()[static_cast<size_t>(slot)].meta.get() == tensor;
    return 2 + (meta ? 1 : 0) + (held == held_.end() ? 0 : held->second);
  }

  /// Whether there is nothing more to do for the slot.
  bool drop(size_t slot) {
    const TapeSlot& info = tape_.slots()[slot];
    PyObject* tensor = env_[slot].get();
    const Py_ssize_t own = references(static_cast<int>(slot));
    if (info.foreign || info.level != 0 || info.object.get() != tensor || Py_REFCNT(tensor) > own + 1) return true;
    if (attr_or_null(tensor, "requires_grad").get() != Py_False) return true;
    const long uses = use_count(tensor);
    if (uses != 1) return uses == 0;
    if (Py_REFCNT(tensor) == own && !swap(api_, tensor, before_[slot].get())) forget_error();
    return true;
  }

  const Tape& tape_;
  const TorchApi& api_;
  std::vector<Ref>& env_;
  const HeldObjects& held_;
  std::vector<Ref> before_;              // by slot
  std::vector<size_t> delay_;            // by slot: after how many nodes to try once more
  std::vector<std::vector<int>> after_;  // by node: slots to try
};

}  // namespace

/// Whether the program's own lazily conjugated view stands for the result while the trace is open.
static bool gives_conjugate_input(const Tape& tape, const TapeNode& node) {
  const int slot = node.outputs.size() == 1 ? node.outputs[0] : -1;
  if (slot < 0 || !tape.slots()[static_cast<size_t>(slot)].real || PyTuple_GET_SIZE(node.args.get()) != 1) return false;
  const int operand = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
  return operand >= 0 && tape.slots()[static_cast<size_t>(operand)].conjugate;
}

/// `copy` is what the host gives where an operand was expected, since that lies otherwise in memory than its meta kernel said. It
/// becomes the operand, unless the tape writes to one of them later.
bool Tape::takes_place(size_t n, size_t slot, PyObject* copy, const TorchApi& api) const {
  PyObject* const operand = slots_[slot].object.get();
  if (slots_[slot].input || operand == nullptr || !api.is_tensor(copy)) return false;
  const int memory = memory_owner(*this, static_cast<int>(slot));
  bool writes = false;
  for (size_t later = n + 1; later < nodes_.size() && !writes; ++later) {
    if (!nodes_[later].mutates && !nodes_[later].statistics) continue;
    for (PyObject* argument : written_arguments(nodes_[later])) {
      for_each_slot(argument, [&](int s) { writes = writes || memory_owner(*this, s) == memory; });
    }
  }
  if (!writes && swap(api, operand, copy)) return true;
  forget_error();
  return false;
}

/// A result that no placeholder stands for. False: it has another type than was inferred.
static bool note_unseen(TapeSlot& slot, PyObject* value) {
  const Ref sizes = attr_or_null(value, "shape"), dtype = attr_or_null(value, "dtype");
  Ref strides = Ref::steal(PyObject_CallMethod(value, "stride", nullptr));
  const auto same = [](const Ref& a, const Ref& b) { return PyObject_RichCompareBool(a.get(), b.get(), Py_EQ) == 1; };
  if (!sizes || !strides || dtype.get() != slot.dtype.get() || !same(sizes, slot.sizes)) return false;
  if (same(strides, slot.strides)) return true;
  slot.real_strides = std::move(strides);
  return !slot.layout_read;
}

bool Tape::materialise(TorchApi& api, const std::function<bool()>& stop, const HeldObjects& held,
                       const std::function<bool()>& can_take_back, bool goes_on) {
  const std::span<const int64_t> symbols = open_hints();
  std::vector<Ref> env(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) env[i] = slots_[i].object;
  for (const auto& [slot, number] : ran_.numbers) env[static_cast<size_t>(slot)] = number;
  std::vector<bool> real(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) real[i] = slots_[i].input || slots_[i].real;
  // All are alive until the end: slots keep what the run replaces.
  std::unordered_set<PyObject*> present;
  for (const Ref& object : env) present.insert(object.get());
  mismatch_.clear();
  copies_ = false;
  if (Transaction* const transaction = Transaction::current()) transaction->begin_tape(*this, env, api);
  Unwanted unwanted(*this, api, env, held);
  GradModes modes(needs_grad_modes_);
  OpenLevels levels(nodes_);
  const auto failed = [&] {
    levels.go_to_end(symbols);
    abandon_regions(nodes_, ran_.nodes);
    return false;
  };
  const size_t first = ran_.nodes;
  for (; ran_.nodes < nodes_.size(); ++ran_.nodes) {
    const TapeNode& node = nodes_[ran_.nodes];
    if (ran_.nodes > first) unwanted.drop_after(ran_.nodes - 1);
    if (is_numpy_operation(node) || gives_conjugate_input(*this, node)) continue;
    if (number_operation(node) != nullptr && ran_.numbers.contains(node.outputs[0])) continue;
    if (stop()) {
      PyErr_SetString(PyExc_RuntimeError, "stopped");
      return failed();
    }
    modes.want(node);
    note_writes(node, env);
    const Ref result = call_node(node, env, symbols);
    if (!result) return failed();
    levels.done(ran_.nodes);
    if (region_mark(node) != nullptr) continue;
    if (number_operation(node) != nullptr) {
      env[static_cast<size_t>(node.outputs[0])] = result;
      ran_.numbers[node.outputs[0]] = result;
      present.insert(result.get());
      continue;
    }
    std::vector<PyObject*> tensors;
    flatten_result(result.get(), tensors);
    for (size_t k = 0; k < node.outputs.size() && k < tensors.size(); ++k) {
      const auto slot = static_cast<size_t>(node.outputs[k]);
      if (node.outputs[k] < 0) continue;
      if (slots_[slot].number) {
        env[slot] = Ref::borrow(tensors[k]);
        ran_.numbers[node.outputs[k]] = env[slot];
        continue;
      }
      if (!slots_[slot].object) {
        if (!note_unseen(slots_[slot], tensors[k])) mismatch_ = str_cat("a turn's ", node.name, " gives another type");
        if (!mismatch_.empty()) PyErr_SetString(PyExc_RuntimeError, mismatch_.c_str());
        if (!mismatch_.empty()) return failed();
        env[slot] = Ref::borrow(tensors[k]);
        continue;
      }
      if (const std::string other = differs(node, k, tensors[k], env, real[slot], api); !other.empty()) {
        copies_ = real[slot] && known_torch(node.name).is(kMayCopy);
        if (!real[slot] && unwanted.nobody_has(ran_.nodes, node.outputs[k])) continue;
        if (copies_ && !can_take_back() && takes_place(ran_.nodes, slot, tensors[k], api)) continue;
        mismatch_ = str_cat("the host's meta kernel of ", node.name, " ", other);
        PyErr_SetString(PyExc_RuntimeError, mismatch_.c_str());
        return failed();
      }
      if (real[slot]) continue;
      if (api.is_tensor(tensors[k]) && !slots_[slot].foreign && !reshaped_.contains(node.outputs[k]) &&
          !same_strides(api, env[slot].get(), tensors[k])) {
        slots_[slot].real_strides = Ref::steal(PyObject_CallMethod(tensors[k], "stride", nullptr));
      }
      Ref value = Ref::borrow(tensors[k]);
      const GradientPass* const pass = gradient_pass(node);
      if (pass != nullptr && pass->accumulates && !lie_as(api, value.get(), env[slot].get())) return failed();
      // The host returned an operand where the placeholder is an object of its own.
      if (present.contains(value.get())) {
        value = alias_of(api, node, env, value.get(), symbols);
        if (!value) return failed();
      }
      if (!swap(api, env[slot].get(), value.get())) return failed();
      real[slot] = true;
      unwanted.made(static_cast<int>(slot), std::move(value));
    }
  }
  levels.keep();
  for (size_t slot = 0; goes_on && slot < slots_.size(); ++slot) {
    Ref meta = unwanted.before(slot);
    if (!meta) continue;
    slots_[slot].real = true;
    by_meta_.erase(slots_[slot].meta.get());
    by_meta_[meta.get()] = static_cast<int>(slot);
    slots_[slot].meta = std::move(meta);
  }
  return true;
}

bool Tape::take_results(const std::vector<int>& outputs, const std::vector<Ref>& env, TorchApi& api) const {
  std::unordered_set<PyObject*> taken;
  for (const TapeSlot& slot : slots_) {
    if (slot.input) taken.insert(slot.object.get());
  }
  for (const int output : outputs) {
    const TapeSlot& slot = slots_[static_cast<size_t>(output)];
    if (slot.input || slot.number) continue;
    Ref value = env[static_cast<size_t>(output)];
    if (!taken.insert(value.get()).second) value = view_of(api, value.get());
    if (!value || !swap(api, slot.object.get(), value.get())) return false;
  }
  return true;
}

bool Tape::set_classes(std::vector<Ref>& env, const TorchApi& api) const {
  auto* const type = reinterpret_cast<PyObject*>(api.parameter_type);
  return std::all_of(outputs_.begin(), outputs_.end(), [&](int slot) {
    const auto at = static_cast<size_t>(slot);
    return !slots_[at].parameter || PyObject_SetAttrString(env[at].get(), "__class__", type) == 0;
  });
}

Ref Tape::call_object(const TapeNode& node, const std::vector<Ref>& env, std::span<const int64_t> symbols) {
  return call_node(node, env, symbols);
}

bool Tape::call(const TapeNode& node, const std::vector<Ref>& env, std::span<const int64_t> symbols,
                std::vector<Ref>& results) {
  const Ref result = call_node(node, env, symbols);
  if (!result) return false;
  std::vector<PyObject*> tensors;
  flatten_result(result.get(), tensors);
  results.clear();
  for (PyObject* tensor : tensors) results.push_back(Ref::borrow(tensor));
  return true;
}

bool Tape::run(std::vector<Ref>& env, TorchApi& api) const {
  if (Transaction* const transaction = Transaction::current()) transaction->begin_tape(*this, env, api);
  std::vector<int64_t> symbols;
  return symbol_values(env, api, symbols) && run_nodes(env, 0, nodes_.size(), symbols);
}

void Tape::drop_dead(std::vector<Ref>& env, size_t first, size_t last) const {
  for (size_t n = first; n < last; ++n) {
    for (const int slot : dead_after_[n]) env[static_cast<size_t>(slot)] = Ref();
  }
}

bool Tape::run_nodes(std::vector<Ref>& env, size_t first, size_t last, std::span<int64_t> symbols, bool keep) const {
  GradModes modes(needs_grad_modes_);
  OpenLevels levels(nodes_);
  for (size_t n = first; n < last; ++n) {
    const TapeNode& node = nodes_[n];
    modes.want(node);
    note_writes(node, env);
    const Ref result = call_node(node, env, symbols);
    if (!result) return false;
    levels.done(n);
    if (!node.sequence) {
      if (!node.outputs.empty() && node.outputs[0] >= 0) env[static_cast<size_t>(node.outputs[0])] = result;
    } else {
      std::vector<PyObject*> tensors;
      flatten_result(result.get(), tensors);
      for (size_t k = 0; k < node.outputs.size() && k < tensors.size(); ++k) {
        if (node.outputs[k] >= 0) env[static_cast<size_t>(node.outputs[k])] = Ref::borrow(tensors[k]);
      }
    }
    if (!made_.symbols.empty() && !bind_made(n, env, symbols)) return false;
    if (!falls_as_recorded(*this, n, env)) return false;
    if ((runs_as_it_stands(node) || node.foreign) && !is_as_recorded(node, slots_, env)) {
      PyErr_Format(PyExc_RuntimeError, "tatara: %s gives another shape or type than when it was traced",
                   node.name.c_str());
      return false;
    }
    if (keep) continue;
    for (const int slot : dead_after_[n]) env[static_cast<size_t>(slot)] = Ref();
  }
  return true;
}

bool asks_where_graphs_look(const Tape& tape, const TapeNode& node) {
  const int operand = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
  const Ref device = operand < 0 ? Ref() : tape.slots()[static_cast<size_t>(operand)].device;
  const std::string type = device ? text_of(attr(device.get(), "type").get()) : std::string();
  return type == "cpu" || type == "cuda";
}

std::optional<bool> condition_of(const Tape& tape, const TapeNode& node) {
  for (const Tape::MadeSymbol& made : tape.made_symbols()) {
    const bool own = made.condition && node.outputs.size() == 1 && node.outputs[0] == made.slot;
    if (own) return tape.hints()[made.symbol] != 0;
  }
  return std::nullopt;
}

}  // namespace tatara::capture
