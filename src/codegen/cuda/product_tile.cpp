#include "codegen/cuda/product_tile.h"

#include <tuple>
#include <utility>

#include "codegen/cuda/ptx.h"
#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr int64_t kDeepBytes = 32;  // of k, that an instruction multiplies
constexpr int64_t kRun = ProductLayout::kRun;
constexpr int64_t kRunBytes = 128;  // of the rows of a group: 8 of them, 16 bytes each
constexpr int kCascade = 8;         // blocks whose sum is added to that of those before
constexpr int kFirstTurn = 1;       // a barrier of the first warpgroup that multiplies; that of the second one follows
constexpr const char* kShared = "@tatara_stages";

/// Which parts meet, the smallest products first. Left out are those below 2^-26 of the whole.
std::vector<std::pair<int64_t, int64_t>> terms_of(int64_t parts) {
  if (parts == 1) return {{0, 0}};
  return {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}};
}

/// To the next stage.
void advance(Ptx& p, int64_t stages) {
  p("add.u32 stage, stage, 1;");
  p("add.u32 full, full, 16;");
  p("setp.eq.u32 p, stage, ", stages, ";");
  p("@p mov.u32 stage, 0;");
  p("@p mov.u32 full, bars;");
  p("@p xor.b32 parity, parity, 1;");
  p("add.u32 k, k, 1;");
  p("setp.lt.u32 more, k, blocks;");
}

}  // namespace

ProductTile::ProductTile(GpuContext& gpu, KernelEmitter& emitter, const Product& product)
    : gpu_(gpu),
      ir_(gpu.context.ir),
      scope_(gpu.context.scope),
      emitter_(emitter),
      product_(product),
      layout_(ProductLayout::of(product)) {}

void ProductTile::begin() {
  TATARA_CHECK(gpu_.context.kernel.gpu.threads == layout_.threads(), "threads of a product in ",
               gpu_.context.kernel.name);
  ir_.declare(std::string(kShared) + " = external addrspace(3) global [0 x i8], align 1024\n");
  Ptx p;
  p("{");
  p(".reg .pred p;");
  p(".reg .b32 tid, base, bars;");
  p("cvt.u32.u64 base, $0;");
  p("add.u32 bars, base, ", layout_.stages() * layout_.stage_bytes(), ";");
  p("mov.u32 tid, %tid.x;");
  p("setp.ne.u32 p, tid, 0;");
  p("@p bra READY;");
  p("mov.u32 tid, 0;");
  p("st.shared.v2.b32 [base+", layout_.state_at(), "], {tid, tid};");
  for (int64_t s = 0; s < layout_.stages(); ++s) {
    p("mbarrier.init.shared::cta.b64 [bars+", 16 * s, "], 1;");
    p("mbarrier.init.shared::cta.b64 [bars+", 16 * s + 8, "], ", layout_.turns() ? 1 : layout_.groups(), ";");
  }
  p("fence.mbarrier_init.release.cluster;");
  p("fence.proxy.async;");
  p("READY:");
  p("bar.sync 0;");
  ir_.line("call void asm sideeffect \"" + p.take() + "}\", \"l,~{memory}\"(ptr addrspace(3) " + kShared + ") #2");
}

void ProductTile::take_role(bool loads) {
  const std::string registers = loads ? str_cat("dec.sync.aligned.u32 ", ProductLayout::kLoaderRegisters)
                                      : str_cat("inc.sync.aligned.u32 ", layout_.group_registers());
  ir_.line("call void asm sideeffect \"setmaxnreg." + registers + ";\", \"~{memory}\"() #2");
  if (loads || !layout_.turns()) return;
  // It is the first one's turn, which the second one says.
  Ptx p;
  p("{");
  p(".reg .pred p;");
  p(".reg .b32 tid;");
  p("mov.u32 tid, %tid.x;");
  p("setp.ge.u32 p, tid, ", 2 * ProductLayout::kGroup, ";");
  p("@p bar.arrive ", kFirstTurn, ", ", 2 * ProductLayout::kGroup, ";");
  ir_.line("call void asm sideeffect \"" + p.take() + "}\", \"~{memory}\"() #2");
}

