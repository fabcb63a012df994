#include "codegen/cuda/attention_tile.h"

#include "codegen/cuda/ptx.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr int64_t kAttentionDeep = 16;  // elements that an instruction multiplies along the inner dimension
constexpr int64_t kLine = TensorMap::kBoxBytes;
constexpr const char* kStages = "@tatara_attention";
constexpr const char *kLog2E = "0x3FF7154760000000", *kMinusLog2E = "0xBFF7154760000000";  // of e, as float32
constexpr const char* kMinusInfinity = "0xFFF0000000000000";

constexpr int64_t in_units(int64_t bytes) { return bytes >> 4; }  // of a matrix descriptor
constexpr int64_t kSwizzled = int64_t{1} << 62;
/// Fields of a matrix descriptor but the address (PTX ISA, "Matrix descriptor"), of rows along which the inner dimension goes.
constexpr int64_t kAlong = kSwizzled | int64_t{1} << 16 | in_units(8 * kLine) << 32;
/// Likewise, where it goes across rows; boxes are so many bytes apart.
constexpr int64_t across(int64_t box) { return kSwizzled | in_units(box) << 16 | in_units(8 * kLine) << 32; }

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
      dtype_(scope_.buffer(attention.queries.buffer).dtype) {}

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

size_t AttentionTile::sums() const {
  return static_cast<size_t>(layout_.value_width * AttentionLayout::kGroupRows / AttentionLayout::kGroup);
}
size_t AttentionTile::products() const {
  return static_cast<size_t>(layout_.keys * AttentionLayout::kGroupRows / AttentionLayout::kGroup);
}
int64_t AttentionTile::blocks() const { return (attention_.keys.rows + attention_.block - 1) / attention_.block; }
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
        const std::string last = at_most(add(key, attention_.block - 1), std::to_string(attention_.keys.rows - 1));
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

// ---- Loading -----------------------------------------------------------------------------------------------------------

/// Boxes of a matrix, to the address `at`, which moves on, where `one` is true. The registers NAMErow, NAMEh, NAMEb say which of its rows,
/// and which matrix.
std::string AttentionTile::copies(const Attention::Side& side, int64_t rows, const std::string& name) const {
  Ptx p;
  for (int64_t box = 0; box < AttentionLayout::boxes(side.width); ++box) {
    p("@one cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [at], [", name, "map, {",
      box * TensorMap::kBox, ", ", name, "row, ", name, "h, ", name, "b}], [full];");
    p("add.u32 at, at, ", rows * kLine, ";");
  }
  return p.take();
}

/// $0: base, $1: map, $2: first row, $3, $4: number of the matrix, $5: parity of the queries' round.
std::string AttentionTile::query_loader() const {
  Ptx p;
  p("{");
  p(".reg .pred p, one;");
  p(".reg .b32 full, empty, other, at, qrow, qh, qb;");
  p(".reg .b64 qmap;");
  p("cvt.u32.u64 at, $0;");
  p("mov.u64 qmap, $1;");
  p("cvt.u32.u64 qrow, $2;");
  p("cvt.u32.u64 qb, $3;");
  p("cvt.u32.u64 qh, $4;");
  p("xor.b32 other, $5, 1;");
  p("add.u32 full, at, ", bars(), ";");
  p("add.u32 empty, full, 8;");
  p.wait("TAKEN", "empty", "other");
  p("mov.u32 other, %tid.x;");
  p("setp.eq.u32 one, other, 0;");
  p("@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], ", layout_.query_bytes(), ";");
  p.raw(copies(attention_.queries, layout_.rows, "q"));
  return p.take() + "}";
}

