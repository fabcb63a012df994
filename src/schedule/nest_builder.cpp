#include "schedule/nest_builder.h"

#include <algorithm>
#include <utility>

#include "support/error.h"

namespace tatara::sched {

using loops::kNoScalar;

namespace {
constexpr size_t kUsualScalars = 32;  // of a kernel or a trial
constexpr BufferId kFirstLocal = -2;  // and below: memory of the thread; -1 stands for memory not planned yet

/// In additions.
double cost_of(ScalarOp op) {
  if (op == ScalarOp::kDiv || op == ScalarOp::kSqrt || op == ScalarOp::kRsqrt || op == ScalarOp::kReciprocal) return 4;
  if (op == ScalarOp::kFloorDiv || op == ScalarOp::kTruncDiv || op == ScalarOp::kMod || op == ScalarOp::kFmod) return 8;
  const bool is_function = op >= ScalarOp::kExp && op <= ScalarOp::kLogNdtr && op != ScalarOp::kCopysign;
  return is_function || op == ScalarOp::kPhilox ? 10 : 1;
}

/// From its first one on.
Expr addressable_elements(State& s, const PlanBuffer& buffer) {
  // Without a look at the layout: plans of large graphs lie in no cache.
  const int64_t bytes = buffer.nbytes.is_const() ? buffer.nbytes.const_value() : 0;
  if (bytes > 0) return s.ctx.constant(bytes / dtype_size(buffer.dtype));
  Expr result = s.ctx.constant(1);
  for (size_t i = 0; i < buffer.sizes.size(); ++i) result = result + (buffer.sizes[i] - 1) * buffer.strides[i];
  return s.simplify(result);
}

}  // namespace

NestBuilder::NestBuilder(State& state, loops::Kernel& kernel, Statements statements)
    : state_(state), kernel_(kernel), keeps_(statements == Statements::kKept) {
  scopes_.emplace_back(&memory_.resource);
  kernel_.scalar_types.reserve(kUsualScalars);
  scalar_depth_.reserve(kUsualScalars);
}

// ---- scopes ----------------------------------------------------------------------------------------------------------

ScalarId NestBuilder::define(int d, DType dtype) {
  const ScalarId id = kernel_.new_scalar(dtype);
  scalar_depth_.resize(static_cast<size_t>(id) + 1, 0);
  scalar_depth_[static_cast<size_t>(id)] = d;
  return id;
}

ScalarId NestBuilder::new_scalar(DType dtype) { return define(depth(), dtype); }

void NestBuilder::open_loop(Expr var, Expr extent, loops::LoopKind kind, std::vector<loops::Carried> carried,
                            bool scan) {
  Scope scope(&memory_.resource);
  scope.is_loop = true;
  scope.loop.var = var;
  scope.loop.extent = extent;
  scope.loop.kind = kind;
  scope.loop.scan = scan;
  scope.loop.carried = std::move(carried);
  scopes_.push_back(std::move(scope));
  symbol_depth_[var] = depth();
  for (loops::Carried& c : scopes_.back().loop.carried) c.arg = define(depth(), c.dtype);
  // Nothing may stand between parallel loops: they are one collapsed space.
  if (kind == loops::LoopKind::kParallel) floor_ = depth();
  // Nothing moves out of a loop that never runs: what it reads may not be there.
  scopes_.back().outer_floor = floor_;
  if (extent.is_const(0)) floor_ = depth();
}

std::vector<ScalarId> NestBuilder::close_loop(const std::vector<ScalarId>& next,
                                              std::unique_ptr<loops::CombineFn> combine) {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  symbol_depth_.erase(scope.loop.var);
  loops::For loop = std::move(scope.loop);
  if (loop.extent.is_const(0)) floor_ = scope.outer_floor;
  if (loop.kind == loops::LoopKind::kParallel && floor_ > depth()) floor_ = depth();
  std::vector<ScalarId> results;
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    loop.carried[i].next = next[i];
    loop.carried[i].result = define(depth(), loop.carried[i].dtype);
    results.push_back(loop.carried[i].result);
  }
  loop.combine_fn = std::move(combine);
  loop.body = std::make_unique<loops::Block>(std::move(scope.block));
  put(depth(), std::move(loop));
  return results;
}

void NestBuilder::open_product(loops::Product& product, Expr column, Expr columns) {
  open_loop(column, columns, loops::LoopKind::kVector);
  symbol_depth_[product.row] = depth();
  product.value = new_scalar(DType::kFloat32);
}

