#include "capture/graph/tape_converter.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "capture/graph/hidden_views.h"
#include "capture/graph/tape_arguments.h"
#include "capture/graph/tape_conjugates.h"
#include "capture/host/package.h"
#include "capture/tape/node_operators.h"
#include "capture/tape/opaque_operators.h"
#include "capture/tape/tape_counts.h"
#include "capture/tape/view_origins.h"
#include "ops/core/bind.h"
#include "ops/rules/derivative.h"
#include "support/error.h"
#include "transforms/expand.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara::capture {
namespace {

using Candidates = std::vector<OpRegistry::PythonName>;

/// The program's calls that may raise, and whose results nobody needs, get a hidden output: no pass drops what they check.
void keep_checks(Graph& graph) {
  std::vector<ValueId> unread;
  static_cast<void>(needed_nodes(graph, [&](const Node& node) {
    if (node.op->checks_values && !node.op->nondeterministic) unread.push_back(node.outputs.front());
    return node.op->checks_values || node.op->nondeterministic;
  }));
  for (const ValueId value : unread) graph.add_output(value);
}

bool equal(PyObject* tuple, const std::vector<Expr>& values) {
  if (PyTuple_GET_SIZE(tuple) != static_cast<Py_ssize_t>(values.size())) return false;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t host = int_value(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i)));
    if (values[i].context().evaluate_hint(values[i]) != host) return false;
  }
  return true;
}

/// In-place writes beside values that take no gradient: eager tells the contents of a tensor from its history, the graph
/// does not.
bool has_unclear_writes(const Tape& tape) {
  const auto stops = [](const TapeNode& node) { return !node.grad || any_operator(node, &OpTraits::detaches); };
  const auto writes = [&tape](const TapeNode& node) {
    if (!node.mutates || PyTuple_GET_SIZE(node.args.get()) == 0) return false;
    const int slot = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
    if (slot < 0) return true;
    const DType dtype = dtype_of(tape.slots()[static_cast<size_t>(slot)].dtype.get());
    return is_floating(dtype) || is_complex(dtype);
  };
  return std::any_of(tape.nodes().begin(), tape.nodes().end(), stops) &&
         std::any_of(tape.nodes().begin(), tape.nodes().end(), writes);
}

/// Gradients or tangents, as they are asked for.
bool is_pass(const TapeNode& node) { return gradient_pass(node) != nullptr || step_of(node) == FuncStep::kUnpackDual; }

/// Whether the same was recorded, as far as graphs are made from it.
bool same_node(const TapeNode& a, const TapeNode& b) {
  if (a.name != b.name || a.outputs != b.outputs || a.level != b.level || !same_kind(a.kind, b.kind) ||
      a.grad != b.grad || a.mode != b.mode || a.mutates != b.mutates || a.statistics != b.statistics) {
    return false;
  }
  // Tapes of their own have arguments of their own in these (Tape::detach).
  if (function_end(a) != nullptr || region_mark(a) != nullptr) return true;
  return a.func.get() == b.func.get() && a.args.get() == b.args.get() && a.kwargs.get() == b.kwargs.get();
}

bool same_slot(const TapeSlot& a, const TapeSlot& b) {
  return a.input == b.input && a.number == b.number && a.requires_grad == b.requires_grad && a.derived == b.derived &&
         a.whole == b.whole && a.dtype.get() == b.dtype.get() && a.device.get() == b.device.get() &&
         a.sizes.get() == b.sizes.get() && a.strides.get() == b.strides.get() && a.symbolic_sizes == b.symbolic_sizes &&
         a.symbolic_strides == b.symbolic_strides && a.bits == b.bits;
}

/// Whether the tape is the other one, with more behind it or not, and no more is known of the sizes there.
bool begins_with(const Tape& tape, const Tape& first) {
  const auto begins = [](const auto& all, const auto& begin, const auto& same) {
    return begin.size() <= all.size() && std::equal(begin.begin(), begin.end(), all.begin(), same);
  };
  const auto says_more = [&first](Expr fact) {
    return std::any_of(first.symbols().begin(), first.symbols().end(),
                       [fact](Expr symbol) { return fact.contains(symbol); });
  };
  return begins(tape.nodes(), first.nodes(), same_node) && begins(tape.slots(), first.slots(), same_slot) &&
         begins(tape.symbols(), first.symbols(), std::equal_to<>()) &&
         begins(tape.facts(), first.facts(), std::equal_to<>()) &&
         std::none_of(tape.facts().begin() + static_cast<std::ptrdiff_t>(first.facts().size()), tape.facts().end(),
                      says_more);
}

