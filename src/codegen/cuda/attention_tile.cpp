#include "codegen/cuda/attention_tile.h"

#include "codegen/cuda/ptx.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr int64_t kAttentionDeep = 16;  // elements that an instruction multiplies along the inner dimension
constexpr const char *kLog2E = "0x3FF7154760000000", *kMinusLog2E = "0xBFF7154760000000";  // of e, as float32
constexpr const char* kLog2 = "0x3FE62E4300000000";                                        // ln(2), likewise
constexpr const char *kMinusInfinity = "0xFFF0000000000000", *kInfinity = "0x7FF0000000000000";
constexpr const char* kNotANumber = "0x7FF8000000000000";

constexpr int64_t in_units(int64_t bytes) { return bytes >> 4; }  // of a matrix descriptor
constexpr int64_t kSwizzled = int64_t{1} << 62, kEightLines = in_units(8 * TensorMap::kBoxBytes) << 32;
/// Fields of a matrix descriptor but the address (PTX ISA, "Matrix descriptor"), of rows along which the inner dimension goes.
constexpr int64_t kAlong = kSwizzled | int64_t{1} << 16 | kEightLines;
/// Likewise, where it goes across rows; boxes are so many bytes apart.
constexpr int64_t across(int64_t box) { return kSwizzled | in_units(box) << 16 | kEightLines; }

std::string listed(const char* what, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += str_cat(i > 0 ? "," : "", what);
  return all;
}

}  // namespace

AttentionTile::AttentionTile(GpuContext& gpu, KernelEmitter& emitter, const Attention& attention)
    : gpu_(gpu),
      ir_(gpu.context.ir),
      scope_(gpu.context.scope),
      emitter_(emitter),
      attention_(attention),
      layout_(AttentionLayout::of(attention)),
      needed_(gpu, attention),
      dtype_(scope_.buffer(attention.sums[0].values.buffer).dtype) {}

std::string AttentionTile::piece(const std::string& text, const std::string& results, const std::string& constraints,
                                 const std::string& operands) {
  const std::string call =
      "call " + results + " asm sideeffect \"" + text + "\", \"" + constraints + "\"(" + operands + ") #2";
  if (results != "void") return ir_.assign(call);
  ir_.line(call);
  return {};
}

void AttentionTile::begin() {
  TATARA_CHECK(gpu_.context.kernel.gpu.threads == layout_.threads(), "threads of an attention in ",
               gpu_.context.kernel.name);
  ir_.declare(std::string(kStages) + " = external addrspace(3) global [0 x i8], align 1024\n");
  Ptx p;
  p("{");
  p(".reg .pred p;");
  p(".reg .b32 tid, base, bars;");
  p("cvt.u32.u64 base, $0;");
  p("add.u32 bars, base, ", bars(), ";");
  p("mov.u32 tid, %tid.x;");
  p("setp.ne.u32 p, tid, 0;");
  p("@p bra READY;");
  p("mbarrier.init.shared::cta.b64 [bars], 1;");
  p("mbarrier.init.shared::cta.b64 [bars+8], ", layout_.groups(), ";");
  for (int64_t s = 0; s < layout_.stages(); ++s) {
    const int64_t at = AttentionLayout::kQueryBarriers + AttentionLayout::kStageBarriers * s;
    p("mbarrier.init.shared::cta.b64 [bars+", at, "], 1;");
    p("mbarrier.init.shared::cta.b64 [bars+", at + 8, "], 1;");
    p("mbarrier.init.shared::cta.b64 [bars+", at + 16, "], ", layout_.groups(), ";");
  }
  p("fence.mbarrier_init.release.cluster;");
  p("fence.proxy.async;");
  p("READY:");
  p("bar.sync 0;");
  piece(p.take() + "}", "void", "l,~{memory}", str_cat("ptr addrspace(3) ", kStages));
}

