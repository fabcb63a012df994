// Runs a tape in parts: compiled ones, and between them the calls that the compiler refuses, which torch runs.
#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "capture/entries/stats.h"
#include "capture/graph/eager_cost.h"
#include "capture/graph/early_calls.h"
#include "capture/host/errors.h"
#include "capture/run/compiled_part.h"
#include "capture/run/report_details.h"
#include "capture/run/runner.h"
#include "capture/tape/tape_print.h"
#include "capture/tape/transaction.h"
#include "capture/tape/view_origins.h"
#include "ops/core/builder.h"
#include "support/error.h"
#include "support/log.h"
#include "support/str_cat.h"
#include "transforms/pass.h"

namespace tatara::capture {
namespace {

/// Seconds that a run of a compiled part takes beside its kernels, without and with gradients.
constexpr double kPartSeconds = 5e-6, kTrainingPartSeconds = 50e-6;

struct TapePart {
  size_t first = 0, last = 0;           // nodes of the whole tape
  std::shared_ptr<const Tape> tape;     // null: torch runs the calls, or they are NumPy's
  std::unique_ptr<GraphRunner> runner;  // null: torch runs the calls
  std::vector<int> made_before;         // tensors that come in from nodes before it
  std::vector<ExprProgram> facts;       // what the compilation took as given of sizes that data decide
};

class SplitRunner final : public GraphRunner {
 public:
  SplitRunner(std::vector<TapePart> parts, const Tape& tape) : parts_(std::move(parts)) {
    const std::vector<TapeSlot>& slots = tape.slots();
    for (size_t i = 0; i < slots.size() && !tape.symbols().empty(); ++i) {
      if (slots[i].input && !slots[i].symbolic_sizes.empty()) carriers_.push_back(i);
    }
    for (const TapePart& part : parts_) {
      for (const int slot : part.runner == nullptr ? std::vector<int>() : part.runner->written_slots()) {
        if (slot < 0 || slots[static_cast<size_t>(slot)].input) written_.push_back(slot);
      }
      for (size_t n = part.first; n < part.last && part.tape == nullptr; ++n)
        if (tape.nodes()[n].mutates || tape.nodes()[n].statistics) written_.push_back(-1);
    }
  }

  int traverse(const Visitor& visit) const override {
    for (const TapePart& part : parts_) {
      if (part.runner == nullptr) continue;
      if (const int result = part.runner->traverse(visit); result != 0) return result;
      if (part.tape.use_count() != 1) continue;
      if (const int result = visit(*part.tape); result != 0) return result;
    }
    return 0;
  }

  bool pinned_unchanged(TorchApi& api) override {
    return std::all_of(parts_.begin(), parts_.end(), [&api](const TapePart& part) {
      return part.runner == nullptr || part.runner->pinned_unchanged(api);
    });
  }

  std::vector<std::string> describe_pinned() const override {
    std::vector<std::string> lines;
    for (const TapePart& part : parts_) {
      if (part.runner == nullptr) continue;
      for (std::string& line : part.runner->describe_pinned()) lines.push_back(std::move(line));
    }
    return lines;
  }

  Outcome run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) override {
    Transaction* const transaction = Transaction::current();
    if (transaction != nullptr) transaction->begin_tape(tape, env, api);
    std::vector<int64_t> symbols;
    if (!tape.symbol_values(env, api, symbols)) return Outcome::kFailed;
    std::vector<Ref> carriers;
    for (const size_t slot : carriers_) carriers.push_back(env[slot]);
    const auto holds = [&symbols](const ExprProgram& fact) { return fact.try_evaluate(symbols).value_or(0) != 0; };
    for (const TapePart& part : parts_) {
      if (part.runner != nullptr && part.tape == nullptr) {
        if (part.runner->run(tape, env, api) != Outcome::kDone) return Outcome::kFailed;
        continue;
      }
      if (part.runner != nullptr && std::all_of(part.facts.begin(), part.facts.end(), holds)) {
        for (size_t i = 0; i < carriers.size(); ++i) env[carriers_[i]] = carriers[i];
        const Outcome outcome = run_part(part, transaction, env, api);
        if (outcome == Outcome::kFailed) return outcome;
        if (outcome == Outcome::kDone) {
          tape.drop_dead(env, part.first, part.last);
          continue;
        }
      }
      stats().host_calls += part.last - part.first;
      if (!tape.run_nodes(env, part.first, part.last, symbols)) return Outcome::kFailed;
    }
    return Outcome::kDone;
  }

