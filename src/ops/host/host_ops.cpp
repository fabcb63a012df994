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

std::vector<TensorType> histc_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  // On a GPU integers are counted, too (which expert each token goes to).
  const bool counted = is_floating(self.dtype) || (is_integral(self.dtype) && self.device.kind == DeviceKind::kCuda);
  if (!counted) throw InvalidArgument("histc of such a type");
  const int64_t bins = m.integer(1);
  if (bins <= 0) throw InvalidArgument("bins must be > 0");
  return {contiguous_type(m.ctx(), self.dtype, self.device, {m.ctx().constant(bins)})};
}

std::vector<TensorType> addmv_meta(MetaContext& m) {
  const TensorType &self = m.tensor(0), &mat = m.tensor(1), &vec = m.tensor(2);
  const bool fits = mat.dim() == 2 && vec.dim() == 1 && self.dim() <= 1 && self.dtype == mat.dtype &&
                    mat.dtype == vec.dtype && same_size(m.ctx(), mat.sizes[1], vec.sizes[0]);
  if (!fits) throw InvalidArgument("addmv of such operands");
  TensorType type = contiguous_type(m.ctx(), mat.dtype, mat.device, {mat.sizes[0]});
  const std::vector<Expr>* shapes[] = {&self.sizes, &type.sizes};
  if (!same_sizes(m.ctx(), m.broadcast(shapes), type.sizes)) throw InvalidArgument("addmv: self does not expand");
  return {type};
}

std::vector<TensorType> normal_meta(MetaContext& m) {
  const auto* device = std::get_if<Device>(&m.arg(6));
  return {contiguous_type(m.ctx(), m.dtype(4).value_or(m.default_dtype()), device != nullptr ? *device : Device{},
                          m.ints(2))};
}

/// Of those whose numbers may vary the types are known here: the host would be asked for each value.
void give_types(OpRegistry& r) {
  r.amend("histc").meta = histc_meta;
  r.take_value("histc", "min");
  r.take_value("histc", "max");
  r.amend("addmv").meta = addmv_meta;
  r.take_value("addmv", "beta", {.apart = 0.0});
  r.take_value("addmv", "alpha", {.apart = 0.0});
  r.amend("normal.float_float").meta = normal_meta;
  r.take_value("normal.float_float", "mean");
  r.take_value("normal.float_float", "std", {.low = 0.0});
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
  give_types(r);
}

}  // namespace tatara
