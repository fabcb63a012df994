// Loops of the program that run as native code (native_loops.h): where a frame comes to one.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "capture/trace/trace_context.h"

namespace tatara::capture {

class LoopTracing final : public TraceFeature {
 public:
  explicit LoopTracing(TraceContext& context);

  /// A frame stands before an instruction. What is to be done with it where that was a loop, which has run as native code;
  /// nullopt: the interpreter goes on. In a trace such a loop breaks the graph, also in a function that is called.
  std::optional<FrameAction> at_instruction(Frame& f, int opcode);
  /// Whether the frame, which runs for real, may come to such a loop.
  bool may_run(const Frame& f) const;
  /// The same of a function that is called, where its loops may be worth it.
  bool may_run_in(const Frame& called) const;
  /// Whether instructions of a function that a trace enters are to be looked at.
  bool watches(const Frame& called) const;
  /// Whether the graph is to break where the function is called: it has had such a loop before.
  bool breaks_before(const Frame& called) const;
  /// Whether a graph may begin where the frame stands, without torch: behind such a loop or a call that had one, or where a
  /// function begins that may come to one. Asked once.
  bool begins(const Frame& f) { return std::exchange(ran_, nullptr) == &f || (f.offset() == 0 && may_run_in(f)); }
  void leaves(const Frame& f);

 private:
  bool may_break() const;
  bool is_at_while(const Frame& f);
  /// The run of a frame that came to a loop.
  struct Run {
    const Frame* frame;
    uint64_t number;
    bool native = false;  // it had one that ran as native code
    // The loop that a trace unrolls: its place, the turns so far, and the operations before the present one.
    int head = -1, turns = 0;
    size_t nodes = 0;
  };
  Run& run_of(const Frame& f);
  bool is_long(const Frame& f);
  std::optional<FrameAction> refuse_long(const Frame& f);

  const Frame* ran_ = nullptr;
  std::vector<Run> runs_;
  // What may_run() has found out last, and what was given up until then.
  mutable PyCodeObject* known_ = nullptr;
  mutable bool known_runs_ = false;
  mutable int given_up_ = 0;
  PyCodeObject* without_while_ = nullptr;
};

}  // namespace tatara::capture