  std::string problem() const override { return problem_; }
  bool compiled() const override { return true; }
  bool checks_results() const override { return false; }  // those of torch's calls are not looked at
  std::vector<int> written_slots() const override { return written_; }
  std::string launches() const override {
    std::string lines;
    for (const TapePart& part : parts_) {
      const std::string each = part.runner == nullptr ? std::string() : part.runner->launches();
      if (!each.empty()) lines += (lines.empty() ? "" : "\n") + each;
    }
    return lines;
  }

 private:
  /// kRefused: nothing has happened, and torch is to run these calls.
  Outcome run_part(const TapePart& part, Transaction* transaction, std::vector<Ref>& env, TorchApi& api) {
    for (const int slot : part.made_before) {
      PyObject* const tensor = env[static_cast<size_t>(slot)].get();
      if (part.tape->slots()[static_cast<size_t>(slot)].number) continue;
      const bool expected = part.tape->slots()[static_cast<size_t>(slot)].requires_grad;
      if (tensor == nullptr || !api.is_tensor(tensor) || api.requires_grad(tensor) != expected) {
        problem_ = "the result of a call of torch's is not as expected";
        return Outcome::kRefused;
      }
    }
    const size_t before = transaction != nullptr ? transaction->mark() : 0;
    const Outcome outcome = part.runner->run(*part.tape, env, api);
    if (outcome == Outcome::kDone || outcome == Outcome::kFailed) return outcome;
    problem_ = part.runner->problem();
    if (outcome == Outcome::kRefused) return outcome;
    if (transaction != nullptr && !transaction->undo_since(before)) {
      if (PyErr_Occurred() == nullptr) set_host_error("tatara: a part of a graph failed: " + problem_);
      return Outcome::kFailed;
    }
    forget_error();
    return Outcome::kRefused;
  }

  std::vector<TapePart> parts_;
  std::vector<size_t> carriers_;  // inputs whose sizes vary: each part reads the symbols from them
  std::vector<int> written_;
  std::string problem_;
};

/// Cuts a tape at the calls that the compiler refuses, which it finds one by one, and compiles the rest.
class TapeSplitter {
 public:
  TapeSplitter(Entry& entry, const CompileOptions& options, TorchApi& api, const EndingTrace& trace)
      : entry_(entry),
        options_(options),
        api_(api),
        trace_(trace),
        tape_(*entry.tape),
        training_(is_training_tape(tape_)),
        why_(tape_.nodes().size()) {
    for (const TapeSlot& slot : trace.tape.slots()) {
      needs_.push_back(slot.object && api.is_tensor(slot.object.get()) && api.requires_grad(slot.object.get()));
    }
    if (trace.ran) {
      for (size_t i = 0; i < trace.tape.slots().size() && i < tape_.slots().size(); ++i) {
        if (trace.tape.slots()[i].real_strides) entry.tape->take_layout(static_cast<int>(i), trace.tape);
      }
    }
    find_units();
    for (size_t n = 0; n < why_.size(); ++n) {
      const TapeNode& node = tape_.nodes()[n];
      if (engine_pass(node) != nullptr) why_[n] = "gradients through a graph that is cut: torch's engine computes them";
      if (is_on_foreign(tape_, node)) why_[n] = node.name + ", which torch computes";
      if (is_leaf_mark(node)) why_[n] = "it makes a tensor a leaf";
      if (is_numpy_operation(node)) why_[n] = "NumPy's";
      if (number_operation(node) != nullptr && (reads_array(node) || draws_by_numpy(node))) why_[n] = "NumPy's";
    }
    for (const Tape::MadeSymbol& made : tape_.made_symbols())
      if (!made.condition) why_[made.node] = kDataDecide;
  }

  /// False: the tape cannot be cut where it has to be.
  /// The first `early` calls are torch's.
  bool run(const std::string& reason, size_t refused, bool several_devices, size_t early) {
    const size_t count = tape_.nodes().size();
    host(0, early, kDataDecide);
    if (several_devices && find_devices()) {
      split_by_device(early, count);
    } else {
      if (refused >= early) refuse(refused, reason);
      split(early, count);
    }
    return !cuts_region_;
  }
  /// The same of a tape where nothing was refused yet.
  bool run_mixed() {
    split(0, tape_.nodes().size());
    return !cuts_region_;
  }
  /// Why calls that would have been compiled are not, though none of them is refused; empty: there are none.
  const std::string& failure() const { return failure_; }
  std::vector<TapePart> take_parts() { return std::move(parts_); }
  /// {"parts": [(graph, lowered graph, how many calls, details), ...], "between": [steps]}
  Ref details() const {
    return Ref::steal(Py_BuildValue("{s:O,s:O}", "parts", report_parts_.get(), "between", report_calls_.get()));
  }

