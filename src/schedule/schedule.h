// Graph -> kernels and host calls in order, with the memory plan.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "loops/kernel.h"
#include "schedule/plan.h"
#include "support/pass_options.h"

namespace tatara {

/// What the scheduler knows of a GPU.
struct GpuShape {
  int multiprocessors = 132;
  int vector_bytes = 16;   // of the widest access of a thread
  int max_threads = 1024;  // of a block
};

struct ScheduleOptions {
  std::optional<GpuShape> gpu = {};  // for a GPU; none: for CPUs
  int vector_bytes = 64;
  int num_threads = 1;
  bool fuse = true;
  bool plan_memory = true;
  PassOptions passes = {};
};

/// One choice and why: "not fused: sizes differ".
struct ScheduleNote {
  std::string subject;
  std::string text;
};

/// A plan whose kernels have loops but no code yet: kernels[i] belongs to plan.kernels[i]. Equal ones are one object.
struct Schedule {
  Plan plan;
  std::vector<std::shared_ptr<loops::Kernel>> kernels;
  std::vector<ScheduleNote> notes;
};

/// Lowers a decomposed graph (every node is a primitive with `lower`, or has a host kernel).
Schedule schedule_graph(const Graph& graph, const ScheduleOptions& options);

std::string print_schedule(const Schedule& schedule);

}  // namespace tatara