void AttentionTile::take_role(bool loads) {
  const std::string registers = loads ? str_cat("dec.sync.aligned.u32 ", AttentionLayout::kLoaderRegisters)
                                      : str_cat("inc.sync.aligned.u32 ", layout_.group_registers());
  piece("setmaxnreg." + registers + ";", "void", "~{memory}", "");
}

/// Registers of a sum.
size_t AttentionTile::sums(size_t sum) const {
  return static_cast<size_t>(layout_.value_widths[sum] * AttentionLayout::kGroupRows / AttentionLayout::kGroup);
}
size_t AttentionTile::sums() const {
  size_t all = 0;
  for (size_t i = 0; i < attention_.sums.size(); ++i) all += sums(i);
  return all;
}
size_t AttentionTile::products() const {
  return static_cast<size_t>(layout_.keys * AttentionLayout::kGroupRows / AttentionLayout::kGroup);
}
int64_t AttentionTile::blocks() const { return (attention_.keys() + attention_.block - 1) / attention_.block; }
/// Where barriers begin, behind all stages.
int64_t AttentionTile::bars() const { return layout_.query_bytes() + layout_.stages() * layout_.stage_bytes(); }

/// Runs `body` for the blocks that are needed. Where a mask may leave some out each lane of a warp looks at one of 32.
void AttentionTile::each_block(const std::vector<DType>& types, std::vector<Reg>& now,
                               const std::function<void(const std::string&, std::vector<Reg>&)>& body) {
  const std::string count = std::to_string(blocks()), size = std::to_string(attention_.block);
  if (!needed_.can_skip()) {
    emitter_.counted_loop("0", count, "1", types, now, body, ", !llvm.loop !2");
    return;
  }
  ir_.declare("declare i64 @llvm.umin.i64(i64, i64)");
  ir_.declare("declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)");
  ir_.declare("declare i32 @llvm.ctpop.i32(i32)");
  ir_.declare("declare i32 @llvm.cttz.i32(i32, i1)");
  const auto at_most = [&](const std::string& index, const std::string& most) {
    return ir_.call("@llvm.umin.i64", "i64", "i64 " + index + ", i64 " + most);
  };
  const auto add = [&](const std::string& a, int64_t n) { return ir_.binary("add", "i64", a, std::to_string(n)); };
  const std::string lane = ir_.binary("and", "i64", gpu_.threads.lane(), "31");
  const std::string first_row = scope_.index(attention_.first), rows = scope_.index(attention_.rows);
  const std::string last_row = at_most(add(first_row, attention_.extent - 1), add(rows, -1));
  emitter_.counted_loop(
      "0", std::to_string((blocks() + 31) / 32), "1", types, now,
      [&](const std::string& word, std::vector<Reg>& outer) {
        const std::string first = ir_.binary("shl", "i64", word, "5");
        const std::string own = ir_.binary("add", "i64", first, lane);
        const std::string key = ir_.binary("mul", "i64", own, size);
        const std::string last = at_most(add(key, attention_.block - 1), std::to_string(attention_.keys() - 1));
        const std::string wanted =
            needed_.needed({first_row, last_row, key, last, at_most(own, std::to_string(blocks() - 1))});
        const std::string there = ir_.binary("and", "i1", ir_.assign("icmp ult i64 " + own + ", " + count), wanted);
        const std::string bits = ir_.call("@llvm.nvvm.vote.ballot.sync", "i32", "i32 -1, i1 " + there);
        const std::string number =
            ir_.assign("zext i32 " + ir_.call("@llvm.ctpop.i32", "i32", "i32 " + bits) + " to i64");
        std::vector<DType> all_types = types;
        all_types.push_back(DType::kInt32);
        outer.push_back({bits, false});
        emitter_.counted_loop(
            "0", number, "1", all_types, outer,
            [&](const std::string&, std::vector<Reg>& inner) {
              const std::string left = inner.back().text;
              inner.pop_back();
              const std::string at = ir_.call("@llvm.cttz.i32", "i32", "i32 " + left + ", i1 true");
              body(ir_.binary("add", "i64", first, ir_.assign("zext i32 " + at + " to i64")), inner);
              inner.push_back({ir_.binary("and", "i32", left, ir_.binary("sub", "i32", left, "1")), false});
            },
            ", !llvm.loop !2");
        outer.pop_back();
      },
      ", !llvm.loop !2");
}