 private:
  /// A tape is not cut inside of a checkpoint, or of a level of torch.func.
  void find_units() {
    const std::vector<TapeNode>& nodes = tape_.nodes();
    int depth = 0;
    size_t begin = 0;
    for (size_t n = 0; n < nodes.size(); ++n) {
      const RegionMark* mark = region_mark(nodes[n]);
      const FuncStep step = step_of(nodes[n]);
      if (depth == 0) begin = n;
      if ((mark != nullptr && mark->begins) || step == FuncStep::kEnter) ++depth;
      if ((mark != nullptr && !mark->begins) || step == FuncStep::kExit) --depth;
      unit_.push_back(begin);
    }
  }
  size_t end_of_unit(size_t n) const {
    size_t end = n + 1;
    while (end < unit_.size() && unit_[end] == unit_[n]) ++end;
    return end;
  }

  /// The same call in a loop, or of each layer, is refused for the same reason.
  void refuse(size_t refused, const std::string& reason) {
    const TapeNode& node = tape_.nodes()[refused];
    for (size_t n = 0; n < why_.size(); ++n) {
      const TapeNode& other = tape_.nodes()[n];
      if (other.name == node.name && other.location.line == node.location.line &&
          other.location.file == node.location.file) {
        why_[n] = reason;
      }
    }
  }

  /// Where each unit works: -1 where others decide, -2 on several devices. Whether they are more than one.
  bool find_devices() {
    std::vector<Ref> devices;
    const auto number_of = [&](const TapeSlot& slot) -> int {
      if (slot.number || !slot.device) return -1;
      if (is_number_on_cpu(slot)) return -1;
      for (size_t d = 0; d < devices.size(); ++d) {
        if (PyObject_RichCompareBool(devices[d].get(), slot.device.get(), Py_EQ) == 1) return static_cast<int>(d);
      }
      devices.push_back(slot.device);
      return static_cast<int>(devices.size()) - 1;
    };
    const std::vector<TapeNode>& nodes = tape_.nodes();
    places_.assign(nodes.size(), -1);
    for (size_t n = 0; n < nodes.size(); ++n) {
      int& place = places_[unit_[n]];
      const auto on = [&](int slot) {
        const int number = slot < 0 ? -1 : number_of(tape_.slots()[static_cast<size_t>(slot)]);
        if (number >= 0) place = place == -1 || place == number ? number : -2;
      };
      for_each_slot(nodes[n].args.get(), on);
      for_each_slot(nodes[n].kwargs.get(), on);
      for (const int slot : nodes[n].outputs) on(slot);
    }
    return devices.size() > 1;
  }

  /// Kernels get such a tensor by value, or compute it again.
  static bool is_number_on_cpu(const TapeSlot& slot) {
    const Ref type = attr_or_null(slot.device.get(), "type"), rank = attr_or_null(slot.meta.get(), "ndim");
    return type && rank && text_of(type.get()) == "cpu" && PyLong_AsLong(rank.get()) == 0;
  }

  /// Whether these calls are not all on one device.
  bool differ(size_t first, size_t last) const {
    int place = -1;
    for (size_t n = first; n < last; ++n) {
      const int own = places_[unit_[n]];
      if (own == -2 || (own >= 0 && place >= 0 && own != place)) return true;
      if (own >= 0) place = own;
    }
    return false;
  }

  /// Neighbours on one device stay together.
  void split_by_device(size_t first, size_t last) {
    while (first < last) {
      int place = places_[first];
      size_t end = end_of_unit(first);
      while (place != -2 && end < last && (places_[end] == -1 || place == -1 || places_[end] == place)) {
        if (place == -1) place = places_[end];
        if (place == -2) break;
        end = end_of_unit(end);
      }
      if (places_[first] == -2) {
        host(first, end, "it works on several devices");
      } else {
        compile(first, end);
      }
      first = end;
    }
  }

  bool reads_array(const TapeNode& node) const {
    bool found = false;
    for_each_slot(node.args.get(), [&](int slot) {
      const TapeNode* const maker = tape_.maker(slot);
      found = found || (maker != nullptr && is_numpy_operation(*maker));
    });
    return found;
  }

