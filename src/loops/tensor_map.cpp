#include "loops/tensor_map.h"

#include <algorithm>

namespace tatara::loops {

namespace {

const Product* product_in(const Block& block) {
  for (const Stmt& stmt : block.stmts) {
    if (const auto* product = std::get_if<Product>(&stmt)) return product;
    const auto* loop = std::get_if<For>(&stmt);
    if (const Product* inside = loop == nullptr ? nullptr : product_in(*loop->body)) return inside;
  }
  return nullptr;
}

}  // namespace

const Product* product_of(const Kernel& kernel) { return product_in(kernel.body); }

std::vector<TensorMap> tensor_maps(const Kernel& kernel) {
  const Product* product = kernel.gpu.shared > 0 ? product_of(kernel) : nullptr;
  if (product == nullptr || !product->left.matrices) return {};
  std::vector<TensorMap> maps;
  for (const Product::Side* side : {&product->left, &product->right}) {
    maps.push_back(TensorMap::of(*side));
    const auto begin = kernel.buffers.begin();
    maps.back().buffer = static_cast<int>(std::count_if(
        begin, begin + side->parts.at(0), [](const BufferArg& arg) { return arg.kind != ArgKind::kScratch; }));
  }
  return maps;
}

}  // namespace tatara::loops
