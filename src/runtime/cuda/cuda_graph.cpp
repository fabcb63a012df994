#include "runtime/cuda/cuda_graph.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "runtime/cuda/cuda_driver.h"
#include "support/error.h"
#include "support/made_once.h"
#include "support/str_cat.h"

namespace tatara::cuda {
namespace {

constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING
constexpr unsigned kNoTiming = 2;       // CU_EVENT_DISABLE_TIMING
constexpr int kRelaxed = 2;             // CU_STREAM_CAPTURE_MODE_RELAXED: the host may allocate meanwhile
constexpr int kCopyNode = 1;            // CU_GRAPH_NODE_TYPE_MEMCPY
constexpr int kKernelNode = 0;          // CU_GRAPH_NODE_TYPE_KERNEL
constexpr int kHostNode = 3;            // CU_GRAPH_NODE_TYPE_HOST
constexpr int kConditionalNode = 13;    // CU_GRAPH_NODE_TYPE_CONDITIONAL
constexpr unsigned kAssignDefault = 1;  // CU_GRAPH_COND_ASSIGN_DEFAULT
constexpr size_t kManyNodes = 24;
constexpr int kHostMemory = 1;           // CU_MEMORYTYPE_HOST
constexpr int kUnifiedMemory = 4;        // CU_MEMORYTYPE_UNIFIED
constexpr int kMemoryTypeAttribute = 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE

/// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNodeParams {
  Handle function;
  unsigned grid[3], block[3], shared_bytes;
  void** parameters;
  void** extra;
  Handle kernel, context;
};

/// CUDA_MEMCPY3D_v2
struct CopyEnd {
  size_t x, y, z, lod;
  int memory_type;
  void* host;
  uint64_t device;
  Handle array;
  void* reserved;
  size_t pitch, height;
};
struct CopyParams {
  CopyEnd from, to;
  size_t width, height, depth;
};
static_assert(sizeof(KernelNodeParams) == 72 && sizeof(CopyParams) == 200);

/// CUgraphNodeParams, as far as it describes conditional nodes
struct NodeParams {
  int type;
  int reserved[3];
  uint64_t condition;
  int condition_type;
  unsigned bodies;
  Handle* body;
  Handle context;
  uint64_t unused[26];
};
static_assert(sizeof(NodeParams) == 256);

#define TATARA_GRAPH_FUNCTIONS(F)                                                                             \
  F(cuStreamCreate, "cuStreamCreate", Result(Handle*, unsigned))                                              \
  F(cuStreamIsCapturing, "cuStreamIsCapturing", Result(Handle, int*))                                         \
  F(cuStreamBeginCapture, "cuStreamBeginCapture_v2", Result(Handle, int))                                     \
  F(cuStreamEndCapture, "cuStreamEndCapture", Result(Handle, Handle*))                                        \
  F(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2",                                                      \
    Result(Handle, int*, uint64_t*, Handle*, const Handle**, size_t*))                                        \
  F(cuGraphInstantiate, "cuGraphInstantiateWithFlags", Result(Handle*, Handle, unsigned long long))           \
  F(cuGraphExecKernelNodeSetParams, "cuGraphExecKernelNodeSetParams_v2", Result(Handle, Handle, const void*)) \
  F(cuGraphLaunch, "cuGraphLaunch", Result(Handle, Handle))                                                   \
  F(cuGraphExecDestroy, "cuGraphExecDestroy", Result(Handle))                                                 \
  F(cuGraphDestroy, "cuGraphDestroy", Result(Handle))                                                         \
  F(cuGraphGetNodes, "cuGraphGetNodes", Result(Handle, Handle*, size_t*))                                     \
  F(cuGraphNodeGetType, "cuGraphNodeGetType", Result(Handle, int*))                                           \
  F(cuGraphMemcpyNodeGetParams, "cuGraphMemcpyNodeGetParams", Result(Handle, void*))                          \
  F(cuPointerGetAttribute, "cuPointerGetAttribute", Result(void*, int, uint64_t))                             \
  F(cuEventCreate, "cuEventCreate", Result(Handle*, unsigned))                                                \
  F(cuEventRecord, "cuEventRecord", Result(Handle, Handle))                                                   \
  F(cuEventQuery, "cuEventQuery", Result(Handle))                                                             \
  F(cuEventSynchronize, "cuEventSynchronize", Result(Handle))                                                 \
  F(cuEventDestroy, "cuEventDestroy_v2", Result(Handle))                                                      \
  F(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", Result(uint64_t, uint64_t, size_t, Handle))

// From CUDA 12.4 on.
#define TATARA_BODY_FUNCTIONS(F)                                                                                  \
  F(cuGraphCreate, "cuGraphCreate", Result(Handle*, unsigned))                                                    \
  F(cuGraphConditionalHandleCreate, "cuGraphConditionalHandleCreate",                                             \
    Result(uint64_t*, Handle, Handle, unsigned, unsigned))                                                        \
  F(cuGraphAddNode, "cuGraphAddNode", Result(Handle*, Handle, const Handle*, size_t, NodeParams*))                \
  F(cuGraphAddChildGraphNode, "cuGraphAddChildGraphNode", Result(Handle*, Handle, const Handle*, size_t, Handle)) \
  F(cuGraphChildGraphNodeGetGraph, "cuGraphChildGraphNodeGetGraph", Result(Handle, Handle*))                      \
  F(cuGraphNodeFindInClone, "cuGraphNodeFindInClone", Result(Handle*, Handle, Handle))                            \
  F(cuGraphGetEdges, "cuGraphGetEdges", Result(Handle, Handle*, Handle*, size_t*))

struct GraphApi {
#define TATARA_DECLARE(name, symbol, ...) Pointer<__VA_ARGS__> name = nullptr;
  TATARA_GRAPH_FUNCTIONS(TATARA_DECLARE)
  TATARA_BODY_FUNCTIONS(TATARA_DECLARE)
#undef TATARA_DECLARE
  std::string why_not;
  bool bodies = true;  // nodes can have graphs as bodies
};

const GraphApi& graph_api() {
  return *made_once([] {
    auto made = std::make_unique<GraphApi>();
    made->why_not = driver().why_not;
    if (!made->why_not.empty()) return made;
#define TATARA_FIND(name, symbol, ...)                                                  \
  made->name = reinterpret_cast<Pointer<__VA_ARGS__>>(dlsym(driver().library, symbol)); \
  if (made->name == nullptr) made->why_not = "the NVIDIA driver is too old: it lacks " symbol;
    TATARA_GRAPH_FUNCTIONS(TATARA_FIND)
#undef TATARA_FIND
#define TATARA_FIND(name, symbol, ...)                                                  \
  made->name = reinterpret_cast<Pointer<__VA_ARGS__>>(dlsym(driver().library, symbol)); \
  made->bodies = made->bodies && made->name != nullptr;
    TATARA_BODY_FUNCTIONS(TATARA_FIND)
#undef TATARA_FIND
    return made;
  });
}

std::vector<Handle> nodes_of(Handle graph) {
  size_t count = 0;
  check(graph_api().cuGraphGetNodes(graph, nullptr, &count), "reading a graph");
  std::vector<Handle> nodes(count);
  check(graph_api().cuGraphGetNodes(graph, nodes.data(), &count), "reading a graph");
  return nodes;
}

int type_of(Handle node) {
  int type = 0;
  check(graph_api().cuGraphNodeGetType(node, &type), "reading a graph");
  return type;
}

/// Whether a launch takes the host time for each node. Kernels in a row do not: the driver keeps what it launches.
bool slow_to_launch(Handle graph) {
  const std::vector<Handle> nodes = nodes_of(graph);
  if (nodes.size() < kManyNodes) return false;
  size_t edges = 0;
  if (graph_api().cuGraphGetEdges(graph, nullptr, nullptr, &edges) != 0) return false;
  return edges + 1 != nodes.size() ||
         std::any_of(nodes.begin(), nodes.end(), [](Handle node) { return type_of(node) != kKernelNode; });
}

/// A graph that launches another one, and that one's copy in it.
struct Around {
  Handle graph = nullptr, copy = nullptr;
};

/// The graph as the body of a condition that always holds. The GPU itself starts a body's nodes, so that launching it takes the
/// host the same time whatever their number and kind: measured on an H200 with driver 580, 123 kernels between which 24 nodes
/// clear memory take 38 us as they are and 8 us as a body.
Around as_body(Handle graph) {
  Around made;
  uint64_t condition = 0;
  Handle node = nullptr, context = nullptr;
  const auto fine = [](Result code) { return code == 0; };
  bool good = fine(driver().cuCtxGetCurrent(&context)) && fine(graph_api().cuGraphCreate(&made.graph, 0)) &&
              fine(graph_api().cuGraphConditionalHandleCreate(&condition, made.graph, context, 1, kAssignDefault));
  NodeParams params{};
  params.type = kConditionalNode;
  params.condition = condition;
  params.bodies = 1;
  params.context = context;
  good = good && fine(graph_api().cuGraphAddNode(&node, made.graph, nullptr, 0, &params));
  good = good && fine(graph_api().cuGraphAddChildGraphNode(&node, params.body[0], nullptr, 0, graph)) &&
         fine(graph_api().cuGraphChildGraphNodeGetGraph(node, &made.copy));
  if (good) return made;
  if (made.graph != nullptr) graph_api().cuGraphDestroy(made.graph);
  return {};
}

/// Why the graph cannot be launched again; empty when it can. What a copy read from the host's memory while the graph was
/// recorded may be gone or changed by then.
std::string objection(Handle graph) {
  for (Handle node : nodes_of(graph)) {
    const int type = type_of(node);
    if (type == kHostNode) return "it calls a function of the host";
    if (type != kCopyNode) continue;
    CopyParams params{};
    check(graph_api().cuGraphMemcpyNodeGetParams(node, &params), "reading a graph");
    uint32_t memory = static_cast<uint32_t>(params.from.memory_type);
    if (params.from.memory_type == kUnifiedMemory &&
        graph_api().cuPointerGetAttribute(&memory, kMemoryTypeAttribute, params.from.device) != 0) {
      memory = kHostMemory;
    }
    if (memory == kHostMemory) return "it copies from the host's memory";
  }
  return {};
}

}  // namespace

