// Parallel loops for kernels, and a pool of its own for compilation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

namespace tatara {

/// Runs fn(context, b, e) over pieces of [begin, end) with e - b >= grain (but for the last piece), on at most
/// num_threads() threads including the caller. Kernels run on the host's OpenMP threads (GOMP_parallel of the libgomp
/// that the host has loaded), so that its and our threads are the same and never compete; without one, on our own
/// threads. Nested calls, calls while another thread uses our own pool, and calls in a forked child whose pool is gone run on
/// the calling thread alone or on new threads, never hang. The first exception of fn is rethrown after all pieces ended.
using RangeFn = void (*)(void* context, int64_t begin, int64_t end);
void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFn fn, void* context);

/// The same for a callable fn(begin, end).
template <typename Fn>
void parallel_for(int64_t begin, int64_t end, int64_t grain, Fn&& fn) {
  using F = std::remove_reference_t<Fn>;
  parallel_for(
      begin, end, grain, [](void* context, int64_t b, int64_t e) { (*static_cast<F*>(context))(b, e); },
      const_cast<void*>(static_cast<const void*>(&fn)));
}

/// Threads of one kernel: the option num_threads, else what the host set (OpenMP's maximum), else the cores that this
/// process may use.
int num_threads();
/// Cores that this process may use (its CPU affinity mask).
int available_cores();
/// "libgomp" or "own": which pool parallel_for uses; settles the choice when it is not settled yet.
std::string thread_pool_kind();
/// For tests and for programs that must not share the host's threads.
void use_own_thread_pool(bool own);

/// Calls task(0) ... task(count - 1), each once, on up to option compile_threads threads (default: all cores) that
/// share nothing with OpenMP. Threads live as long as the call. The first exception is rethrown after all tasks ended;
/// tasks not yet begun are then left out.
void compile_in_parallel(size_t count, const std::function<void(size_t)>& task);

}  // namespace tatara
