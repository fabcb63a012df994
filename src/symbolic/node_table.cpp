// The order of nodes, and the table of interned ones.
#include <new>

#include "support/error.h"
#include "support/hash.h"
#include "symbolic/tables.h"

namespace tatara {
namespace {

bool is_decimal(char c) { return c >= '0' && c <= '9'; }

int order_rank(ExprKind kind) {
  switch (kind) {
    case ExprKind::kConst: return 0;
    case ExprKind::kSymbol: return 1;
    case ExprKind::kFloorDiv: return 2;
    case ExprKind::kMod: return 3;
    case ExprKind::kMin: return 4;
    case ExprKind::kMax: return 5;
    case ExprKind::kAdd: return 6;
    case ExprKind::kMul: return 6;  // compared by factors, never by this rank
    case ExprKind::kEq: return 7;
    case ExprKind::kNe: return 8;
    case ExprKind::kLt: return 9;
    case ExprKind::kLe: return 10;
    case ExprKind::kAnd: return 11;
    case ExprKind::kOr: return 12;
    case ExprKind::kNot: return 13;
  }
  TATARA_UNREACHABLE("ExprKind ", kind);
}

/// 56 bits that order names as natural_compare does: four characters of the leading text, then the number after it.
uint64_t name_key(std::string_view name) {
  size_t text = 0;
  while (text < name.size() && !is_decimal(name[text])) ++text;
  uint64_t key = 0;
  for (size_t i = 0; i < 4; ++i) key = key << 8 | (i < text ? static_cast<unsigned char>(name[i]) : 0u);
  uint64_t number = 0;
  if (text > 4) {
    number = 0xFFFFFF;
  } else if (text < name.size()) {
    for (size_t i = text; i < name.size() && is_decimal(name[i]); ++i) {
      number = std::min<uint64_t>(number * 10 + static_cast<uint64_t>(name[i] - '0'), 0xFFFFFC);
    }
    number += 1;
  }
  return key << 24 | number;
}

int compare_int(int64_t a, int64_t b) { return a < b ? -1 : a > b ? 1 : 0; }

int compare_atoms(NodePtr a, NodePtr b) {
  if (a == b) return 0;
  if (a->order != b->order) return a->order < b->order ? -1 : 1;
  const int ra = order_rank(a->kind);
  const int rb = order_rank(b->kind);
  if (ra != rb) return ra < rb ? -1 : 1;
  if (a->kind == ExprKind::kConst) return compare_int(a->value, b->value);
  if (a->kind == ExprKind::kSymbol) {
    return natural_compare(a->ctx->symbol_name(Expr(a)), b->ctx->symbol_name(Expr(b)));
  }
  const size_t common = std::min(a->num_operands, b->num_operands);
  for (size_t i = 0; i < common; ++i) {
    if (const int c = compare_nodes(a->operand(i), b->operand(i)); c != 0) return c;
  }
  return compare_int(a->num_operands, b->num_operands);
}

}  // namespace

int natural_compare(std::string_view a, std::string_view b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_decimal(a[i]) && is_decimal(b[j])) {
      while (i < a.size() && a[i] == '0') ++i;
      while (j < b.size() && b[j] == '0') ++j;
      const size_t start_a = i;
      const size_t start_b = j;
      while (i < a.size() && is_decimal(a[i])) ++i;
      while (j < b.size() && is_decimal(b[j])) ++j;
      if (i - start_a != j - start_b) return i - start_a < j - start_b ? -1 : 1;
      if (const int c = a.substr(start_a, i - start_a).compare(b.substr(start_b, j - start_b)); c != 0) {
        return c < 0 ? -1 : 1;
      }
    } else if (a[i] != b[j]) {
      // A number ends the text before it, so it sorts before every other character.
      if (is_decimal(a[i])) return -1;
      if (is_decimal(b[j])) return 1;
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]) ? -1 : 1;
    } else {
      ++i;
      ++j;
    }
  }
  if (i < a.size()) return 1;
  if (j < b.size()) return -1;
  const int raw = a.compare(b);  // "s01" and "s1"
  return raw < 0 ? -1 : raw > 0 ? 1 : 0;
}

