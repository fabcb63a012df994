// Runs a tape of NumPy calls: compiled stretches, and between them the calls that NumPy makes.
#include <chrono>
#include <cstring>
#include <limits>

#include "capture/entries/stats.h"
#include "capture/graph/numpy/numpy_graph.h"
#include "capture/host/numpy_loops.h"
#include "capture/python/gil.h"
#include "capture/run/numpy_constants.h"
#include "capture/run/numpy_stretch.h"
#include "capture/run/report_details.h"
#include "capture/run/runner.h"
#include "capture/tape/transaction.h"
#include "capture/tape/view_origins.h"
#include "compiler/compiler.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

/// A compiled stretch of the tape.
class Stretch {
 public:
  Stretch(std::shared_ptr<Executable> executable, TapeGraph made, const Tape& tape,
          const std::vector<NumpyGraph::LateView>& views, size_t calls)
      : executable_(std::move(executable)), inputs_(std::move(made.inputs)), outputs_(std::move(made.outputs)) {
    for (const NumpyGraph::LateView& view : views) {
      const TapeSlot& info = tape.slots()[static_cast<size_t>(view.slot)];
      late_.push_back({view, integers(info.sizes.get()), integers(info.strides.get()), info.read_only});
    }
    for (const int slot : inputs_) {
      input_strides_.push_back(integers(tape.slots()[static_cast<size_t>(slot)].strides.get()));
    }
    const Plan& plan = executable_->plan();
    for (const PlanInput& input : plan.inputs) {
      TensorView view;
      view.dtype = input.type.dtype;
      views_.push_back(view);
    }
    writes_ = !plan.input_writes.empty();
    // A copy of what is written to costs as much as some passes over it.
    constexpr size_t kCallsForCopy = 4;
    most_kept_ =
        calls >= kCallsForCopy * plan.input_writes.size() ? Transaction::kMostInTrace : Transaction::kMostInCall;
    for (const int slot : outputs_) {
      const TapeSlot& info = tape.slots()[static_cast<size_t>(slot)];
      scalars_.push_back(info.scalar);
      owns_.push_back(info.owns);
      read_only_.push_back(info.read_only);
      strides_.push_back(integers(info.strides.get()));
    }
    for (const PlanStep& step : plan.steps) kernels_ += std::holds_alternative<KernelLaunch>(step) ? 1 : 0;
    tests_ = kernels_ < plan.steps.size();  // loops of NumPy's stop, too
    for (const PlanKernel& kernel : plan.kernels) tests_ = tests_ || !kernel.fault_sites.empty();
  }

