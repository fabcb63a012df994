// What a compiled graph becomes: a flat list of steps over a table of buffers.
//
// A Plan is immutable after construction and serialises for the disk cache. It knows nothing of Python or torch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ir/graph.h"
#include "loops/tensor_map.h"
#include "symbolic/expr.h"

namespace tatara {

using BufferId = int32_t;

/// Where a buffer of the plan lives.
enum class BufferHome : uint8_t {
  kInput,     // memory of graph input `index`
  kOutput,    // allocated by the host for graph output `index` (or shared by several outputs that alias)
  kArena,     // at `offset` of the plan's arena
  kConstant,  // bytes kept by the plan
  kHost,      // allocated by a host call that returns its result (data known only after that step)
};
/// "input", "arena" and so on, as schedules and reports print it.
const char* home_name(BufferHome home);

struct PlanBuffer {
  BufferHome home = BufferHome::kArena;
  int index = -1;
  Expr offset;  // kArena: bytes, 64-byte aligned
  Expr nbytes;
  DType dtype = DType::kFloat32;
  Device device;
  std::vector<Expr> sizes;  // layout of the tensor the buffer holds
  std::vector<Expr> strides;
  std::vector<uint8_t> constant;  // kConstant
};

/// A view of a buffer as a host operator or an output sees it. Offset in elements.
struct BufferRef {
  BufferId buffer = -1;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  Expr offset;
  DType dtype = DType::kFloat32;  // differs from the buffer's for bit-cast views (complex as real)
};

struct KernelLaunch {
  int kernel = -1;  // index into Plan::kernels
  std::vector<BufferId> buffers;
  std::vector<Expr> sizes;           // values of the kernel's size symbols
  std::vector<Expr> buffer_offsets;  // elements, added to the base pointers; invalid: 0
  Expr parallel_iterations;          // size of the collapsed parallel space
  Expr work;                         // estimated scalar operations, to choose the grain
  /// It sets an output to zero before anything else uses it, and most of that stays zero: needless where the memory is zero.
  bool clears = false;
  int gpu_threads = 0;     // of a block; 0: runs on the CPU
  int64_t gpu_shared = 0;  // bytes of a block's shared memory beside what the code says
  Expr gpu_blocks;
  /// Of a launch for a list of items (loops/list_table.h): blocks of each item. Buffers and sizes are then those of the
  /// first item, of the second one, and so on.
  std::vector<Expr> item_blocks;
  int list_items = 0;                  // that the kernel's table has room for
  std::vector<loops::TensorMap> maps;  // that the kernel gets behind all else
};

/// An operator run by the host. Arguments are the node's, with tensors replaced by BufferRefs.
struct HostCall {
  std::string op;        // "aten::addmm"
  std::string overload;  // "out"
  struct TensorSlot {
    int index;
  };  // into tensors, -1: None
  struct TensorListSlot {
    std::vector<int> indices;
  };
  struct OutSlot {
    int index;
  };  // out= argument writing tensors[index]
  struct NumberSlot {
    int index;
  };  // a number, which tensors[index] holds when the call is made
  using HostArg = std::variant<NoneArg, TensorSlot, TensorListSlot, OutSlot, NumberSlot, Scalar, SymInts, DType, Device,
                               std::string, std::vector<bool>, std::vector<double>>;
  std::vector<HostArg> args;  // in the order of the host's schema
  std::vector<BufferRef> tensors;
  std::vector<BufferId> results;  // kHost buffers bound to returned tensors (empty for out= forms)
  SourceLocation location;
  NodeId node = -1;  // of the lowered graph
};

using PlanStep = std::variant<KernelLaunch, HostCall>;

/// Whether the step waits until a GPU has computed a condition of the program (kDecideCall).
bool awaits_condition(const HostCall& call);
bool awaits_condition(const PlanStep& step);

struct PlanInput {
  TensorType type;
  bool used = true;
};

struct PlanOutput {
  BufferRef ref;
  OutputAlias alias;  // kInput: a view on the input's tensor, nothing allocated
};

struct PlanKernel {
  std::string name;
  std::string symbol;
  std::string loop_text;  // kept for explain()
  std::string llvm_text;  // empty when it came from the cache
  std::string cache_key;
  std::vector<std::string> fused_ops;
  std::vector<NodeId> nodes;                  // of the lowered graph, computed in this kernel
  int64_t bytes_read = 0, bytes_written = 0;  // under the hints
  std::vector<std::string> fault_sites;       // message per IndexValue site
  /// Whether it looks at conditions that the program has asked for.
  bool decides() const;
  bool fails_as_host() const;
};

/// Product of schedule/; runtime/plan/executable.h adds the code and runs it.
struct Plan {
  std::shared_ptr<ExprContext> ctx;
  std::vector<Expr> size_symbols;  // s0, s1, ... in the order of run-time values
  std::vector<PlanInput> inputs;
  std::vector<PlanBuffer> buffers;
  std::vector<PlanKernel> kernels;
  std::vector<PlanStep> steps;
  std::vector<PlanOutput> outputs;
  std::vector<InputWrite> input_writes;  // already carried out by steps; listed for version counters
  int32_t first_write = -1;              // the first step that writes to an input; -1: none does
  Expr arena_bytes;

  /// Whether a step looks at conditions that the program has asked for.
  bool decides() const;
};

}  // namespace tatara
