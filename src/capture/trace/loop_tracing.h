// Loops of the program that run as native code (native_loops.h): where a frame comes to one.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

class LoopTracing final : public TraceFeature {
 public:
  explicit LoopTracing(TraceContext& context);

  /// A root frame stands before an instruction. What is to be done with it where that was a loop, which has run as native code;
  /// nullopt: the interpreter goes on. In a trace such a loop breaks the graph.
  std::optional<FrameAction> at_instruction(Frame& f, int opcode);
  /// Whether the frame, which runs for real, may come to such a loop.
  bool may_run(const Frame& f) const;
  /// Whether the frame stands right behind one. Asked once.
  bool has_run(const Frame& f) { return std::exchange(ran_, nullptr) == &f; }

 private:
  bool may_break(const Frame& f) const;
  bool is_at_while(const Frame& f);

  const uint64_t call_;
  const Frame* ran_ = nullptr;
  // What may_run() has found out last, and what was given up until then.
  mutable PyCodeObject* known_ = nullptr;
  mutable bool known_runs_ = false;
  mutable int given_up_ = 0;
  PyCodeObject* without_while_ = nullptr;
};

}  // namespace tatara::capture
