// Random numbers come from host kernels, so that the generator moves exactly as in eager.
#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// Of a state of the host's CPU generator.
constexpr int64_t kGeneratorBytes = 5056;

/// A fresh tensor of the sizes in argument `size_arg`; without a dtype argument (`dtype_arg`) it has torch.get_default_dtype().
MetaFn factory_meta(size_t size_arg, size_t dtype_arg) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    Device device;
    for (size_t i = 0; i < m.num_args(); ++i) {
      if (const auto* given = std::get_if<Device>(&m.arg(i))) device = *given;
    }
    const DType dtype = m.dtype(dtype_arg).value_or(m.default_dtype());
    return {contiguous_type(m.ctx(), dtype, device, m.ints(size_arg))};
  };
}

std::vector<TensorType> permutation_meta(MetaContext& m) {
  Device device;
  for (size_t i = 0; i < m.num_args(); ++i) {
    if (const auto* given = std::get_if<Device>(&m.arg(i))) device = *given;
  }
  return {contiguous_type(m.ctx(), m.dtype(1).value_or(DType::kInt64), device, {m.ctx().constant(m.integer(0))})};
}

/// Results like self, with strides kept.
MetaFn like_meta(int dtype_arg) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    TensorType type = m.tensor(0);
    type.is_wrapped_number = false;
    if (dtype_arg >= 0) type.dtype = m.dtype(static_cast<size_t>(dtype_arg)).value_or(type.dtype);
    const TensorType* operands[] = {&m.tensor(0)};
    type.strides = m.iterator_strides(type.sizes, operands);
    return {type};
  };
}

/// Numbers that are written into a tensor: they are drawn in the order of memory, which a copy shares where there are no gaps.
MetaFn filled_meta(bool contiguous) {
  return [contiguous](MetaContext& m) -> std::vector<TensorType> {
    TensorType type = m.tensor(0);
    type.is_wrapped_number = false;
    const TensorType* operands[] = {&m.tensor(0)};
    const std::vector<Expr> strides =
        contiguous ? contiguous_strides(m.ctx(), type.sizes) : m.iterator_strides(type.sizes, operands);
    for (size_t i = 0; i < strides.size(); ++i) {
      if (strides[i] != type.strides[i] && !type.sizes[i].is_const(1)) {
        throw Unsupported("random numbers in place, in a tensor that does not lie in one piece");
      }
    }
    type.strides = strides;
    return {type};
  };
}

std::vector<TensorType> contiguous_like_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  return {contiguous_type(m.ctx(), self.dtype, self.device, self.sizes)};
}

/// In-place forms: the host's own functional ones copy the tensor first.
void register_fillers(OpRegistry& r) {
  struct Filler {
    const char *name, *overload, *host, *arguments, *method;
  };
  static constexpr Filler kFillers[] = {
      {"bernoulli_fill", "p", "aten::bernoulli", "float p=0.5", "torch.Tensor.bernoulli_"},
      {"bernoulli_fill.tensor", "Tensor", "aten::bernoulli", "Tensor p", "torch.Tensor.bernoulli_"},
      {"uniform_fill", "", "aten::uniform", "float from=0., float to=1.", "torch.Tensor.uniform_"},
      {"normal_fill", "", "aten::normal_functional", "float mean=0., float std=1.", "torch.Tensor.normal_"},
      {"exponential_fill", "", "aten::exponential", "float lambd=1.", "torch.Tensor.exponential_"},
      {"cauchy_fill", "", "aten::cauchy", "float median=0., float sigma=1.", "torch.Tensor.cauchy_"},
      {"log_normal_fill", "", "aten::log_normal", "float mean=1., float std=2.", "torch.Tensor.log_normal_"},
      {"geometric_fill", "", "aten::geometric", "float p", "torch.Tensor.geometric_"},
      {"random_fill", "", "aten::random", "", "torch.Tensor.random_"},
      {"random_fill.to", "to", "aten::random", "int to", "torch.Tensor.random_"},
      {"random_fill.from", "from", "aten::random", "int from, int? to", "torch.Tensor.random_"},
  };
  for (const Filler& row : kFillers) {
    const std::string arguments = *row.arguments == 0 ? "" : std::string(", ") + row.arguments;
    const std::string schema = "(Tensor self" + arguments + ", *, Generator? generator=None) -> Tensor";
    OpDef def = make_op({row.name, OpKind::kRandom, schema.c_str(), "", row.method},
                        filled_meta(std::string_view(row.host) == "aten::bernoulli"));
    def.host_name = row.host;
    def.host_overload = row.overload;
    def.nondeterministic = true;
    r.add(std::move(def));
  }
}