int compare_nodes(NodePtr a, NodePtr b) {
  if (a == b) return 0;
  if (a->order != b->order) return a->order < b->order ? -1 : 1;
  if (a->kind != ExprKind::kMul && b->kind != ExprKind::kMul) return compare_atoms(a, b);
  const Term ta = term_of(a);
  const Term tb = term_of(b);
  // A bare constant has the smallest rank, so it differs in `order` from every product.
  const Atoms fa(ta.base);
  const Atoms fb(tb.base);
  for (size_t i = 0; i < std::min(fa.size(), fb.size()); ++i) {
    if (const int c = compare_atoms(fa[i], fb[i]); c != 0) return c;
  }
  if (fa.size() != fb.size()) return fa.size() < fb.size() ? -1 : 1;
  return compare_int(ta.coef, tb.coef);
}

uint64_t NodeTable::order_key(ExprKind kind, int64_t value, std::span<const NodePtr> operands) const {
  if (kind == ExprKind::kMul) return operands[value == 1 ? 0 : 1]->order;
  uint64_t low = 0;
  if (kind == ExprKind::kConst) {
    low = (static_cast<uint64_t>(value) ^ (uint64_t{1} << 63)) >> 4;
  } else if (kind == ExprKind::kSymbol) {
    low = name_key(symbols_.all()[static_cast<size_t>(value)].name);
  } else {
    low = operands[0]->order >> 4;
  }
  return static_cast<uint64_t>(order_rank(kind)) << 60 | low;
}

NodePtr NodeTable::intern(ExprKind kind, int64_t value, std::span<const NodePtr> operands, NodePtr base) {
  uint64_t hash = hash_combine(static_cast<uint64_t>(kind), static_cast<uint64_t>(value));
  for (NodePtr operand : operands) hash = hash * 0x9e3779b97f4a7c15u + operand->hash;
  hash ^= hash >> 29;
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (NodePtr node = slots_[slot]) {
    if (node->hash == hash && node->kind == kind && node->value == value && node->num_operands == operands.size() &&
        std::equal(operands.begin(), operands.end(), node->operands().begin(),
                   [](NodePtr a, Expr b) { return a == b.node(); })) {
      return node;
    }
    slot = (slot + 1) & mask;
  }
  uint16_t depth = 0;
  for (NodePtr operand : operands) depth = std::max(depth, operand->depth);
  if (++depth > kMaxExprDepth) throw Unsupported("a symbolic integer expression is nested too deeply");
  void* memory = arena_.allocate(sizeof(ExprNode) + operands.size() * sizeof(Expr), alignof(ExprNode));
  auto* node = new (memory) ExprNode{};
  node->ctx = &owner_;
  node->hash = hash;
  node->order = order_key(kind, value, operands);
  node->symbols = kind == ExprKind::kSymbol ? uint64_t{1} << (static_cast<uint64_t>(value) % 64) : 0;
  node->value = value;
  node->base = base != nullptr ? base : node;
  node->id = count_++;
  node->num_operands = static_cast<uint32_t>(operands.size());
  node->kind = kind;
  node->depth = depth;
  node->has_mod = kind == ExprKind::kMod;
  node->has_div = kind == ExprKind::kFloorDiv;
  auto* out = reinterpret_cast<Expr*>(node + 1);
  for (NodePtr operand : operands) {
    new (out++) Expr(operand);
    node->symbols |= operand->symbols;
    if (kind == ExprKind::kMul) {
      node->has_mod |= operand->kind == ExprKind::kMod;
      node->has_div |= operand->kind == ExprKind::kFloorDiv;
    }
  }
  slots_[slot] = node;
  if (size_t{count_} * 2 > slots_.size()) grow();
  return node;
}

void NodeTable::grow() {
  std::vector<NodePtr> bigger(slots_.size() * 2, nullptr);
  for (NodePtr old : slots_) {
    if (old == nullptr) continue;
    size_t at = old->hash & (bigger.size() - 1);
    while (bigger[at] != nullptr) at = (at + 1) & (bigger.size() - 1);
    bigger[at] = old;
  }
  slots_ = std::move(bigger);
}

}  // namespace tatara