// ---- Multiplying -------------------------------------------------------------------------------------------------------

/// Of the threads that multiply, a warp has 16 rows, and four threads beside each other have one of them, and the one 8 below.
void AttentionTile::find_rows() {
  const auto n = [](int64_t value) { return std::to_string(value); };
  const auto narrow = [&](const std::string& wide) { return ir_.assign("trunc i64 " + wide + " to i32"); };
  const auto wide = [&](const std::string& i32) { return ir_.assign("zext nneg i32 " + i32 + " to i64"); };
  const std::string thread = narrow(ir_.binary("sub", "i64", gpu_.threads.lane(), n(AttentionLayout::kGroup)));
  const std::string lane = ir_.binary("and", "i32", thread, "31");
  const std::string warp = ir_.binary("shl", "i32", ir_.binary("lshr", "i32", thread, "5"), "4");
  const std::string own = ir_.binary("add nuw nsw", "i32", warp, ir_.binary("lshr", "i32", lane, "2"));
  const std::string first = ir_.binary("add nuw nsw", "i32", narrow(scope_.index(attention_.first)), own);
  rows_[0] = wide(first);
  rows_[1] = wide(ir_.binary("add nuw nsw", "i32", first, "8"));
  column_ = ir_.binary("shl nuw nsw", "i32", ir_.binary("and", "i32", lane, "3"), "1");
}

AttentionTile::Stage AttentionTile::after(const Stage& at) {
  const std::string next = ir_.binary("add", "i32", at.stage, "1");
  const std::string around = ir_.assign(str_cat("icmp eq i32 ", next, ", ", layout_.stages()));
  return {ir_.select(around, "i32", "0", next, false),
          ir_.binary("xor", "i32", at.parity, ir_.assign("zext i1 " + around + " to i32"))};
}

std::vector<DType> AttentionTile::types() const {
  std::vector<DType> types(sums() + 2 * softmax_rows(), DType::kFloat32);
  types.insert(types.end(), 2, DType::kInt32);
  return types;
}

std::vector<Reg> AttentionTile::packed(const Running& r) const {
  std::vector<Reg> all;
  for (const auto* part : {&r.sums, &r.most, &r.total}) {
    for (const std::string& text : *part) all.push_back({text, false});
  }
  all.push_back({r.at.stage, false});
  all.push_back({r.at.parity, false});
  return all;
}

AttentionTile::Running AttentionTile::unpacked(const std::vector<Reg>& all) const {
  Running r;
  size_t at = 0;
  const auto take = [&](std::vector<std::string>& part, size_t count) {
    while (part.size() < count) part.push_back(all[at++].text);
  };
  take(r.sums, sums());
  take(r.most, softmax_rows());
  take(r.total, softmax_rows());
  r.at = {all[at].text, all[at + 1].text};
  return r;
}

/// In registers: the barriers of stage `stage`, which operand `parity` says the round of, and the address of its first matrix, as a
/// descriptor `right` of keys or values. Waits until these are there.
std::string AttentionTile::enter_stage(size_t base, bool values) const {
  const bool apart = values && layout_.value_bytes() > 0;
  Ptx p;
  p("{");
  p(".reg .pred p;");
  p(".reg .b32 base, bars, at, tid;");
  p(".reg .b64 left, right, l, r;");
  p("cvt.u32.u64 base, $", base, ";");
  p("mad.lo.u32 bars, $", base + 1, ", ", AttentionLayout::kStageBarriers, ", base;");
  p("add.u32 bars, bars, ", bars() + AttentionLayout::kQueryBarriers + (apart ? 8 : 0), ";");
  p.wait("THERE", "bars", str_cat("$", base + 2));
  if (values && !apart) p("add.u32 bars, bars, 8;");
  p("mad.lo.u32 at, $", base + 1, ", ", layout_.stage_bytes(), ", base;");
  p("add.u32 at, at, ", layout_.query_bytes(), ";");
  p("shr.u32 at, at, 4;");
  p("cvt.u64.u32 right, at;");
  p("or.b64 right, right, ", values ? across(layout_.keys * kLine) : kAlong, ";");
  p("mov.u32 tid, %tid.x;");
  return p.take();
}

