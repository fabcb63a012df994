// What a thread has of a product's tile, and where in the result that lies.
#include <array>

#include "codegen/cuda/product_tile.h"
#include "symbolic/multiples.h"

namespace tatara::codegen {

using namespace loops;

static constexpr int64_t kSide = ProductLayout::kRun;

/// Sums lie in pairs of neighbours: of the first row, of the second one, then of the next eight columns. Behind them come those of 64 rows
/// below.
std::vector<Reg> ProductTile::elements() const {
  std::vector<Reg> all;
  const size_t of_slice = 2 * values_.size() / rows();
  for (size_t row = 0; row < rows(); ++row) {
    for (size_t pair = 0; pair < of_slice / 4; ++pair) {
      for (size_t i : {0, 1}) all.push_back({values_[row / 2 * of_slice + 4 * pair + 2 * (row % 2) + i], false});
    }
  }
  return all;
}

size_t ProductTile::part(size_t most) const {
  const size_t of_row = values_.size() / rows();
  size_t part = run_length();
  for (size_t n = part; n <= most; n += run_length()) {
    if (of_row % n == 0) part = n;
  }
  return part;
}

std::pair<std::string, std::string> ProductTile::place(const std::string& number, size_t part) const {
  const std::string parts = std::to_string(values_.size() / rows() / part);
  const std::string row = ir_.binary("udiv", "i64", number, parts), rest = ir_.binary("urem", "i64", number, parts);
  const std::string begin = ir_.binary("mul nuw nsw", "i64", rest, std::to_string(part));
  const std::string below = ir_.binary("mul nuw nsw", "i64", ir_.binary("and", "i64", row, "1"), std::to_string(kSide));
  const std::string slice =
      ir_.binary("mul nuw nsw", "i64", ir_.binary("lshr", "i64", row, "1"), std::to_string(ProductLayout::kGroupRows));
  const std::string own = ir_.binary("add nuw nsw", "i64", row_, ir_.binary("add nuw nsw", "i64", below, slice));
  return {ir_.binary("add nuw nsw", "i64", first_row_, own), begin};
}

std::string ProductTile::column(const std::string& begin, int at) const {
  // A run of so many elements is one of four threads'.
  const auto run = static_cast<int64_t>(run_length());
  const std::string own = ir_.binary("add nuw nsw", "i64", column_, ir_.binary("mul nuw nsw", "i64", begin, "4"));
  const std::string inside = std::to_string(at / run * 4 * run + at % run);
  return ir_.binary("add nuw nsw", "i64", first_column_, ir_.binary("add nuw nsw", "i64", own, inside));
}

bool ProductTile::exchanges() const {
  return layout_.matrices && !loads_interleaved() && layout_.columns % TensorMap::kInterleaved == 0 &&
         multiple_of(product_.each->extent, 8);
}

/// Of 32 columns each of four threads beside each other has two of each eight. They give each other what makes eight of one: a
/// transposition of four by four pairs, in two steps.
void ProductTile::exchange() {
  const std::string lane = gpu_.threads.lane();
  const size_t of_slice = 2 * values_.size() / rows();
  ir_.declare("declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)");
  std::array<std::string, 2> odd;
  for (const size_t step : {size_t{0}, size_t{1}}) {
    const std::string bit = ir_.binary("and", "i64", lane, std::to_string(int64_t{1} << step));
    odd[step] = ir_.assign("icmp ne i64 " + bit + ", 0");
  }
  const auto trade = [&](std::string& low, std::string& high, size_t step) {
    const std::string sent = ir_.select(odd[step], "float", low, high, false);
    const std::string came = ir_.call("@llvm.nvvm.shfl.sync.bfly.f32", "float",
                                      str_cat("i32 -1, float ", sent, ", i32 ", 1 << step, ", i32 31"));
    low = ir_.select(odd[step], "float", came, low, false);
    high = ir_.select(odd[step], "float", high, came, false);
  };
  for (size_t slice = 0; slice < rows() / 2; ++slice) {
    for (size_t from = slice * of_slice; from < (slice + 1) * of_slice; from += 16) {
      for (size_t i = 0; i < 4; ++i) {  // of two rows, two columns
        for (const size_t pair : {size_t{0}, size_t{2}})
          trade(values_[from + 4 * pair + i], values_[from + 4 * pair + 4 + i], 0);
        for (const size_t pair : {size_t{0}, size_t{1}})
          trade(values_[from + 4 * pair + i], values_[from + 4 * pair + 8 + i], 1);
      }
    }
  }
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
  const std::string group = times(over(place, kSide), kSide * Product::kStep);
  const std::string run = times(over(low(k, Product::kStep), kSide), kSide * kSide);
  const std::string own = sum(times(low(place, kSide), kSide), low(k, kSide));
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