  /// 1: done. 0: NumPy has to run these calls. kFault: likewise, for a value was found that it may have something to say of. -1: a
  /// Python error is set.
  static constexpr int kFault = -2;
  int run(std::vector<Ref>& env, const NumpyApi& np) const {
    std::vector<TensorView> views = views_;
    std::vector<Ref> alive;
    std::vector<InputRef> inputs(views.size());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      PyObject* value = env[static_cast<size_t>(inputs_[i])].get();
      if (!np.is_array(value)) {
        alive.push_back(np.array_of(value));
        value = alive.back().get();
        if (value == nullptr) return -1;
      }
      DType dtype = DType::kFloat32;
      if (!np.describe(value, dtype, views[i].sizes, views[i].strides) || dtype != views[i].dtype) return 0;
      views[i].data = NumpyApi::data(value);
      if (!turn(views[i], input_strides_[i])) return 0;
      // Without dimensions there are strides, too: none.
      static constexpr int64_t kNone = 0;
      const bool flat = views[i].sizes.empty();
      inputs[i] = {views[i].data, flat ? &kNone : views[i].sizes.data(), flat ? &kNone : views[i].strides.data(),
                   static_cast<int32_t>(views[i].sizes.size())};
    }
    if (writes_ && !may_write(env, views, np)) return 0;
    std::vector<int64_t> symbols;
    if (!executable_->bind_symbols(inputs, symbols)) return 0;
    EdgeLayouts edges;
    executable_->edge_layouts(symbols, edges);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!edges.inputs[i].fits(inputs[i])) return 0;
    }
    bool wrote = false;
    Transaction& transaction = *Transaction::current();
    const size_t before = transaction.mark();
    const bool lost = !transaction.can_undo();
    WrittenInputs written;
    // A fault that is only seen here is NumPy's to tell of, so the run must be one that can be taken back.
    executable_->written_inputs(symbols, tests_ ? most_kept_ : Transaction::kMostInCall, written);
    if (writes_ && tests_ && written.late && !written.all) return 0;
    for (const auto& [at, bytes] : written.inputs) {
      keep(transaction, env[static_cast<size_t>(inputs_[at])], views[at].data, bytes);
    }
    try {
      const bool done = run_plan(env, views, symbols, edges, np, wrote);
      if (wrote && !written.all) transaction.lose("a graph writes to big arrays");
      return done ? 1 : -1;
    } catch (const Error&) {
      const bool kept = !wrote || written.all;
      if (!kept) transaction.lose("a graph writes to big arrays");
      if (PyErr_Occurred() != nullptr) return -1;
      // For NumPy's own error or warning. What calls before have done may stay.
      if (lost ? kept && transaction.undo_noted_since(before) : transaction.undo_since(before)) return kFault;
      PyErr_SetString(PyExc_IndexError, "an index is out of bounds");
      return -1;
    }
  }
  uint64_t kernels() const { return kernels_; }

 private:
  /// Strides below zero become those of the same elements the other way round, as the graph has them. False: it has them not.
  static bool turn(TensorView& view, const std::vector<int64_t>& expected) {
    for (size_t d = 0; d < view.strides.size(); ++d) {
      const bool below = d < expected.size() && expected[d] < 0;
      if (below != (view.strides[d] < 0)) return false;
      if (!below) continue;
      const int64_t reach = view.sizes[d] > 0 ? (view.sizes[d] - 1) * view.strides[d] : 0;
      view.data = static_cast<char*>(view.data) + reach * dtype_size(view.dtype);
      view.strides[d] = -view.strides[d];
    }
    return true;
  }

  /// Before memory is written to.
  static void keep(Transaction& transaction, const Ref& array, void* data, size_t bytes) {
    if (bytes <= Transaction::kMostInCall && transaction.can_undo())
      return transaction.keep_memory(array.get(), data, bytes);
    std::vector<std::byte> copy(bytes);
    std::memcpy(copy.data(), data, bytes);
    transaction.on_undo([array = Ref::borrow(array.get()), data, copy = std::move(copy)] {
      std::memcpy(data, copy.data(), copy.size());
      return true;
    });
  }

  static std::vector<int64_t> integers(PyObject* tuple) {
    std::vector<int64_t> values;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
      values.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
    }
    return values;
  }

  /// Written arrays are writeable and share no memory with another input.
  bool may_write(const std::vector<Ref>& env, const std::vector<TensorView>& views, const NumpyApi& np) const {
    for (const InputWrite& write : executable_->plan().input_writes) {
      const auto at = static_cast<size_t>(write.input_index);
      if (!np.writeable(env[static_cast<size_t>(inputs_[at])].get())) return false;
    }
    std::vector<std::pair<const char*, const char*>> ranges;
    for (const TensorView& view : views) {
      int64_t last = 0;
      bool empty = false;
      for (size_t d = 0; d < view.sizes.size(); ++d) {
        empty = empty || view.sizes[d] == 0;
        last += (view.sizes[d] - 1) * view.strides[d];
      }
      if (empty) continue;
      const auto* begin = static_cast<const char*>(view.data);
      ranges.emplace_back(begin, begin + (last + 1) * dtype_size(view.dtype));
    }
    for (size_t i = 0; i < ranges.size(); ++i) {
      for (size_t j = i + 1; j < ranges.size(); ++j) {
        if (ranges[i].first < ranges[j].second && ranges[j].first < ranges[i].second) return false;
      }
    }
    return true;
  }

  bool run_plan(std::vector<Ref>& env, const std::vector<TensorView>& views, const std::vector<int64_t>& symbols,
                const EdgeLayouts& edges, const NumpyApi& np, bool& wrote) const {
    const Plan& plan = executable_->plan();
    const std::vector<OutputBuffer>& outs = executable_->output_buffers();
    const std::vector<TensorLayout>& layouts = edges.outputs;
    // An output that fills its buffer is the buffer's array, with NumPy's strides; others become views.
    std::vector<Ref> buffers(outs.size());
    std::vector<void*> pointers(outs.size());
    std::vector<int> owner(outs.size(), -1);
    for (size_t b = 0; b < outs.size(); ++b) {
      TensorLayout whole = edges.output_buffers[b];
      for (size_t i = 0; i < outputs_.size() && owner[b] < 0; ++i) {
        const PlanBuffer& home = plan.buffers[static_cast<size_t>(plan.outputs[i].ref.buffer)];
        if (home.home != BufferHome::kOutput || home.index != static_cast<int>(b)) continue;
        if (layouts[i].offset == 0 && numel(layouts[i].sizes) == numel(whole.sizes) && dense(layouts[i])) {
          owner[b] = static_cast<int>(i);
          whole = {layouts[i].sizes, exact_strides(i, layouts[i]), 0};
        }
      }
      if (!dense(whole)) whole = {{reach(whole)}, {1}, 0};
      buffers[b] = np.new_array(outs[b].dtype, whole.sizes, whole.strides);
      if (!buffers[b]) return false;
      pointers[b] = NumpyApi::data(buffers[b].get());
    }
    std::vector<void*> inputs;
    for (const TensorView& view : views) inputs.push_back(view.data);
    RunIo io{inputs, pointers, {}, {}};
    struct Progress {
      const RunIo& io;
      bool& wrote;
      ~Progress() { wrote = io.wrote; }
    } const progress{io, wrote};
    {
      const GilRelease unlocked;
      executable_->run(io, symbols);
    }
    stats().kernels_launched += kernels_;
    std::vector<Ref> results;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const PlanBuffer& home = plan.buffers[static_cast<size_t>(plan.outputs[i].ref.buffer)];
      const auto at = static_cast<size_t>(home.index);
      const int64_t bytes = layouts[i].offset * dtype_size(plan.outputs[i].ref.dtype);
      Ref result;
      if (home.home == BufferHome::kOutput) {
        char* data = static_cast<char*>(pointers[at]) + bytes;
        if (scalars_[i]) {
          result = np.scalar(data, plan.outputs[i].ref.dtype);
        } else if (owner[at] == static_cast<int>(i) && owns_[i]) {
          result = buffers[at];
        } else {
          result = np.view(buffers[at].get(), data, plan.outputs[i].ref.dtype, layouts[i].sizes,
                           exact_strides(i, layouts[i]));
        }
      } else if (home.home == BufferHome::kInput) {
        PyObject* base = env[static_cast<size_t>(inputs_[at])].get();
        char* data = static_cast<char*>(views[at].data) + bytes;
        result = scalars_[i]
                     ? np.scalar(data, plan.outputs[i].ref.dtype)
                     : np.view(base, data, plan.outputs[i].ref.dtype, layouts[i].sizes, exact_strides(i, layouts[i]));
      } else {
        throw InternalError("an output in the plan's own memory");
      }
      if (!result) return false;
      if (read_only_[i]) NumpyApi::forbid_writes(result.get());
      results.push_back(std::move(result));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) env[static_cast<size_t>(outputs_[i])] = std::move(results[i]);
    for (const Late& late : late_) {
      PyObject* base = env[static_cast<size_t>(late.view.base)].get();
      DType dtype = DType::kFloat32;
      std::vector<int64_t> sizes, strides;
      if (!np.describe(base, dtype, sizes, strides)) throw InternalError("a view of what is no array");
      char* data = static_cast<char*>(NumpyApi::data(base)) + late.view.offset * dtype_size(dtype);
      Ref& view = env[static_cast<size_t>(late.view.slot)];
      view = np.view(base, data, dtype, late.sizes, late.strides);
      if (!view) return false;
      if (late.read_only) NumpyApi::forbid_writes(view.get());
    }
    return true;
  }

  static int64_t numel(const std::vector<int64_t>& sizes) {
    int64_t n = 1;
    for (const int64_t s : sizes) n *= s;
    return n;
  }

  /// Elements from the first to the last in memory; strides are not below zero.
  static int64_t reach(const TensorLayout& layout) {
    int64_t elements = 1;
    for (size_t i = 0; i < layout.sizes.size(); ++i) elements += (layout.sizes[i] - 1) * layout.strides[i];
    return elements;
  }

  /// No gaps and no overlaps.
  static bool dense(const TensorLayout& layout) {
    return numel(layout.sizes) == 0 || reach(layout) == numel(layout.sizes);
  }

  /// NumPy's strides, which differ from the plan's where a size is 0 or 1.
  std::vector<int64_t> exact_strides(size_t output, const TensorLayout& layout) const {
    const bool empty = numel(layout.sizes) == 0;
    std::vector<int64_t> strides = layout.strides;
    for (size_t i = 0; i < strides.size() && i < strides_[output].size(); ++i) {
      if (empty || layout.sizes[i] == 1) strides[i] = strides_[output][i];
    }
    return strides;
  }

  std::shared_ptr<Executable> executable_;
  std::vector<int> inputs_, outputs_;
  std::vector<TensorView> views_;
  std::vector<bool> scalars_, owns_, read_only_;
  std::vector<std::vector<int64_t>> strides_, input_strides_;
  struct Late {
    NumpyGraph::LateView view;
    std::vector<int64_t> sizes, strides;
    bool read_only;
  };
  std::vector<Late> late_;
  size_t most_kept_ = 0;
  bool writes_ = false, tests_ = false;
  uint64_t kernels_ = 0;
};

