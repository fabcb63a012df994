// Where values live: inputs, outputs, results of the host, and one arena whose parts are used again when values die.
#include <algorithm>
#include <unordered_map>

#include "schedule/arena_places.h"
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
  const std::vector<Expr>& strides = exact ? s.graph.type(v).strides : storage_strides(s, v);
  Storage storage;
  storage.buffer = add_buffer(s, home, index, v, strides);
  storage.strides = &strides;
  storage.offset = s.ctx.constant(0);
  s.values[static_cast<size_t>(v)].storage = std::move(storage);
}

bool is_host_owned(State& s, ValueId v) {
  const LoweredNode* node = s.producer(v);
  return node != nullptr && node->kind == LoweredNode::Kind::kHost && node->node().op->host_overload != "out";
}

/// Per unit: its place in the order.
std::vector<int> positions(const State& s) {
  std::vector<int> result(s.units.size(), -1);
  for (size_t i = 0; i < s.order.size(); ++i) result[static_cast<size_t>(s.order[i])] = static_cast<int>(i);
  return result;
}

/// Whether a unit behind the one of `value`, or at its place, reads the earlier contents `before` of the memory that it writes to.
bool read_later(const State& s, ValueId before, int unit, const std::vector<int>& position) {
  const InlineVec<int, 2>& readers = s.readers[static_cast<size_t>(before)];
  return std::any_of(readers.begin(), readers.end(), [&](int u) {
    return u != unit && position[static_cast<size_t>(u)] >= position[static_cast<size_t>(unit)];
  });
}

/// The place in the order of the last unit that looks at conditions of the program; -1: none does.
int last_decision(const State& s, const std::vector<int>& position) {
  int last = -1;
  for (size_t n = 0; n < s.graph.num_nodes(); ++n) {
    const Node& node = s.graph.node(static_cast<NodeId>(n));
    if (!node.op->decides || s.nodes[n] == nullptr) continue;
    const int unit = s.values[static_cast<size_t>(node.outputs[0])].unit;
    if (unit >= 0) last = std::max(last, position[static_cast<size_t>(unit)]);
  }
  return last;
}

/// The values that may be computed straight into the input, from the last one on: no later unit reads what was there before, and
/// the unit itself reads that only where it writes. Writes to parts of the input one after the other are several. Empty: none may,
/// or a condition reads one of them (a counter of steps), before which nothing is written: units up to `decided` look at it.
std::vector<ValueId> values_in_place(State& s, const InputWrite& write, ValueId base, const std::vector<int>& position,
                                     int decided) {
  if (base != write.value) return {};
  const ValueId input = s.graph.inputs()[static_cast<size_t>(write.input_index)];
  const TensorType& type = s.graph.type(input);
  if (repeats(type)) return {};
  std::vector<ValueId> result;
  for (ValueId value = base; value != input;) {
    const ValueInfo& info = s.values[static_cast<size_t>(value)];
    if (info.storage || info.unit < 0 || position[static_cast<size_t>(info.unit)] <= decided) return {};
    const Unit& unit = s.units[static_cast<size_t>(info.unit)];
    const bool is_scatter = unit.kind == Unit::Kind::kScatter;
    if (!is_scatter && (unit.kind != Unit::Kind::kGroup || unit.group.space->has_reduction)) return {};
    if (type.dtype != s.graph.type(value).dtype || !(type.sizes == s.graph.type(value).sizes)) return {};
    ValueId before = input;
    if (is_scatter) {
      const LoweredNode& node = *s.nodes[static_cast<size_t>(unit.node)];
      before = node.operands[static_cast<size_t>(node.scatter_def().base_operand)];
      if (unit.operand_reads.contains(before) && !reads_apart(s, node)) return {};
    } else if (unit.reads.contains(input) && !reads_elementwise(s, info.unit, input)) {
      return {};  // only loads at the place of the element, decided from the members' expressions
    }
    if (read_later(s, before, info.unit, position)) return {};
    result.push_back(value);
    value = before;
  }
  return result;
}

/// What a scatter starts from, and nothing reads later, is computed where the result will be.
void start_in_place(State& s, int number, const std::vector<int>& position) {
  const Unit& unit = s.units[static_cast<size_t>(number)];
  if (unit.kind != Unit::Kind::kScatter) return;
  const LoweredNode& node = *s.nodes[static_cast<size_t>(unit.node)];
  const ValueId result = node.node().outputs[0];
  const ValueId base = node.operands[static_cast<size_t>(node.scatter_def().base_operand)];
  const auto& target = s.values[static_cast<size_t>(result)].storage;
  auto& source = s.values[static_cast<size_t>(base)].storage;
  if (!source || !target || (unit.operand_reads.contains(base) && !reads_apart(s, node))) return;
  if (s.out.plan.buffers[static_cast<size_t>(source->buffer)].home != BufferHome::kArena) return;
  const BufferHome home = s.out.plan.buffers[static_cast<size_t>(target->buffer)].home;
  if (home != BufferHome::kArena && home != BufferHome::kOutput) return;
  const TensorType &from = s.graph.type(base), &to = s.graph.type(result);
  if (from.dtype != to.dtype || !(from.sizes == to.sizes) || !(*source->strides == *target->strides)) return;
  if (read_later(s, base, number, position)) return;
  source = target;
  s.note(s.name_of(base), str_cat("computed where ", s.name_of(result), " will be"));
}

}  // namespace