/// Product `number` into the registers from operand `first` on.
std::string AttentionTile::keys_product(size_t number, size_t first) const {
  const char* const type = dtype_ == DType::kBFloat16 ? "bf16" : "f16";
  constexpr int64_t kInBox = TensorMap::kBox / kAttentionDeep;
  const int64_t queries = layout_.query_bytes(number), keys = layout_.key_bytes(number);
  std::string sums;
  for (size_t i = 0; i < products(); ++i) sums += str_cat(i > 0 ? "," : "", "$", first + i);
  Ptx p;
  const int64_t width = layout_.widths[number];
  for (int64_t step = 0; step < (width + kAttentionDeep - 1) / kAttentionDeep; ++step) {
    const int64_t inside = step % kInBox * kAttentionDeep * 2;
    p("add.u64 l, left, ", in_units(queries + step / kInBox * layout_.rows * kLine + inside), ";");
    p("add.u64 r, right, ", in_units(keys + step / kInBox * layout_.keys * kLine + inside), ";");
    p("wgmma.mma_async.sync.aligned.m64n", layout_.keys, "k16.f32.", type, ".", type, " {", sums, "}, l, r, ",
      step > 0 ? 1 : 0, ", 1, 1, 0, 0;");
  }
  return p.take();
}

/// Products of this warpgroup's queries with a block of keys, in pairs of neighbouring keys of the first row, of the second one, then of
/// the next eight keys; a second product's behind them.
std::vector<std::string> AttentionTile::multiply_keys(const Stage& at) {
  const size_t count = products() * attention_.scores.size();
  Ptx p;
  p.raw(enter_stage(count, false));
  p("shr.u32 tid, tid, 7;");
  p("sub.u32 tid, tid, 1;");
  p("mad.lo.u32 at, tid, ", AttentionLayout::kGroupRows * kLine, ", base;");
  p("shr.u32 at, at, 4;");
  p("cvt.u64.u32 left, at;");
  p("or.b64 left, left, ", kAlong, ";");
  p("wgmma.fence.sync.aligned;");
  for (size_t i = 0; i < attention_.scores.size(); ++i) p.raw(keys_product(i, i * products()));
  p("wgmma.commit_group.sync.aligned;");
  p("wgmma.wait_group.sync.aligned 0;");
  const std::string results = "{ " + listed("float", count) + " }";
  const std::string all = piece(p.take() + "}", results, listed("=f", count) + ",l,r,r,~{memory}",
                                str_cat("ptr addrspace(3) ", kStages, ", i32 ", at.stage, ", i32 ", at.parity));
  std::vector<std::string> values;
  for (size_t i = 0; i < count; ++i) values.push_back(ir_.assign(str_cat("extractvalue ", results, " ", all, ", ", i)));
  return values;
}

/// Adds shares times values, the shares from operand `shares` on, to a sum's registers, from operand `first` on.
std::string AttentionTile::values_product(size_t sum, size_t first, size_t shares) const {
  const char* const type = dtype_ == DType::kBFloat16 ? "bf16" : "f16";
  std::string own;
  for (size_t i = 0; i < sums(sum); ++i) own += str_cat(i > 0 ? "," : "", "$", first + i);
  Ptx p;
  for (int64_t step = 0; step < layout_.keys / kAttentionDeep; ++step) {
    const size_t a = shares + 4 * static_cast<size_t>(step);
    p("add.u64 r, right, ", in_units(layout_.values_at(sum) + step * kAttentionDeep * kLine), ";");
    p("wgmma.mma_async.sync.aligned.m64n", layout_.value_widths[sum], "k16.f32.", type, ".", type, " {", own, "}, {$",
      a, ",$", a + 1, ",$", a + 2, ",$", a + 3, "}, r, 1, 1, 1, 1;");
  }
  return p.take();
}

