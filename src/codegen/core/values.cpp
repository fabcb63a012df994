#include "codegen/core/values.h"

namespace tatara::codegen {

Reg widened(IrWriter& ir, DType dtype, const Reg& value) {
  if (value.vec || ir.lanes() == 1) return value;
  const std::string part = llvm_type(real_dtype(dtype));
  Reg wide{ir.splat(part, value.text), true};
  if (is_complex(dtype)) wide.im = ir.splat(part, value.im);
  return wide;
}

Reg lane_of(IrWriter& ir, DType dtype, const Reg& value, int lane) {
  const std::string type = ir.vec_type(llvm_type(real_dtype(dtype)));
  const auto take = [&](const std::string& v) {
    return ir.assign("extractelement " + type + " " + v + ", i64 " + std::to_string(lane));
  };
  Reg one{take(value.text), false};
  if (is_complex(dtype)) one.im = take(value.im);
  return one;
}

Reg choose(IrWriter& ir, DType dtype, const Reg& condition, const Reg& a, const Reg& b, bool vec) {
  const std::string type = ir.type_of(llvm_type(real_dtype(dtype)), vec);
  const Reg x = vec ? widened(ir, dtype, a) : a;
  const Reg y = vec ? widened(ir, dtype, b) : b;
  const auto pick = [&](const std::string& p, const std::string& q) {
    return ir.select(condition.text, type, p, q, vec && condition.vec);
  };
  Reg result{pick(x.text, y.text), vec};
  if (is_complex(dtype)) result.im = pick(x.im, y.im);
  return result;
}

Reg merged(IrWriter& ir, DType dtype, const Reg& a, const std::string& from_a, const Reg& b,
           const std::string& from_b) {
  const std::string type = ir.type_of(llvm_type(real_dtype(dtype)), b.vec);
  const auto phi = [&](const std::string& x, const std::string& y) {
    return ir.assign("phi " + type + " [ " + x + ", %" + from_a + " ], [ " + y + ", %" + from_b + " ]");
  };
  Reg result{phi(a.text, b.text), b.vec};
  if (is_complex(dtype)) result.im = phi(a.im, b.im);
  return result;
}

std::vector<DType> carried_types(const loops::For& loop) {
  std::vector<DType> dtypes;
  for (const loops::Carried& c : loop.carried) dtypes.push_back(c.dtype);
  return dtypes;
}

}  // namespace tatara::codegen