/// The loop that is open, with its body.
std::unique_ptr<loops::For> NestBuilder::take_loop(Expr row) {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  symbol_depth_.erase(scope.loop.var);
  symbol_depth_.erase(row);
  auto loop = std::make_unique<loops::For>(std::move(scope.loop));
  loop->body = std::make_unique<loops::Block>(std::move(scope.block));
  return loop;
}

void NestBuilder::close_product(loops::Product product) {
  product.each = take_loop(product.row);
  put(depth(), std::move(product));
}

void NestBuilder::open_attention(loops::Attention& attention, Expr key, Expr keys) {
  open_loop(key, keys, loops::LoopKind::kVector);
  symbol_depth_[attention.row] = depth();
  for (loops::Attention::Score& score : attention.scores) score.product = new_scalar(DType::kFloat32);
}

void NestBuilder::end_scores(loops::Attention& attention) { attention.each = take_loop(attention.row); }

void NestBuilder::begin_results(const loops::Attention& attention, loops::Attention::Sum& sum, Expr element,
                                Expr elements) {
  open_loop(element, elements, loops::LoopKind::kVector);
  symbol_depth_[attention.row] = depth();
  sum.result = new_scalar(DType::kFloat32);
}

void NestBuilder::end_results(const loops::Attention& attention, loops::Attention::Sum& sum) {
  sum.done = take_loop(attention.row);
}

void NestBuilder::close_attention(loops::Attention attention) { put(depth(), std::move(attention)); }

void NestBuilder::begin_weights(const loops::WeighedProduct& product, Expr word, Expr words) {
  open_loop(word, words, loops::LoopKind::kVector);
  symbol_depth_[product.result] = depth();
}

void NestBuilder::end_weights(loops::WeighedProduct& product) { product.weigh = take_loop(product.result); }

void NestBuilder::begin_elements(loops::WeighedProduct& product, Expr result, Expr results) {
  open_loop(result, results, loops::LoopKind::kVector);
  symbol_depth_[product.row] = depth();
  product.value = new_scalar(DType::kFloat32);
}

void NestBuilder::close_weighed(loops::WeighedProduct product) {
  product.each = take_loop(product.row);
  put(depth(), std::move(product));
}

std::vector<ScalarId> NestBuilder::carried_args() const {
  std::vector<ScalarId> args;
  for (const loops::Carried& c : scopes_.back().loop.carried) args.push_back(c.arg);
  return args;
}

void NestBuilder::fused(const LoweredNode& node) {
  if (std::find(fused_nodes.begin(), fused_nodes.end(), node.id) != fused_nodes.end()) return;
  fused_nodes.push_back(node.id);
  if (node.kind == LoweredNode::Kind::kView) return;
  const std::string& op = node.node().op->name;
  if (std::find(fused_ops.begin(), fused_ops.end(), op) == fused_ops.end()) fused_ops.push_back(op);
}

void NestBuilder::open_isolated() {
  scopes_.emplace_back(&memory_.resource);
  floors_.push_back(floor_);
  floor_ = depth();
}

loops::Block NestBuilder::close_isolated() {
  loops::Block block = std::move(scopes_.back().block);
  scopes_.pop_back();
  floor_ = floors_.back();
  floors_.pop_back();
  return block;
}

loops::Block NestBuilder::take_body() { return std::move(scopes_.front().block); }

int NestBuilder::depth_of(Expr e) const {
  if (e.is_symbol()) {
    const auto found = symbol_depth_.find(e);
    return found == symbol_depth_.end() ? 0 : found->second;
  }
  int d = 0;
  for (const Expr operand : e.operands()) d = std::max(d, depth_of(operand));
  return d;
}

// ---- scalars ---------------------------------------------------------------------------------------------------------