  /// NumPy's calls that stand together.
  void numpy(size_t first, size_t last) {
    Ref details;
    EntryReport& report = entry_.report;
    const size_t texts = report.lowered_text.size();
    std::string before = std::exchange(report.graph_text, {});
    std::unique_ptr<GraphRunner> runner = numpy_part(entry_, options_, api_, first, last, details);
    const std::string text = std::exchange(report.graph_text, std::move(before));
    this->report(text, report.lowered_text.substr(texts), last - first, details);
    TapePart part;
    part.first = first;
    part.last = last;
    part.runner = std::move(runner);
    parts_.push_back(std::move(part));
  }

  void split(size_t first, size_t last) {
    for (size_t n = first; n < last; ++n) {
      if (why_[n].empty()) continue;
      // A number that data decide is filled in by the tape's own run.
      const auto of_numpy = [&](size_t m) { return is_numpy_operation(tape_.nodes()[m]) && why_[m] != kDataDecide; };
      if (of_numpy(n)) {
        compile(first, n);
        size_t end = n;
        while (end < last && of_numpy(end)) ++end;
        numpy(n, end);
        first = end;
        n = end - 1;
        continue;
      }
      const size_t begin = unit_[n], end = end_of_unit(n);
      compile(first, begin);
      host(begin, end, why_[n]);
      first = end;
      n = end - 1;
    }
    compile(first, last);
  }

  void host(size_t first, size_t last, const std::string& why) {
    for (size_t n = first; n < last; ++n) {
      const TapeNode& node = tape_.nodes()[n];
      cuts_region_ = cuts_region_ || region_mark(node) != nullptr;
      const Ref step = is_operator_call(node) ? step_between(node, why) : Ref();
      if (step) PyList_Append(report_calls_.get(), step.get());
      for (const int slot : node.outputs)
        if (slot >= 0) entry_.tape->take_layout(slot, trace_.tape);
      entry_.report.graph_text += str_cat("torch: ", node_text(tape_, node), "\n");
      TATARA_LOG(kGraph, "torch runs ", node.name, ": ", why);
    }
    if (!parts_.empty() && parts_.back().runner == nullptr) {
      parts_.back().last = last;
    } else if (first < last) {
      parts_.emplace_back();
      parts_.back().first = first;
      parts_.back().last = last;
    }
  }

  void report(const std::string& graph, const std::string& lowered, size_t calls, const Ref& details) {
    PyObject* const known = details ? details.get() : Py_None;
    const Ref part =
        Ref::steal(Py_BuildValue("(ssnO)", graph.c_str(), lowered.c_str(), static_cast<Py_ssize_t>(calls), known));
    if (part) PyList_Append(report_parts_.get(), part.get());
    forget_error();
    entry_.report.graph_text += graph;
  }

  bool worth(size_t first, size_t last) const {
    double seconds = 0;
    for (size_t n = first; n < last; ++n) {
      if (region_mark(tape_.nodes()[n]) != nullptr) return true;
      seconds += seconds_in_eager(tape_, tape_.nodes()[n]);
    }
    return training_ ? 2.5 * seconds >= kTrainingPartSeconds : seconds >= kPartSeconds;
  }

  /// Whether each tensor requires grad where a part begins: an input may since a call before has written to it.
  std::vector<bool> needs_at(size_t first) const {
    std::vector<bool> needs = needs_;
    const std::set<int> written = written_in(0, first);
    for (size_t i = 0; i < needs.size() && i < tape_.slots().size(); ++i) {
      const TapeSlot& slot = tape_.slots()[i];
      const bool changed = !written.empty() && written.contains(memory_owner(tape_, static_cast<int>(i)));
      if (slot.input && !changed) needs[i] = slot.requires_grad;
    }
    for (const TapeNode& node : std::span(tape_.nodes()).first(first))
      if (is_leaf_mark(node)) needs[static_cast<size_t>(node.outputs[0])] = true;
    return needs;
  }

  /// The tensors whose memory calls from `first` on write to.
  std::set<int> written_from(size_t first) const { return written_in(first, tape_.nodes().size()); }
  std::set<int> written_in(size_t first, size_t last) const {
    std::set<int> written;
    for (size_t n = first; n < last; ++n) {
      const TapeNode& node = tape_.nodes()[n];
      if (!node.mutates && !node.statistics) continue;
      for (PyObject* argument : written_arguments(node))
        for_each_slot(argument, [&](int slot) { written.insert(memory_owner(tape_, slot)); });
    }
    return written;
  }