std::string graphs_missing() { return graph_api().why_not; }

void* new_stream() {
  Handle stream = nullptr;
  check(graph_api().cuStreamCreate(&stream, kNonBlocking), "making a stream");
  return stream;
}

bool recording(void* stream) {
  int status = 0;
  return graph_api().cuStreamIsCapturing(stream, &status) != 0 || status != 0;
}

void copy(void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return;
  check(graph_api().cuMemcpyDtoDAsync(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, stream),
        "copying on the GPU");
}

Event::Event() { check(graph_api().cuEventCreate(&event_, kNoTiming), "making an event"); }
Event::~Event() { graph_api().cuEventDestroy(event_); }
void Event::record(void* stream) { check(graph_api().cuEventRecord(event_, stream), "recording an event"); }
bool Event::passed() const { return graph_api().cuEventQuery(event_) == 0; }
void Event::wait() const { graph_api().cuEventSynchronize(event_); }

Graph::~Graph() {
  // Errors (the driver is shutting down) have nobody to hear them.
  graph_api().cuGraphExecDestroy(executable_);
  if (around_ != nullptr) graph_api().cuGraphDestroy(around_);
  graph_api().cuGraphDestroy(graph_);
}

void Graph::launch(void* stream) { check(graph_api().cuGraphLaunch(executable_, stream), "launching a graph"); }

