#include "capture/run/compiled_runner.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "capture/entries/identities.h"
#include "capture/entries/stats.h"
#include "capture/host/torch_hooks.h"
#include "capture/host/torch_native.h"
#include "capture/python/gil.h"
#include "capture/run/compiled_frame.h"
#include "capture/tape/opaque_operators.h"
#include "capture/tape/transaction.h"
#include "runtime/plan/aligned_inputs.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

// Scalar operations (about 10 us) below which giving up the GIL and taking it again costs more than it is worth.
constexpr int64_t kBriefWork = 32768;

struct DlpackType {
  uint8_t code, bits;
};

/// dlpack.h: kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLComplex 5, kDLBool 6, kDLFloat8_e4m3fn 10, kDLFloat8_e5m2 12.
DlpackType dlpack_type(DType dtype) {
  switch (dtype) {
    case DType::kBool: return {6, 8};
    case DType::kUInt8: return {1, 8};
    case DType::kInt8: return {0, 8};
    case DType::kUInt16: return {1, 16};
    case DType::kInt16: return {0, 16};
    case DType::kUInt32: return {1, 32};
    case DType::kInt32: return {0, 32};
    case DType::kUInt64: return {1, 64};
    case DType::kInt64: return {0, 64};
    case DType::kFloat16: return {2, 16};
    case DType::kBFloat16: return {4, 16};
    case DType::kFloat32: return {2, 32};
    case DType::kFloat64: return {2, 64};
    case DType::kComplex32: return {5, 32};
    case DType::kComplex64: return {5, 64};
    case DType::kComplex128: return {5, 128};
    case DType::kFloat8E4M3FN: return {10, 8};
    case DType::kFloat8E5M2: return {12, 8};
  }
  throw InternalError("dtype without a DLPack code");
}

/// Sets the Python exception that stands for `error`.
void set_python_error(const Error& error) {
  if (error.kind() == "IndexError") {
    PyErr_SetString(PyExc_IndexError, error.what());
  } else {
    set_host_error(error.what());
  }
}

/// Bytes from the first element to the end of the last.
size_t span_bytes(const TensorLayout& layout, DType dtype) {
  int64_t last = 0;
  for (size_t d = 0; d < layout.sizes.size(); ++d) {
    if (layout.sizes[d] == 0) return 0;
    last += (layout.sizes[d] - 1) * layout.strides[d];
  }
  return static_cast<size_t>((last + 1) * dtype_size(dtype));
}

/// "sizes [2, 3] and strides [3, 1]"
std::string described(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  return str_cat("sizes [", str_join(sizes), "] and strides [", str_join(strides), "]");
}

}  // namespace

CompiledRunner::CompiledRunner(std::shared_ptr<Executable> executable, TapeGraph made, const Tape& tape,
                               int64_t keep_outputs_mb)
    : executable_(std::move(executable)),
      constants_(std::move(made.constants)),
      host_nodes_(std::move(made.host_nodes)),
      keep_bytes_(keep_outputs_mb << 20) {
  const Plan& plan = executable_->plan();
  for (size_t i = 0; i < made.inputs.size(); ++i) {
    Input input;
    input.slot = made.inputs[i];
    if (input.slot < 0) {
      input.pinned = constants_[static_cast<size_t>(-1 - input.slot)].get();
    } else if (const TapeSlot& slot = tape.slots()[static_cast<size_t>(input.slot)];
               slot.input && slot.guard_index < 0) {
      input.pinned = slot.object.get();
    }
    add_input(input, plan.inputs[i].type);
  }
  for (const int slot : made.outputs) {
    outputs_.push_back({slot, view_origin(tape, slot)});
    outputs_.back().in_levels = tape.has_transforms();
    // The tensor itself has changed its shape: no view.
    outputs_.back().alone = tape.reshaped(slot) != nullptr && outputs_.back().origin.base < 0;
  }
  read_plan();
}

CompiledRunner::CompiledRunner(std::shared_ptr<Executable> executable, size_t inputs, size_t outputs,
                               int64_t keep_outputs_mb)
    : executable_(std::move(executable)), keep_bytes_(keep_outputs_mb << 20) {
  for (size_t i = 0; i < inputs; ++i) {
    Input input;
    input.slot = static_cast<int>(i);
    add_input(input, executable_->plan().inputs[i].type);
  }
  for (size_t i = 0; i < outputs; ++i) outputs_.push_back({static_cast<int>(inputs + i), {}, true});
  read_plan();
}

