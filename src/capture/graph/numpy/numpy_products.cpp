// Rules of products of small arrays: sums of products in a kernel, which other calls join. The library of NumPy is faster at large ones.
#include <algorithm>
#include <string>

#include "capture/graph/numpy/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// An operand, with a letter for each dimension.
struct Factor {
  ValueId value;
  std::string letters;
};

/// Up to here a kernel without tiles takes no longer than a call of NumPy's.
constexpr int64_t kMostProducts = int64_t{1} << 12;

/// The sum of products, by letters as np.einsum has them: those that `out` has not are summed over.
ValueId contract(const NumpyRules& g, const TapeNode& node, const std::vector<Factor>& factors, const std::string& out,
                 DType dtype) {
  std::string letters = out;
  for (const Factor& factor : factors) {
    for (const char c : factor.letters) letters += letters.find(c) == std::string::npos ? std::string(1, c) : "";
  }
  std::vector<int64_t> sizes(letters.size(), 1);
  for (const Factor& factor : factors) {
    const std::vector<int64_t> shape = g.shape(factor.value);
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t& size = sizes[letters.find(factor.letters[d])];
      if (size != 1 && shape[d] != 1 && size != shape[d]) throw Unsupported("sizes of " + node.name);
      size = std::max(size, shape[d] == 0 ? 0 : shape[d]);
      if (shape[d] == 0) throw Unsupported(node.name + " of nothing");
    }
  }
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  if (count > kMostProducts) throw Unsupported("a large product is NumPy's own");
  GraphBuilder& b = g.b();
  const DType acc = is_integral(dtype) ? DType::kInt64 : dtype;
  std::vector<Expr> wide;
  for (const int64_t size : sizes) wide.push_back(b.ctx().constant(size));
  ValueId product = kNoValue;
  std::vector<ValueId> operands;
  for (const Factor& factor : factors) {
    std::vector<int64_t> order;
    for (const char c : letters) {
      if (const size_t at = factor.letters.find(c); at != std::string::npos) order.push_back(static_cast<int64_t>(at));
    }
    operands.push_back(factor.value);
    ValueId x = b.permute(b.cast(factor.value, dtype == DType::kBool ? dtype : acc), order);
    for (size_t i = 0; i < letters.size(); ++i) {
      if (factor.letters.find(letters[i]) == std::string::npos) x = b.unsqueeze(x, static_cast<int64_t>(i));
    }
    x = b.expand(x, wide);
    product = product == kNoValue ? x : b.binary(dtype == DType::kBool ? "logical_and" : "mul", product, x);
  }
  std::vector<int64_t> dims;
  for (size_t i = out.size(); i < letters.size(); ++i) dims.push_back(static_cast<int64_t>(i));
  if (dims.empty()) return b.op("clone", {TensorArg{b.cast(product, dtype)}, std::string("contiguous_format")});
  if (dtype == DType::kBool) return b.reduce("any", product, dims, false);
  return b.cast(b.op("sum", {TensorArg{product}, ints(b, dims), Scalar(false), acc}), dtype);
}

/// The result, which is one that a fault would make not finite.
void give_product(const NumpyRules& g, const TapeNode& node, const std::vector<Factor>& factors,
                  const std::string& out) {
  const DType dtype = g.result_dtype(node);
  if (dtype == DType::kFloat16) throw Unsupported("products of float16");
  if (!g.result(node).fresh && !g.result(node).scalar) throw Unsupported("a product that is no new array");
  // Other tests than of the result's own elements would be as large as the product.
  g.set_value(node, 0, g.tested_alone(contract(g, node, factors, out, dtype)));
}

std::string some_letters(size_t count, char first) {
  std::string letters;
  for (size_t i = 0; i < count; ++i) letters += static_cast<char>(first + static_cast<int>(i));
  return letters;
}

/// Whether all keywords are what they are if not given.
bool gives_nothing_else(const TapeNode& node) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (node.kwargs && PyDict_Next(node.kwargs.get(), &at, &key, &value) != 0) {
    const bool usual = value == Py_None || value == Py_False ||
                       (text_of(key) == "axis" && PyLong_CheckExact(value) && PyLong_AsLongLong(value) == -1);
    if (!usual) return false;
  }
  return true;
}

/// Both operands of a product of two arrays.
std::pair<ValueId, ValueId> both_of(const NumpyRules& g, const TapeNode& node) {
  if (PyTuple_GET_SIZE(node.args.get()) != 2 || !gives_nothing_else(node) || node.mutates) {
    throw Unsupported("such a " + node.name);
  }
  const DType dtype = g.result_dtype(node);
  const auto take = [&](Py_ssize_t i) {
    PyObject* o = PyTuple_GET_ITEM(node.args.get(), i);
    return slot_of(o) >= 0 ? g.read(o) : g.as_dtype(o, dtype);
  };
  return {take(0), take(1)};
}

ValueId conjugated(const NumpyRules& g, ValueId x) {
  return is_complex(g.b().type(x).dtype) ? g.b().unary("conj_complex", x) : x;
}

size_t rank(const NumpyRules& g, ValueId x) { return g.shape(x).size(); }

