#include "capture/graph/graph_from_tape.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "capture/graph/tape_arguments.h"
#include "capture/graph/tape_history.h"
#include "capture/graph/tape_transforms.h"
#include "capture/tape/node_operators.h"
#include "ops/core/bind.h"
#include "ops/core/builder.h"
#include "ops/rules/custom_gradient.h"
#include "support/error.h"
#include "transforms/expand.h"
#include "transforms/passes.h"

namespace tatara::capture {
namespace {

using TensorRef = Functionalizer::TensorRef;
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

class Converter {
 public:
  Converter(const Tape& tape, TorchApi& api, std::shared_ptr<ExprContext> ctx)
      : tape_(tape),
        result_{Graph(std::move(ctx)), {}, {}, {}, {}, {}, false, {}, {}},
        builder_(result_.graph, default_dtype(api)),
        fz_(builder_),
        refs_(tape.slots().size(), -1) {}

  TapeGraph run(const PassOptions& passes) {
    convert_all(has_leaves_or_passes(tape_));
    if (!regions_.empty()) throw InternalError("a checkpoint that does not end");
    std::vector<TensorRef> wanted;
    std::vector<int> outputs = computed_outputs(tape_);
    std::sort(outputs.begin(), outputs.end());  // a tensor comes before its views, and is the whole of its memory
    for (const int slot : outputs) {
      if (host_numbers_.contains(slot)) continue;  // it is there before the graph runs
      result_.outputs.push_back(slot);
      if (tape_.slots()[static_cast<size_t>(slot)].level != 0) {
        throw Unsupported("a tensor of a function transform leaves it");
      }
      if (tape_.has_transforms()) lay_out(slot);
      wanted.push_back(refs_[static_cast<size_t>(slot)]);
      check_strides(slot);
    }
    check_renewed(wanted);
    for (size_t slot = 0; slot < refs_.size(); ++slot) {
      if (refs_[slot] >= 0) result_.slots.emplace(fz_.base(refs_[slot]), static_cast<int>(slot));
    }
    fz_.finish(wanted);
    if (!tape_.has_transforms()) keep_checks(result_.graph);
    if (history_) history_->finish(result_, passes);
    return std::move(result_);
  }

  /// The results of a pass of gradients at the end of the tape.
  std::vector<std::optional<GradientLayout>> probe(const TapeNode& pass) {
    convert_all(true);
    std::vector<TensorType> types;
    std::vector<ValueId> results;
    if (pass.step == FuncStep::kUnpackDual) {
      if (!steps_->has_duals(pass.level)) return {std::nullopt};
      results =
          steps_->tangents(pass, fz_.type(refs_[static_cast<size_t>(slot_of(PyTuple_GET_ITEM(pass.args.get(), 0)))]));
    } else {
      PyObject* variables = PyTuple_GET_ITEM(pass.args.get(), 2);
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(variables); ++i) {
        types.push_back(fz_.type(refs_[static_cast<size_t>(slot_of(PyList_GET_ITEM(variables, i)))]));
      }
      results = history_->gradients(pass, std::move(types));
    }
    for (const ValueId value : results) result_.graph.add_output(value);
    std::vector<std::optional<GradientFound>> found;
    static_cast<void>(expand_transforms(result_.graph, {}, &found));
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

  // ---- inference while the trace is open -----------------------------------------------------------------------------

  std::vector<InferredTensor> infer(const TapeNode& node) {
    refs_.resize(tape_.slots().size(), -1);
    const auto need = [this](int slot) {
      if (refs_[static_cast<size_t>(slot)] >= 0) return;
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
      const TensorType& type = fz_.type(ref);
      result.dtype = type.dtype;
      result.sizes = type.sizes;
      result.strides = type.strides;
      results.push_back(std::move(result));
    }
    return results;
  }
  std::vector<int64_t> versions() const {
    std::vector<int64_t> result;
    for (const TensorRef ref : refs_) result.push_back(ref < 0 ? -1 : fz_.version(ref));
    return result;
  }
  void bind(int slot, TensorRef ref) {
    refs_.resize(tape_.slots().size(), -1);
    refs_[static_cast<size_t>(slot)] = ref;
    note_slot(slot);
  }

 private:
  /// Of several slots that are one tensor the last counts.
  void note_slot(int slot) {
    int& last = slots_of_.try_emplace(refs_[static_cast<size_t>(slot)], slot).first->second;
    last = std::max(last, slot);
  }

  /// -1: none has it.
  int slot_with(TensorRef ref) {
    const auto known = slots_of_.find(ref);
    if (known == slots_of_.end()) return -1;
    const auto slot = static_cast<size_t>(known->second);
    if (slot < refs_.size() && refs_[slot] == ref) return known->second;
    // What was traced ahead came off the tape again.
    const auto found = std::find(refs_.rbegin(), refs_.rend(), ref);
    known->second = static_cast<int>(refs_.rend() - found) - 1;
    return known->second;
  }