/// The graph with its inputs in another order, of their present numbers.
Graph with_inputs(Graph graph, const std::vector<int>& order) {
  Graph result(graph.ctx_ptr());
  std::vector<ValueId> map(graph.num_values(), kNoValue);
  std::vector<int> places(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const ValueId input = graph.inputs()[static_cast<size_t>(order[i])];
    map[static_cast<size_t>(input)] = result.add_input(graph.type(input), graph.name(input));
    places[static_cast<size_t>(order[i])] = static_cast<int>(i);
  }
  const size_t outputs = graph.outputs().size();
  for (const InputWrite& write : graph.input_writes()) graph.add_output(write.value);
  result = copy_into(graph, std::move(result), std::move(map));
  for (size_t i = 0; i < graph.input_writes().size(); ++i) {
    const InputWrite& write = graph.input_writes()[i];
    result.add_input_write(places[static_cast<size_t>(write.input_index)], result.outputs()[outputs + i].value,
                           write.times);
  }
  result.outputs().resize(outputs);
  for (GraphOutput& output : result.outputs()) {
    if (output.alias.kind != OutputAlias::Kind::kInput) continue;
    output.alias.index = places[static_cast<size_t>(output.alias.index)];
  }
  return result;
}

/// Tensors from before the tape come before what is made for the graph, as where the tape was converted in one go.
void sort_inputs(TapeGraph& made, const Tape& tape) {
  const std::vector<int> inputs = made.inputs;
  const auto first = [&](int i) {
    const int slot = inputs[static_cast<size_t>(i)];
    return slot >= 0 && tape.slots()[static_cast<size_t>(slot)].input;
  };
  std::vector<int> order(inputs.size());
  std::iota(order.begin(), order.end(), 0);
  if (std::is_partitioned(order.begin(), order.end(), first)) return;
  std::stable_partition(order.begin(), order.end(), first);
  made.graph = with_inputs(std::move(made.graph), order);
  for (size_t i = 0; i < order.size(); ++i) made.inputs[i] = inputs[static_cast<size_t>(order[i])];
}

/// Operators whose result types only the host knows.
bool typed_by_host(const OpDef& op) { return !op.meta && !op.decompose && !op.choose; }

}  // namespace

TapeGraph TapeConverter::finish(const PassOptions& passes) {
  if (regions_.inside()) throw InternalError("a checkpoint that does not end");
  if (const std::optional<size_t> hidden = hidden_view(*c_.tape)) {
    UserLocation place = c_.tape->nodes()[*hidden].location;
    place.call = static_cast<int>(*hidden);
    throw Unsupported("a tensor of one number as an index gives a view", place);
  }
  for (const size_t at : conjugates_) {
    const TapeNode& node = c_.tape->nodes()[at];
    if (!is_conjugate_seen(c_, node)) continue;
    UserLocation place = node.location;
    place.call = static_cast<int>(at);
    throw Unsupported("lazy conjugation runs in eager", place);
  }
  std::vector<TensorRef> wanted;
  std::vector<int> outputs = computed_outputs(*c_.tape);
  std::sort(outputs.begin(), outputs.end());  // a tensor comes before its views, and is the whole of its memory
  for (const int slot : outputs) {
    if (numbers_.made_before(slot)) continue;  // it is there before the graph runs
    c_.made.outputs.push_back(slot);
    if (c_.tape->slots()[static_cast<size_t>(slot)].level != 0) {
      throw Unsupported("a tensor of a function transform leaves it");
    }
    if (const TapeNode* const maker = c_.tape->maker(slot);
        maker != nullptr && c_.tape->slots()[static_cast<size_t>(slot)].conjugate) {
      UserLocation place = maker->location;
      place.call = static_cast<int>(maker - c_.tape->nodes().data());
      throw Unsupported("a result that is conjugated lazily", place);
    }
    if (c_.tape->has_transforms()) lay_out(slot);
    wanted.push_back(c_.refs[static_cast<size_t>(slot)]);
    check_strides(slot);
  }
  functions_.check(wanted);
  for (size_t slot = 0; slot < c_.refs.size(); ++slot) {
    if (c_.refs[slot] >= 0) c_.made.slots.emplace(c_.fz.base(c_.refs[slot]), static_cast<int>(slot));
  }
  c_.fz.finish(wanted);
  numbers_.check_conditions();
  if (!c_.tape->has_transforms()) keep_checks(c_.made.graph);
  c_.place_constants();
  if (history_) history_->finish(c_.made, passes);
  sort_inputs(c_.made, *c_.tape);
  return std::move(c_.made);
}

