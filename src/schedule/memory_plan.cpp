// Where values live: inputs, outputs, results of the host, and one arena whose parts are used again when values die.
#include <algorithm>

#include "schedule/internal.h"
#include "support/error.h"

namespace tatara::sched {

namespace {

constexpr int64_t kAlign = 64;

BufferId add_buffer(State& s, BufferHome home, int index, ValueId v, const std::vector<Expr>& strides) {
  const TensorType& type = s.graph.type(v);
  PlanBuffer buffer;
  buffer.home = home;
  buffer.index = index;
  buffer.dtype = type.dtype;
  buffer.device = type.device;
  buffer.sizes = type.sizes;
  buffer.strides = strides;
  // Addressable bytes; nothing when a dimension is empty.
  Expr span = s.ctx.constant(1);
  bool empty = false;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    span = span + (type.sizes[d] - 1) * strides[d];
    empty = empty || type.sizes[d].is_const(0);
  }
  buffer.nbytes = empty ? s.ctx.constant(0) : s.simplify(span * s.ctx.constant(dtype_size(type.dtype)));
  s.out.plan.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(s.out.plan.buffers.size()) - 1;
}

void give(State& s, ValueId v, BufferHome home, int index, bool exact = false) {
  const std::vector<Expr> strides = exact ? s.graph.type(v).strides : storage_strides(s, v);
  Storage storage;
  storage.buffer = add_buffer(s, home, index, v, strides);
  storage.strides = strides;
  storage.offset = s.ctx.constant(0);
  s.values[static_cast<size_t>(v)].storage = std::move(storage);
}

bool is_host_owned(State& s, ValueId v) {
  const LoweredNode* node = s.producer(v);
  return node != nullptr && node->kind == LoweredNode::Kind::kHost && node->node().op->host_overload != "out";
}

int position(State& s, int unit) {
  const auto found = std::find(s.order.begin(), s.order.end(), unit);
  return found == s.order.end() ? -1 : static_cast<int>(found - s.order.begin());
}

/// Whether the value may be computed straight into the input: no later unit reads the old contents, and the unit itself
/// reads them only where it writes.
bool writable_in_place(State& s, const InputWrite& write, ValueId base) {
  if (base != write.value) return false;
  const ValueInfo& info = s.values[static_cast<size_t>(base)];
  if (info.storage || info.unit < 0) return false;
  const Unit& unit = s.units[static_cast<size_t>(info.unit)];
  const bool is_scatter = unit.kind == Unit::Kind::kScatter;
  if (!is_scatter && (unit.kind != Unit::Kind::kGroup || unit.group.has_reduction)) return false;
  const ValueId input = s.graph.inputs()[static_cast<size_t>(write.input_index)];
  const TensorType& type = s.graph.type(input);
  if (type.dtype != s.graph.type(base).dtype || !(type.sizes == s.graph.type(base).sizes)) return false;
  for (const Expr stride : type.strides) {
    if (stride.is_const(0)) return false;
  }
  const int mine = position(s, info.unit);
  for (size_t u = 0; u < s.units.size(); ++u) {
    if (static_cast<int>(u) != info.unit && s.units[u].reads.contains(input) &&
        position(s, static_cast<int>(u)) >= mine) {
      return false;
    }
  }
  if (is_scatter) {
    const LoweredNode& node = *s.nodes[static_cast<size_t>(unit.node)];
    const ValueId from = node.operands[static_cast<size_t>(node.scatter_def.base_operand)];
    return from == input && !unit.operand_reads.contains(input);
  }
  if (unit.reads.contains(input)) {
    // Only plain elementwise reads: decided from the members' expressions being over the same sizes with one load each.
    return reads_elementwise(s, info.unit, input);
  }
  return true;
}

/// What a scatter starts from, and nothing else reads, is computed where the result will be.
void start_in_place(State& s, int number) {
  const Unit& unit = s.units[static_cast<size_t>(number)];
  if (unit.kind != Unit::Kind::kScatter) return;
  const LoweredNode& node = *s.nodes[static_cast<size_t>(unit.node)];
  const ValueId result = node.node().outputs[0];
  const ValueId base = node.operands[static_cast<size_t>(node.scatter_def.base_operand)];
  const auto& target = s.values[static_cast<size_t>(result)].storage;
  auto& source = s.values[static_cast<size_t>(base)].storage;
  if (!source || !target || unit.operand_reads.contains(base)) return;
  if (s.out.plan.buffers[static_cast<size_t>(source->buffer)].home != BufferHome::kArena) return;
  const BufferHome home = s.out.plan.buffers[static_cast<size_t>(target->buffer)].home;
  if (home != BufferHome::kArena && home != BufferHome::kOutput) return;
  const TensorType &from = s.graph.type(base), &to = s.graph.type(result);
  if (from.dtype != to.dtype || !(from.sizes == to.sizes) || !(source->strides == target->strides)) return;
  for (size_t u = 0; u < s.units.size(); ++u) {
    if (static_cast<int>(u) != number && s.units[u].reads.contains(base)) return;
  }
  source = target;
  s.note(s.name_of(base), str_cat("computed where ", s.name_of(result), " will be"));
}

}  // namespace