void create_buffers(State& s) {
  for (size_t i = 0; i < s.graph.inputs().size(); ++i) {
    const ValueId v = s.graph.inputs()[i];
    Storage storage;
    storage.strides = &s.graph.type(v).strides;
    storage.buffer = add_buffer(s, BufferHome::kInput, static_cast<int>(i), v, *storage.strides);
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
      // A value that is the output itself has the output's strides, gaps and all. So has a part of what is never whole.
      const LoweredNode* const node = s.producer(base);
      const bool is_part = node != nullptr && node->kind == LoweredNode::Kind::kView;
      const bool exact = (base == output.value || is_part) && !repeats(s.graph.type(base));
      give(s, base, BufferHome::kOutput, slot++, exact);
    }
  }
  const std::vector<int> position = positions(s);
  const int decided = last_decision(s, position);
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
    std::vector<ValueId> in_place;
    if (!written.contains(write.input_index)) in_place = values_in_place(s, write, base, position, decided);
    for (const ValueId value : in_place) {
      s.values[static_cast<size_t>(value)].storage =
          s.values[static_cast<size_t>(s.graph.inputs()[static_cast<size_t>(write.input_index)])].storage;
      s.note(s.name_of(value), str_cat("computed into input ", write.input_index));
    }
    if (in_place.empty()) copies.push_back(write);
    written.insert(write.input_index);
  }
  for (const InputWrite& write : copies) {
    Unit unit;
    unit.kind = Unit::Kind::kCopy;
    unit.value = write.value;
    unit.input = write.input_index;
    const ValueId source = base_of(s, write.value);
    unit.reads.insert(source);
    s.readers[static_cast<size_t>(source)].push_back(static_cast<int>(s.units.size()));
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
  for (size_t i = s.order.size(); i-- > 0;) start_in_place(s, s.order[i], position);
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
  for (const auto& [step, target, source] : s.in_place) {
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
  const auto rounded = [](int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; };
  struct Fixed {
    size_t buffer;
    int64_t bytes;
  };
  std::vector<Fixed> fixed;
  std::vector<size_t> symbolic;
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    if (plan.buffers[b].home != BufferHome::kArena) continue;
    plan.buffers[b].offset = s.ctx.constant(0);
    if (lives[b].last < 0 || places[b] >= 0) continue;
    if (plan.buffers[b].nbytes.is_const()) {
      fixed.push_back({b, plan.buffers[b].nbytes.const_value()});
    } else {
      symbolic.push_back(b);
    }
  }
  // Largest first, each at the lowest offset that no buffer alive at the same time covers.
  std::stable_sort(fixed.begin(), fixed.end(), [](const Fixed& a, const Fixed& b) { return a.bytes > b.bytes; });
  const int steps = static_cast<int>(plan.steps.size());
  const auto life_of = [&](size_t b) { return s.options.plan_memory ? lives[b] : Lifetime{0, steps - 1}; };
  ArenaPlaces arena(steps);
  for (const auto& [b, bytes] : fixed) {
    const Lifetime life = life_of(b);
    plan.buffers[b].offset = s.ctx.constant(arena.place(life.first, life.last, rounded(bytes)));
  }
  const int64_t total = arena.bytes();
  // Symbolic sizes: a slot is used again by buffers of the same size only.
  struct Slots {
    ArenaPlaces numbers;
    std::vector<Expr> offsets;
  };
  std::unordered_map<Expr, Slots, ExprHash> slots;
  Expr end = s.ctx.constant(total);
  for (const size_t b : symbolic) {
    const Expr nbytes = plan.buffers[b].nbytes;
    Slots& same = slots.try_emplace(nbytes, Slots{ArenaPlaces(steps), {}}).first->second;
    const Lifetime life = life_of(b);
    const auto number = static_cast<size_t>(same.numbers.place(life.first, life.last, 1));
    if (number == same.offsets.size()) {
      same.offsets.push_back(end);
      end = end + s.ctx.ceildiv(nbytes, s.ctx.constant(kAlign)) * s.ctx.constant(kAlign);
    }
    plan.buffers[b].offset = same.offsets[number];
  }
  for (size_t b = 0; b < places.size(); ++b) {
    if (places[b] >= 0) plan.buffers[b].offset = plan.buffers[static_cast<size_t>(places[b])].offset;
  }
  plan.arena_bytes = s.simplify(end);
}

}  // namespace tatara::sched
