#include "capture/native/native_loops.h"

#include <opcode.h>

#include <algorithm>
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
constexpr int kLeastWhiles = 4;      // turns of a loop by a condition before it is read
constexpr int kMostShortRuns = 64;   // of such a loop, which is then looked at no more
constexpr int kMostFailures = 2;
constexpr size_t kMostPrograms = 4;

/// What `__reduce__` says that an iterator is made of; null without an error: it does not say.
Ref made_of(PyObject* iterator, size_t least) {
  const Ref reduced = Ref::steal(PyObject_CallMethod(iterator, "__reduce__", nullptr));
  if (!reduced || !PyTuple_CheckExact(reduced.get()) || static_cast<size_t>(PyTuple_GET_SIZE(reduced.get())) < least) {
    forget_error();
    return {};
  }
  return reduced;
}

int64_t int_or(PyObject* object, int64_t otherwise) {
  const int64_t value = object != nullptr && PyLong_Check(object) ? PyLong_AsLongLong(object) : otherwise;
  if (PyErr_Occurred() == nullptr) return value;
  forget_error();
  return otherwise;
}

std::optional<LoopRange> range_of_ints(PyObject* iterator) {
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
  // Further ones are not to be reached by arithmetic on 64 bits.
  const int64_t far = INT64_MAX;
  LoopRange range{
      LoopRange::Kind::kRange, int_or(start.get(), far), int_or(step.get(), far), int_or(length.get(), far), {}, {}};
  const auto near = [](int64_t value, int bits) {
    return value >= -(int64_t{1} << bits) && value <= int64_t{1} << bits;
  };
  if (!near(range.first, 40) || !near(range.step, 20) || !near(range.turns, 30)) return std::nullopt;
  range.first += state.position * range.step;
  range.turns -= state.position;
  return range;
}

/// What an iterator still goes over; nullopt: it is of another kind, or others may step a part of it.
std::optional<LoopRange> range_of_iterator(PyObject* iterator, const NumpyApi& np) {
  if (Py_TYPE(iterator) == &PyRangeIter_Type) return range_of_ints(iterator);
  LoopRange range;
  if (Py_TYPE(iterator) == &PySeqIter_Type) {
    const Ref made = made_of(iterator, 3);
    PyObject* const args = made ? PyTuple_GET_ITEM(made.get(), 1) : nullptr;
    PyObject* const array = args != nullptr && PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : nullptr;
    if (array == nullptr || !np.is_array(array) || NumpyApi::ndim(array) == 0) return std::nullopt;
    range.kind = LoopRange::Kind::kArray;
    range.array = Ref::borrow(array);
    range.first = int_or(PyTuple_GET_ITEM(made.get(), 2), 0);
    range.turns = NumpyApi::dim(array, 0) - range.first;
    return range;
  }
  const bool is_zip = Py_TYPE(iterator) == &PyZip_Type;
  if (!is_zip && Py_TYPE(iterator) != &PyEnum_Type) return std::nullopt;
  std::vector<PyObject*> parts;
  {
    const Ref made = made_of(iterator, 2);
    if (!made || (is_zip && PyTuple_GET_SIZE(made.get()) != 2)) return std::nullopt;  // a strict one
    PyObject* const args = PyTuple_GET_ITEM(made.get(), 1);
    range.kind = is_zip ? LoopRange::Kind::kZip : LoopRange::Kind::kEnumerate;
    for (Py_ssize_t n = 0; n < (is_zip ? PyTuple_GET_SIZE(args) : 1); ++n) parts.push_back(PyTuple_GET_ITEM(args, n));
    if (!is_zip) range.first = int_or(PyTuple_GET_ITEM(args, 1), INT64_MAX);
  }
  if (range.first < -(int64_t{1} << 40) || range.first > int64_t{1} << 40) return std::nullopt;
  for (PyObject* part : parts) {
    std::optional<LoopRange> of_part = Py_REFCNT(part) == 1 ? range_of_iterator(part, np) : std::nullopt;
    if (!of_part) return std::nullopt;
    range.turns = range.parts.empty() ? of_part->turns : std::min(range.turns, of_part->turns);
    range.parts.push_back(std::move(*of_part));
  }
  return range.parts.empty() ? std::nullopt : std::optional(range);
}

bool is_at_for(const Frame& f) { return instruction_at(f.code(), f.offset() / 2).opcode == FOR_ITER; }

/// What is left of the loop before which the frame stands.
std::optional<LoopRange> range_left(const Frame& f, const NumpyApi& np) {
  if (is_at_for(f)) return f.stack_depth() > 0 ? range_of_iterator(f.peek(1), np) : std::nullopt;
  LoopRange range;
  range.kind = LoopRange::Kind::kWhile;
  range.turns = int64_t{1} << 60;
  return range;
}