/// Adds the products of shares with their blocks of values, which are then free.
void AttentionTile::add_values(Running& r, const std::vector<std::string>& shares) {
  const size_t count = sums(), first = 2 * count, last = first + shares.size(), each = products() / 2;
  std::string tied, operands;
  for (size_t i = 0; i < count; ++i) {
    tied += str_cat(i, ",");
    operands += "float " + r.sums[i] + ", ";
  }
  for (const std::string& pair : shares) operands += "i32 " + pair + ", ";
  Ptx p;
  p.raw(enter_stage(last, true));
  p("wgmma.fence.sync.aligned;");
  for (size_t i = 0, at = 0; i < attention_.sums.size(); at += sums(i++)) {
    p.raw(values_product(i, at, first + i * each));
  }
  p("wgmma.commit_group.sync.aligned;");
  p("wgmma.wait_group.sync.aligned 0;");
  p("and.b32 tid, tid, ", AttentionLayout::kGroup - 1, ";");
  p("setp.eq.u32 p, tid, 0;");
  p("@p mbarrier.arrive.shared::cta.b64 _, [bars+8];");
  const std::string results = "{ " + listed("float", count) + " }";
  const std::string all =
      piece(p.take() + "}", results, listed("=f", count) + "," + tied + listed("r", shares.size()) + ",l,r,r,~{memory}",
            str_cat(operands, "ptr addrspace(3) ", kStages, ", i32 ", r.at.stage, ", i32 ", r.at.parity));
  for (size_t i = 0; i < count; ++i) r.sums[i] = ir_.assign(str_cat("extractvalue ", results, " ", all, ", ", i));
}

/// The largest or the sum ("max", "add") over the four threads that have a row.
std::string AttentionTile::over_quad(const char* what, const std::string& value) {
  ir_.declare("declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)");
  ir_.declare("declare float @llvm.maxnum.f32(float, float)");
  std::string all = value;
  for (const int distance : {1, 2}) {
    const std::string other = ir_.call("@llvm.nvvm.shfl.sync.bfly.f32", "float",
                                       str_cat("i32 -1, float ", all, ", i32 ", distance, ", i32 31"));
    all = what[0] == 'm' ? ir_.call("@llvm.maxnum.f32", "float", "float " + all + ", float " + other)
                         : ir_.binary("fadd", "float", all, other);
  }
  return all;
}

std::string AttentionTile::two(const std::string& low, const std::string& high) {
  const char* const type = dtype_ == DType::kBFloat16 ? "bf16x2" : "f16x2";
  return ir_.assign(
      str_cat("call i32 asm \"cvt.rn.", type, ".f32 $0, $2, $1;\", \"=r,f,f\"(float ", low, ", float ", high, ")"));
}

std::vector<std::string> AttentionTile::in_twos(const std::vector<std::string>& values) {
  std::vector<std::string> twos;
  for (size_t i = 0; i < values.size(); i += 2) twos.push_back(two(values[i], values[i + 1]));
  return twos;
}

