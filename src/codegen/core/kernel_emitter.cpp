// Statements of a kernel; loops are in loops.cpp.
#include "codegen/core/kernel_emitter.h"

#include <algorithm>

#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

void KernelEmitter::block(const Block& b) {
  for (const Stmt& stmt : b.stmts) {
    std::visit([&](const auto& s) { statement(s); }, stmt);
  }
}

void KernelEmitter::run_if(const std::string& condition, const std::function<void()>& body) {
  if (condition.empty()) {
    body();
  } else {
    ir_.when(condition, body);
  }
}

std::string KernelEmitter::lane_mask(ScalarId mask) {
  if (mask == kNoScalar) return scope_.mask();
  const std::string own = ir_.as_vec("i1", scope_.reg(mask));
  return scope_.mask().empty() ? own : ir_.binary("and", ir_.vec_type("i1"), own, scope_.mask());
}

void KernelEmitter::statement(const Let& let) {
  if (let.scalar.op == ScalarOp::kConst && is_floating(let.scalar.dtype)) {
    scope_.set_constant(let.dst, let.scalar.const_re);
  }
  const auto product = multiply_adds_.find(let.dst);
  if (product == multiply_adds_.end()) {
    scope_.set(let.dst, scalars_.value(let.scalar));
  } else {
    scope_.set(let.dst, scalars_.multiply_add(let.scalar.dtype, product->second));
  }
}

void KernelEmitter::statement(const If& branch) {
  const Reg& condition = scope_.reg(branch.condition);
  if (condition.vec) throw InternalError("a branch on a vector in " + context_.kernel.name);
  ir_.when(condition.text, [&] { block(*branch.body); });
}

// ---- Loads -------------------------------------------------------------------------------------------------------------

void KernelEmitter::statement(const Load& load) {
  if (const auto ready = ready_.find(load.dst); ready != ready_.end()) {
    scope_.set(load.dst, ready->second);
    return;
  }
  const BufferArg& buffer = scope_.buffer(load.buffer);
  const bool masked = load.mask != kNoScalar;
  if (buffer.kind == ArgKind::kValue) {
    scope_.set(load.dst, load_passed(load));
    return;
  }
  const auto has_lanes = [&](ScalarId x) { return x != kNoScalar && scope_.reg(x).vec; };
  const bool vec = scope_.varies(load.index) || (masked && (has_lanes(load.mask) || has_lanes(load.other)));
  if (!vec) {
    scope_.set(load.dst, load_single(load));
    return;
  }
  Reg value = memory_.load_vector(load.buffer, load.index, lane_mask(load.mask));
  if (masked && load.other != kNoScalar) {
    value = choose(ir_, buffer.dtype, scope_.reg(load.mask), value, scope_.reg(load.other), true);
  }
  scope_.set(load.dst, value);
}

Reg KernelEmitter::load_passed(const Load& load) {
  const Reg value = memory_.passed_value(load.buffer);
  if (load.mask == kNoScalar || load.other == kNoScalar) return value;
  const Reg& mask = scope_.reg(load.mask);
  const Reg& other = scope_.reg(load.other);
  return choose(ir_, scope_.buffer(load.buffer).dtype, mask, value, other, mask.vec || other.vec);
}

Reg KernelEmitter::load_single(const Load& load) {
  const DType type = scope_.buffer(load.buffer).dtype;
  const auto element = [&] {
    return memory_.load(type, memory_.address(load.buffer, scope_.index(load.index)), memory_.load_flags(load.buffer));
  };
  if (load.mask == kNoScalar) return element();
  const std::string then = ir_.label();
  const std::string done = ir_.label();
  const std::string before = ir_.block();
  ir_.branch(scope_.reg(load.mask).text, then, done);
  ir_.start_block(then);
  const Reg value = element();
  const std::string last = ir_.block();
  ir_.jump(done);
  ir_.start_block(done);
  const Reg other = load.other == kNoScalar ? zero(type) : scope_.reg(load.other);
  return merged(ir_, type, value, last, other, before);
}

// ---- Stores ------------------------------------------------------------------------------------------------------------

std::string KernelEmitter::store_condition(const Store& store) {
  return store.mask == kNoScalar ? std::string() : scope_.reg(store.mask).text;
}

void KernelEmitter::statement(const Store& store) {
  if (ir_.lanes() == 1) {
    store_single(store);
  } else {
    store_lanes(store);
  }
}

void KernelEmitter::store_single(const Store& store) {
  run_if(store_condition(store), [&] {
    memory_.update(store, memory_.address(store.buffer, scope_.index(store.index)), scope_.reg(store.value));
  });
}

