// A loop as one step of a plan: another plan that runs turn after turn.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/plan/executable.h"
#include "runtime/plan/run_context.h"
#include "schedule/plan.h"

namespace tatara {

/// What the step needs beside its operands (ops/rules/loop_node.h): the compiled body, and where in memory turns read and write.
struct LoopPlan {
  std::shared_ptr<const Executable> body;
  int64_t turns = 0;
  bool reverse = false;
  std::vector<bool> history;  // per carried value
  struct Scan {
    int64_t start = 0, step = 0;  // bytes
  };
  std::vector<Scan> scans;
  struct Result {
    int64_t bytes = 0;
    int64_t buffer = -1;  // among the body's output buffers; -1: the host makes it
    int64_t item = 4;     // bytes of an element
  };
  std::vector<Result> results;  // per output of the body
};

bool is_loop_call(const HostCall& call);
/// A step that writes numbers of the program to memory, for loops.
bool is_table_call(const HostCall& call);
void run_table(const HostCall& call, const HostState& state, const RunContext& context);
/// The step: `state` has its operands, followed by its results.
void run_loop(const LoopPlan& plan, const HostCall& call, HostState& state, RunContext& context, HostOps& host);

}  // namespace tatara
