#include "compiler/plan_store.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "compiler/kernel_store.h"
#include "loops/parser.h"
#include "ops/core/op_def.h"
#include "runtime/base/cache.h"
#include "schedule/plan_check.h"
#include "schedule/plan_io.h"
#include "support/error.h"
#include "support/hash.h"
#include "support/log.h"
#include "support/made_once.h"
#include "support/utf8.h"

namespace tatara {
namespace {

constexpr uint64_t kFormat = 7;

/// What the linker named this library by (its GNU build id); "" when it has none.
std::string build_id() {
  struct Search {
    uintptr_t inside;
    std::string id;
  } search{reinterpret_cast<uintptr_t>(&plan_key), {}};
  const auto look = [](dl_phdr_info* library, size_t, void* data) {
    auto& wanted = *static_cast<Search*>(data);
    const std::span<const ElfW(Phdr)> headers(library->dlpi_phdr, library->dlpi_phnum);
    const bool ours = std::any_of(headers.begin(), headers.end(), [&](const ElfW(Phdr) & header) {
      const uintptr_t begin = library->dlpi_addr + header.p_vaddr;
      return header.p_type == PT_LOAD && wanted.inside >= begin && wanted.inside - begin < header.p_memsz;
    });
    if (!ours) return 0;
    for (const ElfW(Phdr) & header : headers) {
      if (header.p_type != PT_NOTE) continue;
      const char* at = reinterpret_cast<const char*>(library->dlpi_addr + header.p_vaddr);
      for (const char* const end = at + header.p_memsz; end - at >= static_cast<ptrdiff_t>(sizeof(ElfW(Nhdr)));) {
        ElfW(Nhdr) note;
        std::memcpy(&note, at, sizeof(note));
        const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
        const char* const name = at + sizeof(note);
        const char* const id = name + padded(note.n_namesz);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
          wanted.id.assign(id, note.n_descsz);
          return 1;
        }
        at = id + padded(note.n_descsz);
      }
    }
    return 1;
  };
  dl_iterate_phdr(look, &search);
  return search.id;
}

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
                   static_cast<int64_t>(status.st_mtim.tv_sec), ".", static_cast<int64_t>(status.st_mtim.tv_nsec), " ",
                   build_id());
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

}  // namespace

StoredPlan decode_stored_plan(std::string_view bytes) {
  StoredPlan stored;
  stored.lowered_text = take_text(bytes);
  const std::string plan = take_text(bytes);
  while (!bytes.empty()) {
    std::string subject = take_text(bytes);
    stored.notes.push_back({std::move(subject), take_text(bytes)});
  }
  for (const ScheduleNote& note : stored.notes) {
    if (!is_utf8(note.subject) || !is_utf8(note.text)) throw CompilationError("a note of a cached plan is no text");
  }
  if (!is_utf8(stored.lowered_text)) throw CompilationError("the graph of a cached plan is no text");
  stored.plan = decode_plan({reinterpret_cast<const uint8_t*>(plan.data()), plan.size()});
  return stored;
}

void verify_stored_plan(const Plan& plan, const Graph& graph, const KernelTarget& target) {
  std::unordered_map<std::string_view, loops::Kernel> parsed;  // equal ones are read once
  std::vector<const loops::Kernel*> kernels;
  for (const PlanKernel& info : plan.kernels) {
    const auto [found, is_new] = parsed.try_emplace(info.loop_text);
    if (is_new) found->second = loops::parse_kernel(info.loop_text);
    const KernelRequest request = request_of_text(info.loop_text, info.name, target);
    if (info.cache_key != request.key || info.symbol != request.symbol) {
      throw CompilationError("a kernel of a cached plan has other code than its loops");
    }
    kernels.push_back(&found->second);
  }
  verify_plan(plan, graph, kernels);
}

bool has_constant_sizes(const Graph& graph, const Plan& plan) {
  return plan.size_symbols.empty() && !has_symbols(graph);
}

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
  key.add(options.passes.disabled).add(static_cast<uint64_t>(options.passes.product_processors));
  key.add(static_cast<uint64_t>(options.passes.float32_products)).add(static_cast<uint64_t>(options.passes.of_stage));
  key.add(static_cast<uint64_t>(options.passes.thin_weights));
  key.add(static_cast<uint64_t>(options.passes.wide_products));
  key.add(static_cast<uint64_t>(options.passes.slow_bfloat16));
  key.add(static_cast<uint64_t>(options.passes.vector_bytes));
  return key.finish().str();
}

std::optional<StoredPlan> find_plan(const std::string& key, const Graph& graph, const KernelTarget& target) {
  const std::optional<std::string> bytes = disk_cache(true).get(key);
  if (!bytes) return std::nullopt;
  try {
    StoredPlan stored = decode_stored_plan(*bytes);
    verify_stored_plan(stored.plan, graph, target);
    return stored;
  } catch (const std::exception& error) {
    TATARA_LOG(kCache, error.what());
  }
  disk_cache(true).remove(key);
  return std::nullopt;
}

std::string encode_stored_plan(const Plan& plan, const std::string& lowered_text,
                               const std::vector<ScheduleNote>& notes) {
  const std::vector<uint8_t> encoded = encode_plan(plan);
  std::string bytes;
  put_text(bytes, lowered_text);
  put_text(bytes, {reinterpret_cast<const char*>(encoded.data()), encoded.size()});
  for (const ScheduleNote& note : notes) {
    put_text(bytes, note.subject);
    put_text(bytes, note.text);
  }
  return bytes;
}

void keep_plan(const std::string& key, const Plan& plan, const std::string& lowered_text,
               const std::vector<ScheduleNote>& notes) {
  disk_cache(true).put(key, encode_stored_plan(plan, lowered_text, notes));
}

}  // namespace tatara