std::vector<std::optional<GradientLayout>> TapeConverter::probe(const TapeNode& pass) {
  // A view that is read here for the first time since a write would be read by the nodes that follow as well.
  for_each_slot(pass.args.get(),
                [this](int slot) { apart_ = apart_ || (c_.ref(slot) >= 0 && c_.fz.is_stale_view(c_.ref(slot))); });
  Graph& graph = c_.made.graph;
  const size_t nodes = graph.num_nodes(), guards = graph.ctx().guards().size();
  std::vector<TensorType> types;
  std::vector<ValueId> results;
  if (step_of(pass) == FuncStep::kUnpackDual) {
    if (!steps_->has_duals(pass.level)) return {std::nullopt};
    results = steps_->tangents(pass, c_.fz.type(c_.ref(slot_of(PyTuple_GET_ITEM(pass.args.get(), 0)))));
  } else {
    PyObject* variables = pass_operands(pass).variables;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(variables); ++i) {
      types.push_back(c_.fz.type(c_.ref(slot_of(PyList_GET_ITEM(variables, i)))));
    }
    results = history_->gradients(pass, std::move(types));
  }
  for (const ValueId value : results) graph.add_output(value);
  const std::vector<std::optional<GradientFound>> found = last_pass(graph);
  graph.outputs().clear();
  graph.truncate_nodes(nodes);
  awaits_pass_ = graph.ctx().guards().size() != guards;
  const auto hints = [](const std::vector<Expr>& exprs) {
    std::vector<int64_t> values;
    for (const Expr e : exprs) values.push_back(e.context().evaluate_hint(e).value());
    return values;
  };
  std::vector<std::optional<GradientLayout>> layouts;
  for (const std::optional<GradientFound>& each : found) {
    layouts.emplace_back();
    if (each) layouts.back() = GradientLayout{hints(each->type.sizes), hints(each->type.strides), each->history};
  }
  return layouts;
}

TapeConverter::View TapeConverter::view_of(const Tape& tape, bool engine) {
  View view{is_training_tape(tape), engine, false};
  view.history =
      engine || tape.has_transforms() || tape.has_custom_backwards() || (view.training && has_unclear_writes(tape));
  return view;
}

void TapeConverter::grow(const Tape& tape, bool engine) {
  c_.tape = &tape;
  c_.refs.resize(tape.slots().size(), -1);
  view_ = view_of(tape, engine);
  if (view_.history && history_ == nullptr) {
    history_ = std::make_unique<TapeHistory>(c_, engine);
    steps_ = std::make_unique<TapeTransforms>(c_, *history_);
  }
  for (; slots_done_ < tape.slots().size(); ++slots_done_) {
    if (!tape.slots()[slots_done_].input || tape.slots()[slots_done_].foreign) continue;
    add_input(static_cast<int>(slots_done_));
    // Without gradients, levels of torch.func alone have histories.
    if (history_ && (view_.training || engine)) history_->add_input(static_cast<int>(slots_done_));
  }
  awaits_pass_ = false;
  for (; nodes_done_ < tape.nodes().size(); ++nodes_done_) {
    const TapeNode& node = tape.nodes()[nodes_done_];
    const bool inside = node.level != 0;
    c_.builder.set_no_grad(inside ? !node.mode : view_.training && !node.grad);
    c_.builder.set_closed(inside && view_.training && node.mode && !node.grad);
    UserLocation place = node.location;
    place.call = static_cast<int>(nodes_done_);
    c_.builder.set_location({std::make_shared<const std::string>(place.file),
                             std::make_shared<const std::string>(place.function), place.line, place.call});
    ++tape_counts().converted;
    try {
      if (is_on_foreign(tape, node)) throw Unsupported(node.name + ", which torch computes");
      if (history_) {
        convert_with_history(node);
      } else {
        convert(node);
      }
    } catch (const Error& error) {
      error.rethrow_at(place);
    }
  }
}

