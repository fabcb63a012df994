// Loops and carried values.
#include <algorithm>
#include <cmath>

#include "codegen/emitter.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

template <typename Body>
void Emitter::counted(const std::string& begin, const std::string& end, const std::string& step,
                      const std::vector<std::string>& types, std::vector<std::string>& carried, Body&& body) {
  const std::string head = label();
  const std::string inside = label();
  const std::string done = label();
  const std::string before = current_block_;
  line("br label %" + head);
  const std::string counter = fresh();
  std::vector<std::string> phis;
  for (size_t i = 0; i < types.size(); ++i) phis.push_back(fresh());
  // The body comes first, since the phis name the values and the block at its end.
  std::string outer;
  outer.swap(out_);
  start_block(inside);
  std::vector<std::string> next = phis;
  body(counter, next);
  const std::string advanced = assign("add nsw i64 " + counter + ", " + step);
  line("br label %" + head);
  const std::string last = current_block_;
  std::string body_text;
  body_text.swap(out_);
  out_.swap(outer);
  start_block(head);
  line(counter + " = phi i64 [ " + begin + ", %" + before + " ], [ " + advanced + ", %" + last + " ]");
  for (size_t i = 0; i < types.size(); ++i) {
    line(phis[i] + " = phi " + types[i] + " [ " + carried[i] + ", %" + before + " ], [ " + next[i] + ", %" + last +
         " ]");
  }
  const std::string more = assign("icmp slt i64 " + counter + ", " + end);
  line("br i1 " + more + ", label %" + inside + ", label %" + done);
  out_ += body_text;
  start_block(done);
  carried = phis;
}

void Emitter::statement(const For& loop) {
  switch (loop.kind) {
    case LoopKind::kParallel: parallel(loop); return;
    case LoopKind::kVector: vector(loop); return;
    case LoopKind::kSerial:
    case LoopKind::kUnroll: serial(loop, "0", index(loop.extent)); return;
  }
}

/// A chain of parallel loops is one loop over [begin, end) of their product.
void Emitter::parallel(const For& loop) {
  std::vector<const For*> chain = {&loop};
  while (chain.back()->body->stmts.size() == 1) {
    const auto* inner = std::get_if<For>(&chain.back()->body->stmts.front());
    if (inner == nullptr || inner->kind != LoopKind::kParallel) break;
    chain.push_back(inner);
  }
  std::vector<std::string> none;
  counted("%begin", "%end", "1", {}, none, [&](const std::string& flat, std::vector<std::string>&) {
    std::string rest = flat;
    for (size_t i = chain.size(); i-- > 0;) {
      if (i == 0) {
        symbols_[chain[0]->var] = {rest, false};
      } else {
        const std::string extent = index(chain[i]->extent);
        symbols_[chain[i]->var] = {binary("urem", "i64", rest, extent), false};
        rest = binary("udiv", "i64", rest, extent);
      }
    }
    block(*chain.back()->body);
  });
}

void Emitter::serial(const For& loop, const std::string& begin, const std::string& end) {
  std::vector<std::string> types;
  std::vector<std::string> carried;
  // Inside a vector loop everything carried is a vector, for its next value may be one.
  const bool vec = lanes_ > 1;
  for (const Carried& c : loop.carried) {
    types.push_back(type_of(llvm_type(c.dtype), vec));
    carried.push_back(vec ? as_vec(llvm_type(c.dtype), reg(c.init)) : reg(c.init).text);
  }
  counted(begin, end, "1", types, carried, [&](const std::string& counter, std::vector<std::string>& values) {
    symbols_[loop.var] = {counter, false};
    for (size_t i = 0; i < loop.carried.size(); ++i) set(loop.carried[i].arg, {values[i], vec});
    block(*loop.body);
    for (size_t i = 0; i < loop.carried.size(); ++i) {
      const Carried& c = loop.carried[i];
      values[i] = vec ? as_vec(llvm_type(c.dtype), reg(c.next)) : reg(c.next).text;
    }
  });
  for (size_t i = 0; i < loop.carried.size(); ++i) set(loop.carried[i].result, {carried[i], vec});
}

// ---- The vector loop ---------------------------------------------------------------------------------------------------

