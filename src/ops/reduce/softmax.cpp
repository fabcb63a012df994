// Softmax and its logarithm, made of parts so that the scheduler can fuse them with their surroundings. The largest
// element is subtracted first, so that its exponent is exactly zero.
#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

enum class Form : uint8_t { kSoftmax, kLog };

/// Where the result dtype comes from: an optional dtype argument, or the flag half_to_float of the private forms.
enum class Third : uint8_t { kDType, kHalfToFloat };

DType softmax_dtype(DType self, Third third, std::optional<DType> dtype, bool half_to_float) {
  if (third == Third::kDType) return dtype.value_or(self);
  return half_to_float ? DType::kFloat32 : self;
}

MetaFn softmax_meta(Third third) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    const DType out = softmax_dtype(self.dtype, third, third == Third::kDType ? m.dtype(2) : std::nullopt,
                                    third == Third::kHalfToFloat && m.boolean(2));
    if (is_complex(out)) throw Unsupported("softmax of complex numbers runs in eager");
    if (!is_floating(out)) throw InvalidArgument(str_cat(m.op().name, " is not implemented for ", dtype_name(out)));
    m.dim(1, self.dim());
    return {contiguous_type(m.ctx(), out, self.device, self.sizes)};
  };
}

DecomposeFn softmax_decompose(Form form, Third third) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> std::vector<ValueId> {
    const Args args(b, arguments);
    const DType out = softmax_dtype(args.type(0).dtype, third, third == Third::kDType ? args.dtype(2) : std::nullopt,
                                    third == Third::kHalfToFloat && args.flag(2));
    const ValueId x = b.cast(b.cast(args.tensor(0), out), compute_dtype(out));
    const std::vector<int64_t> dims = wrap_dims({args.dim(1, args.rank(0))}, args.rank(0));
    for (int64_t d : dims) {
      if (args.type(0).sizes[static_cast<size_t>(d)].is_const(0)) return {b.cast(x, out)};
    }
    const ValueId shifted = b.binary("sub", x, b.reduce("amax", x, dims, true));
    const ValueId exponent = b.unary("exp", shifted);
    const ValueId sum = b.reduce("sum", exponent, dims, true);
    const ValueId result = form == Form::kSoftmax ? b.binary("mul", exponent, b.unary("reciprocal", sum))
                                                  : b.binary("sub", shifted, b.unary("log", sum));
    return {b.cast(result, out)};
  };
}

}  // namespace

void register_softmax(OpRegistry& r) {
  const char* schema = "(Tensor self, int dim, ScalarType? dtype=None) -> Tensor";
  const char* private_schema = "(Tensor self, int dim, bool half_to_float) -> Tensor";
  r.add(make_op({"softmax", OpKind::kComposite, schema, "torch.softmax torch.Tensor.softmax"},
                softmax_meta(Third::kDType), softmax_decompose(Form::kSoftmax, Third::kDType)));
  r.add(make_op({"special_softmax", OpKind::kComposite, schema, "torch.special.softmax"}, softmax_meta(Third::kDType),
                softmax_decompose(Form::kSoftmax, Third::kDType)));
  r.add(make_op({"_softmax", OpKind::kComposite, private_schema, "torch._softmax"}, softmax_meta(Third::kHalfToFloat),
                softmax_decompose(Form::kSoftmax, Third::kHalfToFloat)));
  r.add(make_op({"log_softmax", OpKind::kComposite, schema, "torch.log_softmax torch.Tensor.log_softmax"},
                softmax_meta(Third::kDType), softmax_decompose(Form::kLog, Third::kDType)));
  r.add(make_op({"special_log_softmax", OpKind::kComposite,
                 "(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", "torch.special.log_softmax"},
                softmax_meta(Third::kDType), softmax_decompose(Form::kLog, Third::kDType)));
  r.add(make_op({"_log_softmax", OpKind::kComposite, private_schema, "torch._log_softmax"},
                softmax_meta(Third::kHalfToFloat), softmax_decompose(Form::kLog, Third::kHalfToFloat)));
  r.mark(&OpTraits::expand_softmax,
         {"softmax", "_softmax", "special_softmax", "log_softmax", "_log_softmax", "special_log_softmax"});
}

}  // namespace tatara
