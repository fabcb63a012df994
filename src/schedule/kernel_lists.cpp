// On a GPU, launches of the same kernel on different operands become one launch for the list of them: updates of all parameters,
// their casts, operators on lists of tensors.
#include <algorithm>
#include <map>
#include <utility>

#include "loops/list_table.h"
#include "loops/parser.h"
#include "schedule/internal.h"
#include "support/error.h"
#include "support/options.h"

namespace tatara::sched {

using namespace loops;

namespace {

constexpr const char* kItemExtent = "n";  // the symbol for what differs between items
constexpr int64_t kMoreMemory = 1 << 20;  // bytes by which scratch memory may grow, or by a 64th

/// What a step does with buffers.
struct Use {
  std::vector<BufferId> reads, writes;
};

/// The loop of a kernel that is nothing but one loop over independent elements: its extent may differ from item to item. Null for
/// other kernels.
For* free_loop(Kernel& kernel) {
  if (kernel.gpu.row > 0 || kernel.gpu.passes > 1 || kernel.gpu.column > 1) return nullptr;
  For* found = nullptr;
  for (Stmt& stmt : kernel.body.stmts) {
    auto* loop = std::get_if<For>(&stmt);
    if (loop == nullptr && !std::holds_alternative<Let>(stmt) && !std::holds_alternative<Load>(stmt)) return nullptr;
    if (loop == nullptr) continue;
    if (found != nullptr || loop->kind != LoopKind::kVector || loop->scan || !loop->carried.empty()) return nullptr;
    found = loop;
  }
  if (found == nullptr) return nullptr;
  const std::vector<Stmt>& body = found->body->stmts;
  const bool plain = std::none_of(body.begin(), body.end(), [](const Stmt& stmt) {
    return std::holds_alternative<For>(stmt) || std::holds_alternative<Transpose>(stmt) ||
           std::holds_alternative<Sort>(stmt) || std::holds_alternative<If>(stmt);
  });
  return plain ? found : nullptr;
}

/// The kernel's text with `factor` times a size of its own in the place of the extent.
std::string text_for_any_extent(Kernel& kernel, For& loop, int64_t factor) {
  ExprContext& ctx = *kernel.ctx;
  const Expr extent = loop.extent;
  const Expr size = ctx.symbol(kItemExtent, {0, INT64_MAX});
  TATARA_CHECK(std::find(kernel.sizes.begin(), kernel.sizes.end(), size) == kernel.sizes.end(), "a size named ",
               kItemExtent);
  const Expr any = ctx.mul(ctx.constant(factor), size);
  std::vector<size_t> whole;
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    if (kernel.buffers[b].numel == extent) whole.push_back(b);
  }
  const GpuMapping mapping = std::exchange(kernel.gpu, {});
  for (const size_t b : whole) kernel.buffers[b].numel = any;
  loop.extent = any;
  kernel.sizes.push_back(size);
  std::string text = print_kernel(kernel);
  kernel.sizes.pop_back();
  loop.extent = extent;
  for (const size_t b : whole) kernel.buffers[b].numel = extent;
  kernel.gpu = mapping;
  return text;
}

class ListMaker {
 public:
  explicit ListMaker(State& s)
      : s_(s), plan_(s.out.plan), uses_(plan_.steps.size()), forms_(plan_.steps.size()), at_(plan_.steps.size()) {}

  void run() {
    for (size_t i = 0; i < plan_.steps.size(); ++i) read_step(i);
    if (texts_.size() == launches_) return;  // no two are alike
    last_read_.assign(plan_.buffers.size(), 0);
    last_write_.assign(plan_.buffers.size(), 0);
    find_memory();
    open_.assign(texts_.size(), SIZE_MAX);
    for (size_t i = 0; i < plan_.steps.size(); ++i) place(i);
    const auto is_list = [](const Slot& slot) { return slot.steps.size() > 1; };
    if (std::any_of(slots_.begin(), slots_.end(), is_list)) rebuild();
  }

