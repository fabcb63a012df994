#include "codegen/cuda/weighed_tile.h"

#include <array>
#include <unordered_map>
#include <utility>

#include "codegen/cuda/gpu_emitter.h"
#include "support/error.h"
#include "support/str_cat.h"
#include "symbolic/multiples.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr const char* kSums = "@tatara_sums";
constexpr size_t kElementsOfStep = 4;  // of k, that a thread has for one multiplication

}  // namespace

WeighedTile::WeighedTile(GpuContext& gpu, KernelEmitter& emitter, const WeighedProduct& product)
    : gpu_(gpu),
      ir_(gpu.context.ir),
      scope_(gpu.context.scope),
      emitter_(emitter),
      product_(product),
      layout_(WeighedLayout::of(product)),
      dtype_(gpu.context.kernel.buffers[static_cast<size_t>(product.matrix)].dtype) {
  TATARA_CHECK(gpu_.context.kernel.gpu.threads == layout_.threads(), "threads of a product in ",
               gpu_.context.kernel.name);
  ir_.declare(std::string(kSums) + " = external addrspace(3) global [0 x float], align 16\n");
}

/// What is past an end is computed as the last one is, and not used.
std::string WeighedTile::inside(const std::string& at, const std::string& count) {
  ir_.declare("declare i64 @llvm.umin.i64(i64, i64)");
  return ir_.call("@llvm.umin.i64", "i64", "i64 " + at + ", i64 " + ir_.binary("sub", "i64", count, "1"));
}

void WeighedTile::find_places() {
  const std::string thread = gpu_.threads.lane();
  const std::string warp = ir_.binary("lshr", "i64", thread, "5"), lane = ir_.binary("and", "i64", thread, "31");
  slice_ = ir_.binary("udiv", "i64", warp, n(layout_.bands));
  group_ = ir_.binary("lshr", "i64", lane, "2");
  quarter_ = ir_.binary("and", "i64", lane, "3");
  const std::string first_row = scope_.index(product_.first_row), count = scope_.index(product_.count);
  const bool whole_rows = multiple_of(product_.count, static_cast<int>(layout_.rows));
  const int64_t bytes = dtype_size(dtype_);
  for (size_t j = 0; j < steps(); ++j) {
    const std::string own = ir_.binary("add", "i64", group_, n(static_cast<int64_t>(j) * WeighedLayout::kRowsOfStep));
    std::string row = ir_.binary("add", "i64", first_row, own);
    if (!whole_rows) row = inside(row, count);
    const std::string at = ir_.binary("add", "i64", ir_.binary("mul", "i64", row, n(product_.row_stride * bytes)),
                                      n(product_.offset * bytes));
    rows_.push_back(ir_.assign("getelementptr i8, ptr " + scope_.base(product_.matrix) + ", i64 " + at));
  }
  const std::string first = scope_.index(product_.first_result), results = scope_.index(product_.results);
  const bool whole = multiple_of(product_.results, static_cast<int>(layout_.extent));
  const std::string before = ir_.binary("mul", "i64", ir_.binary("urem", "i64", warp, n(layout_.bands)),
                                        n(layout_.deep() * WeighedProduct::kBand));
  result_ = ir_.binary("add", "i64", before, group_);
  const std::string own = ir_.binary("add", "i64", first, result_);
  for (size_t i = 0; i < 2 * deep(); ++i) {
    const std::string result = ir_.binary("add", "i64", own, n(static_cast<int64_t>(i) * 8));
    results_.push_back(whole ? result : inside(result, results));
  }
}

/// Weights (float) beside each other along k, rounded, as pairs of 32 bits. Parts whose neighbours in k are those of other parts are mixed.
std::vector<std::string> WeighedTile::pairs(const std::vector<std::string>& parts) {
  const char* const type = dtype_ == DType::kBFloat16 ? "<2 x bfloat>" : "<2 x half>";
  const auto words = static_cast<size_t>(product_.words), count = parts.size();
  const auto element = [&](size_t at) {
    const size_t part = product_.run == 1 ? at % count : at / words, word = product_.run == 1 ? at / count : at % words;
    return ir_.assign(
        str_cat("extractelement ", vector_of(static_cast<int>(words), "float"), " ", parts[part], ", i32 ", word));
  };
  std::vector<std::string> all;
  for (size_t at = 0; at < words * count; at += 2) {
    std::string pair = ir_.assign("insertelement <2 x float> poison, float " + element(at) + ", i32 0");
    pair = ir_.assign("insertelement <2 x float> " + pair + ", float " + element(at + 1) + ", i32 1");
    const std::string rounded = ir_.assign(str_cat("fptrunc <2 x float> ", pair, " to ", type));
    all.push_back(ir_.assign(str_cat("bitcast ", type, " ", rounded, " to i32")));
  }
  return all;
}