std::vector<std::string> AttentionTile::shares_of(const Score& score, const std::string& block,
                                                  const std::vector<std::string>& products, const char* past) {
  const size_t count = this->products();
  const bool whole = attention_.keys() % attention_.block == 0;
  const std::string keys = std::to_string(attention_.keys());
  const std::string begin =
      ir_.binary("mul nuw nsw", "i32", ir_.assign("trunc i64 " + block + " to i32"), std::to_string(attention_.block));
  const std::string first = ir_.binary("add nuw nsw", "i32", begin, column_);
  std::vector<std::string> shares(count * attention_.sums.size());
  for (size_t pair = 0; pair < count / 4; ++pair) {
    const std::string own = ir_.binary("add nuw nsw", "i32", first, std::to_string(8 * pair));
    for (size_t row = 0; row < kRows; ++row) {
      const size_t at = 4 * pair + 2 * row;
      std::vector<Pair> given;
      for (size_t i = at; i < products.size(); i += count) given.push_back({products[i], products[i + 1]});
      const std::vector<Pair> found = score(rows_[row], own, given);
      for (size_t i = 0; i < 2; ++i) {
        const std::string last = whole ? "" : ir_.binary("add nuw nsw", "i32", own, std::to_string(i));
        const std::string there = whole ? "" : ir_.assign("icmp ult i32 " + last + ", " + keys);
        for (size_t sum = 0; sum < found.size(); ++sum) {
          std::string& share = shares[sum * count + at + i];
          share = whole ? found[sum][i] : ir_.select(there, "float", found[sum][i], past, false);
        }
      }
    }
  }
  return shares;
}

void AttentionTile::soften(std::vector<std::string>& scores, Running& r) {
  ir_.declare("declare float @llvm.nvvm.ex2.approx.ftz.f(float)");
  ir_.declare("declare float @llvm.fma.f32(float, float, float)");
  const size_t each = scores.size() / kRows;
  for (size_t row = 0; row < kRows; ++row) {
    const auto place = [row](size_t i) { return i / 2 * 4 + 2 * row + i % 2; };
    std::string most = r.most[row];
    for (size_t i = 0; i < each; ++i) {
      most = ir_.call("@llvm.maxnum.f32", "float", "float " + most + ", float " + scores[place(i)]);
    }
    most = over_quad("max", most);
    // Of a row without any score above -infinity nothing is subtracted.
    const std::string none = ir_.assign(str_cat("fcmp oeq float ", most, ", ", kMinusInfinity));
    const std::string base = ir_.select(none, "float", "0.0", most, false);
    const std::string away = ir_.binary("fmul", "float", base, kMinusLog2E);
    const auto power = [&](const std::string& x) {
      return ir_.call(
          "@llvm.nvvm.ex2.approx.ftz.f", "float",
          "float " + ir_.call("@llvm.fma.f32", "float", str_cat("float ", x, ", float ", kLog2E, ", float ", away)));
    };
    const std::string factor = power(r.most[row]);
    r.most[row] = most;
    std::string sum = ir_.binary("fmul", "float", r.total[row], factor);
    for (size_t i = 0; i < each; ++i) {
      std::string& share = scores[place(i)];
      share = power(share);
      sum = ir_.binary("fadd", "float", sum, share);
    }
    r.total[row] = sum;
    for (size_t i = 0; i < sums() / 2; ++i) {
      std::string& one = r.sums[place(i)];
      one = ir_.binary("fmul", "float", one, factor);
    }
  }
}

/// Waits for the queries of the round, or says that they are read ("wait", "free").
void AttentionTile::at_queries(const char* what, const std::string& parity) {
  const bool waits = what[0] == 'w';
  Ptx p;
  p("{");
  p(".reg .pred p;");
  p(".reg .b32 bars, tid;");
  p("cvt.u32.u64 bars, $0;");
  p("add.u32 bars, bars, ", bars(), ";");
  if (waits) {
    p.wait("THERE", "bars", "$1");
  } else {
    p("mov.u32 tid, %tid.x;");
    p("and.b32 tid, tid, ", AttentionLayout::kGroup - 1, ";");
    p("setp.eq.u32 p, tid, 0;");
    p("@p mbarrier.arrive.shared::cta.b64 _, [bars+8];");
  }
  piece(p.take() + "}", "void", "l,r,~{memory}", str_cat("ptr addrspace(3) ", kStages, ", i32 ", parity));
}