 private:
  /// A step of the plan to be: one of the steps so far, or several launches in one. It runs where one of these stood.
  struct Slot {
    std::vector<size_t> steps;
    size_t at = 0;
  };
  /// Bytes that lie in memory, of what comes and goes.
  struct Memory {
    int64_t arena = 0, all = 0;
  };

  // ---- What steps are ----

  void read_step(size_t i) {
    at_[i] = i;
    Use& use = uses_[i];
    if (const auto* call = std::get_if<HostCall>(&plan_.steps[i])) {
      for (const BufferRef& ref : call->tensors) {
        if (ref.buffer >= 0) use.writes.push_back(ref.buffer);  // maybe
      }
      for (const BufferId b : call->results) {
        if (b >= 0) use.writes.push_back(b);
      }
      return;
    }
    const auto& launch = std::get<KernelLaunch>(plan_.steps[i]);
    ++launches_;
    const auto number = static_cast<size_t>(launch.kernel);
    Kernel& kernel = kernel_of(launch);
    size_t next = 0;
    for (const BufferArg& arg : kernel.buffers) {
      if (arg.kind == ArgKind::kScratch) continue;
      (arg.kind == ArgKind::kInput || arg.kind == ArgKind::kValue ? use.reads : use.writes)
          .push_back(launch.buffers[next++]);
    }
    auto& known = texts_of_kernels_[&kernel];
    if (known.empty()) {
      For* const loop = free_loop(kernel);
      known = loop == nullptr ? print_kernel(kernel) : text_for_any_extent(kernel, *loop, 1);
    }
    std::string text = known;
    for (const std::string& site : plan_.kernels[number].fault_sites) text += "\n" + site;
    forms_[i] = texts_.emplace(std::move(text), texts_.size()).first->second;
  }

  Kernel& kernel_of(const KernelLaunch& launch) { return *s_.out.kernels[static_cast<size_t>(launch.kernel)]; }
  const KernelLaunch& launch_of(size_t step) const { return std::get<KernelLaunch>(plan_.steps[step]); }

  size_t words_of(size_t step) {
    const KernelLaunch& launch = launch_of(step);
    const Kernel& kernel = kernel_of(launch);
    return launch.buffers.size() + launch.sizes.size() + (has_parallel_loops(kernel) ? 1 : 0) +
           (free_loop(kernel_of(launch)) != nullptr ? 1 : 0);
  }

  // ---- Which of them go together ----

  void place(size_t i) {
    const bool launched = std::holds_alternative<KernelLaunch>(plan_.steps[i]);
    if (launched && join(i)) return;
    slots_.push_back({{i}, i});
    note_use(i, i);
    if (launched) {
      open_[forms_[i]] = slots_.size() - 1;
    } else {
      last_host_ = i + 1;
    }
  }

  /// Puts the launch into the latest list of its kind: at that one's place, or that one at this place.
  bool join(size_t i) {
    if (open_[forms_[i]] == SIZE_MAX || !launch_of(i).maps.empty()) return false;
    Slot& slot = slots_[open_[forms_[i]]];
    if (slot.steps.size() >= static_cast<size_t>(ListTable::most_items(words_of(i))) || conflicts(slot, i))
      return false;
    if (can_come(i, slot) && move({i}, slot.at)) {
      note_use(i, slot.at);
    } else if (can_wait(slot) && move(slot.steps, i)) {
      slot.at = i;
      for (const size_t step : slot.steps) note_use(step, i);
      note_use(i, i);
    } else {
      return false;
    }
    slot.steps.push_back(i);
    return true;
  }

  /// `last_read_` and `last_write_` have places plus one: 0 is never.
  void note_use(size_t step, size_t at) {
    const auto raise = [&](std::vector<size_t>& list, BufferId b) {
      size_t& value = list[static_cast<size_t>(b)];
      value = std::max(value, at + 1);
    };
    for (const BufferId b : uses_[step].reads) raise(last_read_, b);
    for (const BufferId b : uses_[step].writes) raise(last_write_, b);
  }

