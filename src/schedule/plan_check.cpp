#include "schedule/plan_check.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schedule/plan_fields.h"
#include "support/error.h"

namespace tatara {
namespace {

using loops::ArgKind;
using plan_fields::Of;

constexpr int64_t kPlanAlign = 64;
constexpr int64_t kMostBlocks = INT32_MAX;  // of a launch on a GPU
constexpr int32_t kMostNodes = 1 << 30;

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw CompilationError(str_cat("a cached plan is wrong: ", parts...));
}

template <typename... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) refuse(parts...);
}

int64_t times(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) refuse("a size that is too large");
  return result;
}

int64_t plus(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) refuse("a size that is too large");
  return result;
}

int64_t value_of(const Expr& e, const char* what) {
  require(e.valid() && e.is_const(), what, " is no number");
  return e.const_value();
}

/// Elements that a layout reaches, counted from its base: the lowest and the highest.
struct Reach {
  int64_t low = 0, high = 0;
  bool empty = false;
};

Reach reach_of(const std::vector<Expr>& sizes, const std::vector<Expr>& strides) {
  require(sizes.size() == strides.size(), "a layout with ", sizes.size(), " sizes and ", strides.size(), " strides");
  Reach reach;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t size = value_of(sizes[d], "a size"), stride = value_of(strides[d], "a stride");
    require(size >= 0, "a negative size");
    reach.empty = reach.empty || size == 0;
    const int64_t last = times(size - 1, stride);
    if (size > 0) (last < 0 ? reach.low : reach.high) = plus(last < 0 ? reach.low : reach.high, last);
  }
  return reach;
}

/// One past the last element, as the scheduler counts what a kernel may address.
int64_t span_of(const std::vector<Expr>& sizes, const std::vector<Expr>& strides) {
  int64_t span = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    span = plus(span, times(sizes[d].const_value() - 1, strides[d].const_value()));
  }
  return span;
}

/// Every index counts something that is there.
class Indices {
 public:
  static constexpr bool kReading = false;
  explicit Indices(const Plan& plan) : plan_(plan) {}

  void index(const int& value, Of of, bool none) const {
    const int64_t end = count_of(of);
    require((none && value == -1) || (value >= 0 && value < end), "number ", value, " of ", end);
  }
  void enter(const HostCall& call) { tensors_ = call.tensors.size(); }
  uint64_t count(uint64_t n) const { return n; }
  template <typename T>
  void number(const T&) const {}
  template <typename E>
  void choice(const E&) const {}
  void flag(const bool&) const {}
  void text(const std::string&) const {}
  void expr(const Expr& e) const { require(!e.valid() || e.is_const(), "a size that is no number"); }

 private:
  int64_t count_of(Of of) const {
    const auto size = [](const auto& list) { return static_cast<int64_t>(list.size()); };
    switch (of) {
      case Of::kBuffers: return size(plan_.buffers);
      case Of::kKernels: return size(plan_.kernels);
      case Of::kInputs: return size(plan_.inputs);
      case Of::kOutputs: return size(plan_.outputs);
      case Of::kSteps: return size(plan_.steps);
      case Of::kTensors: return static_cast<int64_t>(tensors_);
      case Of::kNodes:
      case Of::kValues: return kMostNodes;  // of a graph that is not kept
    }
    return 0;
  }

  const Plan& plan_;
  size_t tensors_ = 0;
};

/// The kernel's buffers that a launch passes, in order.
std::vector<const loops::BufferArg*> passed(const loops::Kernel& kernel) {
  std::vector<const loops::BufferArg*> args;
  for (const loops::BufferArg& arg : kernel.buffers) {
    if (arg.kind != ArgKind::kScratch) args.push_back(&arg);
  }
  return args;
}

bool writes(const loops::BufferArg& arg) { return arg.kind == ArgKind::kOutput || arg.kind == ArgKind::kInOut; }

