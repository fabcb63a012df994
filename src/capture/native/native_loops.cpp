#include "capture/native/native_loops.h"

#include <opcode.h>

#include <optional>
#include <utility>

#include "capture/host/iterator_state.h"
#include "capture/native/loop_reader.h"
#include "compiler/compiler.h"
#include "support/error.h"
#include "support/log.h"
#include "support/pass_options.h"
#include "support/str_cat.h"

namespace tatara::capture::native {

namespace {

constexpr int64_t kLeastTurns = 16;  // a loop of fewer, without another one inside, is as well unrolled
constexpr int kMostShortRuns = 64;   // of such a loop, which is then looked at no more
constexpr int kMostFailures = 2;
constexpr size_t kMostPrograms = 4;

/// What is left of the range that the iterator on top of the stack goes over; nullopt: it is of another kind.
std::optional<LoopRange> range_left(const Frame& f) {
  PyObject* const iterator = f.stack_depth() > 0 ? f.peek(1) : nullptr;
  if (iterator == nullptr || Py_TYPE(iterator) != &PyRangeIter_Type) return std::nullopt;
  IteratorState state;
  if (!read_state(iterator, state) || state.parts.size() != 1) {
    forget_error();
    return std::nullopt;
  }
  const Ref length = Ref::steal(PyLong_FromSsize_t(PyObject_Length(state.parts[0].get())));
  const Ref start = attr_or_null(state.parts[0].get(), "start"), step = attr_or_null(state.parts[0].get(), "step");
  if (!length || !start || !step) {
    forget_error();
    return std::nullopt;
  }
  LoopRange range{PyLong_AsLongLong(start.get()), PyLong_AsLongLong(step.get()), PyLong_AsLongLong(length.get())};
  const bool known = PyErr_Occurred() == nullptr;
  if (!known) forget_error();
  // Further ones are not to be reached by arithmetic on 64 bits.
  const auto near = [](int64_t value, int bits) {
    return value >= -(int64_t{1} << bits) && value <= int64_t{1} << bits;
  };
  if (!known || !near(range.first, 40) || !near(range.step, 20) || !near(range.turns, 30)) return std::nullopt;
  range.first += state.position * range.step;
  range.turns -= state.position;
  return range;
}

/// An iterator over what is left takes the place of the one on top of the stack. The Python error that is set stays.
void step_on(Frame& f, const LoopRange& range, int64_t done) {
  const ErrorAside aside;
  const int64_t from = range.first + done * range.step, to = range.first + range.turns * range.step;
  const Ref left =
      Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "LLL", static_cast<long long>(from),
                                       static_cast<long long>(to), static_cast<long long>(range.step)));
  const Ref iterator = left ? Ref::steal(PyObject_GetIter(left.get())) : Ref();
  std::vector<PyObject*> stack(f.stack(), f.stack() + f.stack_depth());
  stack.back() = iterator.get();
  if (iterator) f.replace_stack(stack.data(), static_cast<int>(stack.size()));
}

bool same_range(const LoopRange& a, const LoopRange& b) {
  return a.first == b.first && a.step == b.step && a.turns == b.turns;
}

}  // namespace

NativeLoopCounts& native_loop_counts() {
  static NativeLoopCounts counts;
  return counts;
}

std::shared_ptr<LoopProgram> NativeLoops::find(const Frame& f, const NumpyApi& np, const LoopRange& range,
                                               Place& place) const {
  for (const auto& program : place.programs) {
    if (same_range(program->range, range) && program->fits(f, np)) return program;
  }
  return nullptr;
}

std::shared_ptr<LoopProgram> NativeLoops::make(const Frame& f, const NumpyApi& np, const LoopRange& range, Place& place,
                                               const OptionOverrides& options) {
  const CompileOptions compile = CompileOptions::resolve(options);
  try {
    loops::Kernel kernel;
    std::shared_ptr<LoopProgram> program = LoopReader(f, np, f.offset() / 2, range).read(kernel);
    program->range = range;
    const KernelTarget target{chosen_target(compile.vector_width), std::nullopt, compile.code};
    const KernelRequest request = make_kernel_request(kernel, target);
    if (log_enabled(LogChannel::kLoops)) log_line(LogChannel::kLoops, request.loop_text);
    KernelOrigin origin = KernelOrigin::kMemory;
    program->code = obtain_kernel(request, kernel, target, compile.use_cache, origin, nullptr);
    place.programs.push_back(program);
    ++native_loop_counts().made;
    return program;
  } catch (const Error& error) {
    fail(place, 1);
    TATARA_LOG(kCapture, "the loop in line ", f.line(), " is no native code: ", error.what());
  }
  return nullptr;
}

