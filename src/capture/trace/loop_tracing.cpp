#include "capture/trace/loop_tracing.h"

#include <opcode.h>

#include <atomic>

#include "capture/entries/owner.h"
#include "capture/host/numpy_api.h"
#include "capture/native/native_loops.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_modes.h"
#include "support/log.h"

namespace tatara::capture {

LoopTracing::LoopTracing(TraceContext& context)
    : TraceFeature(context), call_([] {
        static std::atomic<uint64_t> calls = 0;
        return ++calls;
      }()) {}

/// Whether the present trace may end here without anybody having asked for one graph.
bool LoopTracing::may_break(const Frame& f) const {
  return &f == context_.root && context_.ahead == nullptr && !context_.dry_run && context_.whole.empty() &&
         trace_->pending_break.empty();
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

/// Whether a loop by a condition begins here. Asked before each instruction, so code without one is known by its address.
bool LoopTracing::is_at_while(const Frame& f) {
  if (f.code() != without_while_ && (context_.state == State::kTracing ? &f == context_.root : may_run(f))) {
    if (owner_.loops == nullptr) owner_.loops = std::make_shared<native::NativeLoops>();
    if (!owner_.loops->has_while(f.code())) {
      without_while_ = f.code();
      return false;
    }
    return owner_.loops->is_while(f);
  }
  return false;
}

std::optional<FrameAction> LoopTracing::at_instruction(Frame& f, int opcode) {
  const NumpyApi* np = api_.numpy;
  const bool is_for = opcode == FOR_ITER;
  if (np == nullptr || (is_for ? f.stack_depth() == 0 : !is_at_while(f))) return std::nullopt;
  if (owner_.fullgraph || owner_.backend || disabled_here()) return std::nullopt;
  const bool trace_open = context_.state == State::kTracing;
  const bool concrete =
      context_.state == State::kResuming || context_.state == State::kBroken || context_.state == State::kConcrete;
  if (trace_open ? !may_break(f) : !concrete || !may_run(f)) return std::nullopt;
  if (owner_.loops == nullptr) owner_.loops = std::make_shared<native::NativeLoops>();
  const std::shared_ptr<native::NativeLoops> loops = owner_.loops;
  {
    const Bypass bypass(bypass_);
    if (!loops->prepare(f, *np, owner_.options, call_) || !np->allows_kernels(np->errstate().get()))
      return std::nullopt;
  }
  if (trace_open) {
    if (!ends().snapshot(f)) return FrameAction::kRun;
    if (!graph_break("a loop over arrays, which runs as native code")) return FrameAction::kRaise;
  }
  if (context_.state == State::kBroken) {
    ends().end_trace();
    modes().set_mode(false);
    context_.state = State::kConcrete;
  }
  const Bypass bypass(bypass_);
  switch (loops->run(f, *np, owner_.options, call_)) {
    case native::NativeLoops::Outcome::kNone: return std::nullopt;
    case native::NativeLoops::Outcome::kTakenBack:
      context_.state = State::kConcrete;
      f.root = false;
      return FrameAction::kRun;
    case native::NativeLoops::Outcome::kStopped: return FrameAction::kRaise;
    case native::NativeLoops::Outcome::kDone: break;
  }
  context_.state = State::kConcrete;
  ran_ = &f;
  return FrameAction::kReload;
}

}  // namespace tatara::capture