void Emitter::widest(const Block& b, int& bytes) const {
  for (const Stmt& stmt : b.stmts) {
    if (const auto* let = std::get_if<Let>(&stmt)) {
      // Index values are usually converted at once; they do not decide the width.
      if (let->scalar.op != ScalarOp::kIndex) bytes = std::max(bytes, dtype_size(let->scalar.dtype));
    } else if (const auto* load = std::get_if<Load>(&stmt)) {
      bytes = std::max(bytes, dtype_size(kernel_.buffers[static_cast<size_t>(load->buffer)].dtype));
    } else if (const auto* store = std::get_if<Store>(&stmt)) {
      bytes = std::max(bytes, dtype_size(kernel_.buffers[static_cast<size_t>(store->buffer)].dtype));
    } else if (const auto* loop = std::get_if<For>(&stmt)) {
      widest(*loop->body, bytes);
    } else if (const auto* branch = std::get_if<If>(&stmt)) {
      widest(*branch->body, bytes);
    }
  }
}

int Emitter::choose_lanes(const For& loop) const {
  int bytes = 1;
  widest(*loop.body, bytes);
  const int lanes = target_.vector_bytes() / std::clamp(bytes, 4, 8);
  if (loop.extent.is_const() && loop.extent.const_value() < 2) return 1;
  return std::max(lanes, 1);
}

std::string Emitter::identity(Combine combine, DType dtype) const {
  const bool floating = is_floating(dtype);
  const std::string all_ones = dtype == DType::kBool ? "true" : "-1";
  switch (combine) {
    case Combine::kAdd: return floating ? float_bits(-0.0, dtype) : (dtype == DType::kBool ? "false" : "0");
    case Combine::kMul: return floating ? float_bits(1.0, dtype) : (dtype == DType::kBool ? "true" : "1");
    case Combine::kOr:
    case Combine::kXor: return dtype == DType::kBool ? "false" : "0";
    case Combine::kAnd: return all_ones;
    case Combine::kMin:
    case Combine::kMax: {
      const bool largest = combine == Combine::kMin;
      if (floating) return float_bits(largest ? INFINITY : -INFINITY, dtype);
      if (dtype == DType::kBool) return largest ? "true" : "false";
      const int bits = dtype_size(dtype) * 8;
      if (!is_signed(dtype)) return largest ? "-1" : "0";
      const int64_t top = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
      return std::to_string(largest ? top : -top - 1);
    }
    case Combine::kNone:
    case Combine::kCustom: break;
  }
  throw InternalError("a sequential value carried by a vector loop in " + kernel_.name);
}

std::string Emitter::combine(Combine how, DType dtype, const Reg& a, const Reg& b, bool vec) {
  Scalar s;
  s.dtype = dtype;
  switch (how) {
    case Combine::kAdd: s.op = dtype == DType::kBool ? ScalarOp::kOr : ScalarOp::kAdd; break;
    case Combine::kMul: s.op = dtype == DType::kBool ? ScalarOp::kAnd : ScalarOp::kMul; break;
    case Combine::kMin: s.op = dtype == DType::kBool ? ScalarOp::kAnd : ScalarOp::kMin; break;
    case Combine::kMax: s.op = dtype == DType::kBool ? ScalarOp::kOr : ScalarOp::kMax; break;
    case Combine::kAnd: s.op = ScalarOp::kAnd; break;
    case Combine::kOr: s.op = ScalarOp::kOr; break;
    case Combine::kXor: s.op = ScalarOp::kXor; break;
    case Combine::kNone:
    case Combine::kCustom: throw InternalError("no simple combine function");
  }
  const Reg operands[] = {a, b};
  return arithmetic(s, operands, vec).text;
}

void Emitter::vector_pass(const For& loop, const std::string& base, const std::string& mask,
                          std::vector<std::string>& carried) {
  symbols_[loop.var] = {base, false};
  vector_mask_ = mask;
  for (size_t i = 0; i < loop.carried.size(); ++i) set(loop.carried[i].arg, {carried[i], true});
  block(*loop.body);
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    const std::string type = llvm_type(c.dtype);
    const std::string next = as_vec(type, reg(c.next));
    carried[i] = mask.empty() ? next : select(mask, vec_type(type), next, carried[i], true);
  }
  vector_mask_.clear();
}