  void convert_all(bool history) {
    for (size_t i = 0; i < tape_.slots().size(); ++i) {
      if (tape_.slots()[i].input) add_input(static_cast<int>(i));
    }
    const bool training = is_training_tape(tape_);
    if (history || tape_.has_transforms() || tape_.has_custom_backwards() || (training && has_unclear_writes())) {
      history_ = std::make_unique<TapeHistory>(tape_, builder_, fz_, refs_, history);
      steps_ = std::make_unique<TapeTransforms>(builder_, fz_, refs_, *history_);
    }
    for (const TapeNode& node : tape_.nodes()) {
      const bool inside = node.level != 0;
      builder_.set_no_grad(inside ? !node.mode : training && !node.grad);
      builder_.set_closed(inside && training && node.mode && !node.grad);
      const auto number = static_cast<int>(&node - tape_.nodes().data());
      builder_.set_location({std::make_shared<const std::string>(node.file),
                             std::make_shared<const std::string>(node.function), node.line, number});
      try {
        if (history_) {
          convert_with_history(node);
        } else {
          convert(node);
        }
      } catch (const Error& error) {
        error.rethrow_at({node.file, node.line, node.function, number});
      }
    }
  }

  // ---- gradients inside the tape -------------------------------------------------------------------------------------

  void convert_with_history(const TapeNode& node) {
    const std::vector<TapeHistory::Operand> operands = history_->before(node);
    if (node.leaf) {
      if (history_->make_leaf(node)) result_.host_nodes.push_back(static_cast<size_t>(&node - tape_.nodes().data()));
      return;
    }
    convert(node);
    history_->after(node, operands);
  }

  std::vector<TensorRef> gradient_tensors(const TapeNode& node) {
    std::vector<TensorType> types;
    for (const int slot : node.outputs) types.push_back(slot_type(slot));
    std::vector<TensorRef> refs;
    for (const ValueId value : history_->gradients(node, std::move(types))) refs.push_back(fz_.fresh(value));
    return refs;
  }

  static DType default_dtype(TorchApi& api) {
    const Ref dtype = Ref::steal(PyObject_CallNoArgs(api.state.get_default_dtype.get()));
    return dtype_of(dtype.get());
  }

  std::vector<Expr> exprs(PyObject* tuple) {
    std::vector<Expr> values;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
      values.push_back(builder_.ctx().constant(int_value(PyTuple_GET_ITEM(tuple, i))));
    }
    return values;
  }

  std::vector<Expr> sizes_of(const std::vector<Expr>& symbolic, PyObject* tuple) {
    if (symbolic.empty()) return exprs(tuple);
    std::vector<Expr> values;
    for (const Expr e : symbolic) values.push_back(size_in(builder_.ctx(), e));
    return values;
  }

  TensorType slot_type(int slot) {
    const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
    TensorType type;
    type.dtype = dtype_of(info.dtype.get());
    type.device = device_of(info.device.get());
    type.sizes = sizes_of(info.symbolic_sizes, info.sizes.get());
    type.strides = sizes_of(info.symbolic_strides, info.strides.get());
    return type;
  }

  /// An int has no place in the graph but as a symbol: a tensor that nothing reads has it as its size. A float is a
  /// tensor without dimensions.
  void add_number(int slot) {
    ExprContext& ctx = builder_.ctx();
    const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
    TensorType type;
    const bool is_float = info.derived || !info.bits.empty();
    type.dtype = is_float ? DType::kFloat64 : DType::kUInt8;
    if (!is_float) {
      type.sizes = {size_in(ctx, info.symbolic_sizes[0])};
      type.strides = {ctx.constant(1)};
    }
    const ValueId value = result_.graph.add_input(std::move(type));
    if (is_float) refs_[static_cast<size_t>(slot)] = fz_.fresh(value);
    result_.inputs.push_back(slot);
  }

  /// In-place writes beside values that take no gradient: eager tells the contents of a tensor from its history, the graph
  /// does not.
  bool has_unclear_writes() const {
    const auto stops = [](const TapeNode& node) { return !node.grad || any_operator(node, &OpTraits::detaches); };
    const auto writes = [this](const TapeNode& node) {
      if (!node.mutates || PyTuple_GET_SIZE(node.args.get()) == 0) return false;
      const int slot = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
      if (slot < 0) return true;
      const DType dtype = dtype_of(tape_.slots()[static_cast<size_t>(slot)].dtype.get());
      return is_floating(dtype) || is_complex(dtype);
    };
    return std::any_of(tape_.nodes().begin(), tape_.nodes().end(), stops) &&
           std::any_of(tape_.nodes().begin(), tape_.nodes().end(), writes);
  }

  void add_input(int slot) {
    if (tape_.slots()[static_cast<size_t>(slot)].number) return add_number(slot);
    const ValueId value = result_.graph.add_input(slot_type(slot));
    refs_[static_cast<size_t>(slot)] = fz_.input(value, static_cast<int>(result_.inputs.size()));
    result_.inputs.push_back(slot);
  }

