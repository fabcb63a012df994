// Operators that Tatara leaves to the host's kernels altogether. Their result types come from the host too (it runs them on
// tensors without data), so that a row here is all that it takes to keep such an operator inside a graph.
#include <algorithm>
#include <sstream>

#include "ops/family_util.h"

namespace tatara {
namespace {

struct HostRow {
  const char* name;
  const char* schema;
  const char* names;
  bool random;
};

constexpr HostRow kRows[] = {
#define TATARA_HOST_OP(name, schema, names, random) {name, schema, names, random},
#include "ops/host_ops.def"
#undef TATARA_HOST_OP
};

}  // namespace

void register_host_ops(OpRegistry& r) {
  const std::vector<std::string> taken = r.python_names();
  for (const HostRow& row : kRows) {
    if (r.find(row.name) != nullptr) continue;
    OpDef def;
    def.name = row.name;
    def.kind = row.random ? OpKind::kRandom : OpKind::kHost;
    def.schema_text = row.schema;
    std::istringstream words(row.names);
    for (std::string word; words >> word;) {
      if (std::binary_search(taken.begin(), taken.end(), word)) continue;
      def.names += (def.names.empty() ? "" : " ") + word;
    }
    if (def.names.empty()) continue;
    const std::string_view name = row.name;
    const size_t dot = name.find('.');
    if (dot != std::string_view::npos) def.host_overload = name.substr(dot + 1);
    def.nondeterministic = row.random;
    r.add(std::move(def));
  }
}

}  // namespace tatara