std::vector<ProductTile::Operand> ProductTile::places() {
  std::vector<Operand> given = {{"ptr addrspace(3)", kShared}, {"i64", own_blocks()}};
  const auto small = [&](const std::string& text) { return ir_.binary("and", "i64", text, "4294967295"); };
  for (const Side* side : {&product_.left, &product_.right}) {
    if (side->matrices) {
      const Product::Matrices& m = *side->matrices;
      std::string first = scope_.index(side->first), number = scope_.index(m.number);
      if (m.interleaved) {
        const std::string before = ir_.binary("mul", "i64", number, std::to_string(m.rows));
        first =
            ir_.binary("udiv", "i64", ir_.binary("add", "i64", first, before), std::to_string(TensorMap::kInterleaved));
        number = "0";
      }
      given.push_back({"ptr", side == &product_.left ? "%map0" : "%map1"});
      given.push_back({"i64", small(first)});
      given.push_back({"i64", small(number)});
      continue;
    }
    for (size_t part = 0; part < side->parts.size(); ++part)
      given.push_back({"ptr addrspace(1)", pointer(*side, part)});
  }
  if (layout_.cut) given.push_back({"i64", small(scope_.index(product_.span->first))});
  return given;
}

/// A piece of PTX that goes through the blocks of a tile. Its results are some sums, and the state: the number of a stage and the parity
/// of its round.
std::vector<std::string> ProductTile::through_blocks(const std::string& text, size_t sums,
                                                     const std::vector<Operand>& given, std::vector<Reg>& state) {
  std::string results, constraints, operands;
  for (size_t i = 0; i < sums; ++i) {
    results += "float, ";
    constraints += "=f,";
  }
  results += "i32, i32";
  constraints += "=r,=r";
  for (const Operand& operand : given) {
    operands += operand.type + " " + operand.text + ", ";
    constraints += ",l";
  }
  operands += "i32 " + state[0].text + ", i32 " + state[1].text;
  constraints += str_cat(",", sums, ",", sums + 1, ",~{memory}");
  const std::string all = ir_.assign("call { " + results + " } asm sideeffect \"" + text + "\", \"" + constraints +
                                     "\"(" + operands + ") #2");
  std::vector<std::string> values;
  for (size_t i = 0; i < sums + 2; ++i) {
    values.push_back(ir_.assign("extractvalue { " + results + " } " + all + ", " + std::to_string(i)));
  }
  for (Reg& part : state) {
    part.text = values[sums];
    values.erase(values.begin() + static_cast<std::ptrdiff_t>(sums));
  }
  return values;
}

std::string ProductTile::own_blocks() {
  if (!product_.span) return scope_.index(product_.blocks);
  const std::string length =
      ir_.binary("sub", "i64", scope_.index(product_.span->end), scope_.index(product_.span->first));
  ir_.declare("declare i64 @llvm.smax.i64(i64, i64)");
  const std::string some = ir_.call("@llvm.smax.i64", "i64", "i64 " + length + ", i64 0");
  const std::string step = std::to_string(layout_.step());
  return ir_.binary("udiv", "i64", ir_.binary("add", "i64", some, std::to_string(layout_.step() - 1)), step);
}

std::string ProductTile::last_block() {
  const std::string length =
      ir_.binary("sub", "i64", scope_.index(product_.span->end), scope_.index(product_.span->first));
  const std::string behind = std::to_string(layout_.step() - 1);
  const std::string before = ir_.binary("and", "i64", ir_.binary("sub", "i64", length, "1"), behind);
  return ir_.binary("add", "i64", before, "1");
}

void ProductTile::load(std::vector<Reg>& state) { through_blocks(loader(), 0, places(), state); }

void ProductTile::multiply(std::string& locals, std::vector<Reg>& state) {
  blocks_ = scope_.index(product_.blocks);
  std::vector<Operand> given = {{"ptr addrspace(3)", kShared}, {"i64", own_blocks()}};
  if (layout_.cut) given.push_back({"i64", last_block()});
  find_place();
  if (product_.scales) give_scales(given);
  values_ = through_blocks(multiplier(), static_cast<size_t>(layout_.sums()), given, state);
  if (layout_.parts > 1) mend(locals);
  if (exchanges()) exchange();
}