  bool conflicts(const Slot& slot, size_t i) const {
    return std::any_of(slot.steps.begin(), slot.steps.end(), [&](size_t other) {
      return meet(uses_[other].writes, uses_[i].reads) || meet(uses_[other].writes, uses_[i].writes) ||
             meet(uses_[other].reads, uses_[i].writes);
    });
  }
  static bool meet(const std::vector<BufferId>& a, const std::vector<BufferId>& b) {
    return std::any_of(a.begin(), a.end(), [&](BufferId x) { return std::find(b.begin(), b.end(), x) != b.end(); });
  }

  /// Whether nothing that stands after the slot so far has to do with what the step reads and writes.
  bool apart_after(const Slot& slot, size_t step) const {
    const auto before = [&](const std::vector<size_t>& last, BufferId b) {
      return last[static_cast<size_t>(b)] <= slot.at + 1;
    };
    const Use& use = uses_[step];
    return std::all_of(use.reads.begin(), use.reads.end(), [&](BufferId b) { return before(last_write_, b); }) &&
           std::all_of(use.writes.begin(), use.writes.end(),
                       [&](BufferId b) { return before(last_write_, b) && before(last_read_, b); });
  }

  bool can_come(size_t i, const Slot& slot) const {
    // What fails before the program wrote to its inputs can be run again by the host.
    const std::vector<BufferId>& writes = uses_[i].writes;
    const bool writes_input = std::any_of(writes.begin(), writes.end(), [&](BufferId b) {
      return plan_.buffers[static_cast<size_t>(b)].home == BufferHome::kInput;
    });
    return !(writes_input && last_host_ > slot.at) && apart_after(slot, i);
  }

  bool can_wait(const Slot& slot) const {
    return std::all_of(slot.steps.begin(), slot.steps.end(), [&](size_t step) { return apart_after(slot, step); });
  }

  // ---- Memory ----

  void find_memory() {
    bytes_.assign(plan_.buffers.size(), 0);
    users_.resize(plan_.buffers.size());
    lives_.resize(plan_.buffers.size());
    memory_.resize(plan_.steps.size());
    for (size_t b = 0; b < bytes_.size(); ++b) {
      const PlanBuffer& buffer = plan_.buffers[b];
      if (buffer.home == BufferHome::kArena || buffer.home == BufferHome::kHost) bytes_[b] = s_.hint(buffer.nbytes, 0);
    }
    for (size_t i = 0; i < uses_.size(); ++i) {
      for (const size_t b : coming_and_going({i})) users_[b].push_back(i);
    }
    for (size_t b = 0; b < users_.size(); ++b) {
      if (users_[b].empty()) continue;
      lives_[b] = life_of(b);
      count(b, lives_[b].first, lives_[b].second + 1, 1);
    }
    for (const Memory& now : memory_) {
      limit_.arena = std::max(limit_.arena, now.arena);
      limit_.all = std::max(limit_.all, now.all);
    }
    limit_.arena += std::max(kMoreMemory, limit_.arena / 64);
    limit_.all += std::max(kMoreMemory, limit_.all / 64);
  }

  /// Buffers in memory that comes and goes, each once.
  std::vector<size_t> coming_and_going(const std::vector<size_t>& steps) const {
    std::vector<size_t> result;
    for (const size_t step : steps) {
      for (const std::vector<BufferId>* list : {&uses_[step].reads, &uses_[step].writes}) {
        for (const BufferId b : *list) {
          if (bytes_[static_cast<size_t>(b)] > 0) result.push_back(static_cast<size_t>(b));
        }
      }
    }
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }

  /// The first and the last place where it is used.
  std::pair<size_t, size_t> life_of(size_t b) const {
    size_t first = SIZE_MAX, last = 0;
    for (const size_t step : users_[b]) {
      first = std::min(first, at_[step]);
      last = std::max(last, at_[step]);
    }
    return {first, last};
  }