using Tests = NumpyGraph::Tests;

struct Part {
  size_t first = 0, last = 0;
  std::unique_ptr<Stretch> stretch;  // null: NumPy runs the calls
  Tests tests = Tests::kTogether;
  int faults = 0;                         // runs in a row that met one
  int skip = 0;                           // calls that NumPy makes before the stretch is tried again
  ConstantCalls::Results constants = {};  // of a call that gives the same in each run
};

class NumpyRunner final : public GraphRunner {
 public:
  NumpyRunner(std::vector<Part> parts, const Tape& tape, const NumpyApi& np, PyObject* errstate,
              const CompileOptions& options)
      : parts_(std::move(parts)),
        errstate_(Ref::borrow(errstate)),
        options_(options),
        raises_(!np.allows_kernels(errstate)),
        sees_underflow_(np.sees_underflow(errstate)) {
    for (const TapeNode& node : tape.nodes()) {
      const auto* call = std::get_if<NumpyOperation>(&node.kind);
      raises_ = raises_ || (call != nullptr && call->errstate && !np.allows_kernels(call->errstate.get()));
    }
    for (const TapeSlot& slot : tape.slots()) {
      if (!slot.input || slot.guard_index >= 0) continue;
      TensorMeta meta;
      if (np.read_meta(slot.object.get(), meta)) pinned_.emplace_back(slot.object, std::move(meta));
    }
  }
  int traverse(const Visitor& visit) const override {
    for (const auto& [array, meta] : pinned_) {
      if (const int result = visit(array); result != 0) return result;
    }
    return 0;
  }
  std::vector<std::string> describe_pinned() const override {
    if (pinned_.empty()) return {};
    return {str_cat("layouts of arrays that the graph holds are unchanged (", pinned_.size(), ")")};
  }
  bool pinned_unchanged(TorchApi& api) override {
    for (const auto& [array, meta] : pinned_) {
      if (!api.numpy->matches(array.get(), meta, nullptr)) return false;
    }
    return true;
  }
  Outcome run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) override {
    if (raises_ && sees_underflow_) return Outcome::kFailed;  // all warnings before an error come from the program
    return run_parts(tape, env, api) ? Outcome::kDone : Outcome::kFailed;
  }

 private:
  bool run_parts(const Tape& tape, std::vector<Ref>& env, TorchApi& api) {
    for (Part& part : parts_) {
      if (part.stretch != nullptr && part.skip == 0) {
        const int done = part.stretch->run(env, *api.numpy);
        if (done == Stretch::kFault) {
          // The program's own error comes with all warnings before it, so the program makes all of the calls.
          if (raises_ && Transaction::current()->can_undo()) return false;
          met_fault(part, tape, *api.numpy);
        } else if (done < 0) {
          return false;
        }
        if (done > 0) {
          part.faults = 0;
          // Sizes that data decide are looked at by the plan.
          for (size_t n = part.first; n < part.last; ++n) {
            if (falls(tape.nodes()[n]) && !falls_as_recorded(tape, n, env)) return false;
          }
          tape.drop_dead(env, part.first, part.last);
          continue;
        }
      }
      if (!part.constants.empty()) {
        if (!ConstantCalls::give(part.constants, env, *api.numpy)) return false;
        continue;
      }
      if (part.skip > 0) --part.skip;
      stats().host_calls += part.last - part.first;
      if (!tape.run_nodes(env, part.first, part.last)) return false;
    }
    return true;
  }

  /// From the first fault on each call is tested with its operands, for what came from outside is none. Where faults go on, NumPy makes
  /// more and more calls before the stretch is tried again.
  void met_fault(Part& part, const Tape& tape, const NumpyApi& np) {
    if (part.tests == Tests::kEach) {
      constexpr int kMostDoublings = 6;
      part.faults = std::min(part.faults + 1, kMostDoublings);
      part.skip = part.faults > 1 ? 1 << part.faults : 0;
      return;
    }
    part.tests = Tests::kEach;
    try {
      StretchGraph graph(tape, np, errstate_.get(), Tests::kEach);
      for (size_t n = part.first; n < part.last; ++n) graph.add(tape.nodes()[n]);
      TapeGraph made = graph.finish(part.last);
      const CompileResult result = compile_stretch(made.graph, options_);
      part.stretch = std::make_unique<Stretch>(result.executable, std::move(made), tape, graph.late_views(),
                                               part.last - part.first);
    } catch (const std::exception&) {
      forget_error();  // the tests stay as they are
    }
  }

  std::vector<Part> parts_;
  Ref errstate_;
  CompileOptions options_;
  bool raises_;  // where a fault shall do more than warn
  bool sees_underflow_;
  std::vector<std::pair<Ref, TensorMeta>> pinned_;
};