/// Of the threads that multiply, a warp has 16 rows, and four threads beside each other have one of them.
void ProductTile::find_place() {
  const std::string behind = ir_.binary("sub", "i64", gpu_.threads.lane(), std::to_string(ProductLayout::kGroup));
  const std::string thread =
      layout_.turns() ? ir_.binary("and", "i64", behind, std::to_string(ProductLayout::kGroup - 1)) : behind;
  const std::string warp = ir_.binary("lshr", "i64", thread, "5");
  const std::string lane = ir_.binary("and", "i64", thread, "31");
  row_ = ir_.binary("add nuw nsw", "i64", ir_.binary("shl", "i64", warp, "4"), ir_.binary("lshr", "i64", lane, "2"));
  const std::string quarter = ir_.binary("and", "i64", lane, "3");
  column_ = ir_.binary("shl", "i64", quarter, interleaved() ? "3" : "1");
  first_row_ = scope_.index(product_.left.first);
  first_column_ = scope_.index(product_.right.first);
}

/// Where the scales of the thread's two rows are, and that of the columns. Behind the last row there is none.
void ProductTile::give_scales(std::vector<Operand>& given) {
  const Product::Scales& s = *product_.scales;
  const auto at = [&](int buffer, const std::string& index) {
    const std::string place = ir_.assign("getelementptr float, ptr " + scope_.base(buffer) + ", i64 " + index);
    given.push_back({"ptr addrspace(1)", ir_.assign("addrspacecast ptr " + place + " to ptr addrspace(1)")});
  };
  const std::string last =
      ir_.binary("sub", "i64", ir_.binary("sub", "i64", scope_.index(product_.rows), "1"), first_row_);
  const std::string first = scope_.index(s.left_index);
  ir_.declare("declare i64 @llvm.smin.i64(i64, i64)");
  for (const int64_t below : {int64_t{0}, kRun}) {
    const std::string own = ir_.binary("add", "i64", row_, std::to_string(below));
    const std::string row = ir_.call("@llvm.smin.i64", "i64", "i64 " + own + ", i64 " + last);
    at(s.left, ir_.binary("add", "i64", first, ir_.binary("mul", "i64", row, std::to_string(s.left_row))));
  }
  at(s.right, scope_.index(s.right_index));
}

namespace {

std::string_view small_type(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return "bf16";
    case DType::kFloat8E4M3FN: return "e4m3";
    case DType::kFloat8E5M2: return "e5m2";
    default: return "f16";
  }
}

}  // namespace

ProductTile::Turn ProductTile::turn(const std::string& first, const std::string& step) {
  const std::vector<Reg> state(2, Reg{"0", false});
  if (!layout_.turns()) return {first, step, state};
  const std::string group = ir_.binary("sub", "i64", ir_.binary("lshr", "i64", gpu_.threads.lane(), "7"), "1");
  return {ir_.binary("add", "i64", first, ir_.binary("mul", "i64", group, step)),
          ir_.binary("mul", "i64", step, std::to_string(layout_.groups())), state};
}

std::string ProductTile::pointer(const Side& side, size_t part) const {
  const std::string at =
      ir_.assign("getelementptr i16, ptr " + scope_.base(side.parts[part]) + ", i64 " + scope_.index(side.index));
  return ir_.assign("addrspacecast ptr " + at + " to ptr addrspace(1)");
}

// ---- The main loop -----------------------------------------------------------------------------------------------------
// In registers: base of the stages, the barriers of the present stage (full, empty), its number and the parity of its round.

/// `first`: the number of the operand with the base of the stages; the number of blocks follows. `state`: that of the stage's number.
std::string ProductTile::enter(size_t first, size_t state) const {
  Ptx p;
  p("{");
  p(".reg .pred p, more, first;");
  p(".reg .b32 tid, group, base, bars, full, empty, stage, parity, other, k, blocks, at;");
  p("cvt.u32.u64 base, $", first, ";");
  p("cvt.u32.u64 blocks, $", first + 1, ";");
  p("mov.u32 stage, $", state, ";");
  p("mov.u32 parity, $", state + 1, ";");
  p("add.u32 bars, base, ", layout_.stages() * layout_.stage_bytes(), ";");
  p("mad.lo.u32 full, stage, 16, bars;");
  p("mov.u32 k, 0;");
  p("setp.lt.u32 more, k, blocks;");
  return p.take();
}