/// $0: base, $1, $2: maps, $3: block, $4 to $7: numbers of the matrices, $8, $9: stage and parity.
std::string AttentionTile::block_loader() const {
  Ptx p;
  p("{");
  p(".reg .pred p, one;");
  p(".reg .b32 base, full, empty, other, at, krow, kh, kb, vrow, vh, vb;");
  p(".reg .b64 kmap, vmap;");
  p("cvt.u32.u64 base, $0;");
  p("mov.u64 kmap, $1;");
  p("mov.u64 vmap, $2;");
  p("cvt.u32.u64 krow, $3;");
  p("mul.lo.u32 krow, krow, ", attention_.block, ";");
  p("mov.u32 vrow, krow;");
  size_t operand = 4;
  for (const char* number : {"kb", "kh", "vb", "vh"}) p("cvt.u32.u64 ", number, ", $", operand++, ";");
  p("mad.lo.u32 full, $8, ", AttentionLayout::kStageBarriers, ", base;");
  p("add.u32 full, full, ", bars() + AttentionLayout::kQueryBarriers, ";");
  p("add.u32 empty, full, 16;");
  p("xor.b32 other, $9, 1;");
  p.wait("FREE", "empty", "other");
  p("mov.u32 other, %tid.x;");
  p("setp.eq.u32 one, other, 0;");
  p("mad.lo.u32 at, $8, ", layout_.stage_bytes(), ", base;");
  p("add.u32 at, at, ", layout_.query_bytes(), ";");
  p("@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], ", layout_.key_bytes(), ";");
  p.raw(copies(attention_.keys, layout_.keys, "k"));
  p("add.u32 full, full, 8;");
  p("@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], ", layout_.stage_bytes() - layout_.key_bytes(), ";");
  p.raw(copies(attention_.values, layout_.keys, "v"));
  return p.take() + "}";
}

void AttentionTile::load(std::vector<Reg>& state) {
  const auto numbers = [&](const Attention::Side& side) {
    return str_cat(", i64 ", scope_.index(side.number[0]), ", i64 ", scope_.index(side.number[1]));
  };
  const std::string base = str_cat("ptr addrspace(3) ", kStages), keys = numbers(attention_.keys),
                    values = numbers(attention_.values);
  piece(query_loader(), "void", "l,l,l,l,l,r,~{memory}",
        str_cat(base, ", ptr %map0, i64 ", scope_.index(attention_.first), numbers(attention_.queries), ", i32 ",
                state[2].text));
  std::vector<Reg> now{state[0], state[1]};
  each_block({DType::kInt32, DType::kInt32}, now, [&](const std::string& block, std::vector<Reg>& at) {
    piece(
        block_loader(), "void", "l,l,l,l,l,l,l,l,r,r,~{memory}",
        str_cat(base, ", ptr %map1, ptr %map2, i64 ", block, keys, values, ", i32 ", at[0].text, ", i32 ", at[1].text));
    const Stage next = after({at[0].text, at[1].text});
    at = {{next.stage, false}, {next.parity, false}};
  });
  state[0] = now[0];
  state[1] = now[1];
  state[2].text = ir_.binary("xor", "i32", state[2].text, "1");
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
  std::vector<DType> types(sums() + 2 * kRows, DType::kFloat32);
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
  take(r.most, kRows);
  take(r.total, kRows);
  r.at = {all[at].text, all[at + 1].text};
  return r;
}

/// In registers: the barriers of stage `stage`, which operand `parity` says the round of, and the address of its keys or values, as a
/// descriptor `right`. Waits until they are there.
std::string AttentionTile::enter_stage(size_t base, bool values) const {
  Ptx p;
  p("{");
  p(".reg .pred p;");
  p(".reg .b32 base, bars, at, tid;");
  p(".reg .b64 left, right, l, r;");
  p("cvt.u32.u64 base, $", base, ";");
  p("mad.lo.u32 bars, $", base + 1, ", ", AttentionLayout::kStageBarriers, ", base;");
  p("add.u32 bars, bars, ", bars() + AttentionLayout::kQueryBarriers + (values ? 8 : 0), ";");
  p.wait("THERE", "bars", str_cat("$", base + 2));
  p("mad.lo.u32 at, $", base + 1, ", ", layout_.stage_bytes(), ", base;");
  p("add.u32 at, at, ", layout_.query_bytes() + (values ? layout_.key_bytes() : 0), ";");
  p("shr.u32 at, at, 4;");
  p("cvt.u64.u32 right, at;");
  p("or.b64 right, right, ", values ? across(layout_.keys * kLine) : kAlong, ";");
  p("mov.u32 tid, %tid.x;");
  return p.take();
}