  /// A tensor from Python data: made once, read as an input that nobody else sees.
  TensorRef constant(const TapeNode& node) {
    Ref made = Ref::steal(PyObject_Call(node.func.get(), node.args.get(), node.kwargs.get()));
    if (!made) {
      forget_error();
      throw Unsupported("torch.tensor of this data");
    }
    TensorType type;
    type.dtype = dtype_of(attr(made.get(), "dtype").get());
    type.device = device_of(attr(made.get(), "device").get());
    type.sizes = exprs(attr(made.get(), "shape").get());
    type.strides = exprs(Ref::steal(PyObject_CallMethod(made.get(), "stride", nullptr)).get());
    result_.constants.push_back(std::move(made));
    result_.inputs.push_back(-static_cast<int>(result_.constants.size()));
    return fz_.fresh(result_.graph.add_input(std::move(type)));
  }

  void convert(const TapeNode& node) {
    if (node.number) return convert_number(node);
    if (node.region != RegionMark::kNone) return convert_region(node);
    if (node.custom) return convert_custom(node);
    const bool statistics = node.statistics && any_operator(node, &OpTraits::uncounted_statistics);
    const bool dropout = node.mutates && any_operator(node, &OpTraits::may_write_nothing);
    const std::vector<int64_t> before = statistics || dropout ? versions() : std::vector<int64_t>();
    const std::vector<ValueId> values = dropout ? present_values() : std::vector<ValueId>();
    set_outputs(node, results_of(node));
    uncount_writes(before, values);
  }

  std::vector<ValueId> present_values() {
    std::vector<ValueId> values;
    for (const TensorRef ref : refs_) values.push_back(ref < 0 ? kNoValue : fz_.read(ref));
    return values;
  }

  /// Writes since `before`; where `values` are given, of those that still have theirs.
  void uncount_writes(const std::vector<int64_t>& before, const std::vector<ValueId>& values) {
    std::vector<TensorRef> seen;
    for (size_t i = 0; i < before.size(); ++i) {
      const TensorRef ref = refs_[i];
      if (before[i] < 0 || fz_.version(ref) == before[i]) continue;
      if (!values.empty() && fz_.read(ref) != values[i]) continue;
      if (std::any_of(seen.begin(), seen.end(), [&](TensorRef each) { return fz_.same_storage(each, ref); })) continue;
      seen.push_back(ref);
      fz_.uncount(ref, fz_.version(ref) - before[i]);
    }
  }

  // ---- regions that are computed again -------------------------------------------------------------------------------

  void convert_region(const TapeNode& node) {
    if (node.region == RegionMark::kBegin) {
      auto region = std::make_shared<Region>();
      region->parent = regions_.empty() ? nullptr : regions_.back().region;
      region->depth = static_cast<int>(regions_.size()) + 1;
      region->reentrant = node.reentrant;
      regions_.push_back({std::move(region), versions(), result_.graph.num_nodes()});
    } else {
      if (regions_.empty()) throw InternalError("a checkpoint ends that has not begun");
      check_region(node);
      regions_.pop_back();
    }
    builder_.set_region(regions_.empty() ? nullptr : regions_.back().region);
  }

  /// What eager would do a second time while it computes gradients.
  void check_region(const TapeNode& end) const {
    const OpenRegion& open = regions_.back();
    const std::vector<int64_t> now = versions();
    for (size_t i = 0; i < now.size(); ++i) {
      const bool older = i < open.versions.size() && open.versions[i] >= 0;
      if (older && now[i] != open.versions[i]) throw Unsupported("a checkpoint writes to a tensor from outside of it");
    }
    if (!end.redraws) return;
    for (size_t n = open.nodes; n < result_.graph.num_nodes(); ++n) {
      const Node& node = result_.graph.node(static_cast<NodeId>(n));
      if (node.op->kind == OpKind::kRandom) {
        throw Unsupported("a checkpoint with preserve_rng_state=False draws random numbers");
      }
    }
  }

  // ---- functions with a backward of the user's -----------------------------------------------------------------------

