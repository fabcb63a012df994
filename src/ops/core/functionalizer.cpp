// Tensors with identity over the functional graph.
#include <algorithm>

#include "ops/core/builder.h"
#include "ops/core/meta.h"
#include "ops/core/repeated_calls.h"
#include "ops/core/view_util.h"
#include "support/error.h"

namespace tatara {

using TensorRef = Functionalizer::TensorRef;

namespace {

const OpDef& get(std::string_view name) { return OpRegistry::global().get(name); }

TensorRef ref_of(const Arg& arg) {
  const auto* tensor = std::get_if<TensorArg>(&arg);
  TATARA_CHECK(tensor != nullptr && tensor->value != kNoValue, "operand 0 is not a tensor");
  return tensor->value;
}

bool may_alias(const OpDef& op) {
  const OpSchema& schema = op.schema;
  return !schema.args.empty() && schema.args[0].alias >= 0 && !schema.output_alias.empty() &&
         schema.output_alias[0] == schema.args[0].alias;
}

/// The value of `base` (the tensor that a view step was taken of) with the view's elements replaced by `value`.
ValueId invert(GraphBuilder& b, const OpDef& op, const std::vector<Arg>& args, ValueId base, ValueId value) {
  const TensorType type = b.type(base);
  const auto scatter = [&](std::string_view name) {
    std::vector<Arg> all{TensorArg{base}, TensorArg{value}};
    all.insert(all.end(), args.begin() + 1, args.end());
    return b.op(name, std::move(all));
  };
  const std::string_view name = op.name;
  if (name == "alias" || name == "detach") return value;
  if (name == "view" || name.starts_with("squeeze") || name == "unsqueeze") return b.reshape(value, type.sizes);
  if (name == "permute") {
    const std::vector<int64_t> dims = ops::Args(b, args).integers(1);
    std::vector<int64_t> inverse(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      inverse[static_cast<size_t>(ops::wrap_dim(dims[i], type.dim()))] = static_cast<int64_t>(i);
    }
    return b.permute(value, inverse);
  }
  if (name == "slice" || name == "select" || name == "diagonal" || name == "unfold" || name == "as_strided") {
    if (name == "unfold" && ops::Args(b, args).integer(3) < ops::Args(b, args).integer(2)) {
      throw Unsupported("a write through overlapping windows");
    }
    return scatter(std::string(name) + "_scatter");
  }
  if (name == "expand") {
    if (b.type(value).numel(b.ctx()) == type.numel(b.ctx())) return b.reshape(value, type.sizes);
    throw InvalidArgument(
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
        "Please "
        "clone() the tensor before performing the operation.");
  }
  if (name == "real_part") return b.binary("from_parts", value, b.unary("imag_part", base));
  if (name == "imag_part") return b.binary("from_parts", b.unary("real_part", base), value);
  if (name == "view_as_complex") return b.unary("view_as_real", value);
  if (name == "view_as_real") {
    const int64_t last = b.type(value).dim() - 1;
    const auto part = [&](int64_t i) {
      return b.op("select", {TensorArg{value}, ops::int_arg(last), ops::int_arg(i)});
    };
    return b.binary("from_parts", part(0), part(1));
  }
  throw Unsupported(str_cat("a write through a view by ", name));
}

}  // namespace

// ---- making tensors --------------------------------------------------------------------------------------------------

TensorRef Functionalizer::input(ValueId value, int input_index) {
  const TensorRef ref = fresh(value);
  storages_.back().input_index = input_index;
  return ref;
}

TensorRef Functionalizer::fresh(ValueId value) {
  const auto ref = static_cast<TensorRef>(aliases_.size());
  storages_.push_back({value, -1, 0, ref});
  Alias alias;
  alias.storage = static_cast<int32_t>(storages_.size()) - 1;
  alias.cached = value;
  alias.cached_version = 0;
  alias.type = builder_.type(value);
  aliases_.push_back(std::move(alias));
  return ref;
}

TensorRef Functionalizer::aliased_input(TensorRef base, const TensorType& type, Expr storage_offset) {
  const TensorType whole =
      builder_.type(storages_[static_cast<size_t>(aliases_[static_cast<size_t>(base)].storage)].base);
  ExprContext& ctx = builder_.ctx();
  const Expr offset = storage_offset.valid() ? storage_offset : ctx.constant(0);
  if (whole.dtype != type.dtype || !aliases_[static_cast<size_t>(base)].chain.empty()) return -1;
  try {
    if (offset.is_const(0) && whole.sizes == type.sizes && whole.strides == type.strides) {
      return view(base, get("alias"), {TensorArg{base}});
    }
    const auto below = [&](Expr a, Expr b) { return ctx.guard(ctx.lt(a, b)); };
    if (below(offset, ctx.constant(0))) return -1;
    return view(base, get("as_strided"),
                {TensorArg{base}, SymInts{type.sizes}, SymInts{type.strides}, ops::expr_arg(offset)});
  } catch (const Unsupported&) {
    return -1;
  }
}

TensorRef Functionalizer::view(TensorRef base, const OpDef& op, std::vector<Arg> args) {
  args[0] = TensorArg{read(base)};
  const ValueId value = builder_.call(op, args).front();
  Alias alias;
  alias.storage = aliases_[static_cast<size_t>(base)].storage;
  alias.chain = aliases_[static_cast<size_t>(base)].chain;
  alias.chain.push_back({&op, std::move(args), builder_.no_grad(), builder_.closed()});
  alias.cached = value;
  alias.cached_version = storages_[static_cast<size_t>(alias.storage)].version;
  alias.type = builder_.type(value);
  alias.itself = false;
  aliases_.push_back(std::move(alias));
  return static_cast<TensorRef>(aliases_.size()) - 1;
}

std::vector<Arg> Functionalizer::read_args(std::vector<Arg> args) {
  return with_operands(std::move(args), [this](TensorRef tensor) { return read(tensor); });
}

TensorRef Functionalizer::alias_of(TensorRef base, ValueId operand, ValueId value) {
  std::vector<const Node*> steps;
  for (ValueId at = value; at != operand;) {
    const Node* node = builder_.graph().producer(at);
    if (node == nullptr || node->op->kind != OpKind::kView) return -1;
    steps.push_back(node);
    at = std::get<TensorArg>(node->args[0]).value;
  }
  if (steps.empty()) return base;
  Alias alias;
  alias.storage = aliases_[static_cast<size_t>(base)].storage;
  alias.chain = aliases_[static_cast<size_t>(base)].chain;
  for (size_t i = steps.size(); i-- > 0;) {
    alias.chain.push_back({steps[i]->op, steps[i]->args, builder_.no_grad(), builder_.closed()});
  }
  alias.cached = value;
  alias.cached_version = storages_[static_cast<size_t>(alias.storage)].version;
  alias.type = builder_.type(value);
  alias.itself = false;
  aliases_.push_back(std::move(alias));
  return static_cast<TensorRef>(aliases_.size()) - 1;
}

std::vector<TensorRef> Functionalizer::host_call(const OpDef& op, std::vector<Arg> args,
                                                 std::vector<TensorType> types) {
  std::vector<TensorRef> results;
  for (const ValueId value : builder_.host_call(op, read_args(std::move(args)), std::move(types))) {
    results.push_back(fresh(value));
  }
  return results;
}

std::vector<TensorRef> Functionalizer::apply(const OpDef& op, std::vector<Arg> args) {
  if (op.name.starts_with("as_strided") && !ops::Args(builder_, args).none(op.schema.args.size() - 1) &&
      storages_[static_cast<size_t>(aliases_[static_cast<size_t>(ref_of(args[0]))].storage)].input_index >= 0) {
    // Counted from the start of the input's storage, and no guard says where in it the input starts.
    throw Unsupported("an offset into the memory of an input");
  }
  if (op.name == "as_strided") {
    // It counts from the start of the storage, whatever view it is called on. Its gradient goes to that view alone, and what
    // stands between the view and the storage counts too (levels of transforms): so it is a view of that view where it can.
    const TensorRef given = ref_of(args[0]);
    const Alias& alias = aliases_[static_cast<size_t>(given)];
    const TensorRef whole = storages_[static_cast<size_t>(alias.storage)].first;
    if (whole == given) return {view(whole, op, std::move(args))};
    ExprContext& ctx = builder_.ctx();
    const Expr begin = offset_of(given);
    if (!begin.valid()) throw Unsupported("as_strided of a view whose place in its base is not known");
    const Expr offset = ops::Args(builder_, args).none(3) ? begin : ops::Args(builder_, args).expr(3);
    if (ops::is_contiguous(ctx, alias.type) && !ctx.guard(ctx.lt(offset, begin))) {
      std::vector<Arg> inside = args;
      inside[3] = ops::expr_arg(ctx.sub(offset, begin));
      try {
        return {view(given, op, std::move(inside))};
      } catch (const Unsupported&) {  // it reaches beyond the view
      }
    }
    const bool plain = std::none_of(alias.chain.begin(), alias.chain.end(), [](const ViewStep& step) {
      return step.op->name == "alias" || step.op->traits.detaches;
    });
    const Expr elements = aliases_[static_cast<size_t>(whole)].type.numel(ctx);
    if (!plain || !ctx.guard(ctx.eq(alias.type.numel(ctx), elements))) {
      throw Unsupported("as_strided beyond the view that it is called on");
    }
    args[3] = ops::expr_arg(offset);
    return {view(whole, op, std::move(args))};
  }
  if (op.kind == OpKind::kView) {
    const TensorRef base = ref_of(args[0]);
    return {view(base, op, std::move(args))};
  }
  std::vector<Arg> values = read_args(args);
  if (op.choose) {
    MetaContext meta(builder_.graph(), op, values, builder_.default_dtype());
    Choice choice = op.choose(meta);
    const OpDef* chosen = choice.op == "alias_self" ? nullptr : &get(choice.op);
    while (chosen != nullptr && chosen->choose) {
      MetaContext next(builder_.graph(), *chosen, choice.args, builder_.default_dtype());
      Choice further = chosen->choose(next);
      chosen = further.op == "alias_self" ? nullptr : &get(further.op);
      if (chosen != nullptr) choice = std::move(further);
    }
    if (chosen == nullptr) return {ref_of(args[0])};
    if (chosen->kind == OpKind::kView) {
      // The operand of a chosen view is one of the call's tensors.
      const ValueId operand = std::get<TensorArg>(choice.args[0]).value;
      for (size_t i = 0; i < args.size(); ++i) {
        const auto* tensor = std::get_if<TensorArg>(&values[i]);
        if (tensor != nullptr && tensor->value == operand)
          return {view(ref_of(args[i]), *chosen, std::move(choice.args))};
      }
    }
    return {fresh(builder_.call(*chosen, std::move(choice.args)).front())};
  }
  const bool views = may_alias(op) && op.decompose;
  const std::vector<ValueId> results = views ? op.decompose(builder_, values) : call_as_before(builder_, op, values);
  std::vector<TensorRef> refs;
  const auto* list =
      args.empty() ? nullptr : std::get_if<TensorList>(&args[0]);  // result i is then a view of element i
  for (size_t i = 0; i < results.size(); ++i) {
    TensorRef ref = -1;
    if (views && list == nullptr) {
      ref = alias_of(ref_of(args[0]), std::get<TensorArg>(values[0]).value, results[i]);
    } else if (views && i < list->values.size()) {
      ref = alias_of(list->values[i], std::get<TensorList>(values[0]).values[i], results[i]);
    }
    refs.push_back(ref >= 0 ? ref : fresh(results[i]));
  }
  // What goes beyond the declared outputs are new values of the written arguments, in order (batch_norm in training).
  if (op.schema.num_outputs >= 0 && refs.size() > static_cast<size_t>(op.schema.num_outputs)) {
    auto next = static_cast<size_t>(op.schema.num_outputs);
    for (size_t i = 0; i < op.schema.args.size() && next < refs.size(); ++i) {
      const auto* tensor = std::get_if<TensorArg>(&args[i]);
      if (!op.schema.args[i].written || tensor == nullptr || tensor->value == kNoValue) continue;
      write(tensor->value, results[next++]);
    }
    refs.resize(static_cast<size_t>(op.schema.num_outputs));
  }
  return refs;
}

// ---- writes ----------------------------------------------------------------------------------------------------------

namespace {
/// What eager's torch.can_cast allows for in-place and out= results.
bool storable(DType from, DType to) {
  if (is_complex(from) && !is_complex(to)) return false;
  if (is_floating(from) && !is_floating(to) && !is_complex(to)) return false;
  return from == DType::kBool || to != DType::kBool;
}
}  // namespace

void Functionalizer::write_cast(TensorRef tensor, ValueId value) {
  const TensorType target = type(tensor);
  const TensorType source = builder_.type(value);
  if (!ops::same_sizes(builder_.ctx(), target.sizes, source.sizes)) {
    throw InvalidArgument(str_cat("output with shape [", str_join(target.sizes),
                                  "] doesn't match the broadcast shape [", str_join(source.sizes), "]"));
  }
  if (!storable(source.dtype, target.dtype)) {
    throw InvalidArgument(str_cat("result type ", dtype_name(source.dtype),
                                  " can't be cast to the desired output type ", dtype_name(target.dtype)));
  }
  write(tensor, builder_.cast(value, target.dtype));
}

TensorRef Functionalizer::apply_inplace(const OpDef& op, std::vector<Arg> args) {
  const TensorRef self = ref_of(args[0]);
  if (op.kind == OpKind::kView) throw Unsupported(str_cat("the in-place form of the view ", op.name));
  write_cast(self, builder_.call(op, read_args(std::move(args))).front());
  return self;
}

TensorRef Functionalizer::reshape_inplace(const OpDef& op, std::vector<Arg> args) {
  const TensorRef self = ref_of(args[0]);
  const TensorRef made = apply(op, std::move(args)).front();
  const auto own = static_cast<size_t>(self);
  const auto s = static_cast<size_t>(aliases_[own].storage);
  if (made == self || aliases_[static_cast<size_t>(made)].storage != aliases_[own].storage) {
    throw Unsupported(str_cat("the in-place form of ", op.name));
  }
  Storage& storage = storages_[s];
  if (storage.first == self) {
    aliases_.push_back(aliases_[own]);
    storage.first = static_cast<TensorRef>(aliases_.size()) - 1;
  }
  const bool itself = aliases_[own].itself, whole = aliases_[own].whole;
  aliases_[own] = aliases_[static_cast<size_t>(made)];
  aliases_[own].itself = itself;
  aliases_[own].whole = whole && aliases_[own].chain.back().op->name != "as_strided";
  // Eager counts it as a write.
  for (Alias& alias : aliases_) {
    if (alias.storage == static_cast<int32_t>(s) && alias.cached_version == storage.version) ++alias.cached_version;
  }
  ++storage.version;
  ++storage.reshaped;
  return self;
}

void Functionalizer::apply_out(const OpDef& op, std::vector<Arg> args, std::span<const TensorRef> out) {
  if (!op.has_out) throw Unsupported(str_cat(op.name, " with out="));
  const std::vector<ValueId> results = builder_.call(op, read_args(std::move(args)));
  if (results.size() != out.size()) throw Unsupported(str_cat(op.name, ": out= of another length"));
  for (size_t i = 0; i < out.size(); ++i) {
    if (!ops::same_sizes(builder_.ctx(), type(out[i]).sizes, builder_.type(results[i]).sizes)) {
      throw Unsupported(str_cat(op.name, ": out= would be resized"));
    }
    write_cast(out[i], results[i]);
  }
}

ValueId Functionalizer::read(TensorRef tensor) {
  const Alias& alias = aliases_[static_cast<size_t>(tensor)];
  const Storage& storage = storages_[static_cast<size_t>(alias.storage)];
  if (alias.cached_version == storage.version) return alias.cached;
  const bool no_grad = builder_.no_grad(), closed = builder_.closed();
  ValueId value = storage.base;
  for (const ViewStep& step : alias.chain) {
    std::vector<Arg> args = step.args;
    args[0] = TensorArg{value};
    builder_.set_no_grad(step.no_grad);
    builder_.set_closed(step.closed);
    value = builder_.call(*step.op, std::move(args)).front();
  }
  builder_.set_no_grad(no_grad);
  builder_.set_closed(closed);
  Alias& entry = aliases_[static_cast<size_t>(tensor)];
  entry.cached = value;
  entry.cached_version = storage.version;
  return value;
}

void Functionalizer::write(TensorRef tensor, ValueId value) {
  const auto index = static_cast<size_t>(tensor);
  const auto storage_index = static_cast<size_t>(aliases_[index].storage);
  const TensorType target = aliases_[index].type;
  TATARA_CHECK(builder_.type(value).dtype == target.dtype, "a written value has another dtype than its tensor");
  // Values of the chain's stages before the write, then the new value carried back through them.
  std::vector<ValueId> stages{storages_[storage_index].base};
  const std::vector<ViewStep> chain = aliases_[index].chain;
  for (size_t i = 0; i + 1 < chain.size(); ++i) {
    std::vector<Arg> args = chain[i].args;
    args[0] = TensorArg{stages.back()};
    stages.push_back(builder_.call(*chain[i].op, std::move(args)).front());
  }
  ValueId whole = value;
  for (size_t i = chain.size(); i-- > 0;) whole = invert(builder_, *chain[i].op, chain[i].args, stages[i], whole);
  // The base keeps the layout it was born with, gaps and all: where its views are depends on it.
  const TensorType& born = aliases_[static_cast<size_t>(storages_[storage_index].first)].type;
  const bool repeats = std::any_of(born.strides.begin(), born.strides.end(), [](Expr e) { return e.is_const(0); });
  if (builder_.type(whole).strides != born.strides && (!repeats || ops::is_dense(builder_.ctx(), born))) {
    whole = builder_.op("relayout", {TensorArg{whole}, SymInts{born.strides}});
  }
  Storage& storage = storages_[storage_index];
  storage.base = whole;
  ++storage.version;
  Alias& written = aliases_[index];
  const bool same_layout = builder_.type(value).strides == written.type.strides;
  if (written.chain.empty()) {
    written.cached = whole;
    written.cached_version = storage.version;
  } else if (same_layout) {
    written.cached = value;
    written.cached_version = storage.version;
  }
}

const TensorType& Functionalizer::type(TensorRef tensor) const { return aliases_[static_cast<size_t>(tensor)].type; }

bool Functionalizer::same_storage(TensorRef a, TensorRef b) const {
  return aliases_[static_cast<size_t>(a)].storage == aliases_[static_cast<size_t>(b)].storage;
}

ValueId Functionalizer::base(TensorRef tensor) const {
  return storages_[static_cast<size_t>(aliases_[static_cast<size_t>(tensor)].storage)].base;
}

bool Functionalizer::is_stale_view(TensorRef tensor) const {
  const Alias& alias = aliases_[static_cast<size_t>(tensor)];
  return !alias.chain.empty() && alias.cached_version != storages_[static_cast<size_t>(alias.storage)].version;
}

int64_t Functionalizer::version(TensorRef tensor) const {
  return storages_[static_cast<size_t>(aliases_[static_cast<size_t>(tensor)].storage)].version;
}

void Functionalizer::uncount(TensorRef tensor, int64_t writes) {
  storages_[static_cast<size_t>(aliases_[static_cast<size_t>(tensor)].storage)].uncounted += writes;
}

// ---- the end of a graph ----------------------------------------------------------------------------------------------

Expr Functionalizer::offset_of(TensorRef tensor) {
  const Alias& alias = aliases_[static_cast<size_t>(tensor)];
  Expr offset = builder_.ctx().constant(0);
  // Offsets are laid out over the base as it was born, so the steps are taken afresh from it.
  ValueId value = storages_[static_cast<size_t>(alias.storage)].base;
  const std::vector<ViewStep> chain = alias.chain;
  for (const ViewStep& step : chain) {
    std::vector<Arg> args = step.args;
    args[0] = TensorArg{value};
    value = builder_.call(*step.op, std::move(args)).front();
    offset = ops::offset_behind(builder_.graph(), value, offset);
    if (!offset.valid()) return {};
  }
  return offset;
}

void Functionalizer::finish(std::span<const TensorRef> tensors) {
  Graph& graph = builder_.graph();
  // Reading may add nodes, so all values come first.
  std::vector<GraphOutput> outputs;
  std::vector<int> owner(storages_.size(), -1);  // output that holds a fresh storage's base
  std::vector<int> uses(storages_.size(), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Alias& alias = aliases_[static_cast<size_t>(tensors[i])];
    const auto s = static_cast<size_t>(alias.storage);
    ++uses[s];
    if (storages_[s].input_index < 0 && alias.itself && alias.whole && owner[s] < 0) owner[s] = static_cast<int>(i);
    outputs.push_back({read(tensors[i]), {}});
  }
  // Several views of a storage that is not an output itself: the storage becomes a hidden output behind the others.
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto s = static_cast<size_t>(aliases_[static_cast<size_t>(tensors[i])].storage);
    if (storages_[s].input_index >= 0 || owner[s] >= 0 || uses[s] < 2) continue;
    owner[s] = static_cast<int>(outputs.size());
    outputs.push_back({storages_[s].base, {}});
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto s = static_cast<size_t>(aliases_[static_cast<size_t>(tensors[i])].storage);
    OutputAlias& alias = outputs[i].alias;
    if (storages_[s].input_index >= 0) {
      alias = {OutputAlias::Kind::kInput, storages_[s].input_index, offset_of(tensors[i])};
    } else if (owner[s] >= 0 && owner[s] != static_cast<int>(i)) {
      alias = {OutputAlias::Kind::kOutput, owner[s], offset_of(tensors[i])};
    } else {
      continue;
    }
    if (!alias.storage_offset.valid()) throw Unsupported("an output whose place in its base is not known");
  }
  // Fresh outputs own their memory: none may be an input's value or another output's.
  std::vector<ValueId> taken;
  for (GraphOutput& output : outputs) {
    if (output.alias.kind != OutputAlias::Kind::kFresh) continue;
    const bool shared =
        graph.value(output.value).producer < 0 || std::find(taken.begin(), taken.end(), output.value) != taken.end();
    if (shared) {
      output.value = builder_.op("relayout", {TensorArg{output.value}, SymInts{graph.type(output.value).strides}});
    }
    taken.push_back(output.value);
  }
  for (const GraphOutput& output : outputs) graph.add_output(output.value, output.alias);
  for (const Storage& storage : storages_) {
    if (storage.input_index < 0 || storage.version == storage.reshaped) continue;
    graph.add_input_write(storage.input_index, storage.base,
                          static_cast<int>(storage.version - storage.uncounted - storage.reshaped));
  }
}

}  // namespace tatara