bool TapeConverter::leads_to(const Tape& tape, bool engine) const {
  if (apart_ || !begins_with(tape, *c_.tape) || view_of(tape, engine) != view_) return false;
  if (awaits_pass_ && (tape.nodes().size() == nodes_done_ || !is_pass(tape.nodes()[nodes_done_]))) return false;
  // What a region writes to may be an input that is new.
  const auto added = tape.slots().begin() + static_cast<std::ptrdiff_t>(slots_done_);
  return !regions_.inside() || std::none_of(added, tape.slots().end(), [](const TapeSlot& slot) { return slot.input; });
}

void TapeConverter::convert_with_history(const TapeNode& node) {
  const std::vector<TapeHistory::Operand> operands = history_->before(node);
  if (is_leaf_mark(node)) {
    if (history_->make_leaf(node)) c_.made.host_nodes.push_back(static_cast<size_t>(&node - c_.tape->nodes().data()));
    return;
  }
  convert(node);
  history_->after(node, operands);
}

std::vector<TapeConverter::TensorRef> TapeConverter::gradient_tensors(const TapeNode& node) {
  std::vector<TensorType> types;
  for (const int slot : node.outputs) types.push_back(c_.slot_type(slot));
  std::vector<TensorRef> refs;
  for (const ValueId value : history_->gradients(node, std::move(types))) refs.push_back(c_.fz.fresh(value));
  if (gradient_pass(node)->accumulates) return refs;  // `.grad` has memory of its own
  std::vector<TensorRef> given;
  PyObject* cotangents = pass_operands(node).cotangents;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(cotangents); ++i) {
    given.push_back(c_.ref(slot_of(PyList_GET_ITEM(cotangents, i))));
  }
  history_->note_pass(refs, given);
  return refs;
}

void TapeConverter::add_input(int slot) {
  if (c_.tape->slots()[static_cast<size_t>(slot)].generator) return;  // calls that have it are not converted
  if (c_.tape->slots()[static_cast<size_t>(slot)].number) return numbers_.add_input(slot);
  const ValueId value = c_.made.graph.add_input(c_.slot_type(slot));
  c_.refs[static_cast<size_t>(slot)] = c_.fz.input(value, static_cast<int>(c_.made.inputs.size()));
  c_.made.inputs.push_back(slot);
}

/// A tensor from Python data.
TapeConverter::TensorRef TapeConverter::constant(const TapeNode& node) {
  Ref made = Ref::steal(PyObject_Call(node.func.get(), node.args.get(), node.kwargs.get()));
  if (!made) {
    forget_error();
    throw Unsupported("torch.tensor of this data");
  }
  return c_.constant(std::move(made));
}

void TapeConverter::convert(const TapeNode& node) {
  if (number_operation(node) != nullptr) return numbers_.convert(node);
  if (numbers_.take_condition(node)) return;
  if (region_mark(node) != nullptr) return regions_.convert(node);
  if (function_end(node) != nullptr) return functions_.convert(node, [this](const TapeNode& each) { convert(each); });
  if (changes_saved(*c_.tape, node, view_.training)) {
    throw Unsupported(node.name + " through .data, of what gradients may read later");
  }
  const bool uncounted =
      (node.statistics && any_operator(node, &OpTraits::uncounted_statistics)) || writes_uncounted(*c_.tape, node);
  const bool dropout = node.mutates && any_operator(node, &OpTraits::may_write_nothing);
  const std::vector<int64_t> before = uncounted || dropout ? c_.versions() : std::vector<int64_t>();
  const std::vector<ValueId> values = dropout ? present_values() : std::vector<ValueId>();
  const std::vector<TensorRef> results = results_of(node);
  for (const auto& [slot, layout] : node.reshaped) {
    c_.reshaped[slot] = layout;
    if (regions_.inside()) throw Unsupported(node.name + " inside of a checkpoint");
    if (!c_.slot(memory_owner(*c_.tape, slot)).input) continue;
    // Gradients may keep it as it comes.
    if (view_.training) throw Unsupported(node.name + " of a tensor from before the graph, beside gradients");
    c_.made.late_nodes.push_back(static_cast<size_t>(&node - c_.tape->nodes().data()));
  }
  if (steps_ != nullptr && any_operator(node, &OpTraits::hands_tangent_on)) steps_->hand_on(results);
  set_outputs(node, results);
  uncount_writes(before, values);
}