/// Masks of a CPU (runtime/host/random_ops.h).
void register_masks(OpRegistry& r) {
  {
    OpDef def = make_op({"bernoulli_mask", OpKind::kRandom, "(SymInt[] size, float p, ScalarType like) -> Tensor", ""},
                        [](MetaContext& m) -> std::vector<TensorType> {
                          return {contiguous_type(m.ctx(), DType::kBool, Device{}, m.ints(0))};
                        });
    def.host_name = "tatara::bernoulli";
    def.host_overload = "out";
    def.nondeterministic = true;
    r.add(std::move(def));
  }
  {
    // The same with the state of the generator before it, from which the numbers can be drawn again.
    OpDef def = make_op(
        {"bernoulli_mask_kept", OpKind::kRandom, "(SymInt[] size, float p, ScalarType like) -> (Tensor, Tensor)", ""},
        [](MetaContext& m) -> std::vector<TensorType> {
          const Expr bytes = m.ctx().constant(kGeneratorBytes);
          return {contiguous_type(m.ctx(), DType::kBool, Device{}, m.ints(0)),
                  contiguous_type(m.ctx(), DType::kUInt8, Device{}, {bytes})};
        });
    def.host_name = "tatara::bernoulli_kept";
    def.host_overload = "out";
    def.nondeterministic = true;
    r.add(std::move(def));
  }
  {
    OpDef def = make_op({"bernoulli_mask_again", OpKind::kHost,
                         "(Tensor state, SymInt[] size, float p, ScalarType like) -> Tensor", ""},
                        [](MetaContext& m) -> std::vector<TensorType> {
                          return {contiguous_type(m.ctx(), DType::kBool, Device{}, m.ints(1))};
                        });
    def.host_name = "tatara::bernoulli_again";
    def.host_overload = "out";
    def.not_differentiable = true;
    r.add(std::move(def));
  }
  r.amend("bernoulli_mask").traits.with_state = "bernoulli_mask_kept";
  r.amend("bernoulli_mask_kept").traits.draws_again = "bernoulli_mask_again";
}

}  // namespace

void register_random(OpRegistry& r) {
  const std::string memory = ", Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor";
  const std::string factory = ", *, Generator? generator=None, ScalarType? dtype=None" + memory;
  const std::string plain = ", *, ScalarType? dtype=None" + memory;
  // Without a dtype these are int64; with None in its place the dispatcher's operator has another.
  const std::string integer_factory = ", *, Generator? generator=None, ScalarType? dtype=long" + memory;
  const std::string integers = ", *, ScalarType? dtype=long" + memory;
  const std::string same =
      ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
      "MemoryFormat? memory_format=None) -> Tensor";
  const auto add = [&](const char* name, const char* overload, std::string schema, const char* names, MetaFn meta) {
    OpDef def = make_op({name, OpKind::kRandom, schema.c_str(), names}, std::move(meta));
    def.host_overload = overload;
    def.nondeterministic = true;
    r.add(std::move(def));
  };
  add("rand", "", "(SymInt[] size" + plain, "torch.rand", factory_meta(0, 1));
  add("rand.generator", "generator", "(SymInt[] size" + factory, "torch.rand", factory_meta(0, 2));
  add("randn", "", "(SymInt[] size" + plain, "torch.randn", factory_meta(0, 1));
  add("randn.generator", "generator", "(SymInt[] size" + factory, "torch.randn", factory_meta(0, 2));
  add("randint", "", "(SymInt high, SymInt[] size" + integers, "torch.randint", factory_meta(1, 2));
  add("randint.low", "low", "(SymInt low, SymInt high, SymInt[] size" + integers, "torch.randint", factory_meta(2, 3));
  add("randint.generator", "generator", "(SymInt high, SymInt[] size" + integer_factory, "torch.randint",
      factory_meta(1, 3));
  add("randint.low_generator", "low_generator", "(SymInt low, SymInt high, SymInt[] size" + integer_factory,
      "torch.randint", factory_meta(2, 4));
  add("randperm", "", "(SymInt n" + integers, "torch.randperm", permutation_meta);
  add("rand_like", "", "(Tensor self" + same, "torch.rand_like", like_meta(1));
  add("randn_like", "", "(Tensor self" + same, "torch.randn_like", like_meta(1));
  add("randint_like", "", "(Tensor self, SymInt high" + same, "torch.randint_like", like_meta(2));
  add("randint_like.low_dtype", "low_dtype", "(Tensor self, SymInt low, SymInt high" + same, "torch.randint_like",
      like_meta(3));
  add("bernoulli", "", "(Tensor self, *, Generator? generator=None) -> Tensor",
      "torch.bernoulli torch.Tensor.bernoulli", like_meta(-1));
  add("bernoulli.p", "p", "(Tensor self, float p, *, Generator? generator=None) -> Tensor",
      "torch.bernoulli torch.Tensor.bernoulli", contiguous_like_meta);
  register_fillers(r);
  register_masks(r);
  // What dropout is on a GPU; its mask alone is used here.
  add("native_dropout", "", "(Tensor input, float p, bool? train) -> (Tensor, Tensor)", "",
      [](MetaContext& m) -> std::vector<TensorType> {
        const TensorType result = like_meta(-1)(m)[0];
        TensorType mask = result;
        mask.dtype = DType::kBool;
        return {result, mask};
      });
  r.take_values({"bernoulli.p", "bernoulli_fill", "uniform_fill", "normal_fill", "exponential_fill", "cauchy_fill",
                 "log_normal_fill", "geometric_fill", "bernoulli_mask", "bernoulli_mask_kept", "bernoulli_mask_again",
                 "native_dropout"});
}

}  // namespace tatara
