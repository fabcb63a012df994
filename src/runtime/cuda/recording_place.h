// Where CUDA graphs are recorded.
#pragma once

#include <memory>

#include "runtime/host/host.h"

namespace tatara {

/// A stream to record on, and the pool from which the host's libraries have their workspaces for it. They keep these for as long
/// as the process lives, so places do as well, and serve one executable after another.
struct RecordingPlace {
  int device = 0;
  void* stream = nullptr;
  std::unique_ptr<MemoryPool> workspaces;
};
std::unique_ptr<RecordingPlace> take_place(HostOps& host, int device);
void give_back_place(std::unique_ptr<RecordingPlace> place);

/// Runs two small products, so that the library for them has this thread's workspaces for the stream.
void make_workspaces(HostOps& host, RecordingPlace& place);

/// While it lives, this thread allocates from the pool.
class PoolScope {
 public:
  explicit PoolScope(MemoryPool& pool) : pool_(pool) { pool_.begin(); }
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  MemoryPool& pool_;
};

}  // namespace tatara