  /// Gradients may not count on memory that later parts write to. Of an input that is said by a write of what is there already;
  /// of a result it is a copy that later parts get.
  void keep_from_saving(TapeGraph& made, size_t last) const {
    const std::set<int> written = written_from(last);
    if (written.empty()) return;
    Graph& graph = made.graph;
    for (size_t i = 0; i < made.inputs.size(); ++i) {
      const auto input = static_cast<int>(i);
      const std::vector<InputWrite>& own = graph.input_writes();
      const auto same = [input](const InputWrite& write) { return write.input_index == input; };
      if (made.inputs[i] < 0 || !written.contains(memory_owner(tape_, made.inputs[i]))) continue;
      if (std::any_of(own.begin(), own.end(), same)) continue;
      graph.add_input_write(input, graph.inputs()[i], 0);
    }
    std::set<size_t> results;
    for (size_t i = 0; i < made.outputs.size(); ++i) {
      if (made.outputs[i] < 0 || !written.contains(memory_owner(tape_, made.outputs[i]))) continue;
      size_t result = i;
      while (graph.outputs()[result].alias.kind == OutputAlias::Kind::kOutput) {
        result = static_cast<size_t>(graph.outputs()[result].alias.index);
      }
      if (graph.outputs()[result].alias.kind == OutputAlias::Kind::kFresh) results.insert(result);
    }
    GraphBuilder builder(graph);
    for (const size_t result : results) {
      const ValueId value = graph.outputs()[result].value;
      const SymInts strides{graph.type(value).strides};
      graph.outputs()[result].value = builder.op("relayout", {TensorArg{value}, strides});
    }
  }

  /// To a part, tensors that come in are apart from each other. So torch does the writes to those of which there are views.
  void refuse_shared_writes(const TapeGraph& made) const {
    std::map<int, int> views;  // how many tensors have a part of the memory
    for (const int slot : made.inputs)
      if (slot >= 0) ++views[memory_owner(tape_, slot)];
    const auto shares = [this](int slot) {
      const TapeNode* const maker = slot < 0 ? nullptr : tape_.maker(memory_owner(tape_, slot));
      return maker != nullptr && crosses_to_tensors(*maker);
    };
    const bool shared = std::any_of(made.inputs.begin(), made.inputs.end(), shares);
    for (const InputWrite& write : made.graph.input_writes()) {
      const int slot = made.inputs[static_cast<size_t>(write.input_index)];
      if (shared) views[memory_owner(tape_, slot)] = 2;
      if (slot < 0 || views[memory_owner(tape_, slot)] < 2) continue;
      const auto refuse = [] { throw Unsupported("it writes to a tensor beside views of it"); };
      if (const Node* writer = made.graph.producer(write.value)) at_node(*writer, refuse);
    }
  }

  void compile(size_t first, size_t last) {
    if (first == last) return;
    if (!worth(first, last)) return host(first, last, "a few calls that are not worth a plan of their own");
    std::shared_ptr<Tape> tape = tape_.part(first, last, needs_at(first));
    if (tape == nullptr) return host(first, last, "a Python number goes from one part of a graph to another");
    const size_t texts = entry_.report.lowered_text.size();
    try {
      TapeGraph made = build_graph(*tape, api_, options_.passes);
      refuse_shared_writes(made);
      if (is_training_tape(*tape)) keep_from_saving(made, last);
      const std::string text = print_graph(made.graph, true);
      CompiledPart compiled = compile_part(entry_, std::move(made), tape, options_);
      report(text, entry_.report.lowered_text.substr(texts), last - first, compiled.details);
      TapePart part{first, last, tape, std::move(compiled.runner), {}, std::move(compiled.facts)};
      for (size_t i = 0; i < tape->slots().size(); ++i) {
        const TapeSlot &own = tape->slots()[i], &whole = tape_.slots()[i];
        const bool changed = own.requires_grad != whole.requires_grad;
        if (own.input && (!whole.input || changed)) part.made_before.push_back(static_cast<int>(i));
      }
      parts_.push_back(std::move(part));
    } catch (const Error& error) {
      forget_error();
      entry_.report.lowered_text.resize(texts);
      const int call = error.location().call;
      const size_t refused = first + static_cast<size_t>(std::max(call, 0));
      const bool refuses = call >= 0 && refused < last;
      if (!refuses) failure_ = error.what();
      if (!refuses || (unit_[refused] == first && end_of_unit(refused) == last)) {
        return host(first, last, error.what());
      }
      if (dynamic_cast<const SeveralDevices*>(&error) != nullptr && find_devices() && differ(first, last)) {
        return split_by_device(first, last);
      }
      refuse(refused, error.what());
      split(first, last);
    }
  }

