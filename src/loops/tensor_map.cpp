#include "loops/tensor_map.h"

#include <algorithm>

#include "loops/find.h"

namespace tatara::loops {

const Product* product_of(const Kernel& kernel) { return find_statement<Product>(kernel.body); }
const Attention* attention_of(const Kernel& kernel) { return find_statement<Attention>(kernel.body); }

std::vector<TensorMap> tensor_maps(const Kernel& kernel) {
  if (kernel.gpu.shared <= 0) return {};
  std::vector<TensorMap> maps;
  const auto add = [&](TensorMap map, int buffer) {
    const auto begin = kernel.buffers.begin();
    map.buffer = static_cast<int>(
        std::count_if(begin, begin + buffer, [](const BufferArg& arg) { return arg.kind != ArgKind::kScratch; }));
    maps.push_back(std::move(map));
  };
  if (const Attention* a = attention_of(kernel); a != nullptr) {
    for (const Attention::Score& score : a->scores) {
      add(TensorMap::of(score.queries, a->extent), score.queries.buffer);
      add(TensorMap::of(score.keys, a->block), score.keys.buffer);
    }
    for (const Attention::Sum& sum : a->sums) {
      if (a->keys_of(sum) < 0) add(TensorMap::of(sum.values, a->block), sum.values.buffer);
    }
    return maps;
  }
  const Product* product = product_of(kernel);
  if (product == nullptr || !product->left.matrices) return {};
  for (const Product::Side* side : {&product->left, &product->right}) add(TensorMap::of(*side), side->parts.at(0));
  return maps;
}

}  // namespace tatara::loops