  /// Counts the buffer, or no longer, at the places from `begin` to `end`. Whether memory stays within the limit there.
  bool count(size_t b, size_t begin, size_t end, int sign) {
    const bool arena = plan_.buffers[b].home == BufferHome::kArena;
    bool within = true;
    for (size_t i = begin; i < end; ++i) {
      memory_[i].all += sign * bytes_[b];
      if (arena) memory_[i].arena += sign * bytes_[b];
      within = within && memory_[i].all <= limit_.all && memory_[i].arena <= limit_.arena;
    }
    return within;
  }

  /// Moves the steps to a place, unless memory grows by that.
  bool move(const std::vector<size_t>& steps, size_t to) {
    const size_t from = at_[steps.front()];
    const std::vector<size_t> buffers = coming_and_going(steps);
    std::vector<std::pair<size_t, size_t>> before;
    for (const size_t b : buffers) before.push_back(lives_[b]);
    const auto settle = [&](size_t at) {
      for (const size_t step : steps) at_[step] = at;
      bool within = true;
      for (const int sign : {-1, 1}) {
        for (const size_t b : buffers) {
          const auto [old_first, old_last] = lives_[b];
          const auto [first, last] = life_of(b);
          // What is left of one span without the other; both are alive somewhere in common or not at all.
          const size_t begin = sign < 0 ? old_first : first, end = (sign < 0 ? old_last : last) + 1;
          const size_t other_begin = sign < 0 ? first : old_first, other_end = (sign < 0 ? last : old_last) + 1;
          const bool fits = count(b, begin, std::min(end, std::max(begin, other_begin)), sign) &
                            count(b, std::max(begin, std::min(end, other_end)), end, sign);
          within = within && (sign < 0 || fits);
        }
      }
      for (const size_t b : buffers) lives_[b] = life_of(b);
      return within;
    };
    if (settle(to)) return true;
    settle(from);
    return false;
  }

  // ---- The new plan ----

