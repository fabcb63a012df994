#include "capture/trace/loop_tracing.h"

#include <opcode.h>

#include <algorithm>
#include <atomic>

#include "capture/entries/owner.h"
#include "capture/host/numpy_api.h"
#include "capture/native/native_loops.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_modes.h"
#include "support/log.h"

namespace tatara::capture {

namespace {

constexpr int kTurnsSeen = 2;  // before the length of an unrolled loop is told

bool holds_array(const Frame& f, const NumpyApi& np) {
  return std::any_of(f.locals(), f.locals() + f.local_count(),
                     [&np](PyObject* local) { return local != nullptr && np.is_array(local); });
}

}  // namespace

LoopTracing::LoopTracing(TraceContext& context) : TraceFeature(context) {}

/// Whether the present trace may end here without anybody having asked for one graph.
bool LoopTracing::may_break() const {
  return context_.ahead == nullptr && !context_.dry_run && context_.whole.empty() && trace_->pending_break.empty() &&
         !owner_.fullgraph && !owner_.backend;
}

bool LoopTracing::may_run(const Frame& f) const {
  const int given_up = owner_.loops != nullptr ? owner_.loops->given_up() : 0;
  if (f.code() != known_ || given_up != given_up_) {
    known_ = f.code();
    given_up_ = given_up;
    known_runs_ = api_.numpy != nullptr && !f.is_generator() && !is_library_code(f.code(), api_) &&
                  (owner_.loops == nullptr || owner_.loops->may_hold(f.code()));
  }
  return known_runs_;
}

bool LoopTracing::may_run_in(const Frame& called) const {
  if (called.resumed || called.throwing || !may_run(called)) return false;
  // Loops over plain numbers are constants of a trace.
  return holds_array(called, *api_.numpy) || (owner_.loops != nullptr && owner_.loops->was_called(called.code()));
}

bool LoopTracing::watches(const Frame& called) const {
  return api_.numpy != nullptr && (!api_.present() || holds_array(called, *api_.numpy)) && may_run(called);
}

bool LoopTracing::breaks_before(const Frame& called) const {
  return owner_.loops != nullptr && owner_.loops->was_called(called.code()) && may_break() && may_run_in(called);
}

LoopTracing::Run& LoopTracing::run_of(const Frame& f) {
  static std::atomic<uint64_t> last = 0;
  const auto found = std::find_if(runs_.begin(), runs_.end(), [&f](const Run& run) { return run.frame == &f; });
  if (found != runs_.end()) return *found;
  runs_.push_back({&f, ++last, false});
  return runs_.back();
}

/// The frame ends. Its caller goes on with a graph if it has had a native loop.
void LoopTracing::leaves(const Frame& f) {
  const auto found = std::find_if(runs_.begin(), runs_.end(), [&f](const Run& run) { return run.frame == &f; });
  if (found == runs_.end()) return;
  if (found->native && !context_.frames.empty()) ran_ = context_.frames.back();
  runs_.erase(found);
}

/// Whether a loop by a condition begins here. Asked before each instruction, so code without one is known by its address.
bool LoopTracing::is_at_while(const Frame& f) {
  if (f.code() != without_while_ && ((context_.state == State::kTracing && &f == context_.root) || may_run(f))) {
    if (owner_.loops == nullptr) owner_.loops = std::make_shared<native::NativeLoops>();
    if (!owner_.loops->has_while(f.code())) {
      without_while_ = f.code();
      return false;
    }
    return owner_.loops->is_while(f);
  }
  return false;
}

/// Whether the trace, which stands before a turn of a loop, would grow beyond what a graph may have: told after two turns, in
/// place of at its end.
bool LoopTracing::is_long(const Frame& f) {
  Run& run = run_of(f);
  const size_t nodes = trace_->tape.nodes().size();
  if (run.head != f.offset() || nodes < run.nodes) {
    run.head = f.offset();
    run.turns = 0;
    run.nodes = nodes;
  }
  const size_t of_turn = nodes - std::exchange(run.nodes, nodes);
  if (++run.turns <= kTurnsSeen || of_turn == 0 || !is_numpy_tape(trace_->tape)) return false;
  const int64_t left = owner_.loops->turns_left(f, *api_.numpy);
  return left > 0 && nodes + static_cast<size_t>(left) * of_turn > kMostArrayCalls;
}

/// Where one graph was asked for, a loop that would never fit is an error at once.
std::optional<FrameAction> LoopTracing::refuse_long(const Frame& f) {
  if (owner_.loops == nullptr) owner_.loops = std::make_shared<native::NativeLoops>();
  if (is_long(f) && !graph_break("a loop of too many operations in all")) return FrameAction::kRaise;
  return std::nullopt;
}

std::optional<FrameAction> LoopTracing::at_instruction(Frame& f, int opcode) {
  const NumpyApi* np = api_.numpy;
  const bool is_for = opcode == FOR_ITER;
  if (np == nullptr || (is_for ? f.stack_depth() == 0 : !is_at_while(f))) return std::nullopt;
  if (is_for && owner_.fullgraph && context_.state == State::kTracing && may_run(f)) return refuse_long(f);
  if (owner_.fullgraph || owner_.backend || disabled_here()) return std::nullopt;
  const bool trace_open = context_.state == State::kTracing, called = trace_open && &f != context_.root;
  const bool concrete =
      context_.state == State::kResuming || context_.state == State::kBroken || context_.state == State::kConcrete;
  if (trace_open ? !may_break() : !concrete || !may_run(f)) return std::nullopt;
  if (called && (!may_run(f) || !holds_array(f, *np))) return std::nullopt;
  if (owner_.loops == nullptr) owner_.loops = std::make_shared<native::NativeLoops>();
  const std::shared_ptr<native::NativeLoops> loops = owner_.loops;
  const uint64_t number = run_of(f).number;
  bool native = false;
  {
    const Bypass bypass(bypass_);
    native = loops->prepare(f, *np, owner_.options, number) && np->allows_kernels(np->errstate().get());
  }
  if (!native) {
    if (trace_open && !called && is_long(f) && !graph_break("a loop of too many operations in all", true))
      return FrameAction::kRaise;
    return std::nullopt;
  }
  if (called) {
    // Where the call has written to what is older, its caller could not go on behind it.
    loops->note_called(f.code());
    if (ends().has_changed() && ends().retry()) return FrameAction::kRaise;
  }
  if (trace_open) {
    if (!called && !ends().snapshot(f)) return FrameAction::kRun;
    if (!graph_break("a loop over arrays, which runs as native code")) return FrameAction::kRaise;
  }
  if (context_.state == State::kBroken) {
    ends().end_trace();
    modes().set_mode(false);
    context_.state = State::kConcrete;
  }
  const Bypass bypass(bypass_);
  switch (loops->run(f, *np, owner_.options, number)) {
    case native::NativeLoops::Outcome::kNone: return std::nullopt;
    case native::NativeLoops::Outcome::kTakenBack:
      context_.state = State::kConcrete;
      f.root = false;
      return FrameAction::kRun;
    case native::NativeLoops::Outcome::kStopped: return FrameAction::kRaise;
    case native::NativeLoops::Outcome::kDone: break;
  }
  context_.state = State::kConcrete;
  run_of(f).native = true;
  ran_ = &f;
  return FrameAction::kReload;
}

}  // namespace tatara::capture