/// The elements of a row that belong to the weights from `word` on, likewise.
std::vector<std::string> WeighedTile::row_pairs(size_t step, const std::string& word) {
  std::vector<std::string> all;
  const int64_t bytes = dtype_size(dtype_), parts = product_.parts();
  const auto take = [&](const std::string& k) {
    const std::string first = ir_.binary("mul", "i64", k, n(bytes));
    const int64_t length = run() * bytes / 4;  // words of 32 bits
    const int64_t each = length % 4 == 0 ? 4 : 2;
    for (int64_t i = 0; i < length; i += each) {
      const std::string at =
          ir_.assign("getelementptr i8, ptr " + rows_[step] + ", i64 " + ir_.binary("add", "i64", first, n(i * 4)));
      const std::string type = vector_of(static_cast<int>(each), "i32");
      const std::string loaded = ir_.assign(
          str_cat("load ", type, ", ptr ", at, ", align ", each * 4, gpu_.memory.load_flags(product_.matrix)));
      for (int64_t e = 0; e < each; ++e)
        all.push_back(ir_.assign(str_cat("extractelement ", type, " ", loaded, ", i32 ", e)));
    }
  };
  if (product_.run == 1) {
    take(parts == 1 ? word : ir_.binary("mul", "i64", word, n(parts)));
    return all;
  }
  const std::string before = ir_.binary("udiv", "i64", word, n(product_.run));
  const std::string rest = ir_.binary("urem", "i64", word, n(product_.run));
  const std::string first = ir_.binary("add", "i64", ir_.binary("mul", "i64", before, n(product_.run * parts)), rest);
  for (int64_t p = 0; p < parts; ++p) take(ir_.binary("add", "i64", first, n(p * product_.run)));
  return all;
}

/// 16 results of 8 rows: sums[0..3] of this thread. `weights`: pairs of its result and, behind them, of that 8 further on.
void WeighedTile::multiply_add(const std::vector<std::string>& weights, const std::vector<std::string>& rows,
                               std::string* sums) {
  const size_t half = weights.size() / 2;
  const char* const type = dtype_ == DType::kBFloat16 ? "bf16" : "f16";
  const std::string text = str_cat("mma.sync.aligned.m16n8k16.row.col.f32.", type, ".", type,
                                   ".f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};");
  for (size_t i = 0; i + 1 < half; i += kElementsOfStep / 2) {
    const std::array<std::string, 6> given = {weights[i], weights[half + i], weights[i + 1], weights[half + i + 1],
                                              rows[i],    rows[i + 1]};
    std::string operands;
    for (const std::string& one : given) operands += "i32 " + one + ", ";
    for (size_t c = 0; c < 4; ++c) operands += str_cat(c > 0 ? ", " : "", "float ", sums[c]);
    const std::string all = ir_.assign("call { float, float, float, float } asm \"" + text +
                                       "\", \"=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3\"(" + operands + ") #2");
    for (size_t c = 0; c < 4; ++c)
      sums[c] = ir_.assign(str_cat("extractvalue { float, float, float, float } ", all, ", ", c));
  }
}

std::string WeighedTile::slot(const std::string& slice, const std::string& row, const std::string& result) {
  const std::string before = ir_.binary("mul", "i64", slice, n(layout_.rows));
  const std::string at = ir_.binary(
      "add", "i64", ir_.binary("mul", "i64", ir_.binary("add", "i64", before, row), n(layout_.pitch())), result);
  return ir_.assign(std::string("getelementptr float, ptr addrspace(3) ") + kSums + ", i64 " + at);
}