  void rebuild() {
    std::vector<PlanStep> steps;
    std::vector<std::shared_ptr<Kernel>> kernels;
    std::vector<PlanKernel> infos;
    std::sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.at < b.at; });
    for (const Slot& slot : slots_) {
      PlanStep& first = plan_.steps[slot.steps.front()];
      if (auto* launch = std::get_if<KernelLaunch>(&first)) {
        const auto from = static_cast<size_t>(launch->kernel);
        std::shared_ptr<Kernel> kernel;
        PlanKernel info;
        KernelLaunch made;
        if (slot.steps.size() > 1) {
          made = list_of(slot.steps, *(kernel = std::make_shared<Kernel>()), info);
        } else {
          made = std::move(*launch);
          kernel = std::move(s_.out.kernels[from]);
          info = std::move(plan_.kernels[from]);
        }
        made.kernel = static_cast<int>(kernels.size());
        kernels.push_back(std::move(kernel));
        infos.push_back(std::move(info));
        steps.emplace_back(std::move(made));
      } else {
        steps.push_back(std::move(first));
      }
    }
    plan_.steps = std::move(steps);
    plan_.kernels = std::move(infos);
    s_.out.kernels = std::move(kernels);
  }

  /// One launch for all of these.
  KernelLaunch list_of(const std::vector<size_t>& steps, Kernel& kernel, PlanKernel& info) {
    const KernelLaunch& one = launch_of(steps.front());
    Kernel& original = kernel_of(one);
    const std::string text = print_kernel(original);
    const bool same = free_loop(original) == nullptr || std::all_of(steps.begin(), steps.end(), [&](size_t step) {
                        const Kernel& other = kernel_of(launch_of(step));
                        return &other == &original || print_kernel(other) == text;
                      });
    int64_t factor = 0;  // of the extents, where these are arguments
    if (same) {
      kernel = parse_kernel(text);  // others may run the original, too
    } else {
      kernel = kernel_for_extents(steps, factor);
    }
    KernelLaunch list;
    for (const size_t step : steps) {
      const KernelLaunch& launch = launch_of(step);
      TATARA_CHECK(launch.buffer_offsets.empty(), "a list of kernels with offsets");
      const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
      append(list.buffers, launch.buffers);
      append(list.sizes, launch.sizes);
      if (has_parallel_loops(kernel)) list.sizes.push_back(launch.parallel_iterations);
      Expr blocks = kernel.gpu.resident > 0 ? launch.parallel_iterations : launch.gpu_blocks;
      if (!same) {
        const Expr extent = s_.ctx.import(free_loop(kernel_of(launch))->extent);
        list.sizes.push_back(factor == 1 ? extent : s_.ctx.constant(extent.const_value() / factor));
        blocks = gpu_blocks(s_, kernel.gpu, s_.ctx.constant(1), extent);
      }
      list.item_blocks.push_back(blocks);
      list.gpu_blocks = list.gpu_blocks.valid() ? list.gpu_blocks + blocks : blocks;
      list.work = list.work.valid() ? list.work + launch.work : launch.work;
      add_info(info, plan_.kernels[static_cast<size_t>(launch.kernel)]);
    }
    const ListTable table = ListTable::of(steps.size(), (list.buffers.size() + list.sizes.size()) / steps.size());
    TATARA_CHECK(steps.size() <= static_cast<size_t>(table.items), "a list of ", steps.size(), " items");
    kernel.gpu.items = list.list_items = table.items;
    kernel.name = info.name += "_list";
    list.gpu_threads = kernel.gpu.threads;
    list.gpu_shared = kernel.gpu.shared;
    list.gpu_blocks = s_.simplify(list.gpu_blocks);
    list.work = s_.simplify(list.work);
    list.parallel_iterations = s_.ctx.constant(1);
    s_.note(info.name, str_cat("one launch for ", steps.size()));
    return list;
  }

  /// The kernel whose extent is `factor` times its last size.
  Kernel kernel_for_extents(const std::vector<size_t>& steps, int64_t& factor) {
    Kernel& original = kernel_of(launch_of(steps.front()));
    const auto made_for = [&](int64_t by) {
      Kernel made = parse_kernel(text_for_any_extent(original, *free_loop(original), by));
      made.gpu = gpu_mapping(made, *s_.options.gpu, 1);
      return made;
    };
    factor = 1;
    Kernel made = made_for(1);
    const int lanes = made.gpu.lanes;
    const bool even = std::all_of(steps.begin(), steps.end(), [&](size_t step) {
      const Expr extent = free_loop(kernel_of(launch_of(step)))->extent;
      return extent.is_const() && extent.const_value() % lanes == 0;
    });
    if (lanes == 1 || !even) return made;
    factor = lanes;  // nothing is left over after whole vectors
    return made_for(lanes);
  }

  static void add_info(PlanKernel& to, const PlanKernel& from) {
    if (to.name.empty()) {
      to.name = from.name;
      to.fused_ops = from.fused_ops;
      to.fault_sites = from.fault_sites;
    }
    to.nodes.insert(to.nodes.end(), from.nodes.begin(), from.nodes.end());
    to.bytes_read += from.bytes_read;
    to.bytes_written += from.bytes_written;
  }

  State& s_;
  Plan& plan_;
  std::vector<Use> uses_;                // per step
  std::vector<size_t> forms_;            // per step that is a launch: what it has in common with those of its kind
  std::map<std::string, size_t> texts_;  // of forms
  std::unordered_map<const Kernel*, std::string> texts_of_kernels_;
  size_t launches_ = 0;
  std::vector<Slot> slots_;
  std::vector<size_t> at_;                      // per step: its place, a number of a step
  std::vector<size_t> open_;                    // per form: the latest slot
  std::vector<size_t> last_read_, last_write_;  // per buffer
  size_t last_host_ = 0;
  std::vector<int64_t> bytes_;                    // per buffer that comes and goes
  std::vector<std::vector<size_t>> users_;        // per buffer: steps
  std::vector<std::pair<size_t, size_t>> lives_;  // per buffer: places
  std::vector<Memory> memory_;                    // per place
  Memory limit_;
};

}  // namespace

void form_lists(State& s) {
  if (!s.options.gpu || !s.options.fuse || s.options.passes.skips("grouped_launches")) return;
  ListMaker(s).run();
}

}  // namespace tatara::sched