  Entry& entry_;
  const CompileOptions& options_;
  TorchApi& api_;
  const EndingTrace& trace_;
  const Tape& tape_;
  bool training_;
  bool cuts_region_ = false;  // the calls of a checkpoint do not run one by one
  std::vector<bool> needs_;
  std::vector<size_t> unit_;      // by node: the first of those that stay together
  std::vector<std::string> why_;  // by node: why the compiler refuses it
  std::vector<int> places_;       // see find_devices()
  std::string failure_;
  std::vector<TapePart> parts_;
  Ref report_parts_ = Ref::steal(PyList_New(0)), report_calls_ = Ref::steal(PyList_New(0));
};

}  // namespace

bool can_split(const Tape& tape) {
  // What eager would refuse to differentiate, the parts might.
  const bool spoiled = std::any_of(tape.slots().begin(), tape.slots().end(),
                                   [](const TapeSlot& slot) { return static_cast<bool>(slot.spoiled); });
  if (spoiled || tape.has_custom_backwards() || tape.has_hooks() || is_numpy_tape(tape)) return false;
  // Eager's gradients read what was written later, those of parts what they were made of.
  bool open = is_training_tape(tape);  // histories that no pass has used yet
  return std::none_of(tape.nodes().begin(), tape.nodes().end(), [&](const TapeNode& node) {
    open = open && engine_pass(node) == nullptr;
    return changes_saved(tape, node, open);
  });
}

void attach_mixed(Entry& entry, const CompileOptions& options, TorchApi& api, const EndingTrace& trace) {
  const auto start = std::chrono::steady_clock::now();
  EntryReport before = entry.report;
  std::string failure;
  if (!trace.ran) failure = "arrays and tensors in one graph, which has not run";
  if (failure.empty() && !can_split(*entry.tape)) failure = "arrays and tensors in one graph that cannot be cut";
  if (failure.empty() && is_training_tape(*entry.tape) && writes_shared_memory(*entry.tape))
    failure = "NumPy writes to memory of tensors, beside gradients";
  if (failure.empty()) {
    try {
      TapeSplitter splitter(entry, options, api, trace);
      if (splitter.run_mixed()) {
        entry.report.details = splitter.details();
        entry.report.fallback_reason = splitter.failure();
        entry.runner = std::make_unique<SplitRunner>(splitter.take_parts(), *entry.tape);
      } else {
        failure = "arrays among the calls of a checkpoint";
      }
    } catch (const Error& error) {
      forget_error();
      failure = error.what();
    }
  }
  if (!failure.empty()) {
    entry.report = std::move(before);
    entry.report.fallback_reason = std::move(failure);
    entry.report.graph_text = entry.tape->str();
    entry.runner = make_eager_runner();
    ++stats().fallbacks;
  }
  entry.report.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool attach_split(Entry& entry, const CompileOptions& options, TorchApi& api, const EndingTrace& trace) {
  const int refused = entry.report.refused_call;
  if (refused < 0 || !trace.ran || !can_split(*entry.tape)) return false;
  const auto start = std::chrono::steady_clock::now();
  EntryReport before = entry.report;
  entry.report.graph_text.clear();
  entry.report.lowered_text.clear();
  auto first = static_cast<size_t>(refused);
  const size_t early = run_early(*entry.tape, first);
  before.refused_call = static_cast<int>(first);
  TapeSplitter splitter(entry, options, api, trace);
  if (!splitter.run(before.fallback_reason, first, before.several_devices, early)) {
    entry.report = std::move(before);
    return false;
  }
  entry.report.details = splitter.details();
  entry.report.fallback_reason = splitter.failure();
  entry.report.refused_call = -1;
  if (splitter.failure().empty()) --stats().fallbacks;
  entry.runner = std::make_unique<SplitRunner>(splitter.take_parts(), *entry.tape);
  entry.report.compile_seconds =
      before.compile_seconds + std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return true;
}

}  // namespace tatara::capture