void WeighedTile::multiply(const Weigh& weigh) {
  find_places();
  const int64_t words = product_.words, of_step = words * WeighedProduct::kLanes;
  const int64_t all = product_.weigh->extent.const_value() / of_step;
  const size_t of_band = 4 * steps(), rows = steps();
  std::vector<Reg> sums(deep() * of_band, Reg{"0.0", false});
  const std::vector<DType> types(sums.size(), DType::kFloat32);
  const int64_t at_once = product_.steps;
  emitter_.counted_loop(
      slice_, n(all / at_once), n(layout_.slices), types, sums, [&](const std::string& step, std::vector<Reg>& now) {
        std::vector<Place> places;
        std::vector<std::string> first;
        for (int64_t u = 0; u < at_once; ++u) {
          const std::string number = ir_.binary("add", "i64", ir_.binary("mul", "i64", step, n(at_once)), n(u));
          const std::string quarter = ir_.binary("add", "i64", ir_.binary("shl", "i64", number, "2"), quarter_);
          first.push_back(ir_.binary("mul", "i64", quarter, n(words)));
          for (const std::string& result : results_) places.push_back({result, first.back()});
        }
        std::vector<std::vector<std::string>> given;
        for (const std::string& word : first) {
          for (size_t j = 0; j < rows; ++j) given.push_back(row_pairs(j, word));
        }
        const std::vector<std::vector<std::string>> weights = weigh(places);
        for (size_t u = 0; u < first.size(); ++u) {
          for (size_t i = 0; i < deep(); ++i) {
            const size_t place = u * results_.size() + 2 * i;
            std::vector<std::string> own = pairs(weights[place]);
            for (std::string& one : pairs(weights[place + 1])) own.push_back(std::move(one));
            for (size_t j = 0; j < rows; ++j) {
              std::array<std::string, 4> texts;
              for (size_t c = 0; c < 4; ++c) texts[c] = now[i * of_band + 4 * j + c].text;
              multiply_add(own, given[u * rows + j], texts.data());
              for (size_t c = 0; c < 4; ++c) now[i * of_band + 4 * j + c].text = texts[c];
            }
          }
        }
      });
  const std::string row = ir_.binary("shl", "i64", quarter_, "1");
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto band_number = static_cast<int64_t>(i / of_band), element = static_cast<int64_t>(i % 4);
    const auto rows_before = static_cast<int64_t>(i % of_band / 4) * WeighedLayout::kRowsOfStep;
    const std::string at =
        slot(slice_, ir_.binary("add", "i64", row, n(rows_before + element % 2)),
             ir_.binary("add", "i64", result_, n(band_number * WeighedProduct::kBand + element / 2 * 8)));
    ir_.line("store float " + sums[i].text + ", ptr addrspace(3) " + at + ", align 4");
  }
  gpu_.threads.barrier();
}

void WeighedTile::give(
    const std::function<void(const std::string& row, const std::string& result, const std::string& value)>& store) {
  const std::string thread = gpu_.threads.lane();
  const std::string own = ir_.binary("urem", "i64", thread, n(layout_.extent));
  const std::string first = ir_.binary("udiv", "i64", thread, n(layout_.extent));
  const std::string result = ir_.binary("add", "i64", scope_.index(product_.first_result), own);
  const bool whole = multiple_of(product_.results, static_cast<int>(layout_.extent));
  const bool whole_rows = multiple_of(product_.count, static_cast<int>(layout_.rows));
  const std::string inside = whole ? "" : ir_.assign("icmp ult i64 " + result + ", " + scope_.index(product_.results));
  const std::string first_row = scope_.index(product_.first_row), count = scope_.index(product_.count);
  std::vector<Reg> none;
  emitter_.run_if(inside, [&] {
    emitter_.counted_loop(first, n(layout_.rows), n(layout_.threads() / layout_.extent), {}, none,
                          [&](const std::string& at, std::vector<Reg>&) {
                            const std::string row = ir_.binary("add", "i64", first_row, at);
                            emitter_.run_if(whole_rows ? "" : ir_.assign("icmp ult i64 " + row + ", " + count), [&] {
                              std::string sum;
                              for (int64_t s = 0; s < layout_.slices; ++s) {
                                const std::string part =
                                    ir_.assign("load float, ptr addrspace(3) " + slot(n(s), at, own) + ", align 4");
                                sum = sum.empty() ? part : ir_.binary("fadd", "float", sum, part);
                              }
                              store(row, result, sum);
                            });
                          });
  });
}

void GpuEmitter::weighed_product(const WeighedProduct& product) {
  WeighedTile tile(gpu_, *this, product);
  rolled_ = true;
  const int site = site_;
  const auto words = static_cast<int>(product.words);
  int after = site;
  std::vector<Reg> none;
  tile.multiply([&](const std::vector<WeighedTile::Place>& places) {
    std::vector<std::unordered_map<ScalarId, Reg>> loaded;
    for (const WeighedTile::Place& place : places) {
      scope_.bind(product.result, place.result);
      loaded.push_back(loads_ahead(*product.weigh, words, place.word));
    }
    std::vector<std::vector<std::string>> all;
    for (size_t i = 0; i < places.size(); ++i) {
      scope_.bind(product.result, places[i].result);
      ready_ = std::move(loaded[i]);
      gpu_.enter_loop(*product.weigh, words);
      pass(*product.weigh, places[i].word, site, none);
      std::vector<std::string>& weights = all.emplace_back();
      for (const ScalarId weight : product.weights) {
        weights.push_back(ir_.as_vec(llvm_type(scope_.dtype(weight)), scope_.reg(weight)));
      }
      gpu_.leave_loop();
      ready_.clear();
    }
    after = site_;
    return all;
  });
  tile.give([&](const std::string& row, const std::string& result, const std::string& value) {
    scope_.bind(product.row, row);
    gpu_.enter_loop(*product.each, 1);
    scope_.set(product.value, {value, false});
    pass(*product.each, result, after, none);
    gpu_.leave_loop();
  });
}

}  // namespace tatara::codegen