ScalarId NestBuilder::emit(loops::Scalar scalar) {
  int d = 0;
  for (const ScalarId x : scalar.operands) d = std::max(d, scalar_depth_[static_cast<size_t>(x)]);
  if (scalar.index.valid()) d = std::max(d, depth_of(scalar.index));
  d = clamp_depth(d);
  InlineVec<ScalarId, 4> operands;
  for (const ScalarId x : scalar.operands) operands.push_back(x);
  // NaN and signed zero are told apart by their bits.
  if (scalar.op == ScalarOp::kConst) {
    int64_t re = 0;
    int64_t im = 0;
    static_assert(sizeof(re) == sizeof(scalar.const_re));
    std::copy_n(reinterpret_cast<const char*>(&scalar.const_re), sizeof(re), reinterpret_cast<char*>(&re));
    std::copy_n(reinterpret_cast<const char*>(&scalar.const_im), sizeof(im), reinterpret_cast<char*>(&im));
    operands = {static_cast<ScalarId>(re), static_cast<ScalarId>(re >> 32), static_cast<ScalarId>(im),
                static_cast<ScalarId>(im >> 32)};
  }
  const ScalarKey key{static_cast<int>(scalar.op),
                      static_cast<int>(scalar.dtype),
                      operands,
                      scalar.const_int,
                      scalar.index.node(),
                      scalar.lane};
  auto& memo = at(d).scalars;
  if (const auto found = memo.find(key); found != memo.end()) return found->second;
  const ScalarId id = define(d, scalar.dtype);
  if (scalar.op != ScalarOp::kConst) {
    ++work.operations;
    work.cost += cost_of(scalar.op);
  }
  if (loops::is_elementary_function(scalar.op)) ++work.functions;
  note_largest(scalar, id);
  put(d, loops::Let{id, std::move(scalar)});
  memo.emplace(key, id);
  return id;
}

ScalarId NestBuilder::constant_int(int64_t value, DType dtype) {
  loops::Scalar s = make_scalar(ScalarOp::kConst, dtype);
  s.const_int = value;
  return emit(std::move(s));
}

ScalarId NestBuilder::zero(DType dtype) { return emit(make_scalar(ScalarOp::kConst, dtype)); }

ScalarId NestBuilder::cast(ScalarId x, DType to) {
  if (dtype(x) == to) return x;
  // What was widened is narrowed to what it was.
  const auto known = known_.find(x);
  const ScalarId narrow = known == known_.end() ? kNoScalar : known->second.narrow;
  if (narrow != kNoScalar && dtype(narrow) == to) return narrow;
  const ScalarId result = emit(make_scalar(ScalarOp::kCast, to, {x}));
  if (is_low_precision(dtype(x)) && to == compute_dtype(dtype(x))) known_[result].narrow = x;
  return result;
}

ScalarId NestBuilder::index_value(Expr index, DType to) {
  const Expr simple = state_.simplify(index);
  index_uses.push_back(simple);
  const bool integer = is_integral(to) || is_floating(to);
  loops::Scalar s = make_scalar(ScalarOp::kIndex, integer ? to : DType::kInt64);
  if (is_low_precision(to)) s.dtype = DType::kFloat32;
  s.index = finalize(simple);
  if (s.index.is_const()) {
    loops::Scalar c = make_scalar(ScalarOp::kConst, s.dtype);
    c.const_int = s.index.const_value();
    c.const_re = static_cast<double>(c.const_int);
    if (is_floating(s.dtype))
      c.const_int = 0;
    else
      c.const_re = 0;
    return cast(emit(std::move(c)), to);
  }
  return cast(emit(std::move(s)), to);
}

Expr NestBuilder::indirect(ScalarId value, Expr size, bool wrap, bool check, ScalarId mask) {
  const Expr bound = state_.simplify(size);
  int d = std::max(scalar_depth_[static_cast<size_t>(value)], depth_of(bound));
  if (mask != kNoScalar) d = std::max(d, scalar_depth_[static_cast<size_t>(mask)]);
  d = clamp_depth(d);
  // What can't leave the range needs no test.
  if (bound.is_const() && largest(value) < bound.const_value()) wrap = check = false;
  const IndirectKey key{value, bound.node(), wrap, check, mask};
  if (const auto found = at(d).indirects.find(key); found != at(d).indirects.end()) return found->second;
  // Symbols for lookups must differ from the dims' of the same extent.
  const Expr symbol = state_.pooled_symbol(bound, 1000 + indirect_count_[bound]++);
  symbol_depth_[symbol] = d;
  put(d, loops::IndexValue{value, symbol, finalize(bound), wrap, check, mask});
  at(d).indirects.emplace(key, symbol);
  if (keeps_) fault_sites.push_back(location == nullptr ? std::string() : location->str());
  return symbol;
}

int64_t NestBuilder::largest(ScalarId x) const {
  const auto found = known_.find(x);
  if (found != known_.end() && found->second.largest != INT64_MAX) return found->second.largest;
  const DType type = dtype(x);
  return type == DType::kUInt8 ? UINT8_MAX : type == DType::kUInt16 ? UINT16_MAX : INT64_MAX;
}