void Emitter::reduce_lanes(const For& loop, std::vector<std::string>& carried) {
  // log2(W) steps: the upper half of what is left is combined into the lower one.
  for (int half = lanes_ / 2; half >= 1; half /= 2) {
    std::string shift;
    for (int i = 0; i < lanes_; ++i) shift += (i > 0 ? ", i32 " : "i32 ") + std::to_string((i + half) % lanes_);
    std::vector<std::string> moved;
    for (size_t i = 0; i < loop.carried.size(); ++i) {
      const std::string type = vec_type(llvm_type(loop.carried[i].dtype));
      moved.push_back(assign("shufflevector " + type + " " + carried[i] + ", " + type + " poison, " + vec_type("i32") +
                             " <" + shift + ">"));
    }
    if (loop.combine_fn != nullptr) {
      const CombineFn& fn = *loop.combine_fn;
      for (size_t i = 0; i < loop.carried.size(); ++i) {
        set(fn.left[i], {carried[i], true});
        set(fn.right[i], {moved[i], true});
      }
      block(*fn.body);
      for (size_t i = 0; i < loop.carried.size(); ++i) {
        carried[i] = as_vec(llvm_type(loop.carried[i].dtype), reg(fn.result[i]));
      }
    } else {
      for (size_t i = 0; i < loop.carried.size(); ++i) {
        const Carried& c = loop.carried[i];
        carried[i] = combine(c.combine, c.dtype, {carried[i], true}, {moved[i], true}, true);
      }
    }
  }
}

void Emitter::vector(const For& loop) {
  const int lanes = choose_lanes(loop);
  if (lanes == 1) {
    serial(loop, "0", index(loop.extent));
    return;
  }
  const std::string extent = index(loop.extent);
  const bool custom = loop.combine_fn != nullptr;
  std::vector<Reg> inits;
  for (const Carried& c : loop.carried) inits.push_back(reg(c.init));
  lanes_ = lanes;
  vector_var_ = loop.var;
  std::vector<std::string> types;
  std::vector<std::string> carried;
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    types.push_back(vec_type(llvm_type(c.dtype)));
    // A custom reduction starts from its neutral element in every lane; the simple ones from theirs, the given start is
    // combined at the end.
    carried.push_back(splat(llvm_type(c.dtype), custom ? inits[i].text : identity(c.combine, c.dtype)));
  }
  const std::string step = std::to_string(lanes);
  const int site = site_;
  const auto pass = [&](const std::string& base, const std::string& mask, std::vector<std::string>& values) {
    site_ = site;  // both copies of the body have the same sites
    vector_pass(loop, base, mask, values);
  };
  const bool known = loop.extent.is_const();
  const int64_t count = known ? loop.extent.const_value() : 0;
  std::string whole =
      known ? std::to_string(count / lanes * lanes) : binary("and", "i64", extent, std::to_string(-lanes));
  if (!known || count >= lanes) {
    counted("0", whole, step, types, carried,
            [&](const std::string& base, std::vector<std::string>& values) { pass(base, "", values); });
  }
  if (!known || count % lanes != 0) {
    // The rest under a mask, skipped when there is none.
    const std::string before = current_block_;
    const std::string then = label();
    const std::string done = label();
    const std::string left = binary("sub", "i64", extent, whole);
    const std::string any = assign("icmp sgt i64 " + left + ", 0");
    line("br i1 " + any + ", label %" + then + ", label %" + done);
    const std::string entered_from = current_block_;
    (void)before;
    start_block(then);
    std::string ids;
    for (int i = 0; i < lanes; ++i) ids += (i > 0 ? ", i64 " : "i64 ") + std::to_string(i);
    const std::string mask = assign("icmp sgt " + vec_type("i64") + " " + splat("i64", left) + ", <" + ids + ">");
    std::vector<std::string> tail = carried;
    pass(whole, mask, tail);
    const std::string last = current_block_;
    line("br label %" + done);
    start_block(done);
    for (size_t i = 0; i < carried.size(); ++i) {
      carried[i] = assign("phi " + types[i] + " [ " + tail[i] + ", %" + last + " ], [ " + carried[i] + ", %" +
                          entered_from + " ]");
    }
  }
  reduce_lanes(loop, carried);
  std::vector<std::string> first;
  for (size_t i = 0; i < carried.size(); ++i)
    first.push_back(assign("extractelement " + types[i] + " " + carried[i] + ", i64 0"));
  lanes_ = 1;
  vector_var_ = Expr();
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    const std::string value = custom ? first[i] : combine(c.combine, c.dtype, inits[i], {first[i], false}, false);
    set(c.result, {value, false});
  }
}

}  // namespace tatara::codegen