void CompiledRunner::add_input(Input input, const TensorType& type) {
  const DlpackType dl = dlpack_type(type.dtype);
  input.code = dl.code;
  input.bits = dl.bits;
  const bool cuda = type.device.kind == DeviceKind::kCuda;
  if (!cuda && type.device.kind != DeviceKind::kCpu) throw Unsupported("an input on " + type.device.str());
  input.device_type = cuda ? kDlpackCuda : kDlpackCpu;
  input.device_id = cuda ? type.device.index : 0;
  if (input.pinned != nullptr) pinned_inputs_.push_back(inputs_.size());
  inputs_.push_back(input);
}

void CompiledRunner::read_plan() {
  const Plan& plan = executable_->plan();
  for (const OutputBuffer& buffer : executable_->output_buffers()) {
    buffer_types_.push_back(torch_abi::scalar_type(buffer.dtype));
    gpu_outputs_ = gpu_outputs_ || buffer.device.kind == DeviceKind::kCuda;
  }
  mutates_ = !executable_->input_writes().empty();
  for (const PlanStep& step : plan.steps) ++(std::holds_alternative<KernelLaunch>(step) ? kernels_ : host_calls_);
}

CompiledRunner::~CompiledRunner() = default;

PyObject* CompiledRunner::input(const std::vector<Ref>& env, size_t i) const {
  return inputs_[i].pinned != nullptr ? inputs_[i].pinned : env[static_cast<size_t>(inputs_[i].slot)].get();
}

bool CompiledRunner::import_input(size_t i, PyObject* tensor, const TorchApi& api, InputRef& out) const {
  TensorRef ref;
  const Input& expected = inputs_[i];
  if (tensor == nullptr || !api.view(tensor, ref) || ref.code != expected.code || ref.bits != expected.bits ||
      ref.device_type != expected.device_type || ref.device_id != expected.device_id) {
    return false;
  }
  out = {ref.data, ref.sizes, ref.strides, ref.rank};
  return true;
}

std::vector<int> CompiledRunner::written_slots() const {
  std::vector<int> slots;
  for (const InputWrite& write : executable_->input_writes()) {
    slots.push_back(inputs_[static_cast<size_t>(write.input_index)].slot);
  }
  return slots;
}

/// Asks for what the pinned inputs to come have in memory: they lie anywhere.
void CompiledRunner::fetch_pinned(size_t n) const {
  constexpr size_t kAhead = 6;
  const auto tensor = [&](size_t steps) {
    const size_t at = n + steps * kAhead;
    return at < pinned_inputs_.size() ? inputs_[pinned_inputs_[at]].pinned : nullptr;
  };
  if (PyObject* next = tensor(1); next != nullptr) TorchNative::fetch_storage(next);
  if (PyObject* next = tensor(2); next != nullptr) TorchNative::fetch(next);
  if (PyObject* next = tensor(3); next != nullptr) __builtin_prefetch(next);
}

bool CompiledRunner::pinned_as_marked() const {
  if (pinned_marks_.empty()) return false;
  const TensorWords& words = TorchNative::get().words();
  const uint64_t* mark = pinned_marks_.data();
  for (size_t n = 0; n < pinned_inputs_.size(); ++n, mark += words.mark_words()) {
    fetch_pinned(n);
    if (!words.is_as_marked(impl_of(inputs_[pinned_inputs_[n]].pinned), mark)) return false;
  }
  return true;
}

/// After a look at them that found all as compiled for.
void CompiledRunner::mark_pinned(const TorchApi& api) {
  constexpr int kMostTimes = 64;  // tensors that change all the time are not worth it
  if (++marked_times_ > kMostTimes) return;
  const TensorWords& words = TorchNative::get().words();
  const size_t each = words.mark_words();
  pinned_marks_.assign(each * pinned_inputs_.size(), 0);
  for (size_t n = 0; n < pinned_inputs_.size() && !pinned_marks_.empty(); ++n) {
    PyObject* tensor = inputs_[pinned_inputs_[n]].pinned;
    TensorRef ref;
    ref.rank = pinned_[n].rank;
    ref.data = pinned_[n].data;
    if (!api.is_plain_torch(tensor) || !words.mark(impl_of(tensor), ref, &pinned_marks_[n * each]))
      pinned_marks_.clear();
  }
  marked_ = pinned_;
}

