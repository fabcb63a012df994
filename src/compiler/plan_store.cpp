#include "compiler/plan_store.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "compiler/kernel_store.h"
#include "ops/core/op_def.h"
#include "runtime/base/cache.h"
#include "schedule/plan_io.h"
#include "support/error.h"
#include "support/hash.h"
#include "support/made_once.h"
#include "support/options.h"

namespace tatara {
namespace {

constexpr uint64_t kFormat = 5;

/// Tells builds of Tatara apart: plans hold the choices of the passes that made them.
std::string build_stamp() {
  return made_once([] {
    Dl_info info{};
    struct stat status{};
    if (dladdr(reinterpret_cast<const void*>(&plan_key), &info) == 0 || info.dli_fname == nullptr ||
        stat(info.dli_fname, &status) != 0) {
      return std::string();
    }
    return str_cat(info.dli_fname, " ", static_cast<int64_t>(status.st_size), " ",
                   static_cast<int64_t>(status.st_mtim.tv_sec), ".", static_cast<int64_t>(status.st_mtim.tv_nsec));
  });
}

bool all_const(const std::vector<Expr>& list) {
  return std::all_of(list.begin(), list.end(), [](const Expr& e) { return e.is_const(); });
}

bool has_symbols(const Graph& graph) {
  for (size_t v = 0; v < graph.num_values(); ++v) {
    const TensorType& type = graph.type(static_cast<ValueId>(v));
    if (!all_const(type.sizes) || !all_const(type.strides)) return true;
  }
  for (const Node& node : graph.nodes()) {
    for (const Arg& arg : node.args) {
      if (const auto* list = std::get_if<SymInts>(&arg)) {
        if (!all_const(list->values)) return true;
      } else if (const auto* scalar = std::get_if<Scalar>(&arg)) {
        const auto* expr = std::get_if<Expr>(scalar);
        if (expr != nullptr && !expr->is_const()) return true;
      }
    }
  }
  return false;
}

void put_text(std::string& out, std::string_view text) {
  const uint64_t size = text.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof(size));
  out.append(text);
}

/// Takes what put_text wrote off the front of `bytes`.
std::string take_text(std::string_view& bytes) {
  uint64_t size = 0;
  if (bytes.size() < sizeof(size)) throw CompilationError("a cached plan is truncated");
  std::memcpy(&size, bytes.data(), sizeof(size));
  bytes.remove_prefix(sizeof(size));
  if (bytes.size() < size) throw CompilationError("a cached plan is truncated");
  std::string text(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return text;
}

StoredPlan decode(std::string_view bytes) {
  StoredPlan stored;
  stored.lowered_text = take_text(bytes);
  const std::string plan = take_text(bytes);
  while (!bytes.empty()) {
    std::string subject = take_text(bytes);
    stored.notes.push_back({std::move(subject), take_text(bytes)});
  }
  stored.plan = decode_plan({reinterpret_cast<const uint8_t*>(plan.data()), plan.size()});
  return stored;
}

}  // namespace

std::string plan_key(const Graph& graph, const ScheduleOptions& options, const KernelTarget& target) {
  if (build_stamp().empty() || has_symbols(graph)) return {};
  KeyBuilder key;
  key.add("plan").add(kFormat).add(build_stamp()).add(target_key(target)).add(print_graph(graph, true));
  for (const Node& node : graph.nodes()) {
    key.add(node.op->host_name).add(node.op->host_overload).add(static_cast<uint64_t>(node.again));
  }
  key.add(static_cast<uint64_t>(options.vector_bytes)).add(static_cast<uint64_t>(options.num_threads));
  if (options.gpu) {
    key.add("gpu").add(static_cast<uint64_t>(options.gpu->multiprocessors));
    key.add(static_cast<uint64_t>(options.gpu->vector_bytes)).add(static_cast<uint64_t>(options.gpu->max_threads));
  }
  key.add(static_cast<uint64_t>(options.fuse)).add(static_cast<uint64_t>(options.plan_memory));
  key.add(option_text(Option::kDisable)).add(static_cast<uint64_t>(option_int(Option::kOptLevel)));
  return key.finish().str();
}

std::optional<StoredPlan> find_plan(const std::string& key, const Graph& graph) {
  const std::optional<std::string> bytes = disk_cache().get(key);
  if (!bytes) return std::nullopt;
  try {
    StoredPlan stored = decode(*bytes);
    if (stored.plan.inputs.size() == graph.inputs().size() && stored.plan.outputs.size() == graph.outputs().size()) {
      return stored;
    }
  } catch (const Error&) {
    // Damaged in a way that the cache's checksum does not see: compile again, which overwrites it.
  }
  return std::nullopt;
}

void keep_plan(const std::string& key, const Plan& plan, const std::string& lowered_text,
               const std::vector<ScheduleNote>& notes) {
  const std::vector<uint8_t> encoded = encode_plan(plan);
  std::string bytes;
  put_text(bytes, lowered_text);
  put_text(bytes, {reinterpret_cast<const char*>(encoded.data()), encoded.size()});
  for (const ScheduleNote& note : notes) {
    put_text(bytes, note.subject);
    put_text(bytes, note.text);
  }
  disk_cache().put(key, bytes);
}

}  // namespace tatara
