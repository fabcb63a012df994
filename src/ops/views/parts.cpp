// Several views at once: split, chunk, unbind.
#include <algorithm>
#include <numeric>

#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

size_t as_index(int64_t i) { return static_cast<size_t>(i); }

std::vector<ValueId> split_at(GraphBuilder& b, const Args& args, int64_t dim, const std::vector<Expr>& lengths) {
  std::vector<ValueId> parts;
  Expr start = b.ctx().constant(0);
  for (const Expr length : lengths) {
    const Expr end = b.ctx().add(start, length);
    parts.push_back(b.slice(args.tensor(0), dim, start, end, b.ctx().constant(1)));
    start = end;
  }
  return parts;
}

std::vector<Expr> equal_parts(ExprContext& ctx, int64_t total, int64_t length) {
  std::vector<Expr> lengths;
  for (int64_t start = 0; start < total; start += length)
    lengths.push_back(ctx.constant(std::min(length, total - start)));
  if (lengths.empty()) lengths.push_back(ctx.constant(0));
  return lengths;
}

}  // namespace

void register_view_parts(OpRegistry& r) {
  const auto split = [](GraphBuilder& b, std::span<const Arg> arguments) {
    const Args args(b, arguments);
    const int64_t d = args.real_dim(2, args.rank(0));
    const int64_t total = b.ctx().specialize(args.type(0).sizes[as_index(d)]);
    const int64_t length = args.integer(1);
    if (length <= 0) throw Unsupported("split into parts of size zero");
    return split_at(b, args, d, equal_parts(b.ctx(), total, length));
  };
  const auto split_sizes = [](GraphBuilder& b, std::span<const Arg> arguments) {
    const Args args(b, arguments);
    const int64_t d = args.real_dim(2, args.rank(0));
    const std::vector<Expr> lengths = args.exprs(1);
    if (!same_size(
            b.ctx(),
            std::accumulate(lengths.begin(), lengths.end(), b.ctx().constant(0), [](Expr x, Expr y) { return x + y; }),
            args.type(0).sizes[as_index(d)])) {
      throw InvalidArgument("split_with_sizes expects split_sizes to sum exactly to the dimension's size");
    }
    return split_at(b, args, d, lengths);
  };
  const auto chunk = [](GraphBuilder& b, std::span<const Arg> arguments) {
    const Args args(b, arguments);
    const int64_t d = args.real_dim(2, args.rank(0));
    const int64_t total = b.ctx().specialize(args.type(0).sizes[as_index(d)]);
    const int64_t chunks = args.integer(1);
    if (chunks <= 0) throw InvalidArgument("chunk expects `chunks` to be greater than 0");
    if (total == 0) throw Unsupported("chunk of an empty dimension");
    return split_at(b, args, d, equal_parts(b.ctx(), total, (total + chunks - 1) / chunks));
  };
  const auto unbind = [](GraphBuilder& b, std::span<const Arg> arguments) {
    const Args args(b, arguments);
    const int64_t d = args.real_dim(1, args.rank(0));
    const int64_t total = b.ctx().specialize(args.type(0).sizes[as_index(d)]);
    std::vector<ValueId> parts;
    for (int64_t i = 0; i < total; ++i)
      parts.push_back(b.op("select", {TensorArg{args.tensor(0)}, Scalar(d), Scalar(i)}));
    return parts;
  };
  const struct {
    const char* name;
    const char* schema;
    const char* names;
    DecomposeFn decompose;
  } rows[] = {
      {"split.int", "(Tensor(a) self, int split_size, int dim=0) -> Tensor(a)[]",
       "torch.functional.split torch.Tensor.split torch.split torch.unsafe_split torch.Tensor.unsafe_split", split},
      {"split.sizes", "(Tensor(a) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]",
       "torch.split_with_sizes torch.Tensor.split_with_sizes torch.split torch.Tensor.split "
       "torch.unsafe_split_with_sizes "
       "torch.Tensor.unsafe_split_with_sizes",
       split_sizes},
      {"chunk", "(Tensor(a) self, int chunks, int dim=0) -> Tensor(a)[]",
       "torch.chunk torch.Tensor.chunk torch.unsafe_chunk torch.Tensor.unsafe_chunk", chunk},
      {"unbind", "(Tensor(a) self, int dim=0) -> Tensor(a)[]", "torch.unbind torch.Tensor.unbind", unbind},
  };
  for (const auto& row : rows) {
    r.add(make_op({row.name, OpKind::kComposite, row.schema, row.names}, nullptr, row.decompose));
  }
  r.mark(&OpTraits::may_view, {"split.int", "split.sizes", "chunk", "unbind"});
}

}  // namespace tatara