std::vector<ValueId> TapeConverter::present_values() {
  std::vector<ValueId> values;
  for (const TensorRef ref : c_.refs) values.push_back(ref < 0 ? kNoValue : c_.fz.read(ref));
  return values;
}

/// Writes since `before`; where `values` are given, of those that still have theirs.
void TapeConverter::uncount_writes(const std::vector<int64_t>& before, const std::vector<ValueId>& values) {
  std::vector<TensorRef> seen;
  for (size_t i = 0; i < before.size(); ++i) {
    const TensorRef ref = c_.refs[i];
    if (before[i] < 0 || c_.fz.version(ref) == before[i]) continue;
    if (!values.empty() && c_.fz.read(ref) != values[i]) continue;
    if (std::any_of(seen.begin(), seen.end(), [&](TensorRef each) { return c_.fz.same_storage(each, ref); })) continue;
    seen.push_back(ref);
    c_.fz.uncount(ref, c_.fz.version(ref) - before[i]);
  }
}

std::vector<TapeConverter::TensorRef> TapeConverter::results_of(const TapeNode& node) {
  if (is_numpy_operation(node)) throw Unsupported("NumPy's " + node.name);
  if (gradient_pass(node) != nullptr) return gradient_tensors(node);
  if (step_of(node) != FuncStep::kNone) {
    std::vector<TensorType> types;
    for (const int slot : node.outputs) types.push_back(c_.slot_type(slot));
    return steps_->results_of(node, std::move(types));
  }
  if (const int factor = numbers_.factor_of(node); factor >= 0) return numbers_.scaled(node, factor);
  numbers_.forget_bounds();
  if (node.name == "__getitem__") return {indexing_.get_item(node)};
  if (node.name == "__setitem__") {
    const int value = slot_of(PyTuple_GET_ITEM(node.args.get(), 2)), of = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
    if (!numbers_.may_set(c_.ref(of), value)) throw Unsupported("a float that varies, written to integers");
    indexing_.set_item(node);
    return {};
  }
  if (resolves_nothing(node)) return {c_.ref(node.outputs[0])};
  if (node.name == "as_tensor" && PyTuple_GET_SIZE(node.args.get()) == 1) {
    const int slot = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
    if (slot >= 0 && node.outputs.size() == 1 && node.outputs[0] == slot) return {c_.ref(slot)};  // it was one
    if (slot >= 0 && c_.tape->slots()[static_cast<size_t>(slot)].number) {
      const ValueId number = c_.fz.read(c_.refs[static_cast<size_t>(slot)]);
      return {c_.fz.fresh(c_.builder.cast(number, c_.builder.default_dtype()))};
    }
  }
  if (node.name == "tensor" || node.name == "as_tensor") {
    bool reads = false;
    for_each_slot(node.args.get(), [&reads](int) { reads = true; });
    if (!reads) return {constant(node)};
    if (numbers_.is_list(node)) return {numbers_.list(node)};
  }
  if (const auto conjugated = conjugated_inside(c_, node, history_ == nullptr)) {
    // What comes of it is known when the tape ends.
    if (history_) conjugates_.push_back(static_cast<size_t>(&node - c_.tape->nodes().data()));
    return {c_.fz.fresh(*conjugated)};
  }
  const std::string in_place = view_in_place(node), name = in_place.empty() ? known_name(node) : in_place;
  if (name.empty()) return opaque_results(node);
  const Candidates* candidates = OpRegistry::global().find_python(name);
  std::string refusal = "no form of " + name + " takes these arguments";
  for (const OpRegistry::PythonName& candidate : *candidates) {
    NodeSource source(node, c_.refs, c_.builder.ctx(), c_.tape);
    if (candidate.form == OpRegistry::PythonName::Form::kReflected) source.swap_operands();
    std::optional<std::vector<Arg>> args = bind_args(c_.builder.ctx(), candidate.op->schema, source);
    if (!args || !numbers_.fits(*candidate.op, *args)) continue;
    try {
      if (!in_place.empty()) return {c_.fz.reshape_inplace(*candidate.op, std::move(*args))};
      return results_of(node, candidate, std::move(*args), source.out());
    } catch (const Unsupported& error) {
      // What has loops of its own may leave a call to the host's operator, which comes last.
      if (&candidate == &candidates->back() || !typed_by_host(*candidates->back().op)) throw;
      refusal = error.message();
    }
  }
  throw Unsupported(refusal);
}