void create_buffers(State& s) {
  for (size_t i = 0; i < s.graph.inputs().size(); ++i) {
    const ValueId v = s.graph.inputs()[i];
    Storage storage;
    storage.strides = s.graph.type(v).strides;
    storage.buffer = add_buffer(s, BufferHome::kInput, static_cast<int>(i), v, storage.strides);
    storage.offset = s.ctx.constant(0);
    s.values[static_cast<size_t>(v)].storage = std::move(storage);
  }
}

BufferId add_scratch(State& s, DType dtype, const std::vector<Expr>& sizes) {
  PlanBuffer buffer;
  buffer.dtype = dtype;
  buffer.sizes = sizes;
  buffer.strides = contiguous_strides(s.ctx, sizes);
  Expr count = s.ctx.constant(1);
  for (const Expr e : sizes) count = count * e;
  buffer.nbytes = s.simplify(count * s.ctx.constant(dtype_size(dtype)));
  s.out.plan.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(s.out.plan.buffers.size()) - 1;
}

void plan_outputs(State& s) {
  int slot = 0;
  for (const GraphOutput& output : s.graph.outputs()) {
    if (output.value == kNoValue || output.alias.kind != OutputAlias::Kind::kFresh) continue;
    const ValueId base = base_of(s, output.value);
    if (s.values[static_cast<size_t>(base)].storage) continue;
    if (is_host_owned(s, base)) {
      give(s, base, BufferHome::kHost, -1);
    } else {
      // A value that is the output itself has the output's strides, gaps and all.
      const TensorType& type = s.graph.type(base);
      bool exact = base == output.value;
      for (size_t d = 0; d < type.sizes.size(); ++d)
        exact = exact && (type.sizes[d].is_const(1) || !type.strides[d].is_const(0));
      give(s, base, BufferHome::kOutput, slot++, exact);
    }
  }
  std::vector<InputWrite> copies;
  std::set<int> written;
  for (const InputWrite& write : s.graph.input_writes()) {
    const ValueId base = base_of(s, write.value);
    if (s.graph.value(base).input_index >= 0) {
      // Reading one input while others are overwritten: safe only when the one read is not itself overwritten.
      for (const InputWrite& other : s.graph.input_writes()) {
        if (other.input_index == s.graph.value(base).input_index && other.input_index != write.input_index) {
          throw Unsupported("inputs that exchange their contents");
        }
      }
    }
    if (!written.contains(write.input_index) && writable_in_place(s, write, base)) {
      s.values[static_cast<size_t>(base)].storage =
          s.values[static_cast<size_t>(s.graph.inputs()[static_cast<size_t>(write.input_index)])].storage;
      s.note(s.name_of(base), str_cat("computed into input ", write.input_index));
    } else {
      copies.push_back(write);
    }
    written.insert(write.input_index);
  }
  for (const InputWrite& write : copies) {
    Unit unit;
    unit.kind = Unit::Kind::kCopy;
    unit.value = write.value;
    unit.input = write.input_index;
    unit.reads.insert(base_of(s, write.value));
    s.order.push_back(static_cast<int>(s.units.size()));
    s.units.push_back(std::move(unit));
  }
  // Everything else that is read from memory lives in the arena or comes from the host.
  for (size_t i = 0; i < s.values.size(); ++i) {
    const ValueInfo& info = s.values[i];
    const auto v = static_cast<ValueId>(i);
    if (!info.root || info.storage || s.graph.value(v).producer < 0) continue;
    if (s.producer(v) == nullptr) continue;
    const auto kind = s.producer(v)->kind;
    if (!info.stored && kind != LoweredNode::Kind::kHost) continue;
    give(s, v, is_host_owned(s, v) ? BufferHome::kHost : BufferHome::kArena, -1);
  }
  // From the last one on: what a scatter starts from may be the result of another.
  for (size_t i = s.order.size(); i-- > 0;) start_in_place(s, s.order[i]);
}

namespace {

struct Lifetime {
  int first = INT32_MAX;
  int last = -1;
};

std::vector<Lifetime> lifetimes(const Plan& plan) {
  std::vector<Lifetime> result(plan.buffers.size());
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const auto touch = [&](BufferId b) {
      if (b < 0) return;
      Lifetime& life = result[static_cast<size_t>(b)];
      life.first = std::min(life.first, static_cast<int>(i));
      life.last = std::max(life.last, static_cast<int>(i));
    };
    if (const auto* launch = std::get_if<KernelLaunch>(&plan.steps[i])) {
      for (const BufferId b : launch->buffers) touch(b);
    } else {
      for (const BufferRef& ref : std::get<HostCall>(plan.steps[i]).tensors) touch(ref.buffer);
    }
  }
  return result;
}