/// Splits the tape and compiles what it can.
class Splitter {
 public:
  Splitter(Entry& entry, const CompileOptions& options, TorchApi& api)
      : entry_(entry), options_(options), tape_(*entry.tape), np_(*api.numpy), constants_(tape_, np_) {}

  std::vector<Part> run(size_t from, size_t to) {
    first_ = from;
    for (const char* name : {"kernels", "steps", "buffers", "times", "notes"}) list(name);
    const Ref id = Ref::steal(PyLong_FromLong(-1));
    const bool allowed = !np_.sees_underflow(errstate());
    const auto& nodes = tape_.nodes();
    for (size_t n = from; n < to; ++n) {
      std::string why;
      // What came before a write to what is older can be taken back where data decide otherwise.
      const bool decided = std::any_of(nodes.begin() + static_cast<std::ptrdiff_t>(first_),
                                       nodes.begin() + static_cast<std::ptrdiff_t>(n), is_decided);
      if (decided && changes_older(tape_, n, 0)) close(n);
      if (allowed && add(nodes[n], why)) continue;
      close(n);
      if (!allowed) why = "np.errstate asks for underflow";
      parts_.push_back(
          {n, n + 1, nullptr, Tests::kNone, 0, 0, allowed ? constants_.results(nodes[n]) : ConstantCalls::Results()});
      if (parts_.back().constants.empty()) host(nodes[n], why);
      first_ = n + 1;
    }
    close(to);
    if (PyDict_GetItemString(details_.get(), "id") == nullptr) PyDict_SetItemString(details_.get(), "id", id.get());
    return std::move(parts_);
  }