std::vector<TapeConverter::TensorRef> TapeConverter::results_of(const TapeNode& node,
                                                                const OpRegistry::PythonName& candidate,
                                                                std::vector<Arg> args,
                                                                const std::vector<TensorRef>& out) {
  if (candidate.form == OpRegistry::PythonName::Form::kInplace) {
    return {c_.fz.apply_inplace(*candidate.op, std::move(args))};
  }
  if (out.empty()) {
    if (typed_by_host(*candidate.op) && !node.outputs.empty()) {
      return c_.fz.host_call(*candidate.op, std::move(args), host_types(node));
    }
    return c_.fz.apply(*candidate.op, std::move(args));
  }
  c_.fz.apply_out(*candidate.op, std::move(args), out);
  return out;
}

/// Of a call that the registry lacks, and the host runs inside of the plan.
std::vector<TapeConverter::TensorRef> TapeConverter::opaque_results(const TapeNode& node) {
  std::vector<bool> kept = node.level == 0 ? registered_derivative(node) : std::vector<bool>();
  const bool registered = !kept.empty();
  const OpDef* op = opaque_operator(node, registered);
  std::optional<std::vector<Arg>> args;
  if (op != nullptr && node.outputs.size() == static_cast<size_t>(op->schema.num_outputs)) {
    NodeSource source(node, c_.refs, c_.builder.ctx());
    args = bind_args(c_.builder.ctx(), op->schema, source);
  }
  if (!args && is_same_in_each_call(node)) return {constant(node)};
  if (!args) throw Unsupported("no operator for torch's " + node.name);
  const std::vector<TensorType> types = host_types(node);
  if (!registered) return c_.fz.host_call(*op, std::move(*args), types);
  const std::vector<TensorRef> values = c_.fz.host_call(*op, *args, types);
  args->emplace_back(TensorList{{values.begin(), values.end()}});
  args->emplace_back(std::move(kept));
  return c_.fz.host_call(with_registered_derivative(*op), std::move(*args), types);
}

std::vector<TensorType> TapeConverter::host_types(const TapeNode& node) {
  std::vector<TensorType> types;
  for (const int slot : node.outputs) {
    if (slot < 0) {
      // A result that was not asked for is None in the host, and nothing reads it.
      TensorType& nothing = types.emplace_back();
      nothing.device = types.front().device;
      nothing.sizes = {c_.builder.ctx().constant(0)};
      nothing.strides = {c_.builder.ctx().constant(1)};
    } else if (c_.refs[static_cast<size_t>(slot)] >= 0) {
      throw Unsupported(node.name + " gives no tensor of its own in the host");
    } else {
      types.push_back(c_.slot_type(slot));
    }
  }
  return types;
}

void TapeConverter::set_outputs(const TapeNode& node, const std::vector<TensorRef>& refs) {
  if (refs.size() < node.outputs.size())
    throw Unsupported(node.name + " has another number of results than the host's");
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] < 0) continue;
    const auto slot = static_cast<size_t>(node.outputs[i]);
    if (c_.refs[slot] < 0) {
      c_.refs[slot] = refs[i];
    } else if (c_.refs[slot] != refs[i]) {
      throw Unsupported(node.name + " returned an operand in the host");
    }
    check_type(node, static_cast<int>(slot));
  }
}

/// What the host inferred is the truth.
void TapeConverter::check_type(const TapeNode& node, int slot) {
  const TapeSlot& info = c_.tape->slots()[static_cast<size_t>(slot)];
  const TensorType& type = c_.fz.type(c_.refs[static_cast<size_t>(slot)]);
  if (dtype_of(info.dtype.get()) != type.dtype || !equal(c_.layout(slot).sizes.get(), type.sizes)) {
    throw Unsupported("type of " + node.name + " inferred as " + type.str() + ", other than the host's");
  }
}

