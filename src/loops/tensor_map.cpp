#include "loops/tensor_map.h"

#include <algorithm>

#include "loops/find.h"

namespace tatara::loops {

const Product* product_of(const Kernel& kernel) { return find_statement<Product>(kernel.body); }

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