std::string ProductTile::leave(size_t state) const {
  Ptx p;
  p("mov.u32 $", state, ", stage;");
  p("mov.u32 $", state + 1, ", parity;");
  return p.take() + "}";
}

/// One thread asks the copy engine for block after block.
std::string ProductTile::loader() const {
  const auto parts = static_cast<size_t>(layout_.parts);
  const bool matrices = layout_.matrices;
  constexpr size_t kState = 0, kGiven = 2;
  Ptx p;
  p.raw(enter(kGiven, kState));
  for (size_t i = 0; i < 2 * parts; ++i) {
    p(".reg .b64 from", i, ";");
    p("mov.u64 from", i, ", $", kGiven + 2 + (matrices ? 3 : 1) * i, ";");
  }
  p(".reg .b32 kfirst, afirst, anumber, bfirst, bnumber;");
  for (size_t i = 0; matrices && i < 2; ++i) {
    const char side = "ab"[i];
    p("cvt.u32.u64 ", side, "first, $", kGiven + 3 + 3 * i, ";");
    p("cvt.u32.u64 ", side, "number, $", kGiven + 4 + 3 * i, ";");
  }
  if (layout_.cut) {
    p("cvt.u32.u64 kfirst, $", kGiven + 2 + 6, ";");
  } else {
    p("mov.u32 kfirst, 0;");
  }
  p("@!more bra DONE;");
  p("LOAD:");
  p("add.u32 empty, full, 8;");
  p("xor.b32 other, parity, 1;");
  p.wait("FREE", "empty", "other");
  p("mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], ", layout_.stage_bytes(), ";");
  p("mad.lo.u32 at, stage, ", layout_.stage_bytes(), ", base;");
  if (matrices) {
    p.raw(matrix_copies(product_.left, "from0", "a") + matrix_copies(product_.right, "from1", "b"));
    p("add.u32 kfirst, kfirst, ", layout_.step(), ";");
  }
  for (size_t i = 0; !matrices && i < 2 * parts; ++i) {
    const int64_t bytes = i < parts ? layout_.left_bytes() : layout_.right_bytes();
    p("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [at], [from", i, "], ", bytes, ", [full];");
    p("add.u64 from", i, ", from", i, ", ", bytes, ";");
    p("add.u32 at, at, ", bytes, ";");
  }
  advance(p, layout_.stages());
  p("@more bra LOAD;");
  p("DONE:");
  return p.take() + leave(kState);
}

/// A block of an operand, in boxes of 128 bytes along memory and swizzled, so that neither the copy nor the multiplication meets two words
/// of a bank at once.
std::string ProductTile::matrix_copies(const Side& side, const std::string& map, const std::string& name) const {
  Ptx p;
  const bool along = side.matrices->along();
  if (side.matrices->interleaved) {
    p("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [at], [", map, ", {kfirst, ",
      name, "number, ", name, "number, ", name, "number, ", name, "first}], [full];");
    p("add.u32 at, at, ", side.extent * TensorMap::kBoxBytes, ";");
    return p.take();
  }
  for (int64_t at = 0; at < (along ? 1 : side.extent); at += TensorMap::kBox) {
    const std::string first = name + "first";
    if (at > 0) p("add.u32 other, ", first, ", ", at, ";");
    const std::string place = at > 0 ? "other" : first;
    p("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [at], [", map, ", {",
      along ? "kfirst, " + place : place + ", kfirst", ", ", name, "number}], [full];");
    const int64_t bytes = (along ? side.extent : layout_.step()) * TensorMap::kBoxBytes;
    p("add.u32 at, at, ", bytes, ";");
  }
  return p.take();
}

/// How an operand's elements lie in shared memory, as multiplications read them: PTX ISA, "Matrix descriptor".
ProductTile::Descriptor ProductTile::descriptor(const Side& side) const {
  constexpr int64_t kSwizzle128 = int64_t{1} << 62;
  const auto field = [](int64_t bytes) { return bytes >> 4; };  // in units of 16 bytes
  if (!side.matrices) {
    // From run to run along k, and from group to group of rows; no swizzle.
    const int64_t group = Product::kStep / kRun * kRunBytes;
    return {field(kRunBytes) << 16 | field(group) << 32, kDeepBytes / 2 / kRun * kRunBytes,
            ProductLayout::kGroupRows / kRun * group, 0};
  }
  constexpr int64_t kLine = TensorMap::kBoxBytes, kEight = 8 * kLine;
  if (side.matrices->along()) {
    return {kSwizzle128 | int64_t{1} << 16 | field(kEight) << 32, kDeepBytes, ProductLayout::kGroupRows * kLine, 0};
  }
  const int64_t box = layout_.step() * kLine;  // 64 rows (columns) of all k
  return {kSwizzle128 | field(box) << 16 | field(kEight) << 32, layout_.deep() * kLine, box, 1};
}

