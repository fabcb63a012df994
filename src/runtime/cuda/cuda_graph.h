// CUDA graphs: work that the driver records once and launches as a whole.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/cuda/cuda.h"

namespace tatara::cuda {

/// Why this driver cannot record graphs; empty when it can.
std::string graphs_missing();

/// A stream of our own to record on. Throws Error.
void* new_stream();
/// Whether what is launched on the stream is being recorded, or that cannot be told.
bool recording(void* stream);
/// A copy within the device's memory, in the order of the stream.
void copy(void* to, const void* from, size_t bytes, void* stream);

/// A place in a stream's order.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(void* stream);
  bool passed() const;
  /// Until it has passed. Says nothing of errors: what comes next on the device does.
  void wait() const;

 private:
  void* event_ = nullptr;
};

/// A recorded graph, ready to launch.
class Graph {
 public:
  /// `around` launches `copy`, which is a copy of `graph`; null: the graph itself is launched.
  Graph(void* graph, void* executable, void* around = nullptr, void* copy = nullptr)
      : graph_(graph), executable_(executable), around_(around), copy_(copy) {}
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(void* stream);
  /// The node that is launched for one that was recorded.
  void* launched_node(void* recorded) const;
  /// The operands of a kernel in later launches; `node` is a launched one.
  void set_kernel(void* node, Kernel& kernel, int device, const LaunchArguments& arguments);
  size_t size() const;
  /// Whether it is launched as the body of a condition.
  bool is_body() const { return around_ != nullptr; }

 private:
  void* graph_;
  void* executable_;
  void *around_, *copy_;
};

/// Records what is launched on a stream from now on, instead of running it.
class Recording {
 public:
  explicit Recording(void* stream);
  /// Ends it without a graph, if finish() did not.
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  /// What was launched last.
  void* last_node() const;
  /// Throws Unsupported with the reason when something cannot be launched again as it was: a wait, a copy from the host.
  std::unique_ptr<Graph> finish();

 private:
  void* stream_;
  bool open_ = true;
};

}  // namespace tatara::cuda
