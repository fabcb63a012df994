#include "codegen/cpu/vector_shape.h"

#include <algorithm>
#include <numeric>

namespace tatara::codegen {

using namespace loops;

namespace {

/// What the lanes of a loop's body cost, in simple instructions of one vector.
class BodyCost {
 public:
  BodyCost(const Kernel& kernel, Expr var) : kernel_(kernel), var_(var) {}
  int bytes = 1;     // of the widest part of a scalar
  int smallest = 8;  // of the narrowest element in memory
  int weight = 0;
  int carried = 0;    // registers carried by inner loops
  int64_t group = 0;  // of neighbouring iterations, for each of which one element is read (a scale); 0: there is none

  void block(const Block& b) {
    for (const Stmt& stmt : b.stmts) std::visit([&](const auto& s) { add(s); }, stmt);
  }

 private:
  static int part_size(DType dtype) { return dtype_size(real_dtype(dtype)); }

  void memory(int buffer) {
    const DType dtype = kernel_.buffers[static_cast<size_t>(buffer)].dtype;
    bytes = std::max(bytes, part_size(dtype));
    smallest = std::min(smallest, part_size(dtype));
    weight += is_complex(dtype) ? 3 : 1;
  }
  void add(const Let& let) {
    const Scalar& s = let.scalar;
    // Index values are usually converted at once, and small integers become int64 to be places in a table: neither decides the width. What is
    // stored or computed as int64 does.
    const bool place = s.op == ScalarOp::kIndex || (s.op == ScalarOp::kCast && s.dtype == DType::kInt64);
    if (!place) bytes = std::max(bytes, part_size(s.dtype));
    int cost = 1;
    if (s.op == ScalarOp::kConst) cost = 0;
    if (s.op == ScalarOp::kDiv || s.op == ScalarOp::kSqrt || s.op == ScalarOp::kReciprocal) cost = 4;
    if (s.op == ScalarOp::kCast && is_low_precision(s.dtype)) cost = 5;
    if (s.op >= ScalarOp::kRsqrt && s.op <= ScalarOp::kLogNdtr && s.op != ScalarOp::kCopysign) cost = 20;
    if (s.op == ScalarOp::kFloorDiv || s.op == ScalarOp::kMod || s.op == ScalarOp::kFmod || s.op == ScalarOp::kTruncDiv)
      cost = 20;
    if (s.op == ScalarOp::kPhilox) cost = 60;
    weight += is_complex(s.dtype) ? 3 * cost : cost;
  }
  void add(const Load& load) {
    memory(load.buffer);
    find_groups(load.index);
  }
  void find_groups(Expr e) {
    if (e.is_const() || e.is_symbol()) return;
    if (e.kind() == ExprKind::kFloorDiv && e.operands()[1].is_const() && e.operands()[0].contains(var_)) {
      const Expr step = e.operands()[0].coefficient_of(var_);
      const int64_t size = e.operands()[1].const_value();
      if (step.valid() && step.is_const() && step.const_value() > 0 && size % step.const_value() == 0) {
        group = std::gcd(group, size / step.const_value());
      }
    }
    for (const Expr x : e.operands()) find_groups(x);
  }
  void add(const Store& store) {
    memory(store.buffer);
    if (store.mode != StoreMode::kSet) weight += 20;
  }
  /// With one place only it is a test.
  void add(const IndexValue& index) { weight += index.size.is_const(1) ? 2 : 20; }
  void add(const Transpose&) {}       // stands outside of vector loops
  void add(const Sort&) {}            // likewise
  void add(const Product&) {}         // likewise
  void add(const Attention&) {}       // likewise
  void add(const WeighedProduct&) {}  // likewise
  void add(const If& branch) { block(*branch.body); }
  void add(const For& loop) {
    carried += static_cast<int>(loop.carried.size());
    block(*loop.body);
  }

  const Kernel& kernel_;
  const Expr var_;
};

}  // namespace

VectorShape vector_shape(const Kernel& kernel, const For& loop, const CpuTarget& target) {
  BodyCost cost(kernel, loop.var);
  cost.block(*loop.body);
  const bool known = loop.extent.is_const();
  const int64_t extent = known ? loop.extent.const_value() : INT64_MAX;
  VectorShape shape;
  if (extent < 2) return shape;
  const int width = std::max(target.vector_bytes() / std::clamp(cost.bytes, 4, 8), 1);
  shape.lanes = width;
  while (shape.lanes / 2 >= extent) shape.lanes /= 2;
  // Lanes of one group read its element together.
  const auto whole_groups = [&](int64_t lanes) { return cost.group == 0 || cost.group % lanes == 0; };
  if (!whole_groups(shape.lanes) && shape.lanes == width && width >= 8 && whole_groups(width / 2)) shape.lanes /= 2;
  const bool grouped = cost.group != 0 && whole_groups(shape.lanes);
  shape.masks = target.isa == VectorIsa::kAvx512 || (target.isa == VectorIsa::kAvx2 && cost.smallest >= 4);
  shape.heavy = cost.weight > 60;
  shape.light = cost.weight <= 16 && cost.carried == 0;
  if (width < 4 || loop.scan) return shape;
  int parts = cost.carried;
  for (const Carried& c : loop.carried) parts += is_complex(c.dtype) ? 2 : 1;
  const int registers = target.isa == VectorIsa::kAvx512 ? 16 : 8;
  for (const int times : {4, 2}) {
    const int64_t lanes = int64_t{width} * times;
    const bool fits = !known || extent % lanes == 0 || extent >= 4 * lanes;
    if (grouped && (shape.lanes < width || !whole_groups(lanes))) continue;
    if (lanes <= 64 && fits && cost.weight * times <= 40 && parts * times <= registers) {
      shape.lanes = static_cast<int>(lanes);
      break;
    }
  }
  return shape;
}

}  // namespace tatara::codegen