  /// The outputs get the history that the backward, as it was traced, gives them.
  void convert_custom(const TapeNode& node) {
    const CustomBackward& custom = *node.custom;
    std::vector<ValueId> values, operands;
    for (const int slot : node.outputs) values.push_back(fz_.read(refs_[static_cast<size_t>(slot)]));
    for (const int slot : custom.operands) operands.push_back(fz_.read(refs_[static_cast<size_t>(slot)]));
    const std::vector<ValueId> results = add_custom_gradient(builder_, values, operands);
    for (size_t i = 0; i < results.size(); ++i) {
      TensorRef& ref = refs_[static_cast<size_t>(node.outputs[i])];
      const TensorRef made = fz_.fresh(results[i]);
      renewed_.push_back({ref, fz_.version(ref), made, fz_.version(made)});
      ref = made;
    }
    const std::vector<int64_t> before = versions();
    const size_t first = result_.graph.num_nodes();
    std::vector<ValueId> cotangents;
    for (const int slot : custom.cotangents) {
      cotangents.push_back(add_cotangent(builder_, slot_type(slot)));
      refs_[static_cast<size_t>(slot)] = fz_.fresh(cotangents.back());
    }
    for (const TapeNode& each : custom.nodes) {
      builder_.set_no_grad(!each.grad);
      convert(each);
    }
    std::vector<ValueId> gradients;
    for (const int slot : custom.gradients) {
      gradients.push_back(slot < 0 ? kNoValue : fz_.read(refs_[static_cast<size_t>(slot)]));
    }
    const std::vector<int64_t> now = versions();
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] >= 0 && now[i] != before[i]) throw Unsupported("a backward that writes to a tensor from before it");
    }
    cut_backward(result_.graph, first, results, cotangents, gradients);
    for (const int slot : custom.cotangents) refs_[static_cast<size_t>(slot)] = -1;
    for (const TapeNode& each : custom.nodes) {
      for (const int slot : each.outputs) {
        if (slot >= 0 && before[static_cast<size_t>(slot)] < 0) refs_[static_cast<size_t>(slot)] = -1;
      }
    }
  }

  /// A result shares memory with another tensor in eager, here it has memory of its own: neither may be written to, nor
  /// leave the graph together with the other.
  void check_renewed(const std::vector<TensorRef>& wanted) const {
    for (const Renewed& each : renewed_) {
      bool shared = false;
      for (size_t i = 0; i < refs_.size(); ++i) {
        shared = shared || (refs_[i] >= 0 && refs_[i] != each.made && fz_.same_storage(refs_[i], each.raw));
      }
      if (!shared) continue;
      if (fz_.version(each.raw) != each.raw_version || fz_.version(each.made) != each.made_version) {
        throw Unsupported("a write to memory that a result of an autograd.Function shares with other tensors");
      }
      const bool leaves = std::any_of(wanted.begin(), wanted.end(),
                                      [&](TensorRef ref) { return ref >= 0 && fz_.same_storage(ref, each.made); });
      bool other = std::any_of(wanted.begin(), wanted.end(),
                               [&](TensorRef ref) { return ref >= 0 && fz_.same_storage(ref, each.raw); });
      for (const int slot : result_.inputs) {
        const TensorRef ref = slot >= 0 ? refs_[static_cast<size_t>(slot)] : -1;
        other = other || (ref >= 0 && fz_.same_storage(ref, each.raw));
      }
      if (leaves && other) throw Unsupported("a result of an autograd.Function that is a view of another tensor");
    }
  }

  // ---- Python floats -------------------------------------------------------------------------------------------------

  bool on_host(int slot) const {
    const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
    return info.number && (info.input || host_numbers_.contains(slot));
  }

  void convert_number(const TapeNode& node) {
    if (node.check) return;  // a guard
    const int slot = node.outputs[0];
    bool host = true;
    for_each_slot(node.args.get(), [&](int operand) { host = host && on_host(operand); });
    if (host) {
      host_numbers_.insert(slot);
      result_.host_nodes.push_back(static_cast<size_t>(&node - tape_.nodes().data()));
      if (!tape_.slots()[static_cast<size_t>(slot)].whole) add_number(slot);  // tensors get floats alone
      return;
    }
    std::vector<ValueId> operands;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node.args.get()); ++i) {
      PyObject* operand = PyTuple_GET_ITEM(node.args.get(), i);
      const int from = slot_of(operand);
      if (is_size_ref(operand)) throw Unsupported("an int that varies and a float that the graph computes");
      operands.push_back(from >= 0 ? builder_.cast(fz_.read(refs_[static_cast<size_t>(from)]), DType::kFloat64)
                                   : builder_.constant(PyFloat_AsDouble(operand), DType::kFloat64));
    }
    const auto of_two = [&](const char* op) { return builder_.binary(op, operands[0], operands[1]); };
    const auto result = [&]() -> ValueId {
      if (node.name == "number.add") return of_two("add");
      if (node.name == "number.sub") return of_two("sub");
      if (node.name == "number.mul") return of_two("mul");
      if (node.name == "number.truediv") return of_two("div");
      if (node.name == "number.pow") return of_two("pow");
      if (node.name == "number.neg") return builder_.unary("neg", operands[0]);
      if (node.name == "number.item") return operands[0];
      throw Unsupported(node.name + " on a float that the graph computes");
    }();
    refs_[static_cast<size_t>(slot)] = fz_.fresh(result);
  }

  /// The slot of a factor (`value`, `alpha`) that is a float of the tape, or -1.
  int factor_of(const TapeNode& node) const {
    if (!node.kwargs || PyDict_GET_SIZE(node.kwargs.get()) != 1) return -1;
    for (const char* name : {"value", "alpha"}) {
      PyObject* const factor = PyDict_GetItemString(node.kwargs.get(), name);
      const int slot = factor != nullptr ? slot_of(factor) : -1;
      if (slot >= 0 && tape_.slots()[static_cast<size_t>(slot)].number) return slot;
    }
    return -1;
  }

  /// addcmul, addcdiv, add and sub with such a factor, as eager's kernels round them.
  std::vector<TensorRef> scaled(const TapeNode& node, int factor) {
    std::vector<TensorRef> refs;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node.args.get()); ++i) {
      refs.push_back(refs_[static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), i)))]);
    }
    const ValueId by = builder_.cast(fz_.read(refs_[static_cast<size_t>(factor)]), fz_.type(refs[0]).dtype);
    const auto operand = [&](size_t i) { return builder_.cast(fz_.read(refs[i]), fz_.type(refs[0]).dtype); };
    ValueId term = builder_.binary("mul", by, operand(1));
    if (refs.size() == 3) term = builder_.binary(node.name.rfind("addcdiv", 0) == 0 ? "div" : "mul", term, operand(2));
    const ValueId sum = builder_.binary(node.name.rfind("sub", 0) == 0 ? "sub" : "add", fz_.read(refs[0]), term);
    const TensorRef result = fz_.fresh(sum);
    if (node.name.back() != '_') return {result};
    fz_.apply_inplace(OpRegistry::global().get("copy"), {TensorArg{refs[0]}, TensorArg{result}, Scalar(false)});
    return {refs[0]};
  }

  /// The tensors of the slots, where a number of the program meets a tensor without dimensions: it has that tensor's type
  /// then. Else empty.
  std::vector<TensorRef> numbers_cast(const TapeNode& node) {
    const auto slot = [&](Py_ssize_t i) { return slot_of(PyTuple_GET_ITEM(node.args.get(), i)); };
    if (PyTuple_GET_SIZE(node.args.get()) == 3 && node.name.rfind("lerp", 0) == 0 && slot(2) >= 0 &&
        tape_.slots()[static_cast<size_t>(slot(2))].number) {
      // The weight, which eager's kernel has in the tensors' type.
      std::vector<TensorRef> refs = refs_;
      TensorRef& weight = refs[static_cast<size_t>(slot(2))];
      weight = fz_.fresh(builder_.cast(fz_.read(weight), fz_.type(refs_[static_cast<size_t>(slot(0))]).dtype));
      return refs;
    }
    if (PyTuple_GET_SIZE(node.args.get()) != 2) return {};
    const auto is_number = [&](int s) {
      const TapeSlot* info = s >= 0 ? &tape_.slots()[static_cast<size_t>(s)] : nullptr;
      return info != nullptr && info->number && (info->derived || !info->bits.empty());
    };
    for (const Py_ssize_t i : {0, 1}) {
      const int number = slot(i), other = slot(1 - i);
      if (!is_number(number) || other < 0 || is_number(other)) continue;
      const TensorType& type = fz_.type(refs_[static_cast<size_t>(other)]);
      if (type.dim() != 0) continue;
      std::vector<TensorRef> refs = refs_;
      TensorRef& mine = refs[static_cast<size_t>(number)];
      mine = fz_.fresh(builder_.cast(fz_.read(mine), type.dtype));
      return refs;
    }
    return {};
  }

  std::vector<TensorRef> results_of(const TapeNode& node) {
    if (node.backward) return gradient_tensors(node);
    if (node.step == FuncStep::kGradients) return gradient_tensors(node);
    if (node.step != FuncStep::kNone) {
      std::vector<TensorType> types;
      for (const int slot : node.outputs) types.push_back(slot_type(slot));
      return steps_->results_of(node, std::move(types));
    }
    if (const int factor = factor_of(node); factor >= 0) return scaled(node, factor);
    if (node.name == "__getitem__") return {get_item(node)};
    if (node.name == "__setitem__") {
      set_item(node);
      return {};
    }
    if (node.name == "as_tensor" && PyTuple_GET_SIZE(node.args.get()) == 1) {
      const int slot = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
      if (slot >= 0 && tape_.slots()[static_cast<size_t>(slot)].number) {
        const ValueId number = fz_.read(refs_[static_cast<size_t>(slot)]);
        return {fz_.fresh(builder_.cast(number, builder_.default_dtype()))};
      }
    }
    if (node.name == "tensor" || node.name == "as_tensor") {
      bool reads = false;
      for_each_slot(node.args.get(), [&reads](int) { reads = true; });
      if (!reads) return {constant(node)};
    }
    const std::string name = dotted_name(node);
    const Candidates* candidates = OpRegistry::global().find_python(name);
    std::string refusal = "no form of " + name + " takes these arguments";
    const std::vector<TensorRef> cast = numbers_cast(node);
    for (const OpRegistry::PythonName& candidate : *candidates) {
      NodeSource source(node, cast.empty() ? refs_ : cast, builder_.ctx());
      if (candidate.form == OpRegistry::PythonName::Form::kReflected) source.swap_operands();
      std::optional<std::vector<Arg>> args = bind_args(builder_.ctx(), candidate.op->schema, source);
      if (!args) continue;
      try {
        return results_of(node, candidate, std::move(*args), source.out());
      } catch (const Unsupported& error) {
        // What has loops of its own may leave a call to the host's operator, which comes last.
        if (&candidate == &candidates->back() || !typed_by_host(*candidates->back().op)) throw;
        refusal = error.message();
      }
    }
    throw Unsupported(refusal);
  }

  std::vector<TensorRef> results_of(const TapeNode& node, const OpRegistry::PythonName& candidate,
                                    std::vector<Arg> args, const std::vector<TensorRef>& out) {
    if (candidate.form == OpRegistry::PythonName::Form::kInplace) {
      return {fz_.apply_inplace(*candidate.op, std::move(args))};
    }
    if (out.empty()) {
      if (typed_by_host(*candidate.op) && !node.outputs.empty()) {
        return fz_.host_call(*candidate.op, std::move(args), host_types(node));
      }
      return fz_.apply(*candidate.op, std::move(args));
    }
    fz_.apply_out(*candidate.op, std::move(args), out);
    return out;
  }

  /// Operators whose result types only the host knows.
  static bool typed_by_host(const OpDef& op) { return !op.meta && !op.decompose && !op.choose; }

  std::vector<TensorType> host_types(const TapeNode& node) {
    std::vector<TensorType> types;
    for (const int slot : node.outputs) {
      if (slot < 0 || refs_[static_cast<size_t>(slot)] >= 0) {
        throw Unsupported(node.name + " gives no tensor of its own in the host");
      }
      types.push_back(slot_type(slot));
    }
    return types;
  }

  void set_outputs(const TapeNode& node, const std::vector<TensorRef>& refs) {
    if (refs.size() < node.outputs.size())
      throw Unsupported(node.name + " has another number of results than the host's");
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] < 0) continue;
      const auto slot = static_cast<size_t>(node.outputs[i]);
      if (refs_[slot] < 0) {
        refs_[slot] = refs[i];
      } else if (refs_[slot] != refs[i]) {
        throw Unsupported(node.name + " returned an operand in the host");
      }
      check_type(node, static_cast<int>(slot));
    }
  }

  /// What the host inferred is the truth.
  void check_type(const TapeNode& node, int slot) {
    const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
    const TensorType& type = fz_.type(refs_[static_cast<size_t>(slot)]);
    if (dtype_of(info.dtype.get()) != type.dtype || !equal(info.sizes.get(), type.sizes)) {
      throw Unsupported("type of " + node.name + " inferred as " + type.str() + ", other than the host's");
    }
  }

  /// A result that eager lays out otherwise than inference has it: transforms see more dimensions.
  void lay_out(int slot) {
    const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
    TensorRef& ref = refs_[static_cast<size_t>(slot)];
    if (info.number || !info.symbolic_sizes.empty() || equal(info.strides.get(), fz_.type(ref).strides)) return;
    const std::vector<Expr> wanted = exprs(info.strides.get());
    // What repeats in memory is no layout of a result of ours.
    if (std::any_of(wanted.begin(), wanted.end(), [](Expr e) { return e.is_const(0); })) return;
    for (size_t i = 0; i < refs_.size(); ++i) {
      const bool own = static_cast<int>(i) == slot || refs_[i] < 0;
      if (!own && tape_.slots()[i].input && fz_.same_storage(refs_[i], ref)) return;
    }
    ref = fz_.fresh(builder_.op("relayout", {TensorArg{fz_.read(ref)}, SymInts{wanted}}));
  }

  void check_strides(int slot) {
    const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
    if (info.number) return;
    const TensorType& type = fz_.type(refs_[static_cast<size_t>(slot)]);
    for (size_t i = 0; i < type.strides.size(); ++i) {
      if (type.sizes[i].is_const(1) || type.sizes[i].is_const(0)) continue;
      const int64_t host = int_value(PyTuple_GET_ITEM(info.strides.get(), static_cast<Py_ssize_t>(i)));
      if (type.strides[i].context().evaluate_hint(type.strides[i]) != host) {
        throw Unsupported("strides of an output inferred as " + type.str() + ", other than the host's");
      }
    }
  }

  static bool equal(PyObject* tuple, const std::vector<Expr>& values) {
    if (PyTuple_GET_SIZE(tuple) != static_cast<Py_ssize_t>(values.size())) return false;
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t host = int_value(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i)));
      if (values[i].context().evaluate_hint(values[i]) != host) return false;
    }
    return true;
  }

  // ---- indexing --------------------------------------------------------------------------------------------------------

  TensorRef view(const char* op, std::vector<Arg> args) {
    return fz_.apply(OpRegistry::global().get(op), std::move(args))[0];
  }

  Scalar number(PyObject* o) {
    if (is_size_ref(o)) return scalar_of(builder_.ctx(), o);
    if (!PyLong_Check(o) || PyBool_Check(o)) throw Unsupported("an index of type " + type_name(o));
    return int_value(o);
  }

  struct Indexed {
    TensorRef base;      // after the basic indices
    TensorList tensors;  // kNoValue: a full slice
    bool advanced = false;
  };

  Indexed index(const TapeNode& node) {
    PyObject* self = PyTuple_GET_ITEM(node.args.get(), 0);
    PyObject* key = PyTuple_GET_ITEM(node.args.get(), 1);
    Indexed result{refs_[static_cast<size_t>(slot_of(self))], {}, false};
    std::vector<PyObject*> items;
    if (PyTuple_Check(key)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) items.push_back(PyTuple_GET_ITEM(key, i));
    } else {
      items.push_back(key);
    }
    int64_t taken = 0;
    for (PyObject* item : items) taken += item != Py_None && item != Py_Ellipsis && !PyBool_Check(item) ? 1 : 0;
    const int64_t rank = fz_.type(result.base).dim();
    int64_t dim = 0;
    bool ellipsis = false;
    const auto full = [&result] { result.tensors.values.push_back(kNoValue); };
    for (PyObject* item : items) {
      const Arg at = Scalar(dim);
      if (item == Py_None) {
        result.base = view("unsqueeze", {TensorArg{result.base}, at});
        full();
        ++dim;
      } else if (item == Py_Ellipsis) {
        if (ellipsis) throw Unsupported("two ellipses in an index");
        ellipsis = true;
        for (int64_t i = 0; i < rank - taken; ++i) full();
        dim += rank - taken;
      } else if (PySlice_Check(item)) {
        result.base = slice(result.base, dim, reinterpret_cast<PySliceObject*>(item));
        full();
        ++dim;
      } else if (slot_of(item) >= 0) {
        const TensorRef tensor = refs_[static_cast<size_t>(slot_of(item))];
        if (!is_integral(fz_.type(tensor).dtype) || fz_.type(tensor).dtype == DType::kUInt8) {
          throw Unsupported("an index tensor of type " + fz_.type(tensor).str());
        }
        result.tensors.values.push_back(tensor);
        result.advanced = true;
        ++dim;
      } else {
        result.base = view("select", {TensorArg{result.base}, at, number(item)});
      }
    }
    return result;
  }

  TensorRef slice(TensorRef base, int64_t dim, const PySliceObject* slice) {
    if (slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None) return base;
    std::vector<Arg> args{TensorArg{base}, Scalar(dim)};
    for (PyObject* bound : {slice->start, slice->stop}) {
      if (bound == Py_None) {
        args.emplace_back(NoneArg{});
      } else {
        args.emplace_back(number(bound));
      }
    }
    args.emplace_back(slice->step == Py_None ? Scalar(int64_t{1}) : number(slice->step));
    return view("slice", std::move(args));
  }

  TensorRef get_item(const TapeNode& node) {
    const TensorRef self = refs_[static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), 0)))];
    Indexed indexed = index(node);
    if (!indexed.advanced) {
      // A tensor of its own, also for x[:] and x[...].
      return indexed.base == self ? view("alias", {TensorArg{self}}) : indexed.base;
    }
    return view("index", {TensorArg{indexed.base}, std::move(indexed.tensors)});
  }

  /// x[mask] = number, with a mask of the tensor's own sizes.
  bool fill_masked(const TapeNode& node) {
    PyObject* key = PyTuple_GET_ITEM(node.args.get(), 1);
    PyObject* value = PyTuple_GET_ITEM(node.args.get(), 2);
    const int mask = slot_of(key);
    if (mask < 0 || slot_of(value) >= 0 || (!PyLong_Check(value) && !PyFloat_Check(value))) return false;
    const TensorRef self = refs_[static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), 0)))];
    const TensorRef where = refs_[static_cast<size_t>(mask)];
    if (fz_.type(where).dtype != DType::kBool || fz_.type(where).sizes != fz_.type(self).sizes) return false;
    fz_.apply_inplace(OpRegistry::global().get("masked_fill"),
                      {TensorArg{self}, TensorArg{where}, scalar_of(builder_.ctx(), value)});
    return true;
  }

  void set_item(const TapeNode& node) {
    if (fill_masked(node)) return;
    Indexed indexed = index(node);
    PyObject* value = PyTuple_GET_ITEM(node.args.get(), 2);
    const OpRegistry& registry = OpRegistry::global();
    const int slot = slot_of(value);
    if (indexed.advanced) {
      const TensorRef source = slot >= 0 ? refs_[static_cast<size_t>(slot)] : filled(indexed.base, value);
      fz_.apply_inplace(registry.get("index_put"),
                        {TensorArg{indexed.base}, std::move(indexed.tensors), TensorArg{source}, Scalar(false)});
      return;
    }
    if (slot < 0) {
      fz_.apply_inplace(registry.get("fill"), {TensorArg{indexed.base}, scalar_of(builder_.ctx(), value)});
      return;
    }
    fz_.apply_inplace(registry.get("copy"),
                      {TensorArg{indexed.base}, TensorArg{refs_[static_cast<size_t>(slot)]}, Scalar(false)});
  }

  TensorRef filled(TensorRef like, PyObject* value) {
    const TensorType& type = fz_.type(like);
    return fz_.fresh(
        builder_.op("full", {SymInts{}, scalar_of(builder_.ctx(), value), type.dtype, NoneArg{}, type.device}));
  }

  const Tape& tape_;
  TapeGraph result_;
  GraphBuilder builder_;
  Functionalizer fz_;
  std::vector<TensorRef> refs_;
  std::unordered_map<TensorRef, int> slots_of_;  // while the trace is open
  struct OpenRegion {
    std::shared_ptr<const Region> region;
    std::vector<int64_t> versions;
    size_t nodes;
  };
  std::vector<OpenRegion> regions_;
  struct Renewed {
    TensorRef raw;
    int64_t raw_version;
    TensorRef made;
    int64_t made_version;
  };
  std::vector<Renewed> renewed_;          // results of functions with a backward of the user's, before and with it
  std::unordered_set<int> host_numbers_;  // slots of floats that are made before the graph runs
  std::unique_ptr<TapeTransforms> steps_;
  std::unique_ptr<TapeHistory> history_;  // of tapes with gradients of their own
};

}  // namespace