void NestBuilder::note_largest(const loops::Scalar& s, ScalarId id) {
  if (!is_integral(s.dtype)) return;
  int64_t most = INT64_MAX;
  if (s.op == ScalarOp::kConst && s.const_int >= 0) most = s.const_int;
  if (s.op == ScalarOp::kCast && is_integral(dtype(s.operands[0]))) most = largest(s.operands[0]);
  if (s.op == ScalarOp::kAnd) most = std::min(largest(s.operands[0]), largest(s.operands[1]));
  const auto is_constant = [&](ScalarId x) {
    const auto found = known_.find(x);
    return found != known_.end() && found->second.is_constant;
  };
  const int64_t shift = s.op == ScalarOp::kShr ? largest(s.operands[1]) : INT64_MAX;
  if (shift < 63 && is_constant(s.operands[1])) most = largest(s.operands[0]) >> shift;
  // Of a narrower type it might have become negative.
  const int bits = 8 * dtype_size(s.dtype) - (is_signed(s.dtype) ? 1 : 0);
  if (most < INT64_MAX && (bits >= 63 || most < (int64_t{1} << bits))) known_[id].largest = most;
  if (s.op == ScalarOp::kConst) known_[id].is_constant = true;
}

Expr NestBuilder::finalize(Expr e) { return substitution.empty() ? e : state_.ctx.substitute(e, substitution); }

Expr NestBuilder::address_of(const Storage& storage, const std::vector<Expr>& indices) {
  Expr address = storage.offset.valid() ? storage.offset : ctx().constant(0);
  TATARA_CHECK(indices.size() == storage.strides->size(), "rank of an access");
  for (size_t i = 0; i < indices.size(); ++i) address = address + indices[i] * (*storage.strides)[i];
  return state_.simplify(address);
}

int NestBuilder::buffer_arg(BufferId buffer, bool written) {
  const auto [found, inserted] = buffer_args_.emplace(buffer, static_cast<int>(kernel_.buffers.size()));
  if (inserted) {
    buffer_ids.push_back(buffer);
    written_.push_back(false);
    loops::BufferArg arg;
    arg.name = str_cat("b", found->second);
    if (buffer >= 0) {
      const PlanBuffer& plan = state_.out.plan.buffers[static_cast<size_t>(buffer)];
      arg.dtype = plan.dtype;
      arg.numel = addressable_elements(state_, plan);
    }
    arg.kind = written ? loops::ArgKind::kOutput : loops::ArgKind::kInput;
    if (buffer <= kFirstLocal) {
      const auto& [dtype, numel] = locals_[static_cast<size_t>(kFirstLocal - buffer)];
      arg.dtype = dtype;
      arg.numel = ctx().constant(numel);
      arg.kind = loops::ArgKind::kScratch;
    } else if (const PlanBuffer& plan = state_.out.plan.buffers[static_cast<size_t>(buffer)];
               state_.options.gpu && plan.home == BufferHome::kInput && plan.device.kind == DeviceKind::kCpu) {
      arg.kind = loops::ArgKind::kValue;
    }
    kernel_.buffers.push_back(std::move(arg));
  }
  if (buffer <= kFirstLocal) return found->second;
  loops::BufferArg& arg = kernel_.buffers[static_cast<size_t>(found->second)];
  if (arg.kind == loops::ArgKind::kValue) {
    if (written) throw Unsupported("a tensor on the CPU is written with values of a GPU");
    return found->second;
  }
  if (written != (arg.kind == loops::ArgKind::kOutput)) arg.kind = loops::ArgKind::kInOut;
  return found->second;
}

BufferId NestBuilder::add_local(DType dtype, int64_t numel) {
  locals_.emplace_back(dtype, numel);
  return kFirstLocal - static_cast<BufferId>(locals_.size()) + 1;
}

void NestBuilder::redirect(BufferId buffer, Expr dims_address, BufferId local, Expr place) {
  redirected_[{buffer, dims_address.node()}] = {local, place};
}

ScalarId NestBuilder::load(ValueId v, const Storage& storage, const std::vector<Expr>& indices, ScalarId mask,
                           ScalarId other) {
  const DType stored = state_.graph.type(v).dtype;
  const Expr dims_address = address_of(storage, indices);
  accesses.push_back({dims_address, false, stored, storage.buffer, mask != kNoScalar});
  if (mask == kNoScalar) return cast(load_element(storage.buffer, stored, dims_address), compute_dtype(stored));
  return cast(load_at(storage.buffer, stored, finalize(dims_address), mask, other), compute_dtype(stored));
}