std::vector<InferredTensor> TapeConverter::infer(const TapeNode& node) {
  c_.refs.resize(c_.tape->slots().size(), -1);
  const auto need = [this](int slot) {
    if (c_.refs[static_cast<size_t>(slot)] >= 0) return;
    if (std::shared_ptr<const SlotLayout> now = c_.tape->reshaped(slot)) c_.reshaped[slot] = std::move(now);
    add_input(slot);
    note_slot(slot);
  };
  for_each_slot(node.args.get(), need);
  for_each_slot(node.kwargs.get(), need);
  std::vector<InferredTensor> results;
  for (const TensorRef ref : results_of(node)) {
    InferredTensor result;
    result.ref = ref;
    result.slot = slot_with(ref);
    const TensorType& type = c_.fz.type(ref);
    result.dtype = type.dtype;
    result.device = type.device;
    result.sizes = type.sizes;
    result.strides = type.strides;
    results.push_back(std::move(result));
  }
  return results;
}
void TapeConverter::bind(int slot, TensorRef ref) {
  c_.refs.resize(c_.tape->slots().size(), -1);
  c_.refs[static_cast<size_t>(slot)] = ref;
  note_slot(slot);
}

void TapeConverter::forget(int slot) {
  if (static_cast<size_t>(slot) < c_.refs.size()) c_.refs[static_cast<size_t>(slot)] = -1;
}

/// Of several slots that are one tensor the last counts.
void TapeConverter::note_slot(int slot) {
  int& last = slots_of_.try_emplace(c_.refs[static_cast<size_t>(slot)], slot).first->second;
  last = std::max(last, slot);
}

/// -1: none has it.
int TapeConverter::slot_with(TensorRef ref) {
  const auto known = slots_of_.find(ref);
  if (known == slots_of_.end()) return -1;
  const auto slot = static_cast<size_t>(known->second);
  if (slot < c_.refs.size() && c_.refs[slot] == ref) return known->second;
  // What was traced ahead came off the tape again.
  const auto found = std::find(c_.refs.rbegin(), c_.refs.rend(), ref);
  known->second = static_cast<int>(c_.refs.rend() - found) - 1;
  return known->second;
}

/// A result that eager lays out otherwise than inference has it: transforms see more dimensions.
void TapeConverter::lay_out(int slot) {
  const TapeSlot& info = c_.tape->slots()[static_cast<size_t>(slot)];
  TensorRef& ref = c_.refs[static_cast<size_t>(slot)];
  if (info.number || equal(c_.layout(slot).strides.get(), c_.fz.type(ref).strides)) return;
  const std::vector<Expr> wanted = c_.slot_type(slot).strides;
  if (wanted.size() != c_.fz.type(ref).sizes.size()) {
    throw Unsupported("a result of a function transform has other dimensions in the host");
  }
  // What repeats in memory is no layout of a result of ours; without elements nothing does.
  const auto is_zero = [](Expr e) { return e.is_const(0); };
  const std::vector<Expr>& sizes = c_.fz.type(ref).sizes;
  if (std::any_of(wanted.begin(), wanted.end(), is_zero) && std::none_of(sizes.begin(), sizes.end(), is_zero)) return;
  for (size_t i = 0; i < c_.refs.size(); ++i) {
    const bool own = static_cast<int>(i) == slot || c_.refs[i] < 0;
    if (!own && c_.tape->slots()[i].input && c_.fz.same_storage(c_.refs[i], ref)) return;
  }
  ref = c_.fz.fresh(c_.builder.op("relayout", {TensorArg{c_.fz.read(ref)}, SymInts{wanted}}));
}

void TapeConverter::check_strides(int slot) {
  const TapeSlot& info = c_.tape->slots()[static_cast<size_t>(slot)];
  if (info.number) return;
  const TensorType& type = c_.fz.type(c_.refs[static_cast<size_t>(slot)]);
  for (size_t i = 0; i < type.strides.size(); ++i) {
    if (type.sizes[i].is_const(1) || type.sizes[i].is_const(0)) continue;
    const int64_t host = int_value(PyTuple_GET_ITEM(c_.layout(slot).strides.get(), static_cast<Py_ssize_t>(i)));
    if (type.strides[i].context().evaluate_hint(type.strides[i]) != host) {
      UserLocation place;
      if (const TapeNode* const maker = c_.tape->maker(slot)) {
        place = maker->location;
        place.call = static_cast<int>(maker - c_.tape->nodes().data());
      }
      throw Unsupported("strides of an output inferred as " + type.str() + ", other than the host's", place);
    }
  }
}

}  // namespace tatara::capture