void rule_dot(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const auto [x, y] = both_of(g, node);
  const size_t m = rank(g, x), n = rank(g, y);
  std::string left = some_letters(m, 'a'), right = some_letters(n, 'n');
  if (m > 0 && n > 0) right[n == 1 ? 0 : n - 2] = left.back();
  std::string out = left + right;
  if (m > 0 && n > 0) std::erase(out, left.back());
  give_product(g, node, {{x, left}, {y, right}}, out);
}

void rule_inner(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const auto [x, y] = both_of(g, node);
  const size_t m = rank(g, x), n = rank(g, y);
  std::string left = some_letters(m, 'a'), right = some_letters(n, 'n');
  if (m > 0 && n > 0) right.back() = left.back();
  std::string out = left + right;
  if (m > 0 && n > 0) std::erase(out, left.back());
  give_product(g, node, {{x, left}, {y, right}}, out);
}

void rule_vdot(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  auto [x, y] = both_of(g, node);
  const auto flat = [&](ValueId v) {
    const ValueId dense = g.b().op("clone", {TensorArg{v}, std::string("contiguous_format")});
    return g.b().reshape(dense, {g.b().type(v).numel(g.b().ctx())});
  };
  give_product(g, node, {{conjugated(g, flat(x)), "i"}, {flat(y), "i"}}, "");
}

/// matmul and its kin: `last` letters of each operand, in front of which dimensions are broadcast.
void batched(NumpyGraph& graph, const TapeNode& node, std::string left, std::string right, std::string out,
             bool conjugates) {
  const NumpyRules g{graph};
  auto [x, y] = both_of(g, node);
  if (rank(g, x) < left.size() || rank(g, y) < right.size()) throw Unsupported("such a " + node.name);
  const size_t more = std::max(rank(g, x) - left.size(), rank(g, y) - right.size());
  const std::string before = some_letters(more, 'a');
  left = before.substr(more - (rank(g, x) - left.size())) + left;
  right = before.substr(more - (rank(g, y) - right.size())) + right;
  give_product(g, node, {{conjugates ? conjugated(g, x) : x, left}, {y, right}}, before + out);
}

void rule_matmul(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const auto [x, y] = both_of(g, node);
  const bool row = rank(g, x) == 1, column = rank(g, y) == 1;
  batched(graph, node, row ? "y" : "xy", column ? "y" : "yz", std::string(row ? "" : "x") + (column ? "" : "z"), false);
}

void rule_vecdot(NumpyGraph& graph, const TapeNode& node) { batched(graph, node, "y", "y", "", true); }
void rule_matvec(NumpyGraph& graph, const TapeNode& node) { batched(graph, node, "xy", "y", "x", false); }
void rule_vecmat(NumpyGraph& graph, const TapeNode& node) { batched(graph, node, "y", "yz", "z", true); }

/// Subscripts without ellipses, each letter once in an operand.
void rule_einsum(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const Py_ssize_t count = PyTuple_GET_SIZE(node.args.get());
  if (count < 2 || !gives_nothing_else(node)) throw Unsupported("such an einsum");
  PyObject* first = PyTuple_GET_ITEM(node.args.get(), 0);
  if (!PyUnicode_Check(first)) throw Unsupported("einsum by lists");
  std::string text = text_of(first);
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  std::string out = arrow == std::string::npos ? std::string() : text.substr(arrow + 2), rest = text.substr(0, arrow);
  if (text.find('.') != std::string::npos || rest.find('-') != std::string::npos) throw Unsupported("such subscripts");
  std::vector<Factor> factors;
  std::string all = rest;
  for (Py_ssize_t i = 1; i < count; ++i) {
    const size_t comma = rest.find(',');
    const std::string letters = rest.substr(0, comma);
    rest = comma == std::string::npos ? std::string() : rest.substr(comma + 1);
    const ValueId x = g.read(PyTuple_GET_ITEM(node.args.get(), i));
    std::string sorted = letters;
    std::sort(sorted.begin(), sorted.end());
    const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
    if (letters.size() != rank(g, x) || twice) throw Unsupported("such subscripts");
    factors.push_back({x, letters});
  }
  if (arrow == std::string::npos) {
    std::sort(all.begin(), all.end());
    for (const char c : all) {
      if (c != ',' && std::count(all.begin(), all.end(), c) == 1) out += c;
    }
  }
  give_product(g, node, factors, out);
}

}  // namespace

void add_numpy_product_rules(NumpyRuleTable& table) {
  const std::initializer_list<std::pair<const char*, NumpyRule>> rules = {
      {"dot", rule_dot},
      {"inner", rule_inner},
      {"vdot", rule_vdot},
      {"matmul", rule_matmul},
      {"vecdot", rule_vecdot},
      {"matvec", rule_matvec},
      {"vecmat", rule_vecmat},
      {"c_einsum", rule_einsum},
      {"einsum", rule_einsum},
      {"linalg.matmul", rule_matmul},
      {"linalg.vecdot", rule_vecdot},
  };
  table.insert(rules.begin(), rules.end());
}

}  // namespace tatara::capture