std::vector<std::string> CompiledRunner::describe_pinned() const {
  if (pinned_inputs_.empty()) return {};
  return {str_cat("layouts of tensors that the graph holds are unchanged (", pinned_inputs_.size(), ")")};
}

bool CompiledRunner::pinned_unchanged(TorchApi& api) {
  if (pinned_as_marked()) {
    pinned_ = marked_;
    pinned_fit_ = true;
    return true;
  }
  pinned_.clear();
  pinned_marks_.clear();
  // The layouts of pinned tensors hold no symbols, so those of any run will do.
  if (pinned_ranks_.empty() && !frames_.empty() && frames_.back()->resolved) {
    for (const size_t i : pinned_inputs_) {
      const TensorLayout& layout = frames_.back()->layouts.inputs[i];
      pinned_layouts_.insert(pinned_layouts_.end(), layout.sizes.begin(), layout.sizes.end());
      pinned_layouts_.insert(pinned_layouts_.end(), layout.strides.begin(), layout.strides.end());
      pinned_ranks_.push_back(static_cast<int32_t>(layout.sizes.size()));
    }
  }
  pinned_fit_ = !pinned_ranks_.empty();
  const int64_t* layout = pinned_layouts_.data();
  for (size_t n = 0; n < pinned_inputs_.size(); ++n) {
    const size_t i = pinned_inputs_[n];
    fetch_pinned(n);
    InputRef ref;
    bool fits = import_input(i, inputs_[i].pinned, api, ref);
    if (fits && pinned_fit_) {
      const int32_t rank = pinned_ranks_[n];
      fits = ref.rank == rank && ref.strides != nullptr;
      for (int32_t d = 0; fits && d < rank; ++d) {
        fits = ref.sizes[d] == layout[d] && (ref.strides[d] == layout[rank + d] || layout[d] <= 1);
      }
      layout += 2 * rank;
    }
    if (!fits) {
      pinned_.clear();
      return false;
    }
    pinned_.push_back(ref);
  }
  if (pinned_fit_) mark_pinned(api);
  return true;
}

std::unique_ptr<CompiledRunner::Frame> CompiledRunner::take_frame() {
  if (frames_.empty()) {
    auto frame = std::make_unique<Frame>();
    frame->inputs.resize(inputs_.size());
    frame->input_data.resize(inputs_.size());
    frame->buffers.resize(buffer_types_.size());
    for (size_t i = 0; i < buffer_types_.size(); ++i) frame->kept.emplace_back(keep_bytes_);
    frame->buffer_data.resize(buffer_types_.size());
    return frame;
  }
  std::unique_ptr<Frame> frame = std::move(frames_.back());
  frames_.pop_back();
  return frame;
}

bool CompiledRunner::import_number(size_t i, const std::vector<Ref>& env, Frame& frame) const {
  static constexpr int64_t kStride = 1;
  PyObject* value = input(env, i);
  if (value == nullptr) return false;
  frame.numbers.resize(inputs_.size());
  if (PyFloat_CheckExact(value)) {
    const double number = PyFloat_AS_DOUBLE(value);
    std::memcpy(&frame.numbers[i], &number, sizeof(number));
    frame.inputs[i] = {&frame.numbers[i], &kStride, &kStride, 0};  // no dimensions; null strides are unknown ones
    return true;
  }
  if (!PyLong_Check(value)) return false;
  frame.numbers[i] = PyLong_AsLongLong(value);
  frame.inputs[i] = {nullptr, &frame.numbers[i], &kStride, 1};
  return true;
}

/// Writes to an input whose memory begins off a vector's boundary go to a copy first, which is copied back as a whole.
bool CompiledRunner::writes_with_gaps(size_t i, const Frame& frame) const {
  if (!mutates_ || inputs_[i].device_type != kDlpackCuda || aligned_for_gpu(frame.inputs[i].data)) return false;
  const Plan& plan = executable_->plan();
  const bool written = std::any_of(plan.input_writes.begin(), plan.input_writes.end(),
                                   [&](const InputWrite& w) { return static_cast<size_t>(w.input_index) == i; });
  const TensorLayout& layout = frame.layouts.inputs[i];
  const DType dtype = plan.inputs[i].type.dtype;
  size_t bytes = static_cast<size_t>(dtype_size(dtype));
  for (const int64_t size : layout.sizes) bytes *= static_cast<size_t>(size);
  return written && bytes != span_bytes(layout, dtype);
}