ScalarId NestBuilder::load_element(BufferId buffer, DType stored, Expr dims_address) {
  const auto found = redirected_.find({buffer, dims_address.node()});
  if (found == redirected_.end()) return load_at(buffer, stored, finalize(dims_address));
  return load_at(found->second.first, stored, found->second.second);
}

ScalarId NestBuilder::load_at(BufferId id, DType stored, Expr address, ScalarId mask, ScalarId other) {
  const int buffer = buffer_arg(id, false);
  const bool shared = kernel_.buffers[static_cast<size_t>(buffer)].kind == loops::ArgKind::kInOut;
  if (mask != kNoScalar) other = other == kNoScalar ? zero(stored) : cast(other, stored);
  int d = depth_of(address);
  if (mask != kNoScalar)
    d = std::max({d, scalar_depth_[static_cast<size_t>(mask)], scalar_depth_[static_cast<size_t>(other)]});
  d = shared ? depth() : clamp_depth(d);
  const LoadKey key{buffer, address.node(), mask, other};
  auto& memo = at(d).loads;
  if (const auto found = memo.find(key); found != memo.end()) return found->second;
  const ScalarId result = define(d, stored);
  put(d, loops::Load{result, buffer, address, mask, other});
  memo.emplace(key, result);
  return result;
}

void NestBuilder::store(ValueId v, const Storage& storage, const std::vector<Expr>& indices, ScalarId value,
                        loops::StoreMode mode, ScalarId mask, bool atomic) {
  const DType stored = state_.graph.type(v).dtype;
  const Expr dims_address = address_of(storage, indices);
  accesses.push_back({dims_address, true, stored, storage.buffer, mask != kNoScalar});
  store_at(storage.buffer, finalize(dims_address), cast(value, stored), mask, mode, atomic);
}

void NestBuilder::store_at(BufferId id, Expr address, ScalarId value, ScalarId mask, loops::StoreMode mode,
                           bool atomic) {
  const int buffer = buffer_arg(id, true);
  if (mode != loops::StoreMode::kSet) kernel_.buffers[static_cast<size_t>(buffer)].kind = loops::ArgKind::kInOut;
  put(depth(), loops::Store{buffer, address, value, mask, mode, atomic});
  for (Scope& scope : scopes_) {
    std::erase_if(scope.loads, [&](const auto& entry) { return std::get<0>(entry.first) == buffer; });
  }
}

ScalarId NestBuilder::round(ScalarId x, DType storage_dtype) {
  return cast(cast(x, storage_dtype), compute_dtype(storage_dtype));
}

void NestBuilder::remember(ValueId v, const std::vector<Expr>& indices, ScalarId x) {
  InlineVec<const ExprNode*, 6> nodes;
  for (const Expr e : indices) nodes.push_back(state_.simplify(e).node());
  at(depth()).evals.emplace(EvalKey{v, nodes, kNoScalar}, x);
}

ScalarId NestBuilder::eval(ValueId v, std::vector<Expr> indices, ScalarId mask) {
  InlineVec<const ExprNode*, 6> nodes;
  for (Expr& e : indices) {
    e = state_.simplify(e);
    nodes.push_back(e.node());
  }
  const EvalKey key{v, nodes, mask};
  const EvalKey unmasked{v, nodes, kNoScalar};
  for (size_t i = scopes_.size(); i-- > 0;) {
    if (const auto found = scopes_[i].evals.find(key); found != scopes_[i].evals.end()) return found->second;
    if (mask != kNoScalar) {
      if (const auto found = scopes_[i].evals.find(unmasked); found != scopes_[i].evals.end()) return found->second;
    }
    if (!floors_.empty() && static_cast<int>(i) == floor_) break;
  }
  ScalarId result = kNoScalar;
  if (const auto had = access(v, indices, mask)) {
    result = *had;
  } else {
    const LoweredNode* node = state_.producer(v);
    TATARA_CHECK(node != nullptr, "a graph input without memory");
    if (node->kind == LoweredNode::Kind::kView) {
      result = eval(node->operands[0], node->view_map(indices), mask);
      const DType type = state_.graph.type(v).dtype;
      if (state_.graph.type(node->operands[0]).dtype != type) result = round(result, type);
      fused(*node);
    } else {
      TATARA_CHECK(node->kind == LoweredNode::Kind::kElement, node->node().op->name, " cannot be inlined");
      NodeBuilder builder(*this, *node, mask);
      const SourceLocation* const outer = std::exchange(location, &node->node().location);
      const auto output = static_cast<size_t>(state_.graph.value(v).output_index);
      TATARA_CHECK(node->has_element(output), node->node().op->name, " lacks an output");
      const auto whole = mask == kNoScalar ? eval_block(builder, *node, output, indices) : std::nullopt;
      result = whole ? *whole : round(node->element(output)(builder, indices), state_.graph.type(v).dtype);
      location = outer;
      fused(*node);
    }
  }
  const int d = std::max(scalar_depth_[static_cast<size_t>(result)],
                         mask == kNoScalar ? 0 : scalar_depth_[static_cast<size_t>(mask)]);
  at(clamp_depth(d)).evals.emplace(key, result);
  return result;
}