size_t Graph::size() const { return nodes_of(graph_).size(); }

void* Graph::launched_node(void* recorded) const {
  if (around_ == nullptr) return recorded;
  Handle found = nullptr;
  check(graph_api().cuGraphNodeFindInClone(&found, recorded, copy_), "reading a graph");
  return found;
}

void Graph::set_kernel(void* node, Kernel& kernel, int device, const LaunchArguments& arguments) {
  kernel.with_parameters(device, arguments, [&](void* function, void** parameters) {
    const KernelNodeParams params{function,
                                  {static_cast<unsigned>(arguments.blocks), 1, 1},
                                  {static_cast<unsigned>(arguments.threads), 1, 1},
                                  static_cast<unsigned>(arguments.shared),
                                  parameters,
                                  nullptr,
                                  nullptr,
                                  nullptr};
    check(graph_api().cuGraphExecKernelNodeSetParams(executable_, node, &params), "changing a graph");
  });
}

Recording::Recording(void* stream) : stream_(stream) {
  check<Unsupported>(graph_api().cuStreamBeginCapture(stream, kRelaxed), "recording a graph");
}

Recording::~Recording() {
  if (!open_) return;
  Handle graph = nullptr;
  graph_api().cuStreamEndCapture(stream_, &graph);
  if (graph != nullptr) graph_api().cuGraphDestroy(graph);
}

void* Recording::last_node() const {
  int status = 0;
  uint64_t id = 0;
  size_t count = 0;
  Handle graph = nullptr;
  const Handle* nodes = nullptr;
  check<Unsupported>(graph_api().cuStreamGetCaptureInfo(stream_, &status, &id, &graph, &nodes, &count),
                     "recording a graph");
  if (count != 1) throw Unsupported("recording a graph: a kernel has no node of its own");
  return nodes[0];
}

std::unique_ptr<Graph> Recording::finish() {
  open_ = false;
  Handle graph = nullptr;
  check<Unsupported>(graph_api().cuStreamEndCapture(stream_, &graph), "recording a graph");
  std::string why;
  try {
    why = objection(graph);
    if (why.empty() && graph_api().bodies && slow_to_launch(graph)) {
      const Around around = as_body(graph);
      Handle executable = nullptr;
      if (around.graph != nullptr && graph_api().cuGraphInstantiate(&executable, around.graph, 0) == 0) {
        return std::make_unique<Graph>(graph, executable, around.graph, around.copy);
      }
      if (around.graph != nullptr) graph_api().cuGraphDestroy(around.graph);  // not everything may be in a body
    }
  } catch (const Error& error) {
    why = error.what();
  }
  Handle executable = nullptr;
  if (why.empty()) {
    const Result code = graph_api().cuGraphInstantiate(&executable, graph, 0);
    if (code != 0) why = "it cannot be made ready: " + error_text(code);
  }
  if (!why.empty()) {
    graph_api().cuGraphDestroy(graph);
    throw Unsupported(why);
  }
  return std::make_unique<Graph>(graph, executable);
}

}  // namespace tatara::cuda