std::string CompiledRunner::misfit(size_t i, const Frame& frame) const {
  const TensorLayout& layout = frame.layouts.inputs[i];
  const InputRef& given = frame.inputs[i];
  const auto rank = static_cast<size_t>(given.rank);
  const std::vector<int64_t> sizes(given.sizes, given.sizes + rank);
  std::vector<int64_t> strides;
  if (given.strides != nullptr) strides.assign(given.strides, given.strides + rank);
  return str_cat("an input has ", described(sizes, strides), ", compiled for ",
                 described(layout.sizes, layout.strides));
}

/// Memory and layout of every input. False when one is not as compiled for, with problem().
bool CompiledRunner::import_all(const std::vector<Ref>& env, const TorchApi& api, Frame& frame) {
  size_t next_pinned = 0;
  const bool seen = !pinned_.empty();
  bool good = true;
  for (size_t i = 0; good && i < inputs_.size(); ++i) {
    if (inputs_[i].pinned != nullptr && seen) {
      frame.inputs[i] = pinned_[next_pinned++];
    } else {
      PyObject* value = input(env, i);
      const bool number = value != nullptr && (PyLong_Check(value) || PyFloat_CheckExact(value));
      good = number ? import_number(i, env, frame) : import_input(i, value, api, frame.inputs[i]);
    }
  }
  pinned_.clear();
  if (!good || !executable_->bind_symbols(frame.inputs, frame.wanted)) {
    problem_ = "an input has another type, device or number of dimensions than compiled for";
    return false;
  }
  if (!frame.resolved || frame.wanted != frame.symbols) resolve(frame);
  const bool fit = seen && pinned_fit_;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const bool known = fit && inputs_[i].pinned != nullptr;
    if (!known && !frame.layouts.inputs[i].fits(frame.inputs[i])) {
      problem_ = misfit(i, frame);
      return false;
    }
    if (writes_with_gaps(i, frame)) {
      problem_ = "an input is written, is no whole block of memory, and begins at an odd address";
      return false;
    }
    frame.input_data[i] = frame.inputs[i].data;
  }
  return true;
}

void CompiledRunner::resolve(Frame& frame) const {
  const Plan& plan = executable_->plan();
  executable_->edge_layouts(frame.wanted, frame.layouts);
  executable_->written_inputs(frame.wanted, Transaction::kMostInCall, frame.written);
  frame.symbols = frame.wanted;
  frame.whole.assign(outputs_.size(), -1);
  std::vector<bool> used(buffer_types_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(plan.outputs[i].ref.buffer)];
    if (buffer.home != BufferHome::kOutput) continue;
    const auto b = static_cast<size_t>(buffer.index);
    const TensorLayout& layout = frame.layouts.outputs[i];
    if (used[b] || layout.offset != 0) continue;
    if (!(layout == frame.layouts.output_buffers[b])) {
      // The same memory by other sizes: the buffer is made with these.
      const DType dtype = executable_->output_buffers()[b].dtype;
      if (span_bytes(layout, dtype) != span_bytes(frame.layouts.output_buffers[b], dtype)) continue;
      frame.layouts.output_buffers[b] = layout;
    }
    used[b] = true;
    frame.whole[i] = buffer.index;
  }
  frame.buffer_bytes.clear();
  for (size_t b = 0; b < buffer_types_.size(); ++b) {
    frame.buffer_bytes.push_back(span_bytes(frame.layouts.output_buffers[b], executable_->output_buffers()[b].dtype));
  }
  frame.resolved = true;
}

bool CompiledRunner::allocate_on_gpu(Frame& frame, size_t i) const {
  const TensorLayout& layout = frame.layouts.output_buffers[i];
  frame.buffers[i] =
      TorchNative::get().empty_on_gpu(layout.sizes, layout.strides, buffer_types_[i],
                                      executable_->output_buffers()[i].device.index, &frame.buffer_data[i]);
  return static_cast<bool>(frame.buffers[i]);
}