/// Where the other one's blocks are not all there, a parity could be that of two rounds before.
std::string ProductTile::await_turn() const {
  Ptx p;
  p("add.u32 other, group, ", kFirstTurn, ";");
  p("bar.sync other, ", 2 * ProductLayout::kGroup, ";");
  p("ld.shared.v2.b32 {stage, parity}, [base+", layout_.state_at(), "];");
  p("mad.lo.u32 full, stage, 16, bars;");
  return p.take();
}

std::string ProductTile::give_turn() const {
  Ptx p;
  p("and.b32 other, tid, 127;");
  p("setp.eq.u32 p, other, 0;");
  p("@p st.shared.v2.b32 [base+", layout_.state_at(), "], {stage, parity};");
  p("sub.u32 other, ", kFirstTurn + 1, ", group;");
  p("bar.arrive other, ", 2 * ProductLayout::kGroup, ";");
  return p.take();
}

/// The same, where those of some blocks are summed first.
std::string ProductTile::add_to_some(size_t count) {
  Ptx p;
  for (size_t i = 0; i < count; ++i) p("add.f32 some", i, ", some", i, ", sum", i, ";");
  p("and.b32 other, k, ", kCascade - 1, ";");
  p("setp.ne.u32 p, other, 0;");
  p("@p bra SOME;");
  for (size_t i = 0; i < count; ++i) {
    p("add.f32 $", i, ", $", i, ", some", i, ";");
    p("mov.f32 some", i, ", 0f00000000;");
  }
  p("SOME:");
  return p.take();
}

/// Begins to multiply the stage's blocks, into registers of such names and numbers from 0 on.
std::string ProductTile::multiplications(const std::string& sum) const {
  const auto type = [&](const Side& side) { return small_type(scope_.buffer(side.parts[0]).dtype); };
  const auto count = static_cast<size_t>(layout_.sums());
  const auto slices = static_cast<size_t>(layout_.group_rows() / ProductLayout::kGroupRows);
  std::vector<std::string> sums(slices);
  for (size_t i = 0; i < count; ++i) {
    std::string& own = sums[i * slices / count];
    own += str_cat(own.empty() ? "" : ",", sum, i);
  }
  const Descriptor l = descriptor(product_.left), r = descriptor(product_.right);
  const int64_t left = layout_.left_bytes(), right = layout_.right_bytes();
  Ptx p;
  p("mad.lo.u32 at, stage, ", layout_.stage_bytes(), ", base;");
  p("add.u32 other, at, ", layout_.parts * left, ";");
  if (!layout_.turns()) p("mad.lo.u32 at, group, ", l.group, ", at;");
  if (layout_.cut) p.raw(without_rest());
  for (const auto& [name, from, fixed] : {std::tuple{"left", "at", l.fixed}, {"right", "other", r.fixed}}) {
    p("shr.u32 ", from, ", ", from, ", 4;");
    p("cvt.u64.u32 ", name, ", ", from, ";");
    p("or.b64 ", name, ", ", name, ", ", fixed, ";");
  }
  const bool goes_on = layout_.parts == 1 && !layout_.by_blocks;
  p(goes_on ? "setp.ne.u32 first, k, 0;" : "setp.ne.u32 first, k, k;");
  p("wgmma.fence.sync.aligned;");
  bool begun = false;
  for (const auto& [a, b] : terms_of(layout_.parts)) {
    for (int64_t i = 0; i < layout_.step() / layout_.deep(); ++i) {
      p("add.u64 dright, right, ", (b * right + i * r.deep) >> 4, ";");
      for (size_t slice = 0; slice < slices; ++slice) {
        p("add.u64 dleft, left, ", (a * left + i * l.deep + static_cast<int64_t>(slice) * l.group) >> 4, ";");
        const std::string turned = layout_.bytes == 1 ? "" : str_cat(", ", l.turned, ", ", r.turned);
        p("wgmma.mma_async.sync.aligned.m64n", layout_.columns, "k", layout_.deep(), ".f32.", type(product_.left), ".",
          type(product_.right), " {", sums[slice], "}, dleft, dright, first, 1, 1", turned, ";");
      }
      if (!begun) p("setp.eq.u32 first, k, k;");
      begun = true;
    }
  }
  p("wgmma.commit_group.sync.aligned;");
  return p.take();
}