bool overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

/// Buffers that take the place of one that dies in the kernel that writes them; -1: none. Lifetimes are joined.
std::vector<BufferId> take_places(State& s, std::vector<Lifetime>& lives) {
  const Plan& plan = s.out.plan;
  std::vector<BufferId> taken(plan.buffers.size(), -1);
  const auto owner = [&](BufferId b) {
    while (taken[static_cast<size_t>(b)] >= 0) b = taken[static_cast<size_t>(b)];
    return static_cast<size_t>(b);
  };
  const auto is_arena = [&](BufferId b) { return plan.buffers[static_cast<size_t>(b)].home == BufferHome::kArena; };
  std::set<BufferId> given;
  for (const auto& [step, pairs] : s.in_place) {
    for (const auto& [target, source] : pairs) {
      if (!is_arena(target) || !is_arena(source) || taken[static_cast<size_t>(target)] >= 0) continue;
      const Lifetime& mine = lives[static_cast<size_t>(target)];
      // The source's whole place must be free from here on: nobody else may have moved in.
      if (mine.first != static_cast<int>(step) || lives[owner(source)].last != static_cast<int>(step)) continue;
      if (!(plan.buffers[static_cast<size_t>(target)].nbytes == plan.buffers[owner(source)].nbytes)) continue;
      if (!given.insert(source).second) continue;
      lives[owner(source)].last = mine.last;
      taken[static_cast<size_t>(target)] = source;
      s.note(str_cat("buffer ", target), str_cat("takes the place of buffer ", source));
    }
  }
  for (size_t b = 0; b < taken.size(); ++b) {
    if (taken[b] >= 0) taken[b] = static_cast<BufferId>(owner(static_cast<BufferId>(b)));
  }
  return taken;
}

}  // namespace

void plan_arena(State& s) {
  Plan& plan = s.out.plan;
  std::vector<Lifetime> lives = lifetimes(plan);
  const std::vector<BufferId> places =
      s.options.plan_memory ? take_places(s, lives) : std::vector<BufferId>(plan.buffers.size(), -1);
  std::vector<size_t> fixed;
  std::vector<size_t> symbolic;
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].home != BufferHome::kArena) continue;
    plan.buffers[b].offset = s.ctx.constant(0);
    if (lives[b].last < 0 || places[b] >= 0) continue;
    (plan.buffers[b].nbytes.is_const() ? fixed : symbolic).push_back(b);
  }
  const auto rounded = [](int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; };
  // Largest first, each at the lowest offset that no buffer alive at the same time covers.
  std::stable_sort(fixed.begin(), fixed.end(), [&](size_t a, size_t b) {
    return plan.buffers[a].nbytes.const_value() > plan.buffers[b].nbytes.const_value();
  });
  std::vector<size_t> placed;
  int64_t total = 0;
  for (const size_t b : fixed) {
    const int64_t bytes = rounded(plan.buffers[b].nbytes.const_value());
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const size_t other : placed) {
      if (s.options.plan_memory && !overlap(lives[b], lives[other])) continue;
      const int64_t at = plan.buffers[other].offset.const_value();
      taken.emplace_back(at, at + rounded(plan.buffers[other].nbytes.const_value()));
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + bytes <= begin) break;
      offset = std::max(offset, end);
    }
    plan.buffers[b].offset = s.ctx.constant(offset);
    total = std::max(total, offset + bytes);
    placed.push_back(b);
  }
  // Symbolic sizes: a slot is used again by buffers of the same size only.
  struct Slot {
    Expr nbytes;
    Expr offset;
    std::vector<size_t> users;
  };
  std::vector<Slot> slots;
  Expr end = s.ctx.constant(total);
  for (const size_t b : symbolic) {
    Slot* found = nullptr;
    for (Slot& slot : slots) {
      if (!s.options.plan_memory || !(slot.nbytes == plan.buffers[b].nbytes)) continue;
      if (std::none_of(slot.users.begin(), slot.users.end(), [&](size_t u) { return overlap(lives[u], lives[b]); })) {
        found = &slot;
        break;
      }
    }
    if (found == nullptr) {
      slots.push_back({plan.buffers[b].nbytes, end, {}});
      found = &slots.back();
      end = end + s.ctx.ceildiv(found->nbytes, s.ctx.constant(kAlign)) * s.ctx.constant(kAlign);
    }
    found->users.push_back(b);
    plan.buffers[b].offset = found->offset;
  }
  for (size_t b = 0; b < places.size(); ++b) {
    if (places[b] >= 0) plan.buffers[b].offset = plan.buffers[static_cast<size_t>(places[b])].offset;
  }
  plan.arena_bytes = s.simplify(end);
}

}  // namespace tatara::sched