void AttentionTile::compute(const Score& score, std::vector<Reg>& state) {
  find_rows();
  at_queries("wait", state[2].text);
  Running begin;
  begin.sums.assign(sums(), "0.0");
  begin.most.assign(softmax_rows(), kMinusInfinity);
  begin.total.assign(softmax_rows(), "0.0");
  begin.at = {state[0].text, state[1].text};
  std::vector<Reg> now = packed(begin);
  each_block(types(), now, [&](const std::string& block, std::vector<Reg>& all) {
    Running r = unpacked(all);
    std::vector<std::string> shares =
        shares_of(score, block, multiply_keys(r.at), attention_.is_sum() ? "0.0" : kMinusInfinity);
    if (!attention_.is_sum()) soften(shares, r);
    add_values(r, in_twos(shares));
    r.at = after(r.at);
    all = packed(r);
  });
  Running end = unpacked(now);
  at_queries("free", state[2].text);
  state[0].text = end.at.stage;
  state[1].text = end.at.parity;
  state[2].text = ir_.binary("xor", "i32", state[2].text, "1");
  results_ = end.sums;
  if (!attention_.is_sum()) divide(end);
}

/// By the sums of exponentials.
void AttentionTile::divide(const Running& end) {
  const bool zero = attention_.form == Attention::Form::kSoftmaxOrZero;
  for (size_t row = 0; row < kRows; ++row) {
    const std::string sum = over_quad("add", end.total[row]);
    std::string share = ir_.binary("fdiv", "float", "1.0", sum);
    const std::string none = ir_.assign("fcmp oeq float " + sum + ", 0.0");
    share = ir_.select(none, "float", zero ? "0.0" : kNotANumber, share, false);
    for (size_t i = 0; i < sums() / 2; ++i) {
      const size_t at = i / 2 * 4 + 2 * row + i % 2;
      results_[at] = ir_.binary("fmul", "float", end.sums[at], share);
    }
    if (attention_.norms < 0) continue;
    ir_.declare("declare float @llvm.nvvm.lg2.approx.ftz.f(float)");
    const std::string log = ir_.call("@llvm.nvvm.lg2.approx.ftz.f", "float", "float " + sum);
    const std::string norm =
        ir_.call("@llvm.fma.f32", "float", str_cat("float ", log, ", float ", kLog2, ", float ", end.most[row]));
    norms_[row] = ir_.select(none, "float", zero ? kInfinity : kNotANumber, norm, false);
  }
}

void AttentionTile::give_norms(const std::function<void(const std::string& row, const std::string& norm)>& result) {
  const bool whole = attention_.rows.is_const() && attention_.rows.const_value() % attention_.extent == 0;
  const std::string rows = scope_.index(attention_.rows);
  const std::string first = ir_.assign("icmp eq i32 " + column_ + ", 0");
  for (size_t row = 0; row < kRows; ++row) {
    const std::string there =
        whole ? first : ir_.binary("and", "i1", first, ir_.assign("icmp ult i64 " + rows_[row] + ", " + rows));
    emitter_.run_if(there, [&] { result(rows_[row], norms_[row]); });
  }
}

void AttentionTile::give(size_t sum, const Result& result) {
  const bool whole = attention_.rows.is_const() && attention_.rows.const_value() % attention_.extent == 0;
  const std::string rows = scope_.index(attention_.rows);
  size_t first = 0;
  for (size_t i = 0; i < sum; ++i) first += sums(i);
  for (size_t row = 0; row < kRows; ++row) {
    emitter_.run_if(whole ? "" : ir_.assign("icmp ult i64 " + rows_[row] + ", " + rows), [&] {
      for (size_t pair = 0; pair < sums(sum) / 4; ++pair) {
        const size_t at = first + 4 * pair + 2 * row;
        const std::string own = ir_.binary("add nuw nsw", "i32", column_, std::to_string(8 * pair));
        result(rows_[row], own, {results_[at], results_[at + 1]});
      }
    });
  }
}

}  // namespace tatara::codegen
