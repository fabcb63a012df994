#include "codegen/cuda/product_tile.h"

#include <utility>

#include "support/error.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr int kDeep = 16;  // elements of k that an instruction multiplies
constexpr int64_t kRun = ProductLayout::kRun;
constexpr int64_t kRunBytes = 128;  // of the rows of a group: 8 of them, 16 bytes each
constexpr int kCascade = 8;         // blocks whose sum is added to that of those before
constexpr const char* kShared = "@tatara_stages";

/// Which parts meet, the smallest products first. Left out are those below 2^-26 of the whole.
std::vector<std::pair<int64_t, int64_t>> terms_of(int64_t parts) {
  if (parts == 1) return {{0, 0}};
  return {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}};
}

/// Lines of PTX in a string of LLVM.
class Ptx {
 public:
  template <typename... Parts>
  void operator()(const Parts&... parts) {
    text_ += str_cat(parts..., "\\0A\\09");
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

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

void ProductTile::compute(std::string& locals) {
  TATARA_CHECK(gpu_.context.kernel.gpu.threads == layout_.threads(), "threads of a product in ",
               gpu_.context.kernel.name);
  ir_.declare(std::string(kShared) + " = external addrspace(3) global [0 x i8], align 128\n");
  blocks_ = scope_.index(product_.blocks);
  std::string operands, constraints, results;
  const auto count = static_cast<size_t>(layout_.sums());
  for (size_t i = 0; i < count; ++i) {
    results += i == 0 ? "float" : ", float";
    constraints += i == 0 ? "=f" : ",=f";
  }
  const auto give = [&](const std::string& type, const std::string& text) {
    operands += (operands.empty() ? "" : ", ") + type + " " + text;
    constraints += ",l";
  };
  give("ptr addrspace(3)", kShared);
  give("i64", blocks_);
  for (const Side* side : {&product_.left, &product_.right}) {
    for (size_t part = 0; part < side->parts.size(); ++part) give("ptr addrspace(1)", pointer(*side, part));
  }
  const std::string all = ir_.assign("call { " + results + " } asm sideeffect \"" + main_loop() + "\", \"" +
                                     constraints + ",~{memory}\"(" + operands + ")");
  for (size_t i = 0; i < count; ++i) {
    values_.push_back(ir_.assign("extractvalue { " + results + " } " + all + ", " + std::to_string(i)));
  }
  // Of the threads that multiply, a warp has 16 rows, and four threads beside each other have one of them.
  const std::string thread = ir_.binary("sub", "i64", gpu_.threads.lane(), std::to_string(ProductLayout::kGroup));
  const std::string warp = ir_.binary("lshr", "i64", thread, "5");
  const std::string lane = ir_.binary("and", "i64", thread, "31");
  row_ = ir_.binary("add nuw nsw", "i64", ir_.binary("shl", "i64", warp, "4"), ir_.binary("lshr", "i64", lane, "2"));
  column_ = ir_.binary("shl", "i64", ir_.binary("and", "i64", lane, "3"), "1");
  first_row_ = scope_.index(product_.left.first);
  first_column_ = scope_.index(product_.right.first);
  if (layout_.parts > 1) mend(locals);
}

std::string ProductTile::row(size_t number) const {
  const std::string own = number == 0 ? row_ : ir_.binary("add nuw nsw", "i64", row_, std::to_string(kRun));
  return ir_.binary("add nuw nsw", "i64", first_row_, own);
}

std::string ProductTile::column(size_t pair) const {
  const std::string own =
      ir_.binary("add nuw nsw", "i64", column_, std::to_string(kRun * static_cast<int64_t>(pair / 2)));
  return ir_.binary("add nuw nsw", "i64", first_column_, own);
}

std::string ProductTile::pointer(const Side& side, size_t part) const {
  const std::string at =
      ir_.assign("getelementptr i16, ptr " + scope_.base(side.parts[part]) + ", i64 " + scope_.index(side.index));
  return ir_.assign("addrspacecast ptr " + at + " to ptr addrspace(1)");
}

// ---- The main loop -----------------------------------------------------------------------------------------------------
// In registers: base of the stages, the barriers of the present stage (full, empty), its number and the parity of its round.

std::string ProductTile::main_loop() const {
  const auto count = static_cast<size_t>(layout_.sums());
  const int64_t stages = layout_.stages(), stage = layout_.stage_bytes();
  Ptx p;
  p("{");
  p(".reg .pred p, more, first;");
  p(".reg .b32 tid, group, base, bars, full, empty, stage, parity, other, k, blocks, at;");
  p(".reg .b64 left, right, dleft, dright, fixed;");
  for (size_t i = 0; i < static_cast<size_t>(2 * layout_.parts); ++i) p(".reg .b64 from", i, ";");
  if (layout_.parts > 1) p(".reg .f32 sum<", count, ">, some<", count, ">;");
  p("mov.u32 tid, %tid.x;");
  p("shr.u32 group, tid, 7;");
  p("cvt.u32.u64 base, $", count, ";");
  p("cvt.u32.u64 blocks, $", count + 1, ";");
  p("add.u32 bars, base, ", stages * stage, ";");
  p("setp.ne.u32 p, tid, 0;");
  p("@p bra READY;");
  for (int64_t s = 0; s < stages; ++s) {
    p("mbarrier.init.shared::cta.b64 [bars+", 16 * s, "], 1;");
    p("mbarrier.init.shared::cta.b64 [bars+", 16 * s + 8, "], ", layout_.groups(), ";");
  }
  p("fence.mbarrier_init.release.cluster;");
  p("fence.proxy.async;");
  p("READY:");
  p("bar.sync 0;");
  p("mov.u32 stage, 0;");
  p("mov.u32 parity, 0;");
  p("mov.u32 k, 0;");
  p("mov.u32 full, bars;");
  p("setp.ne.u32 p, group, 0;");
  p("@p bra MULTIPLY;");
  return p.take() + loader() + multiplier() + "}";
}

/// One thread asks the copy engine for block after block.
std::string ProductTile::loader() const {
  const auto count = static_cast<size_t>(layout_.sums());
  const auto parts = static_cast<size_t>(layout_.parts);
  Ptx p;
  p("setmaxnreg.dec.sync.aligned.u32 ", ProductLayout::kLoaderRegisters, ";");
  p("setp.ne.u32 p, tid, 0;");
  p("@p exit;");
  for (size_t i = 0; i < 2 * parts; ++i) p("mov.u64 from", i, ", $", count + 2 + i, ";");
  p("setp.lt.u32 more, k, blocks;");
  p("@!more exit;");
  p("LOAD:");
  p("add.u32 empty, full, 8;");
  p("xor.b32 other, parity, 1;");
  p("FREE:");
  p("mbarrier.try_wait.parity.shared::cta.b64 p, [empty], other;");
  p("@!p bra FREE;");
  p("mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], ", layout_.stage_bytes(), ";");
  p("mad.lo.u32 at, stage, ", layout_.stage_bytes(), ", base;");
  for (size_t i = 0; i < 2 * parts; ++i) {
    const int64_t bytes = i < parts ? layout_.left_bytes() : layout_.right_bytes();
    p("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [at], [from", i, "], ", bytes, ", [full];");
    p("add.u64 from", i, ", from", i, ", ", bytes, ";");
    p("add.u32 at, at, ", bytes, ";");
  }
  advance(p, layout_.stages());
  p("@more bra LOAD;");
  p("exit;");
  return p.take();
}

/// Where there are parts, the sum of a block's products starts from zero and is added in float32: the sums of the tensor cores are cut
/// off, not rounded, which a few additions bear. Those of some blocks are summed apart, as pairwise sums are, for what rounding leaves.
std::string ProductTile::multiplier() const {
  const auto count = static_cast<size_t>(layout_.sums());
  const bool apart = layout_.parts > 1;
  const DType dtype = scope_.buffer(product_.left.parts[0]).dtype;
  const char* const type = dtype == DType::kBFloat16 ? "bf16" : "f16";
  const auto value = [&](size_t i) { return str_cat("$", i); };
  std::string sums;
  for (size_t i = 0; i < count; ++i) sums += str_cat(i == 0 ? "" : ",", apart ? str_cat("sum", i) : value(i));
  // Descriptors of operands: address, run to run along k, group to group of rows, in units of 16 bytes; no swizzle.
  const int64_t group_bytes = Product::kStep / kRun * kRunBytes;
  const int64_t fixed = (kRunBytes >> 4) << 16 | (group_bytes >> 4) << 32;
  const int64_t left = layout_.left_bytes(), right = layout_.right_bytes();
  Ptx p;
  p("MULTIPLY:");
  p("setmaxnreg.inc.sync.aligned.u32 ", layout_.group_registers(), ";");
  for (size_t i = 0; i < count; ++i) p("mov.f32 ", value(i), ", 0f00000000;");
  for (size_t i = 0; apart && i < count; ++i) p("mov.f32 some", i, ", 0f00000000;");
  p("sub.u32 group, group, 1;");
  p("mov.u64 fixed, ", fixed, ";");
  p("setp.lt.u32 more, k, blocks;");
  p("@!more bra DONE;");
  p("BLOCK:");
  p("mbarrier.try_wait.parity.shared::cta.b64 p, [full], parity;");
  p("@!p bra BLOCK;");
  p("mad.lo.u32 at, stage, ", layout_.stage_bytes(), ", base;");
  p("add.u32 other, at, ", layout_.parts * left, ";");
  p("mad.lo.u32 at, group, ", ProductLayout::kGroupRows / kRun * group_bytes, ", at;");
  for (const auto& [name, from] : {std::pair{"left", "at"}, {"right", "other"}}) {
    p("shr.u32 ", from, ", ", from, ", 4;");
    p("cvt.u64.u32 ", name, ", ", from, ";");
    p("or.b64 ", name, ", ", name, ", fixed;");
  }
  p(apart ? "setp.ne.u32 first, k, k;" : "setp.ne.u32 first, k, 0;");
  p("wgmma.fence.sync.aligned;");
  bool begun = false;
  for (const auto& [a, b] : terms_of(layout_.parts)) {
    for (int64_t at = 0; at < Product::kStep; at += kDeep) {
      const int64_t runs = at / kRun * kRunBytes;
      p("add.u64 dleft, left, ", (a * left + runs) >> 4, ";");
      p("add.u64 dright, right, ", (b * right + runs) >> 4, ";");
      p("wgmma.mma_async.sync.aligned.m64n", layout_.columns, "k16.f32.", type, ".", type, " {", sums,
        "}, dleft, dright, first, 1, 1, 0, 0;");
      if (!begun) p("setp.eq.u32 first, k, k;");
      begun = true;
    }
  }
  p("wgmma.commit_group.sync.aligned;");
  p("wgmma.wait_group.sync.aligned 0;");
  p("add.u32 empty, full, 8;");
  p("and.b32 other, tid, 127;");
  p("setp.eq.u32 p, other, 0;");
  p("@p mbarrier.arrive.shared::cta.b64 _, [empty];");
  advance(p, layout_.stages());
  if (apart) {
    for (size_t i = 0; i < count; ++i) p("add.f32 some", i, ", some", i, ", sum", i, ";");
    p("and.b32 other, k, ", kCascade - 1, ";");
    p("setp.ne.u32 p, other, 0;");
    p("@p bra SOME;");
    for (size_t i = 0; i < count; ++i) {
      p("add.f32 ", value(i), ", ", value(i), ", some", i, ";");
      p("mov.f32 some", i, ", 0f00000000;");
    }
    p("SOME:");
  }
  p("@more bra BLOCK;");
  for (size_t i = 0; apart && i < count; ++i) p("add.f32 ", value(i), ", ", value(i), ", some", i, ";");
  p("DONE:");
  return p.take();
}

// ---- What parts can't say ----------------------------------------------------------------------------------------------

/// Of an infinity the parts but the first are zero, and their products no number. So where an element is not finite, the thread
/// computes it once more, from whole elements one after the other.
void ProductTile::mend(std::string& locals) {
  const size_t count = values_.size();
  const std::string type = "[" + std::to_string(count) + " x float]";
  const std::string memory = "%product_elements";
  locals += "  " + memory + " = alloca " + type + ", align 16\n";
  std::string odd = "0.0";
  for (const std::string& value : values_) {
    odd = ir_.call("@llvm.fma.f32", "float", "float " + value + ", float 0.0, float " + odd);
  }
  ir_.declare("declare float @llvm.fma.f32(float, float, float)");
  const std::string bad = ir_.assign("fcmp uno float " + odd + ", 0.0");
  const std::string then = ir_.label(), done = ir_.label(), before = ir_.block();
  ir_.branch(bad, then, done);
  ir_.start_block(then);
  const auto place = [&](const std::string& i) {
    return ir_.assign("getelementptr float, ptr " + memory + ", i64 " + i);
  };
  for (size_t i = 0; i < count; ++i) ir_.line("store float " + values_[i] + ", ptr " + place(std::to_string(i)));
  std::vector<Reg> none;
  emitter_.counted_loop("0", std::to_string(count), "1", {}, none, [&](const std::string& i, std::vector<Reg>&) {
    const std::string value = ir_.assign("load float, ptr " + place(i));
    const std::string rest = ir_.assign("fmul float " + value + ", 0.0");
    ir_.when(ir_.assign("fcmp uno float " + rest + ", 0.0"), [&] {
      // Its row, and its column: bits 1 and 0 of its number, and those above.
      const std::string lower = ir_.binary("shl", "i64", ir_.binary("and", "i64", i, "2"), "2");
      const std::string across = ir_.binary("shl", "i64", ir_.binary("lshr", "i64", i, "2"), "3");
      const std::string beside = ir_.binary("add", "i64", across, ir_.binary("and", "i64", i, "1"));
      const std::string x = exact(ir_.binary("add", "i64", row_, lower), ir_.binary("add", "i64", column_, beside));
      ir_.line("store float " + x + ", ptr " + place(i));
    });
  });
  std::vector<std::string> mended;
  for (size_t i = 0; i < count; ++i) mended.push_back(ir_.assign("load float, ptr " + place(std::to_string(i))));
  const std::string last = ir_.block();
  ir_.jump(done);
  ir_.start_block(done);
  for (size_t i = 0; i < count; ++i) {
    values_[i] = ir_.assign("phi float [ " + mended[i] + ", %" + last + " ], [ " + values_[i] + ", %" + before + " ]");
  }
}

/// The element at a row and a column of the tile.
std::string ProductTile::exact(const std::string& row, const std::string& column) {
  const std::string length = ir_.binary("mul", "i64", blocks_, std::to_string(Product::kStep));
  std::vector<Reg> sum{{"0.0", false}};
  emitter_.counted_loop("0", length, "1", {DType::kFloat32}, sum, [&](const std::string& k, std::vector<Reg>& now) {
    const std::string a = element(product_.left, row, k), b = element(product_.right, column, k);
    now[0].text = ir_.call("@llvm.fma.f32", "float", "float " + a + ", float " + b + ", float " + now[0].text);
  });
  return sum[0].text;
}

/// The sum of an element's parts, which is exact.
std::string ProductTile::element(const Side& side, const std::string& place, const std::string& k) {
  const auto times = [&](const std::string& x, int64_t n) { return ir_.binary("mul", "i64", x, std::to_string(n)); };
  const auto sum = [&](const std::string& a, const std::string& b) { return ir_.binary("add", "i64", a, b); };
  const auto low = [&](const std::string& x, int64_t n) { return ir_.binary("and", "i64", x, std::to_string(n - 1)); };
  const auto over = [&](const std::string& x, int64_t n) { return ir_.binary("udiv", "i64", x, std::to_string(n)); };
  const std::string block = times(over(k, Product::kStep), side.extent * Product::kStep);
  const std::string group = times(over(place, kRun), kRun * Product::kStep);
  const std::string run = times(over(low(k, Product::kStep), kRun), kRun * kRun);
  const std::string own = sum(times(low(place, kRun), kRun), low(k, kRun));
  const std::string at = sum(sum(scope_.index(side.index), block), sum(sum(group, run), own));
  std::string whole;
  for (const int part : side.parts) {
    const std::string from = ir_.assign("getelementptr i16, ptr " + scope_.base(part) + ", i64 " + at);
    const std::string bits = ir_.assign("zext i16 " + ir_.assign("load i16, ptr " + from) + " to i32");
    const std::string x = ir_.assign("bitcast i32 " + ir_.binary("shl", "i32", bits, "16") + " to float");
    whole = whole.empty() ? x : ir_.binary("fadd", "float", whole, x);
  }
  return whole;
}

}  // namespace tatara::codegen