bool CompiledRunner::allocate(Frame& frame) const {
  frame.zero.assign(buffer_types_.size(), 0);
  for (size_t i = 0; i < buffer_types_.size(); ++i) {
    if (executable_->output_buffers()[i].device.kind == DeviceKind::kCuda) {
      frame.buffer_data[i] = nullptr;
      if (!makes_late() && !allocate_on_gpu(frame, i)) return false;
      continue;
    }
    const TensorLayout& layout = frame.layouts.output_buffers[i];
    uint8_t* const zero = executable_->output_buffers()[i].cleared ? &frame.zero[i] : nullptr;
    frame.buffers[i] = TorchNative::get().empty(layout.sizes, layout.strides, buffer_types_[i], frame.buffer_bytes[i],
                                                frame.kept[i], &frame.buffer_data[i], zero);
    if (!frame.buffers[i]) return false;
  }
  return true;
}

namespace {

/// Whether memory that the plan writes to overlaps that of another input.
bool overlapping(const std::vector<InputRef>& inputs, const Executable& executable) {
  const Plan& plan = executable.plan();
  const std::vector<InputWrite>& writes = executable.input_writes();
  struct Range : MemoryExtent {
    bool written;
  };
  std::vector<Range> ranges;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto extent = extent_of(inputs[i], dtype_size(plan.inputs[i].type.dtype));
    if (!extent) continue;
    const bool written = std::any_of(writes.begin(), writes.end(),
                                     [i](const auto& write) { return static_cast<size_t>(write.input_index) == i; });
    ranges.push_back({*extent, written});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  const char *end = nullptr, *written_end = nullptr;  // of what begins before
  for (const Range& range : ranges) {
    if (range.begin < (range.written ? end : written_end)) return true;
    end = std::max(end, range.end);
    if (range.written) written_end = std::max(written_end, range.end);
  }
  return false;
}

}  // namespace

bool CompiledRunner::writes_beside(const std::vector<Ref>& env, PyObject* operand) const {
  const std::optional<int64_t> memory = storage_address(operand);
  return std::ranges::any_of(executable_->input_writes(), [&](const auto& write) {
    return storage_address(input(env, static_cast<size_t>(write.input_index))) == memory;
  });
}

/// What the plan writes to, and may fail after.
void CompiledRunner::keep_written(const std::vector<Ref>& env, const Frame& frame) const {
  Transaction* const transaction = Transaction::current();
  if (transaction == nullptr || consumes_) return;  // an operand that the run lets go of may be nobody's by then
  for (const auto& [at, bytes] : frame.written.inputs) {
    transaction->keep_memory(input(env, at), frame.input_data[at], bytes);
  }
}

/// After a failure: writes that are not taken back count.
void CompiledRunner::note_writes(const std::vector<Ref>& env, const Frame& frame) const {
  Transaction* const transaction = Transaction::current();
  if (!frame.wrote || (transaction != nullptr && transaction->can_undo())) return;
  const ErrorAside aside;
  if (!count_writes(env)) forget_error();
}

CompiledRunner::Tried CompiledRunner::after_error(const Error& error) {
  problem_ = error.what();
  if (const auto* broken = dynamic_cast<const BrokenSchema*>(&error)) distrust(broken->op());
  if (PyErr_Occurred() != nullptr) return Tried::kFailed;
  set_python_error(error);
  // What the program asks for has come out otherwise, or reads what it would not have read: the tape looks.
  Transaction* const transaction = Transaction::current();
  const std::vector<PlanKernel>& kernels = executable_->plan().kernels;
  if (executable_->decides() && !let_go_ && transaction != nullptr && transaction->can_undo()) return Tried::kBroken;
  const bool words_it =
      std::none_of(kernels.begin(), kernels.end(), [](const PlanKernel& k) { return k.fails_as_host(); });
  // The program's own error is the same as the tape's.
  return (error.kind() == "IndexError" && words_it) || let_go_ ? Tried::kFailed : Tried::kBroken;
}

CompiledRunner::Tried CompiledRunner::try_run(std::vector<Ref>& env, TorchApi& api) {
  std::unique_ptr<Frame> frame = take_frame();
  try {
    if (!import_all(env, api, *frame)) return Tried::kRefused;
    if (mutates_ && overlapping(frame->inputs, *executable_)) {
      problem_ = "inputs overlap in memory and one of them is written";
      frames_.push_back(std::move(frame));
      return Tried::kRefused;
    }
    let_go_ = frame->wrote = false;
    if (mutates_) keep_written(env, *frame);
    const bool done = run_plan(env, env, *frame);
    for (Ref& buffer : frame->buffers) buffer = Ref();
    if (!done) {
      note_writes(env, *frame);
      return Tried::kFailed;
    }
    frames_.push_back(std::move(frame));
    return Tried::kDone;
  } catch (const LateIndexFault& error) {
    if (Transaction* const transaction = Transaction::current()) transaction->lose("an earlier run has failed");
    set_python_error(error);
    return Tried::kFailed;
  } catch (const Error& error) {
    note_writes(env, *frame);
    return after_error(error);
  }
}