/// Products of this warpgroup's queries with a block of keys, in pairs of neighbouring keys of the first row, of the second one, then of
/// the next eight keys.
std::vector<std::string> AttentionTile::multiply_keys(const Stage& at) {
  const size_t count = products();
  const char* const type = dtype_ == DType::kBFloat16 ? "bf16" : "f16";
  std::string sums;
  for (size_t i = 0; i < count; ++i) sums += str_cat(i > 0 ? "," : "", "$", i);
  Ptx p;
  p.raw(enter_stage(count, false));
  p("shr.u32 tid, tid, 7;");
  p("sub.u32 tid, tid, 1;");
  p("mad.lo.u32 at, tid, ", AttentionLayout::kGroupRows * kLine, ", base;");
  p("shr.u32 at, at, 4;");
  p("cvt.u64.u32 left, at;");
  p("or.b64 left, left, ", kAlong, ";");
  p("wgmma.fence.sync.aligned;");
  constexpr int64_t kInBox = TensorMap::kBox / kAttentionDeep;
  for (int64_t step = 0; step < (layout_.width + kAttentionDeep - 1) / kAttentionDeep; ++step) {
    const int64_t inside = step % kInBox * kAttentionDeep * 2;
    p("add.u64 l, left, ", in_units(step / kInBox * layout_.rows * kLine + inside), ";");
    p("add.u64 r, right, ", in_units(step / kInBox * layout_.keys * kLine + inside), ";");
    p("wgmma.mma_async.sync.aligned.m64n", layout_.keys, "k16.f32.", type, ".", type, " {", sums, "}, l, r, ",
      step > 0 ? 1 : 0, ", 1, 1, 0, 0;");
  }
  p("wgmma.commit_group.sync.aligned;");
  p("wgmma.wait_group.sync.aligned 0;");
  const std::string results = "{ " + listed("float", count) + " }";
  const std::string all = piece(p.take() + "}", results, listed("=f", count) + ",l,r,r,~{memory}",
                                str_cat("ptr addrspace(3) ", kStages, ", i32 ", at.stage, ", i32 ", at.parity));
  std::vector<std::string> values;
  for (size_t i = 0; i < count; ++i) values.push_back(ir_.assign(str_cat("extractvalue ", results, " ", all, ", ", i)));
  return values;
}