class Verifier {
 public:
  Verifier(const Plan& plan, const Graph& graph, std::span<const loops::Kernel* const> kernels)
      : plan_(plan), graph_(graph), kernels_(kernels) {}

  void run() {
    require(plan_.size_symbols.empty(), "sizes that are not known");
    require(kernels_.size() == plan_.kernels.size(), "it has other kernels");
    Indices indices(plan_);
    Plan copy = plan_;  // the shared description takes mutable references
    plan_fields::fields(indices, copy);
    check_edges();
    for (const PlanBuffer& buffer : plan_.buffers) check_buffer(buffer);
    check_slots();
    check_kernels();
    uses_.resize(plan_.buffers.size());
    for (at_ = 0; at_ < plan_.steps.size(); ++at_) {
      std::visit([&](const auto& step) { check_step(step); }, plan_.steps[at_]);
    }
    for (size_t i = 0; i < plan_.outputs.size(); ++i) check_output(plan_.outputs[i], graph_.outputs()[i]);
    require(plan_.first_write == first_write_of(plan_, kernels_), "another step is the first that writes to an input");
    check_arena();
  }

 private:
  // ---- Inputs, outputs, buffers ----

  void check_edges() {
    require(plan_.inputs.size() == graph_.inputs().size(), "it has other inputs");
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      const TensorType &own = plan_.inputs[i].type, &wanted = graph_.type(graph_.inputs()[i]);
      require(own.dtype == wanted.dtype && own.device == wanted.device && same(own.sizes, wanted.sizes) &&
                  same(own.strides, wanted.strides) && own.is_wrapped_number == wanted.is_wrapped_number,
              "input ", i, " is another");
    }
    require(plan_.input_writes.size() == graph_.input_writes().size(), "it writes to other inputs");
    for (size_t i = 0; i < plan_.input_writes.size(); ++i) {
      require(plan_.input_writes[i].input_index == graph_.input_writes()[i].input_index, "it writes to other inputs");
      require(plan_.input_writes[i].times == graph_.input_writes()[i].times, "its writes are counted otherwise");
      written_inputs_.insert(plan_.input_writes[i].input_index);
    }
    require(plan_.outputs.size() == graph_.outputs().size(), "it has other outputs");
    // Memory of no value of the graph (partial results) is on no device in particular.
    devices_.emplace(Device{}.kind, Device{}.index);
    for (size_t v = 0; v < graph_.num_values(); ++v) {
      const Device& device = graph_.type(static_cast<ValueId>(v)).device;
      devices_.emplace(device.kind, device.index);
    }
  }

  static bool same(const std::vector<Expr>& a, const std::vector<Expr>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Expr& x, const Expr& y) {
      return x.valid() && y.valid() && x.is_const() && y.is_const() && x.const_value() == y.const_value();
    });
  }

  void check_buffer(const PlanBuffer& buffer) {
    const Reach reach = reach_of(buffer.sizes, buffer.strides);
    const int64_t bytes = reach.empty ? 0 : times(span_of(buffer.sizes, buffer.strides), dtype_size(buffer.dtype));
    require(value_of(buffer.nbytes, "a buffer's length") == bytes, "a buffer's length");
    require(devices_.contains(std::pair(buffer.device.kind, buffer.device.index)), "a buffer on another device");
    const bool arena = buffer.home == BufferHome::kArena;
    const bool numbered = buffer.home == BufferHome::kInput || buffer.home == BufferHome::kOutput;
    require(numbered || buffer.index == -1, "a number of a buffer that has none");
    require(buffer.constant.empty() || buffer.home == BufferHome::kConstant, "bytes of a buffer that has none");
    require(arena || !buffer.offset.valid() || buffer.offset.const_value() == 0, "a place of a buffer that has none");
    if (buffer.home != BufferHome::kInput) require(reach.low >= 0, "a buffer that begins before its memory");
    if (buffer.home == BufferHome::kConstant) {
      require(static_cast<int64_t>(buffer.constant.size()) >= bytes, "a constant that is too short");
    }
    if (arena) {
      const int64_t offset = value_of(buffer.offset, "a place in the arena");
      require(offset >= 0 && offset % kPlanAlign == 0, "a place in the arena");
    }
  }

  /// Each input has one buffer, and outputs are numbered from 0 on.
  void check_slots() {
    std::vector<bool> inputs(plan_.inputs.size()), outputs;
    for (const PlanBuffer& buffer : plan_.buffers) {
      if (buffer.home == BufferHome::kInput) {
        const auto index = static_cast<size_t>(buffer.index);
        require(index < inputs.size() && !inputs[index], "input ", buffer.index, " has another buffer");
        inputs[index] = true;
        const TensorType& type = plan_.inputs[index].type;
        require(buffer.dtype == type.dtype && buffer.device == type.device && same(buffer.sizes, type.sizes) &&
                    same(buffer.strides, type.strides),
                "the buffer of input ", index, " is another");
      } else if (buffer.home == BufferHome::kOutput) {
        const auto index = static_cast<size_t>(buffer.index);
        require(index < plan_.outputs.size(), "output buffer ", buffer.index);
        if (outputs.size() <= index) outputs.resize(index + 1);
        require(!outputs[index], "output buffer ", index, " is there twice");
        outputs[index] = true;
      }
    }
    require(std::find(outputs.begin(), outputs.end(), false) == outputs.end(), "an output buffer is missing");
  }

  void check_output(const PlanOutput& output, const GraphOutput& wanted) const {
    const BufferRef& ref = output.ref;
    if (wanted.value == kNoValue) {
      require(ref.buffer == -1 && output.alias.kind == wanted.alias.kind, "an output that is none");
      return;
    }
    const TensorType& type = graph_.type(wanted.value);
    require(ref.dtype == type.dtype && same(ref.sizes, type.sizes), "an output of another type");
    check_reference(ref);
    using Kind = OutputAlias::Kind;
    const PlanBuffer& buffer = buffer_of(ref.buffer);
    const OutputAlias& alias = output.alias;
    if (alias.kind == Kind::kInput) {
      require(buffer.home == BufferHome::kInput && buffer.index == alias.index, "an output of another input's memory");
    } else {
      require(buffer.home != BufferHome::kArena, "an output in memory that others use");
      require(buffer.home != BufferHome::kInput || alias.kind == Kind::kOutput, "an output in an input's memory");
      require(buffer.home == BufferHome::kInput || buffer.home == BufferHome::kConstant || buffer.nbytes.is_const(0) ||
                  uses_[static_cast<size_t>(ref.buffer)].there,
              "an output that nobody computes");
    }
    // A value that an input already has is a view of that input.
    const bool becomes_view = wanted.alias.kind == Kind::kFresh && alias.kind == Kind::kInput;
    require(becomes_view || (alias.kind == wanted.alias.kind && alias.index == wanted.alias.index), "another alias");
    int64_t begin = alias.storage_offset.valid() ? alias.storage_offset.const_value() : 0;
    if (alias.kind == Kind::kOutput) {
      require(alias.index >= 0 && static_cast<size_t>(alias.index) < plan_.outputs.size() &&
                  plan_.outputs[static_cast<size_t>(alias.index)].ref.buffer == ref.buffer,
              "a view of another output");
      const BufferRef& base = plan_.outputs[static_cast<size_t>(alias.index)].ref;
      begin = plus(begin, times(value_of(base.offset, "an offset"), dtype_size(base.dtype)) / dtype_size(ref.dtype));
    }
    if (alias.kind != Kind::kFresh) require(begin == ref.offset.const_value(), "a view that begins elsewhere");
  }

  const PlanBuffer& buffer_of(BufferId id) const {
    require(id >= 0, "a buffer that is none");
    return plan_.buffers[static_cast<size_t>(id)];
  }

  /// What the reference reaches lies in what the buffer reaches.
  void check_reference(const BufferRef& ref) const {
    const PlanBuffer& buffer = buffer_of(ref.buffer);
    const Reach reach = reach_of(ref.sizes, ref.strides), whole = reach_of(buffer.sizes, buffer.strides);
    const int64_t offset = value_of(ref.offset, "an offset");
    if (reach.empty) {
      // An address all the same: PyTorch may give an empty tensor any offset.
      require(offset >= INT32_MIN && times(offset, dtype_size(ref.dtype)) <= INT64_MAX / 2, "an offset");
      return;
    }
    require(!whole.empty, "a part of an empty buffer");
    const int64_t size = dtype_size(ref.dtype), buffer_size = dtype_size(buffer.dtype);
    require(times(plus(offset, reach.low), size) >= times(whole.low, buffer_size) &&
                times(plus(plus(offset, reach.high), 1), size) <= times(plus(whole.high, 1), buffer_size),
            "a view that reaches beyond its buffer");
  }

  // ---- Steps ----

  struct Use {
    int64_t first = INT64_MAX, last = -1;  // steps
    bool there = false;                    // something wrote it, or the host made it
  };
  enum class Access : uint8_t { kRead, kWritten, kBoth };

  void touch(BufferId id, Access access) {
    const PlanBuffer& buffer = buffer_of(id);
    Use& use = uses_[static_cast<size_t>(id)];
    use.first = std::min(use.first, static_cast<int64_t>(at_));
    use.last = static_cast<int64_t>(at_);
    const bool given = buffer.home == BufferHome::kInput || buffer.home == BufferHome::kConstant;
    // A kernel that reads and writes may read what it wrote itself.
    const bool needed = access == Access::kRead || buffer.home == BufferHome::kHost;
    require(!needed || given || use.there || buffer.nbytes.is_const(0), "a result that is not there yet");
    if (access == Access::kRead) return;
    use.there = true;
    require(buffer.home != BufferHome::kConstant, "a step that writes to a constant");
    require(buffer.home != BufferHome::kInput || written_inputs_.contains(buffer.index),
            "a step that writes to an input");
  }

  void check_kernels() const {
    for (size_t k = 0; k < kernels_.size(); ++k) {
      const PlanKernel& info = plan_.kernels[k];
      require(info.bytes_read >= 0 && info.bytes_written >= 0, "negative numbers of bytes");
      require(info.name == kernels_[k]->name, "another kernel's name");
      require(info.fault_sites.size() == look_ups(kernels_[k]->body), "other places that may fail than the kernel's");
    }
  }

  static size_t look_ups(const loops::Block& block) {
    size_t count = 0;
    for (const loops::Stmt& stmt : block.stmts) {
      if (std::holds_alternative<loops::IndexValue>(stmt)) ++count;
      if (const auto* branch = std::get_if<loops::If>(&stmt)) count += look_ups(*branch->body);
      if (const auto* product = std::get_if<loops::Product>(&stmt)) count += look_ups(*product->each->body);
      if (const auto* attention = std::get_if<loops::Attention>(&stmt)) {
        count += look_ups(*attention->each->body);
        for (const loops::Attention::Sum& sum : attention->sums) count += look_ups(*sum.done->body);
      }
      if (const auto* weighed = std::get_if<loops::WeighedProduct>(&stmt))
        count += look_ups(*weighed->weigh->body) + look_ups(*weighed->each->body);
      if (const auto* loop = std::get_if<loops::For>(&stmt)) {
        count += look_ups(*loop->body) + (loop->combine_fn ? look_ups(*loop->combine_fn->body) : 0);
      }
    }
    return count;
  }

  void check_step(const KernelLaunch& launch) {
    const loops::Kernel& kernel = *kernels_[static_cast<size_t>(launch.kernel)];
    const std::vector<const loops::BufferArg*> args = passed(kernel);
    const bool is_list = kernel.gpu.items > 0;
    const size_t items = is_list ? launch.item_blocks.size() : 1;
    require(launch.list_items == kernel.gpu.items && launch.gpu_threads == kernel.gpu.threads &&
                launch.gpu_shared == kernel.gpu.shared,
            "a launch of another form than its kernel's");
    require(is_list ? items > 0 && items <= static_cast<size_t>(kernel.gpu.items) : launch.item_blocks.empty(),
            "a list of ", launch.item_blocks.size(), " items");
    const size_t sizes = kernel.sizes.size() + (is_list && loops::has_parallel_loops(kernel) ? 1 : 0);
    require(launch.buffers.size() == args.size() * items && launch.sizes.size() == sizes * items,
            "a launch with other operands than its kernel's");
    const size_t offsets = launch.buffer_offsets.size();
    require(offsets == 0 || (offsets == launch.buffers.size() && !is_list && launch.gpu_threads == 0),
            "a launch with offsets");
    require(launch.maps == loops::tensor_maps(kernel), "a launch with other matrices than its kernel's");
    for (size_t item = 0; item < items; ++item) {
      const std::span<const Expr> given(launch.sizes.data() + item * sizes, kernel.sizes.size());
      for (size_t i = 0; i < args.size(); ++i)
        check_operand(launch.buffers[item * args.size() + i], *args[i], size_of(args[i]->numel, kernel, given),
                      offsets == 0 ? Expr() : launch.buffer_offsets[i]);
      const int64_t iterations = iterations_of(kernel, given);
      const Expr told = !is_list                      ? launch.parallel_iterations
                        : sizes > kernel.sizes.size() ? launch.sizes[(item + 1) * sizes - 1]
                                                      : Expr();
      if (told.valid() || !is_list) require(value_of(told, "a number of iterations") == iterations, "other iterations");
    }
    require(value_of(launch.work, "work") >= 0, "work");
    if (is_list) require(value_of(launch.parallel_iterations, "a number of iterations") == 1, "other iterations");
    check_blocks(launch);
    if (launch.clears) {
      require(launch.buffers.size() == 1 && buffer_of(launch.buffers[0]).home == BufferHome::kOutput,
              "a kernel that clears what is no output");
    }
  }

  static void check_blocks(const KernelLaunch& launch) {
    if (launch.gpu_threads == 0) {
      require(!launch.gpu_blocks.valid(), "blocks on a CPU");
      return;
    }
    const int64_t blocks = value_of(launch.gpu_blocks, "a number of blocks");
    require(blocks >= 0 && blocks <= kMostBlocks, blocks, " blocks");
    int64_t sum = 0;
    for (const Expr& e : launch.item_blocks) {
      const int64_t own = value_of(e, "a number of blocks");
      require(own >= 0, own, " blocks");
      sum = plus(sum, own);
    }
    require(launch.item_blocks.empty() || sum == blocks, "other numbers of blocks than ", blocks);
  }

  /// A size of the kernel, under the values that the launch gives its symbols.
  static int64_t size_of(Expr e, const loops::Kernel& kernel, std::span<const Expr> given) {
    if (e.is_const()) return e.const_value();
    std::vector<int64_t> values;
    for (const Expr& value : given) values.push_back(value_of(value, "a size of a kernel"));
    const std::optional<int64_t> result = ExprProgram(e, kernel.sizes).try_evaluate(values);
    require(result.has_value(), "a size of a kernel");
    return *result;
  }

  /// `offset`: valid where the kernel gets a part of the buffer.
  void check_operand(BufferId id, const loops::BufferArg& arg, int64_t elements, Expr offset) {
    const PlanBuffer& buffer = buffer_of(id);
    const int64_t span = span_of(buffer.sizes, buffer.strides);
    require(buffer.dtype == arg.dtype, "a kernel that takes another buffer than it is given");
    if (offset.valid()) {
      const int64_t start = value_of(offset, "an offset");
      require(start > 0 && elements > 0 && plus(start, elements) <= span, "a part that is not there");
    } else {
      require(elements == span, "a kernel that takes another buffer than it is given");
    }
    require(arg.kind != ArgKind::kValue || buffer.home == BufferHome::kInput, "a number that is no input");
    touch(id, arg.kind == ArgKind::kOutput ? Access::kWritten : writes(arg) ? Access::kBoth : Access::kRead);
  }

  static int64_t iterations_of(const loops::Kernel& kernel, std::span<const Expr> given) {
    int64_t iterations = 1;
    const loops::Block* block = &kernel.body;
    while (block != nullptr) {
      const loops::For* found = nullptr;
      for (const loops::Stmt& stmt : block->stmts) {
        const auto* loop = std::get_if<loops::For>(&stmt);
        if (loop != nullptr && loop->kind == loops::LoopKind::kParallel) found = loop;
      }
      if (found != nullptr) iterations = times(iterations, size_of(found->extent, kernel, given));
      block = found != nullptr ? found->body.get() : nullptr;
    }
    return iterations;
  }

  void check_step(const HostCall& call) {
    std::vector<bool> is_out(call.tensors.size());
    for (const HostCall::HostArg& arg : call.args) {
      if (const auto* out = std::get_if<HostCall::OutSlot>(&arg)) is_out[static_cast<size_t>(out->index)] = true;
    }
    for (size_t i = 0; i < call.tensors.size(); ++i) {
      const BufferRef& ref = call.tensors[i];
      require(ref.dtype == buffer_of(ref.buffer).dtype || buffer_of(ref.buffer).home != BufferHome::kHost,
              "a result of the host as another type");
      check_reference(ref);
      touch(ref.buffer, is_out[i] ? Access::kWritten : Access::kRead);
      // Operators of our own walk over memory, not over strides.
      const bool loop = call.op == "tatara::loop";
      if (is_out[i] || (call.op.starts_with("tatara::") && !loop)) check_no_overlap(ref);
    }
    for (const HostCall::HostArg& arg : call.args) {
      if (const auto* scalar = std::get_if<Scalar>(&arg)) {
        const auto* e = std::get_if<Expr>(scalar);
        require(e == nullptr || e->valid(), "a number that is none");
      }
      if (const auto* device = std::get_if<Device>(&arg)) {
        require(devices_.contains(std::pair(device->kind, device->index)), "an operator on another device");
      }
      if (const auto* list = std::get_if<SymInts>(&arg)) {
        for (const Expr& e : list->values) require(e.valid(), "a number that is none");
      }
    }
    for (const BufferId id : call.results) {
      if (id < 0) continue;
      Use& use = uses_[static_cast<size_t>(id)];
      require(buffer_of(id).home == BufferHome::kHost && !use.there, "a result of the host in another's memory");
      use.there = true;
      touch(id, Access::kWritten);
    }
    require(call.location.line >= 0, "a negative line");
  }

  /// There is memory for each of its elements.
  static void check_no_overlap(const BufferRef& ref) {
    const Reach reach = reach_of(ref.sizes, ref.strides);
    int64_t count = 1;
    for (const Expr& size : ref.sizes) count = reach.empty ? 0 : times(count, size.const_value());
    require(count <= plus(reach.high - reach.low, 1), "a result whose elements share memory");
  }

  // ---- The arena ----

  /// What lies in the same memory is never needed at the same time, but for one that takes the place of another in the step that
  /// reads the one and writes the other.
  void check_arena() const {
    struct Part {
      int64_t begin, end;
      size_t buffer;
    };
    std::vector<Part> parts;
    int64_t end = 0;
    for (size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& buffer = plan_.buffers[b];
      if (buffer.home != BufferHome::kArena || uses_[b].last < 0) continue;
      const int64_t offset = buffer.offset.const_value(), bytes = buffer.nbytes.const_value();
      const int64_t past = plus(offset, plus(bytes, kPlanAlign - 1) / kPlanAlign * kPlanAlign);
      end = std::max(end, past);
      if (bytes > 0) parts.push_back({offset, past, b});
    }
    require(value_of(plan_.arena_bytes, "the arena's length") == end, "the arena's length");
    // By the step that first needs them; those that no later step needs leave.
    std::sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) {
      const Use &x = uses_[a.buffer], &y = uses_[b.buffer];
      return x.first != y.first ? x.first < y.first : x.last < y.last;
    });
    const auto by_place = [](const Part& a, const Part& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.buffer < b.buffer;
    };
    const auto by_end = [&](const Part& a, const Part& b) {
      const int64_t x = uses_[a.buffer].last, y = uses_[b.buffer].last;
      return x != y ? x < y : a.buffer < b.buffer;
    };
    std::set<Part, decltype(by_place)> present(by_place);
    std::set<Part, decltype(by_end)> leaving(by_end);
    for (const Part& part : parts) {
      while (!leaving.empty() && uses_[leaving.begin()->buffer].last < uses_[part.buffer].first) {
        present.erase(*leaving.begin());
        leaving.erase(leaving.begin());
      }
      // What is there does not overlap but for exact successors, so only neighbours can.
      auto next = present.lower_bound({part.begin, 0, 0});
      if (next != present.begin() && std::prev(next)->end > part.begin) next = std::prev(next);
      std::vector<Part> replaced;
      for (; next != present.end() && next->begin < part.end; ++next) {
        const bool takes_place =
            next->begin == part.begin && next->end == part.end && uses_[next->buffer].last == uses_[part.buffer].first;
        require(takes_place, "buffers ", next->buffer, " and ", part.buffer, " in the same memory");
        replaced.push_back(*next);
      }
      for (const Part& old : replaced) {
        present.erase(old);
        leaving.erase(old);
      }
      present.insert(part);
      leaving.insert(part);
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  std::span<const loops::Kernel* const> kernels_;
  std::set<int> written_inputs_;
  std::set<std::pair<DeviceKind, int16_t>> devices_;
  std::vector<Use> uses_;  // per buffer
  size_t at_ = 0;          // the step that is looked at
};

}  // namespace