/// By the thread that says so for its warpgroup: the stage of the block before, where there was one, may be loaded again.
std::string ProductTile::free_stage(const char* blocks) {
  Ptx p;
  p("and.b32 other, tid, 127;");
  p("setp.eq.u32 p, other, 0;");
  p("setp.ne.and.u32 p, ", blocks, ", 0, p;");
  p("@p mbarrier.arrive.shared::cta.b64 _, [empty];");
  return p.take();
}

// ---- Sums by blocks ----------------------------------------------------------------------------------------------------
// Blocks go into two sets of registers in turn, "even" and "odd": what one has is added up while the tensor cores fill the other.

/// Goes through all blocks. `scales`: the number of the operand with the place of the first row's scale; the second one's and the columns'
/// follow.
std::string ProductTile::sum_by_blocks(size_t scales) const {
  const auto count = static_cast<size_t>(layout_.sums());
  Ptx p;
  p(".reg .f32 even<", count, ">, odd<", count, ">;");
  for (size_t i = 0; i < count; ++i) p("mov.f32 odd", i, ", 0f00000000;");
  if (product_.scales) {
    p(".reg .f32 evenscale<3>, oddscale<3>;");
    p(".reg .b64 scaleat<3>;");
    for (size_t i = 0; i < 3; ++i) p("mov.u64 scaleat", i, ", $", scales + i, ";");
    for (size_t i = 0; i < 3; ++i) p("mov.f32 oddscale", i, ", 0f00000000;");
  }
  p("@!more bra DONE;");
  for (const bool is_odd : {false, true}) {
    const std::string own = is_odd ? "odd" : "even", other = is_odd ? "even" : "odd";
    p(own, "BLOCK:");
    if (product_.scales) p.raw(load_scales(own));
    p.wait(own + "FULL", "full", "parity");
    p.raw(multiplications(own));
    p("wgmma.wait_group.sync.aligned 1;");
    p.raw(free_stage("k"));
    p("add.u32 empty, full, 8;");
    advance(p, layout_.stages());
    p.raw(add_block(other));
    p(is_odd ? "@more bra evenBLOCK;" : "@!more bra LAST;");
  }
  p("wgmma.wait_group.sync.aligned 0;");
  p.raw(add_block("odd"));
  p("bra END;");
  p("LAST:");
  p("wgmma.wait_group.sync.aligned 0;");
  p.raw(add_block("even"));
  p("END:");
  p.raw(free_stage("blocks"));
  p("DONE:");
  return p.take();
}

std::string ProductTile::add_block(const std::string& set) const {
  Ptx p;
  for (const int row : {0, 1}) {
    if (product_.scales) p("mul.f32 ", set, "scale", row, ", ", set, "scale", row, ", ", set, "scale2;");
  }
  for (size_t i = 0; i < static_cast<size_t>(layout_.sums()); ++i) {
    if (product_.scales) {
      p("fma.rn.f32 $", i, ", ", set, i, ", ", set, "scale", i % 4 / 2, ", $", i, ";");
    } else {
      p("add.f32 $", i, ", $", i, ", ", set, i, ";");
    }
  }
  return p.take();
}

/// Before the block is multiplied, so that nothing waits for them: those of two rows, and the columns'.
std::string ProductTile::load_scales(const std::string& set) const {
  const Product::Scales& s = *product_.scales;
  Ptx p;
  for (size_t i = 0; i < 3; ++i) {
    p("ld.global.nc.f32 ", set, "scale", i, ", [scaleat", i, "];");
    p("add.u64 scaleat", i, ", scaleat", i, ", ", 4 * (i < 2 ? s.left_block : s.right_block), ";");
  }
  return p.take();
}