/// The iterator on top of the stack goes on behind the turns that are done. The Python error that is set stays.
void step_on(Frame& f, const LoopRange& range, int64_t done) {
  const ErrorAside aside;
  if (range.kind == LoopRange::Kind::kWhile) return;
  if (range.kind != LoopRange::Kind::kRange) {
    for (int64_t n = 0; n < done; ++n) {
      if (!Ref::steal(PyIter_Next(f.peek(1)))) break;
    }
    forget_error();
    return;
  }
  const int64_t from = range.first + done * range.step, to = range.first + range.turns * range.step;
  const Ref left =
      Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "LLL", static_cast<long long>(from),
                                       static_cast<long long>(to), static_cast<long long>(range.step)));
  const Ref iterator = left ? Ref::steal(PyObject_GetIter(left.get())) : Ref();
  std::vector<PyObject*> stack(f.stack(), f.stack() + f.stack_depth());
  stack.back() = iterator.get();
  if (iterator) f.replace_stack(stack.data(), static_cast<int>(stack.size()));
}

/// The frame stands where it leaves the loop. Iterators of loops within it are on the stack there, to be dropped.
bool leave(Frame& f, const LoopRange& range, int64_t done, const LoopExit& exit) {
  step_on(f, range, done);
  std::vector<PyObject*> stack(f.stack(), f.stack() + f.stack_depth());
  std::vector<Ref> ended;
  for (int n = 0; n < exit.iterators; ++n) {
    const Ref nothing = Ref::steal(PyTuple_New(0));
    ended.push_back(nothing ? Ref::steal(PyObject_GetIter(nothing.get())) : Ref());
    if (!ended.back()) return false;
    stack.push_back(ended.back().get());
  }
  f.replace_stack(stack.data(), static_cast<int>(stack.size()));
  f.set_state(exit.offset, static_cast<int>(stack.size()));
  return true;
}

/// Programs keep no arrays.
LoopRange without_arrays(LoopRange range) {
  range.array = {};
  for (LoopRange& part : range.parts) part = without_arrays(std::move(part));
  return range;
}

}  // namespace

NativeLoopCounts& native_loop_counts() {
  static NativeLoopCounts counts;
  return counts;
}

std::shared_ptr<LoopProgram> NativeLoops::find(const Frame& f, const NumpyApi& np, const LoopRange& range,
                                               Place& place) const {
  const LoopPlace here = place_of(f, range);
  for (const auto& program : place.programs) {
    if (program->fits(here, range, np)) return program;
  }
  return nullptr;
}

std::shared_ptr<LoopProgram> NativeLoops::read(const Frame& f, const NumpyApi& np, const LoopRange& range,
                                               const LoopProgram* before, const OptionOverrides& options) {
  const CompileOptions compile = CompileOptions::resolve(options);
  loops::Kernel kernel;
  const LoopPlace here = place_of(f, range);
  std::shared_ptr<LoopProgram> program = LoopReader(here, np, f.offset() / 2, range, before).read(kernel);
  program->range = without_arrays(range);
  const KernelTarget target{chosen_target(compile.vector_width), std::nullopt, compile.code};
  const KernelRequest request = make_kernel_request(kernel, target);
  if (log_enabled(LogChannel::kLoops)) log_line(LogChannel::kLoops, request.loop_text);
  KernelOrigin origin = KernelOrigin::kMemory;
  program->code = obtain_kernel(request, kernel, target, compile.use_cache, origin, nullptr);
  ++native_loop_counts().made;
  return program;
}