GraphRunner::Outcome CompiledRunner::run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) {
  if (!run_numbers(tape, host_nodes_, env, api)) return Outcome::kFailed;
  Transaction* const transaction = Transaction::current();
  if (executable_->draws() && (executable_->may_fail() || !proven_) && transaction != nullptr) {
    transaction->keep_generators(tape, env, api);
  }
  switch (try_run(env, api)) {
    case Tried::kDone: proven_ = true; return Outcome::kDone;
    case Tried::kRefused: return Outcome::kRefused;
    case Tried::kBroken: return Outcome::kTape;
    case Tried::kFailed: break;
  }
  return Outcome::kFailed;
}

bool CompiledRunner::run_plan(const std::vector<Ref>& env_in, std::vector<Ref>& env, Frame& frame) {
  if (!allocate(frame)) return false;
  RunIo io{frame.input_data, frame.buffer_data, std::move(frame.host_outputs), std::move(frame.host_layout)};
  if (consumes_) {
    io.done_with = [this, &env](size_t input) {
      const int slot = inputs_[input].slot;
      if (slot < 0) return false;
      const GilEnsure gil;
      let_go_ = true;
      Ref& held = env[static_cast<size_t>(slot)];
      const bool last = held && Py_REFCNT(held.get()) == 1;
      held = Ref();
      return last;
    };
  }
  if (executable_->calls_users()) {
    io.tensor_of_input = [this, &env](size_t input) {
      const int slot = inputs_[input].slot;
      const GilEnsure gil;
      return slot < 0 || !env[static_cast<size_t>(slot)] ? HostTensor()
                                                         : host_tensor_of(env[static_cast<size_t>(slot)].get());
    };
  }
  io.lean = lean_;
  io.zero = frame.zero;
  if (makes_late()) {
    io.make_output = [this, &frame](size_t i) {
      const auto allocated = [&] {
        const GilEnsure gil;
        return allocate_on_gpu(frame, i);
      };
      if (!allocated()) throw Unsupported("an output cannot be allocated");
      return frame.buffer_data[i];
    };
  }
  struct Progress {
    const RunIo& io;
    Frame& frame;
    ~Progress() {
      frame.wrote = io.wrote;
      Transaction* const transaction = Transaction::current();
      if (io.wrote && !frame.written.all && transaction != nullptr) transaction->lose("a graph writes to big tensors");
    }
  } const progress{io, frame};
  if (host_calls_ == 0 && frame.layouts.work < kBriefWork) {
    executable_->run(io, frame.symbols);
  } else {
    const GilRelease unlocked;
    executable_->run(io, frame.symbols);
    // What follows the last backward pass of a step is mostly the optimizer, whose temporaries need room.
    if (consumes_) release_scratch();
  }
  frame.host_outputs = std::move(io.host_outputs);
  frame.host_layout = std::move(io.host_layout);
  stats().kernels_launched += kernels_ - static_cast<uint64_t>(io.left_out);
  stats().host_calls += host_calls_;
  stats().cuda_graphs_recorded += io.recorded ? 1 : 0;
  stats().cuda_graphs_launched += io.as_graph ? 1 : 0;
  if (mutates_ && !count_writes(env_in)) return false;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Ref result = frame.whole[i] >= 0 ? frame.buffers[static_cast<size_t>(frame.whole[i])] : output(i, env_in, frame);
    if (!result) return false;
    env[static_cast<size_t>(outputs_[i].slot)] = std::move(result);
  }
  for (HostTensor& tensor : frame.host_outputs) tensor = nullptr;
  return true;
}

/// Those that the plan has let go of are nobody's.
bool CompiledRunner::count_writes(const std::vector<Ref>& env) const {
  const TorchNative& native = TorchNative::get();
  for (const InputWrite& write : executable_->input_writes()) {
    PyObject* tensor = input(env, static_cast<size_t>(write.input_index));
    for (int i = 0; tensor != nullptr && i < write.times; ++i) {
      if (!native.count_write(tensor)) return false;
    }
  }
  return true;
}

}  // namespace tatara::capture