std::optional<ScalarId> NestBuilder::eval_block(NodeBuilder& builder, const LoweredNode& node, size_t output,
                                                const std::vector<Expr>& indices) {
  const LoweredNode::Block* const block = node.block_of(output);
  if (block == nullptr || block->dims == 0) return std::nullopt;
  const size_t before = indices.size() - block->dims;
  const TensorType& type = node.result(static_cast<int>(output));
  int64_t wanted = 0;
  for (size_t d = before; d < indices.size(); ++d) {
    if (!indices[d].is_const()) return std::nullopt;
    wanted = wanted * type.sizes[d].const_value() + indices[d].const_value();
  }
  const std::vector<ScalarId> all = block->all(builder, std::span(indices).first(before));
  ScalarId result = kNoScalar;
  std::vector<Expr> at = indices;
  for (size_t i = 0; i < all.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    for (size_t d = indices.size(); d-- > before;) {
      const int64_t length = type.sizes[d].const_value();
      at[d] = ctx().constant(rest % length);
      rest /= length;
    }
    const ScalarId x = round(all[i], type.dtype);
    if (static_cast<int64_t>(i) == wanted) result = x;
    remember(node.node().outputs[output], at, x);
  }
  return result;
}

// ---- NodeBuilder -----------------------------------------------------------------------------------------------------

ScalarId NodeBuilder::constant(double value, DType dtype) {
  const DType wide = compute_dtype(dtype);
  if (is_complex(wide)) return constant_complex(value, 0, wide);
  if (!is_floating(wide)) return constant_int(static_cast<int64_t>(value), wide);
  loops::Scalar s = make_scalar(ScalarOp::kConst, wide);
  s.const_re = wide == DType::kFloat32 ? static_cast<double>(static_cast<float>(value)) : value;
  return nest_.emit(std::move(s));
}

ScalarId NodeBuilder::constant_complex(double re, double im, DType dtype) {
  loops::Scalar s = make_scalar(ScalarOp::kConst, compute_dtype(dtype));
  s.const_re = re;
  s.const_im = im;
  return nest_.emit(std::move(s));
}

ScalarId NodeBuilder::apply(ScalarOp op, DType result, std::span<const ScalarId> operands) {
  return nest_.emit(make_scalar(op, result, {operands.begin(), operands.end()}));
}

Expr NodeBuilder::indirect(ScalarId value, Expr size, bool wrap, bool check) {
  return nest_.indirect(value, size, wrap, check, mask_);
}

ScalarId NodeBuilder::load(int operand, std::span<const Expr> indices) {
  return nest_.eval(node_.operands[static_cast<size_t>(operand)], {indices.begin(), indices.end()}, mask_);
}

ScalarId NodeBuilder::load_masked(int operand, std::span<const Expr> indices, ScalarId mask, ScalarId other) {
  ScalarId both = mask;
  if (mask_ != kNoScalar && mask_ != mask) {
    both = nest_.emit(make_scalar(ScalarOp::kAnd, DType::kBool, {mask_, mask}));
  }
  const ScalarId x = nest_.eval(node_.operands[static_cast<size_t>(operand)], {indices.begin(), indices.end()}, both);
  return nest_.emit(make_scalar(ScalarOp::kSelect, nest_.dtype(x), {mask, x, nest_.cast(other, nest_.dtype(x))}));
}

}  // namespace tatara::sched