namespace {

/// A context of its own: the trace's knows facts that were learned after the cut of a graph break, and are no guards.
std::shared_ptr<ExprContext> graph_context(const Tape& tape) {
  auto ctx = std::make_shared<ExprContext>();
  for (size_t i = 0; i < tape.symbols().size(); ++i) {
    const Expr symbol = tape.symbols()[i];
    ExprContext& trace = symbol.context();
    ctx->symbol(trace.symbol_name(symbol), tape.ranges()[i], tape.hints()[i]);
  }
  for (const Expr fact : tape.facts()) ctx->assume(ctx->import(fact));
  return ctx;
}

}  // namespace

bool has_leaves_or_passes(const Tape& tape) {
  return std::any_of(tape.nodes().begin(), tape.nodes().end(),
                     [](const TapeNode& node) { return node.backward || node.leaf; });
}

std::vector<std::optional<GradientLayout>> gradient_layouts(const Tape& tape, TorchApi& api, const TapeNode& pass) {
  return Converter(tape, api, graph_context(tape)).probe(pass);
}

bool is_training_tape(const Tape& tape) {
  const bool needs = std::any_of(tape.slots().begin(), tape.slots().end(),
                                 [](const TapeSlot& slot) { return slot.input && slot.requires_grad; });
  const bool made = std::any_of(tape.nodes().begin(), tape.nodes().end(), [](const TapeNode& n) { return n.leaf; });
  return (needs || made) &&
         std::any_of(tape.nodes().begin(), tape.nodes().end(), [](const TapeNode& n) { return n.grad; });
}