/// Adds the product of probabilities with their block of values, which is then free.
void AttentionTile::add_values(Running& r, const std::vector<std::string>& shares) {
  const size_t count = sums(), first = 2 * count, last = first + shares.size();
  const char* const type = dtype_ == DType::kBFloat16 ? "bf16" : "f16";
  std::string own, tied, operands;
  for (size_t i = 0; i < count; ++i) {
    own += str_cat(i > 0 ? "," : "", "$", i);
    tied += str_cat(i, ",");
    operands += "float " + r.sums[i] + ", ";
  }
  for (const std::string& pair : shares) operands += "i32 " + pair + ", ";
  Ptx p;
  p.raw(enter_stage(last, true));
  p("wgmma.fence.sync.aligned;");
  for (int64_t step = 0; step < layout_.keys / kAttentionDeep; ++step) {
    const size_t a = first + 4 * static_cast<size_t>(step);
    p("add.u64 r, right, ", in_units(step * kAttentionDeep * kLine), ";");
    p("wgmma.mma_async.sync.aligned.m64n", layout_.value_width, "k16.f32.", type, ".", type, " {", own, "}, {$", a,
      ",$", a + 1, ",$", a + 2, ",$", a + 3, "}, r, 1, 1, 1, 1;");
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

std::vector<std::string> AttentionTile::soften(const Score& score, const std::string& block,
                                               const std::vector<std::string>& products, Running& r) {
  ir_.declare("declare float @llvm.nvvm.ex2.approx.ftz.f(float)");
  ir_.declare("declare float @llvm.fma.f32(float, float, float)");
  const size_t pairs = products.size() / 4;
  const bool whole = attention_.keys.rows % attention_.block == 0;
  const std::string keys = std::to_string(attention_.keys.rows);
  const std::string begin =
      ir_.binary("mul nuw nsw", "i32", ir_.assign("trunc i64 " + block + " to i32"), std::to_string(attention_.block));
  const std::string first = ir_.binary("add nuw nsw", "i32", begin, column_);
  std::vector<std::string> scores(products.size());
  for (size_t pair = 0; pair < pairs; ++pair) {
    const std::string own = ir_.binary("add nuw nsw", "i32", first, std::to_string(8 * pair));
    for (size_t row = 0; row < kRows; ++row) {
      const size_t at = 4 * pair + 2 * row;
      const Pair found = score(rows_[row], own, {products[at], products[at + 1]});
      for (size_t i = 0; i < 2; ++i) {
        scores[at + i] = found[i];
        if (whole) continue;
        const std::string last = ir_.binary("add nuw nsw", "i32", own, std::to_string(i));
        const std::string there = ir_.assign("icmp ult i32 " + last + ", " + keys);
        scores[at + i] = ir_.select(there, "float", found[i], kMinusInfinity, false);
      }
    }
  }
  std::vector<std::string> shares(products.size());
  for (size_t row = 0; row < kRows; ++row) {
    const auto place = [row](size_t i) { return i / 2 * 4 + 2 * row + i % 2; };
    std::string most = r.most[row];
    for (size_t i = 0; i < 2 * pairs; ++i) {
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
    for (size_t i = 0; i < 2 * pairs; ++i) {
      shares[place(i)] = power(scores[place(i)]);
      sum = ir_.binary("fadd", "float", sum, shares[place(i)]);
    }
    r.total[row] = sum;
    for (size_t i = 0; i < sums() / 2; ++i) {
      std::string& each = r.sums[place(i)];
      each = ir_.binary("fmul", "float", each, factor);
    }
  }
  std::vector<std::string> twos;
  for (size_t i = 0; i < shares.size(); i += 2) twos.push_back(two(shares[i], shares[i + 1]));
  return twos;
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
  begin.most.assign(kRows, kMinusInfinity);
  begin.total.assign(kRows, "0.0");
  begin.at = {state[0].text, state[1].text};
  std::vector<Reg> now = packed(begin);
  each_block(types(), now, [&](const std::string& block, std::vector<Reg>& all) {
    Running r = unpacked(all);
    add_values(r, soften(score, block, multiply_keys(r.at), r));
    r.at = after(r.at);
    all = packed(r);
  });
  Running end = unpacked(now);
  at_queries("free", state[2].text);
  state[0].text = end.at.stage;
  state[1].text = end.at.parity;
  state[2].text = ir_.binary("xor", "i32", state[2].text, "1");
  results_.assign(sums(), "");
  for (size_t row = 0; row < kRows; ++row) {
    const std::string sum = over_quad("add", end.total[row]);
    std::string share = ir_.binary("fdiv", "float", "1.0", sum);
    const std::string none = ir_.assign("fcmp oeq float " + sum + ", 0.0");
    share = ir_.select(none, "float", attention_.zero ? "0.0" : "0x7FF8000000000000", share, false);
    for (size_t i = 0; i < sums() / 2; ++i) {
      const size_t at = i / 2 * 4 + 2 * row + i % 2;
      results_[at] = ir_.binary("fmul", "float", end.sums[at], share);
    }
  }
}

void AttentionTile::give(const Result& result) {
  const bool whole = attention_.rows.is_const() && attention_.rows.const_value() % attention_.extent == 0;
  const std::string rows = scope_.index(attention_.rows);
  for (size_t row = 0; row < kRows; ++row) {
    emitter_.run_if(whole ? "" : ir_.assign("icmp ult i64 " + rows_[row] + ", " + rows), [&] {
      for (size_t pair = 0; pair < results_.size() / 4; ++pair) {
        const size_t at = 4 * pair + 2 * row;
        const std::string own = ir_.binary("add nuw nsw", "i32", column_, std::to_string(8 * pair));
        result(rows_[row], own, {results_[at], results_[at + 1]});
      }
    });
  }
}

}  // namespace tatara::codegen