void NativeLoops::fail(Place& place, int times) {
  const bool before = place.failures >= kMostFailures;
  place.failures += times;
  if (!before && place.failures >= kMostFailures) ++given_up_;
}

int NativeLoops::traverse(const Visitor& visit) const {
  for (const auto& [where, place] : places_) {
    for (const auto& program : place.programs) {
      // Another call may run it.
      const int result = program.use_count() == 1 ? program->traverse(visit) : 0;
      if (result != 0) return result;
    }
  }
  return 0;
}

bool NativeLoops::may_hold(PyCodeObject* code) const {
  const auto size = static_cast<int>(Py_SIZE(code));
  for (int at = 0; at < size;) {
    const Instruction i = instruction_at(code, at);
    at = i.next;
    if (i.opcode != FOR_ITER) continue;
    const auto found = places_.find({reinterpret_cast<PyObject*>(code), 2 * i.at});
    if (found == places_.end() || found->second.failures < kMostFailures) return true;
  }
  return false;
}

bool NativeLoops::prepare(const Frame& f, const NumpyApi& np, const OptionOverrides& options, uint64_t call) {
  PyObject* const code = reinterpret_cast<PyObject*>(f.code());
  Place& place = places_[{code, f.offset()}];
  if (!place.code) place.code = Ref::borrow(code);
  if (place.failures >= kMostFailures) return false;
  const std::optional<LoopRange> range = range_left(f);
  if (!range) fail(place, kMostFailures);
  if (!range || range->turns <= 0) return false;
  const bool again = std::exchange(place.last_call, call) == call;
  if (find(f, np, *range, place) != nullptr) return true;
  if (range->turns < kLeastTurns && !holds_loop(f.code(), f.offset() / 2)) {
    if (++place.short_runs >= kMostShortRuns) fail(place, kMostFailures);
    return false;
  }
  // A program is for one size: a loop inside of another one may have another size each time.
  if (place.programs.size() >= kMostPrograms || (again && !place.programs.empty())) {
    fail(place, kMostFailures);
    return false;
  }
  if (make(f, np, *range, place, options) == nullptr) return false;
  if (find(f, np, *range, place) != nullptr) return true;
  fail(place, 1);  // arrays that share memory, or that may not be written
  return false;
}

NativeLoops::Outcome NativeLoops::run(Frame& f, const NumpyApi& np, const OptionOverrides& options, uint64_t call) {
  // Whoever else holds the iterator may step it.
  if (Py_REFCNT(f.peek(1)) != 1 || !prepare(f, np, options, call)) return Outcome::kNone;
  const std::optional<LoopRange> range = range_left(f);
  Place& place = places_.at({reinterpret_cast<PyObject*>(f.code()), f.offset()});
  const std::shared_ptr<LoopProgram> program = range ? find(f, np, *range, place) : nullptr;
  if (program == nullptr) return Outcome::kNone;
  int64_t done = 0;
  switch (program->run(f, np, done)) {
    case LoopProgram::Outcome::kTakenBack:
      fail(place, 1);
      ++native_loop_counts().taken_back;
      TATARA_LOG(kCapture, "the loop in line ", f.line(), " was taken back");
      return Outcome::kTakenBack;
    case LoopProgram::Outcome::kInterrupted: step_on(f, *range, done); return Outcome::kStopped;
    case LoopProgram::Outcome::kDone: break;
  }
  ++native_loop_counts().runs;
  std::vector<PyObject*> stack(f.stack(), f.stack() + f.stack_depth() - 1);
  f.replace_stack(stack.data(), static_cast<int>(stack.size()));
  f.set_state(program->exit, static_cast<int>(stack.size()));
  return Outcome::kDone;
}

}  // namespace tatara::capture::native