DType dtype_of(PyObject* dtype) {
  if (dtype == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::kFloat64;
  if (dtype == reinterpret_cast<PyObject*>(&PyLong_Type)) return DType::kInt64;
  if (dtype == reinterpret_cast<PyObject*>(&PyBool_Type)) return DType::kBool;
  if (dtype == reinterpret_cast<PyObject*>(&PyComplex_Type)) return DType::kComplex128;
  const std::string name = after_dot(dtype);
  const std::optional<DType> parsed = parse_dtype(name);
  if (!parsed) throw Unsupported("dtype " + name);
  return *parsed;
}

namespace {

/// Number of the GPU that "cuda" means at present.
int16_t current_gpu() {
  const Ref module = attr_or_null(TorchApi::get()->torch.get(), "cuda");
  const Ref number = module ? Ref::steal(PyObject_CallMethod(module.get(), "current_device", nullptr)) : Ref();
  if (!number) {
    forget_error();
    throw Unsupported("device cuda, without a GPU");
  }
  return static_cast<int16_t>(PyLong_AsLong(number.get()));
}

}  // namespace

Device device_of(PyObject* device) {
  const std::string type = text_of(attr_or_null(device, "type").get());
  Device result;
  if (type == "cuda") {
    result.kind = DeviceKind::kCuda;
    const Ref index = attr_or_null(device, "index");
    result.index =
        index && PyLong_Check(index.get()) ? static_cast<int16_t>(PyLong_AsLong(index.get())) : current_gpu();
  } else if (type != "cpu") {
    throw Unsupported("device " + type);
  }
  return result;
}

struct LiveInference::Impl {
  TorchApi& api;
  std::shared_ptr<ExprContext> ctx;
  std::unique_ptr<Converter> converter;
};

LiveInference::LiveInference(TorchApi& api, const TraceSymbols& symbols)
    : impl_(new Impl{api, symbols.ctx_ptr(), nullptr}) {}
LiveInference::~LiveInference() = default;

std::vector<InferredTensor> LiveInference::infer(const Tape& tape, const TapeNode& node) {
  if (impl_->converter == nullptr) impl_->converter = std::make_unique<Converter>(tape, impl_->api, impl_->ctx);
  return impl_->converter->infer(node);
}

std::vector<int64_t> LiveInference::versions() const {
  return impl_->converter == nullptr ? std::vector<int64_t>() : impl_->converter->versions();
}

void LiveInference::bind(int slot, int32_t ref) { impl_->converter->bind(slot, ref); }

TapeGraph build_graph(const Tape& tape, TorchApi& api, const PassOptions& passes) {
  return Converter(tape, api, graph_context(tape)).run(passes);
}

}  // namespace tatara::capture