/// Behind the first program of a place sizes are symbols, where that can be.
bool NativeLoops::make(const Frame& f, const NumpyApi& np, const LoopRange& range, Place& place,
                       const OptionOverrides& options, bool again) {
  if (!place.programs.empty()) {
    try {
      place.programs.push_back(read(f, np, range, place.programs.back().get(), options));
      return true;
    } catch (const Error& error) {
      TATARA_LOG(kCapture, "the loop in line ", f.line(), " is native code for this size alone: ", error.what());
    }
    if (again) return false;
  }
  try {
    place.programs.push_back(read(f, np, range, nullptr, options));
    return true;
  } catch (const Error& error) {
    fail(place, 1);
    TATARA_LOG(kCapture, "the loop in line ", f.line(), " is no native code: ", error.what());
  }
  return false;
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

const CodeFlow& NativeLoops::flow_of(PyCodeObject* code) {
  const auto found = flows_.find(code);
  if (found != flows_.end()) return found->second.second;
  return flows_.emplace(code, std::pair(Ref::borrow(reinterpret_cast<PyObject*>(code)), CodeFlow(code)))
      .first->second.second;
}

bool NativeLoops::may_hold(PyCodeObject* code) {
  const auto& loops = flow_of(code).loops();
  return std::any_of(loops.begin(), loops.end(), [&](const auto& each) {
    const auto found = places_.find({reinterpret_cast<PyObject*>(code), 2 * each.first});
    return found == places_.end() || found->second.failures < kMostFailures;
  });
}

bool NativeLoops::has_while(PyCodeObject* code) {
  const auto& loops = flow_of(code).loops();
  return std::any_of(loops.begin(), loops.end(),
                     [&](const auto& each) { return instruction_at(code, each.first).opcode != FOR_ITER; });
}

bool NativeLoops::is_while(const Frame& f) { return flow_of(f.code()).is_head(f.offset() / 2) && !is_at_for(f); }

int64_t NativeLoops::turns_left(const Frame& f, const NumpyApi& np) {
  const int head = f.offset() / 2;
  const CodeFlow& flow = flow_of(f.code());
  if (!is_at_for(f) || !flow.is_head(head) || !flow.exits_of(head).empty()) return 0;
  const std::optional<LoopRange> range = range_left(f, np);
  return range ? std::max<int64_t>(range->turns, 0) : 0;
}

bool NativeLoops::is_worth(const Frame& f, const LoopRange& range, Place& place, bool again) {
  const CodeFlow& flow = flow_of(f.code());
  const int head = f.offset() / 2;
  if (!flow.is_head(head)) return false;
  const CodePart& part = flow.loop_at(head);
  const bool holds_loop = std::any_of(flow.loops().begin(), flow.loops().end(),
                                      [&](const auto& each) { return each.first != head && part.holds(each.first); });
  if (range.kind == LoopRange::Kind::kWhile) {
    place.short_runs = again ? place.short_runs + 1 : 1;
    return holds_loop || place.short_runs >= kLeastWhiles;
  }
  if (range.turns >= kLeastTurns || holds_loop) return true;
  if (++place.short_runs >= kMostShortRuns) fail(place, kMostFailures);
  return false;
}

bool NativeLoops::prepare(const Frame& f, const NumpyApi& np, const OptionOverrides& options, uint64_t call) {
  PyObject* const code = reinterpret_cast<PyObject*>(f.code());
  Place& place = places_[{code, f.offset()}];
  if (!place.code) place.code = Ref::borrow(code);
  if (place.failures >= kMostFailures) return false;
  const std::optional<LoopRange> range = range_left(f, np);
  if (!range) fail(place, kMostFailures);
  if (!range || range->turns <= 0) return false;
  const bool again = std::exchange(place.last_call, call) == call;
  if (find(f, np, *range, place) != nullptr) return true;
  if (!is_worth(f, *range, place, again)) return false;
  // A program may be for one size: a loop inside of another one may have another size each time.
  if (place.programs.size() >= kMostPrograms || (again && place.programs.size() >= 2)) {
    fail(place, kMostFailures);
    return false;
  }
  if (!make(f, np, *range, place, options, again)) {
    if (again && !place.programs.empty()) fail(place, kMostFailures);
    return false;
  }
  if (find(f, np, *range, place) != nullptr) return true;
  fail(place, 1);  // arrays that share memory, or that may not be written
  return false;
}

NativeLoops::Outcome NativeLoops::run(Frame& f, const NumpyApi& np, const OptionOverrides& options, uint64_t call) {
  // Whoever else holds the iterator may step it.
  if ((is_at_for(f) && Py_REFCNT(f.peek(1)) != 1) || !prepare(f, np, options, call)) return Outcome::kNone;
  const std::optional<LoopRange> range = range_left(f, np);
  Place& place = places_.at({reinterpret_cast<PyObject*>(f.code()), f.offset()});
  const std::shared_ptr<LoopProgram> program = range ? find(f, np, *range, place) : nullptr;
  if (program == nullptr) return Outcome::kNone;
  int64_t done = 0;
  const LoopExit* left = nullptr;
  const LoopPlace here = place_of(f, *range);
  switch (program->run(f, here, *range, np, done, left)) {
    case LoopProgram::Outcome::kTakenBack:
      fail(place, 1);
      ++native_loop_counts().taken_back;
      TATARA_LOG(kCapture, "the loop in line ", f.line(), " was taken back");
      return Outcome::kTakenBack;
    case LoopProgram::Outcome::kInterrupted: step_on(f, *range, done); return Outcome::kStopped;
    case LoopProgram::Outcome::kLeft:
      ++native_loop_counts().runs;
      return leave(f, *range, done, *left) ? Outcome::kDone : Outcome::kStopped;
    case LoopProgram::Outcome::kDone: break;
  }
  ++native_loop_counts().runs;
  std::vector<PyObject*> stack(f.stack(), f.stack() + f.stack_depth() - 1);
  f.replace_stack(stack.data(), static_cast<int>(stack.size()));
  f.set_state(program->exit, static_cast<int>(stack.size()));
  return Outcome::kDone;
}

}  // namespace tatara::capture::native