void KernelEmitter::store_lanes(const Store& store) {
  const DType type = scope_.buffer(store.buffer).dtype;
  const Reg value = widened(ir_, type, scope_.reg(store.value));
  const std::string mask = lane_mask(store.mask);
  const bool apart = scope_.stride_of(store.index) == Stride::kUnit && !store.atomic;
  if (store.mode == StoreMode::kSet || apart) {
    Reg result = value;
    if (store.mode != StoreMode::kSet) {
      const Reg old = memory_.load_vector(store.buffer, store.index, mask);
      result = memory_.updated(store.mode, type, old, value, true);
    }
    run_if(vector_store_condition(), [&] { memory_.store_vector(store.buffer, store.index, result, mask); });
    return;
  }
  if (!update_vector(store, value, mask)) store_lane_by_lane(store, value, mask);
}

/// Several lanes may update the same element, so they go one by one.
void KernelEmitter::store_lane_by_lane(const Store& store, const Reg& value, const std::string& mask) {
  const DType type = scope_.buffer(store.buffer).dtype;
  const std::string where = scope_.index_vector(store.index);
  for (int i = 0; i < ir_.lanes(); ++i) {
    const std::string condition = mask.empty() ? mask : lane_of(ir_, DType::kBool, {mask, true}, i).text;
    run_if(condition, [&] {
      const std::string at = lane_of(ir_, DType::kInt64, {where, true}, i).text;
      memory_.update(store, memory_.address(store.buffer, at), lane_of(ir_, type, value, i));
    });
  }
}

// ---- Indices out of memory ---------------------------------------------------------------------------------------------

/// If `bad` holds in any lane, stores the first such index to the KernelFault (codegen/abi.h).
void KernelEmitter::report_fault(const IndexValue& stmt, const std::string& bad, const std::string& given, bool vec) {
  const std::string type = ir_.type_of("i64", vec);
  std::string any = bad;
  const std::string bits = "i" + std::to_string(ir_.lanes());
  std::string packed;
  if (vec) {
    packed = ir_.assign("bitcast " + ir_.vec_type("i1") + " " + bad + " to " + bits);
    any = ir_.assign("icmp ne " + bits + " " + packed + ", 0");
  }
  const std::string fail = ir_.label();
  const std::string fine = ir_.label();
  ir_.line("br i1 " + any + ", label %" + fail + ", label %" + fine + ", !prof !0");
  ir_.start_block(fail);
  std::string offender = given;
  if (vec) {
    ir_.declare("declare " + bits + " @llvm.cttz." + bits + "(" + bits + ", i1)");
    const std::string lane = ir_.call("@llvm.cttz." + bits, bits, bits + " " + packed + ", i1 true");
    const std::string wide = ir_.lanes() < 64 ? ir_.assign("zext " + bits + " " + lane + " to i64") : lane;
    offender = ir_.assign("extractelement " + type + " " + given + ", i64 " + wide);
  }
  ir_.line("store i64 " + offender + ", ptr %fault");
  const std::string size_at = ir_.assign("getelementptr i8, ptr %fault, i64 8");
  ir_.line("store i64 " + scope_.index(stmt.size) + ", ptr " + size_at);
  const std::string site_at = ir_.assign("getelementptr i8, ptr %fault, i64 16");
  ir_.line("store i32 " + std::to_string(site_) + ", ptr " + site_at);
  leave_after_fault(fine);
  ir_.start_block(fine);
}

void KernelEmitter::statement(const IndexValue& stmt) {
  const Reg source = cast(ir_, scope_.dtype(stmt.value), DType::kInt64, scope_.reg(stmt.value));
  // A uniform index under a varying mask is checked lane by lane.
  const bool vec = source.vec || (stmt.check && stmt.mask != kNoScalar && scope_.reg(stmt.mask).vec);
  const std::string type = ir_.type_of("i64", vec);
  std::string value = vec ? ir_.as_vec("i64", source) : source.text;
  const std::string size = vec ? scope_.index_vector(stmt.size) : scope_.index(stmt.size);
  const std::string given = value;
  if (stmt.wrap) {
    const std::string zero = vec ? "zeroinitializer" : "0";
    const std::string below = ir_.assign("icmp slt " + type + " " + value + ", " + zero);
    value = ir_.select(below, type, ir_.binary("add", type, value, size), value, vec);
  }
  if (stmt.check) {
    std::string bad = ir_.assign("icmp uge " + type + " " + value + ", " + size);
    if (vec) {
      const std::string mask = lane_mask(stmt.mask);
      if (!mask.empty()) bad = ir_.binary("and", ir_.vec_type("i1"), bad, mask);
    } else if (stmt.mask != kNoScalar) {
      bad = ir_.binary("and", "i1", bad, scope_.reg(stmt.mask).text);
    }
    report_fault(stmt, bad, given, vec);
    value = safe_index(bad, value, vec);
  }
  ++site_;
  scope_.bind(stmt.symbol, value, vec);
}

}  // namespace tatara::codegen
