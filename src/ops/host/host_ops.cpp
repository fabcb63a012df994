// Operators that Tatara leaves to the host's kernels altogether. Their result types come from the host too (it runs them on
// tensors without data), so that a row here is all that it takes to keep such an operator inside a graph.
#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

enum class Beside : uint8_t { kPlain, kRandom, kChecks };

struct HostRow {
  const char* name;
  const char* schema;
  const char* names;
  Beside beside;
};

constexpr HostRow kRows[] = {
#define TATARA_HOST_OP(name, schema, names, beside) {name, schema, names, Beside::beside},
#include "ops/host/host_ops.def"
#include "ops/host/host_special.def"
#undef TATARA_HOST_OP
};

/// The host has no kernel for tensors without data for lengths that are tensors.
std::vector<TensorType> ctc_loss_meta(MetaContext& m) {
  constexpr size_t kReduction = 5, kBatched = 3;
  TensorType type = m.tensor(0);
  const bool each = m.integer(kReduction) == 0 && type.sizes.size() == kBatched;
  type.sizes = each ? std::vector<Expr>{type.sizes[1]} : std::vector<Expr>();
  type.strides = contiguous_strides(m.ctx(), type.sizes);
  return {std::move(type)};
}

}  // namespace

void register_host_ops(OpRegistry& r) {
  for (const HostRow& row : kRows) {
    OpDef def;
    // Beside an operator with loops of its own, the host's is what takes the calls that one refuses.
    const std::string_view name = row.name;
    def.name = r.find(name) == nullptr ? std::string(name) : str_cat(name, ".host");
    def.kind = row.beside == Beside::kRandom ? OpKind::kRandom : OpKind::kHost;
    def.schema_text = row.schema;
    def.names = row.names;
    const size_t dot = name.find('.');
    def.host_name = name.substr(0, dot);
    if (dot != std::string_view::npos) def.host_overload = name.substr(dot + 1);
    def.nondeterministic = row.beside == Beside::kRandom;
    def.checks_values = row.beside == Beside::kChecks;
    r.add(std::move(def));
  }
  r.amend("ctc_loss.Tensor").meta = ctc_loss_meta;
}

}  // namespace tatara