/// Where there are parts, the sum of a block's products starts from zero and is added in float32: the sums of the tensor cores are cut
/// off, not rounded, which a few additions bear. Those of some blocks are summed apart, as pairwise sums are, for what rounding leaves.
std::string ProductTile::multiplier() const {
  const auto count = static_cast<size_t>(layout_.sums());
  const bool cascades = layout_.parts > 1;
  Ptx p;
  p.raw(enter(count + 2, count));
  if (layout_.cut) p(".reg .b32 from, lines, tail, zero;");
  if (layout_.cut) p("cvt.u32.u64 tail, $", count + 4, ";");
  p(".reg .b64 left, right, dleft, dright;");
  if (cascades) p(".reg .f32 sum<", count, ">, some<", count, ">;");
  p("mov.u32 tid, %tid.x;");
  p("shr.u32 group, tid, 7;");
  for (size_t i = 0; i < count; ++i) p("mov.f32 $", i, ", 0f00000000;");
  for (size_t i = 0; cascades && i < count; ++i) p("mov.f32 some", i, ", 0f00000000;");
  p("sub.u32 group, group, 1;");
  if (layout_.by_blocks) return p.take() + sum_by_blocks(count + 4) + leave(count);
  if (layout_.turns()) p.raw(await_turn());
  p("@!more bra DONE;");
  p.wait("BLOCK", "full", "parity");
  p.raw(multiplications(cascades ? "sum" : "$"));
  if (cascades) {
    p("wgmma.wait_group.sync.aligned 0;");
    p("add.u32 empty, full, 8;");
    p.raw(free_stage("blocks"));
  } else {
    // The block before is done: the tensor cores always have one to go on with.
    p("wgmma.wait_group.sync.aligned 1;");
    p.raw(free_stage("k"));
    p("add.u32 empty, full, 8;");
  }
  advance(p, layout_.stages());
  if (cascades) p.raw(add_to_some(count));
  p("@more bra BLOCK;");
  for (size_t i = 0; cascades && i < count; ++i) p("add.f32 $", i, ", $", i, ", some", i, ";");
  // Without any block there is no stage to give back.
  p("DONE:");
  if (layout_.turns()) p.raw(give_turn());
  if (!cascades) {
    p("wgmma.wait_group.sync.aligned 0;");
    p.raw(free_stage("blocks"));
  }
  return p.take() + leave(count);
}

/// In the last block a tile has, what is behind the end in k becomes zero, in the warpgroup's rows of the left operand and in the right one:
/// what another group has there might be no number. In memory these are whole lines.
std::string ProductTile::without_rest() const {
  constexpr int64_t kLine = TensorMap::kBoxBytes, kWidth = 16 * ProductLayout::kGroup;
  const int64_t box = layout_.step() * kLine;
  Ptx p;
  p("add.u32 lines, k, 1;");
  p("setp.eq.u32 p, lines, blocks;");
  p("setp.lt.and.u32 p, tail, ", layout_.step(), ", p;");
  p("@!p bra WHOLE;");
  p("mov.u32 zero, 0;");
  p("and.b32 from, tid, 127;");
  p("shl.b32 from, from, 4;");
  p("mad.lo.u32 from, tail, ", kLine, ", from;");
  p("REST:");
  p("setp.ge.u32 p, from, ", box, ";");
  p("@p bra CLEAN;");
  const auto clear = [&](const char* base, int64_t at) {
    p("add.u32 lines, ", base, ", from;");
    p("st.shared.v4.b32 [lines+", at, "], {zero, zero, zero, zero};");
  };
  for (int64_t row = 0; row < layout_.group_rows(); row += ProductLayout::kGroupRows) {
    clear("at", row / ProductLayout::kGroupRows * box);
  }
  for (int64_t at = 0; at < layout_.columns; at += TensorMap::kBox) clear("other", at / TensorMap::kBox * box);
  p("add.u32 from, from, ", kWidth, ";");
  p("bra REST;");
  p("CLEAN:");
  p("fence.proxy.async.shared::cta;");
  p("add.u32 lines, group, ", kFirstTurn, ";");
  p("bar.sync lines, ", ProductLayout::kGroup, ";");
  p("WHOLE:");
  return p.take();
}

}  // namespace tatara::codegen