  Ref details() { return std::move(details_); }
  PyObject* errstate() const { return entry_.guards.state.errstate.get(); }

 private:
  bool add(const TapeNode& node, std::string& why) {
    const Ref& errstate = std::get<NumpyOperation>(node.kind).errstate;
    if (runs_as_it_stands(node) && !only_sized(node)) {
      why = crosses_to_tensors(node) ? "it is between arrays and tensors"
            : draws_by_numpy(node)   ? "it draws random numbers"
            : is_decided(node)       ? "data decide the size of its result"
                                     : "it makes what is new in each call";
      return false;
    }
    if (errstate && np_.sees_underflow(errstate.get())) {
      why = "np.errstate asks for underflow";
      return false;
    }
    if (only_scalars(node)) {
      why = "arithmetic on scalars, which warns where that on arrays does not";
      return false;
    }
    if (graph_ == nullptr) graph_ = std::make_unique<StretchGraph>(tape_, np_, this->errstate(), Tests::kTogether);
    try {
      graph_->add(node);
      return true;
    } catch (const Error& error) {
      forget_error();
      why = error.what();
      return false;
    }
  }

  /// A scalar made of scalars, some of them from outside of the present stretch.
  bool only_scalars(const TapeNode& node) const {
    if (NumpyGraph::tests_decision(node)) return false;
    bool outside = false;
    const auto is_flat = [this](int slot) {
      return PyTuple_GET_SIZE(tape_.slots()[static_cast<size_t>(slot)].sizes.get()) == 0;
    };
    bool flat = std::all_of(node.outputs.begin(), node.outputs.end(), is_flat);
    const auto look = [&](int slot) {
      flat = flat && is_flat(slot);
      outside = outside || graph_ == nullptr || !graph_->made(slot);
    };
    for (PyObject* part : {node.args.get(), node.kwargs.get()}) {
      if (part != nullptr) for_each_slot(part, look);
    }
    return flat && outside;
  }