void verify_plan(const Plan& plan, const Graph& graph, std::span<const loops::Kernel* const> kernels) {
  Verifier(plan, graph, kernels).run();
}

int32_t first_write_of(const Plan& plan, std::span<const loops::Kernel* const> kernels) {
  if (plan.input_writes.empty()) return -1;
  const auto is_input = [&](BufferId b) { return plan.buffers[static_cast<size_t>(b)].home == BufferHome::kInput; };
  const auto writes_input = [&](const PlanStep& step) {
    if (const auto* launch = std::get_if<KernelLaunch>(&step)) {
      const std::vector<const loops::BufferArg*> args = passed(*kernels[static_cast<size_t>(launch->kernel)]);
      for (size_t i = 0; i < launch->buffers.size(); ++i) {
        if (writes(*args[i % args.size()]) && is_input(launch->buffers[i])) return true;
      }
      return false;
    }
    const auto& call = std::get<HostCall>(step);
    return std::any_of(call.args.begin(), call.args.end(), [&](const HostCall::HostArg& arg) {
      const auto* out = std::get_if<HostCall::OutSlot>(&arg);
      return out != nullptr && is_input(call.tensors[static_cast<size_t>(out->index)].buffer);
    });
  };
  const auto first = std::find_if(plan.steps.begin(), plan.steps.end(), writes_input);
  return first == plan.steps.end() ? 0 : static_cast<int32_t>(first - plan.steps.begin());
}

}  // namespace tatara