  static bool is_decided(const TapeNode& node) { return !std::get<NumpyOperation>(node.kind).decides.empty(); }

  void host(const TapeNode& node, const std::string& why) {
    const Ref step = step_between(node, why);
    if (!step) return forget_error();
    PyList_Append(list("steps").get(), step.get());
  }

  /// A list of the report.
  Ref list(const char* name) {
    Ref found = Ref::borrow(PyDict_GetItemString(details_.get(), name));
    if (found) return found;
    found = Ref::steal(PyList_New(0));
    PyDict_SetItemString(details_.get(), name, found.get());
    return found;
  }

  /// Joins the report of one stretch to that of the whole; kernels are numbered through.
  void join(const Ref& part) {
    if (!part) return forget_error();
    const Py_ssize_t kernels = PyList_GET_SIZE(list("kernels").get());
    PyObject* steps = PyDict_GetItemString(part.get(), "steps");
    for (Py_ssize_t i = 0; steps != nullptr && i < PyList_GET_SIZE(steps); ++i) {
      PyObject* step = PyList_GET_ITEM(steps, i);
      PyObject* kernel = PyDict_GetItemString(step, "kernel");
      if (kernel == nullptr) continue;
      const Ref number = Ref::steal(PyLong_FromSsize_t(PyLong_AsSsize_t(kernel) + kernels));
      PyDict_SetItemString(step, "kernel", number.get());
    }
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(part.get(), &at, &key, &value) != 0) {
      if (PyList_Check(value)) {
        const Ref target = list(PyUnicode_AsUTF8(key));
        PyList_SetSlice(target.get(), PyList_GET_SIZE(target.get()), PyList_GET_SIZE(target.get()), value);
      } else if (PyDict_Contains(details_.get(), key) == 0) {
        PyDict_SetItem(details_.get(), key, value);
      }
    }
  }

  /// Ends the present stretch before node `end`.
  void close(size_t end) {
    const std::unique_ptr<StretchGraph> graph = std::move(graph_);
    if (first_ == end) return;
    Part part{first_, end, nullptr, Tests::kTogether, 0, 0};
    try {
      TapeGraph made = graph->finish(end);
      entry_.report.graph_text += print_graph(made.graph, true);
      const CompileResult result = compile_stretch(made.graph, options_);
      entry_.report.lowered_text += result.lowered_text;
      join(details_of(result));
      part.stretch =
          std::make_unique<Stretch>(result.executable, std::move(made), tape_, graph->late_views(), end - part.first);
    } catch (const std::exception& error) {
      forget_error();
      for (size_t n = first_; n < end; ++n) host(tape_.nodes()[n], error.what());
    }
    parts_.push_back(std::move(part));
    first_ = end;
  }

  Entry& entry_;
  const CompileOptions& options_;
  const Tape& tape_;
  const NumpyApi& np_;
  ConstantCalls constants_;
  std::unique_ptr<StretchGraph> graph_;
  size_t first_ = 0;
  std::vector<Part> parts_;
  Ref details_ = Ref::steal(PyDict_New());
};

}  // namespace

std::unique_ptr<GraphRunner> numpy_part(Entry& entry, const CompileOptions& options, TorchApi& api, size_t first,
                                        size_t last, Ref& details) {
  Splitter splitter(entry, options, api);
  std::vector<Part> parts = splitter.run(first, last);
  details = splitter.details();
  return std::make_unique<NumpyRunner>(std::move(parts), *entry.tape, *api.numpy, splitter.errstate(), options);
}

bool attach_numpy(Entry& entry, const CompileOptions& options, TorchApi& api) {
  const auto start = std::chrono::steady_clock::now();
  entry.report.graph_text.clear();
  Splitter splitter(entry, options, api);
  std::vector<Part> parts = splitter.run(0, entry.tape->nodes().size());
  entry.report.details = splitter.details();
  if (entry.report.graph_text.empty()) {
    entry.report.graph_text = entry.tape->str();
    entry.report.fallback_reason = "every call runs by NumPy";
  }
  entry.runner = std::make_unique<NumpyRunner>(std::move(parts), *entry.tape, *api.numpy, splitter.errstate(), options);
  entry.report.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return true;
}

}  // namespace tatara::capture
