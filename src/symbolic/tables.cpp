// Symbols and facts as data; what follows from them is in facts.cpp.
#include <unordered_set>

#include "support/str_cat.h"
#include "symbolic/tables.h"

namespace tatara {

const SymbolInfo* SymbolTable::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &all_[it->second];
}

SymbolInfo& SymbolTable::add(std::string_view name, IntRange range, std::optional<int64_t> hint) {
  const std::string_view stored = arena_.copy(name);
  by_name_.emplace(stored, static_cast<uint32_t>(all_.size()));
  all_.push_back({stored, nullptr, range, range, hint});
  return all_.back();
}

std::string SymbolTable::next_size_name() {
  std::string name;
  do {
    name = str_cat("s", next_size_++);
  } while (find(name) != nullptr);
  return name;
}

NodePtr SymbolTable::loop_extent(NodePtr symbol) const {
  const auto it = loop_extents_.find(symbol);
  return it == loop_extents_.end() ? nullptr : it->second;
}

std::optional<bool> FactTable::known(NodePtr condition) const {
  const auto it = known_.find(condition);
  return it == known_.end() ? std::nullopt : std::optional(it->second);
}

void FactTable::add_linear(NodePtr d, const Linear& terms) {
  const auto index = static_cast<uint32_t>(linear_.size());
  linear_.push_back(d);
  std::unordered_set<NodePtr> seen;
  for (const Term& term : terms.terms) {
    for (Expr atom : Atoms(term.base)) {
      if (seen.insert(atom.node()).second) by_atom_[atom.node()].push_back(index);
    }
  }
}

const std::vector<uint32_t>* FactTable::linear_with(NodePtr atom) const {
  const auto it = by_atom_.find(atom);
  return it == by_atom_.end() ? nullptr : &it->second;
}

const IntRange* FactTable::bound_of(NodePtr key) const {
  const auto it = bounds_.find(key);
  return it == bounds_.end() ? nullptr : &it->second;
}

NodePtr FactTable::value_of(NodePtr symbol) const {
  const auto it = values_.find(symbol);
  return it == values_.end() ? nullptr : it->second;
}

void FactTable::add_multiple(NodePtr x, int64_t m) {
  int64_t& multiple = multiples_.try_emplace(x, 1).first->second;
  int64_t next = 0;
  if (!__builtin_mul_overflow(multiple, m / safe_gcd(multiple, m), &next)) multiple = next;
}

int64_t FactTable::divisor_of(NodePtr base) const {
  int64_t out = 1;
  for (Expr atom : Atoms(base)) {
    const auto it = multiples_.find(atom.node());
    int64_t next = 0;
    if (it != multiples_.end() && !__builtin_mul_overflow(out, it->second, &next)) out = next;
  }
  return out;
}

}  // namespace tatara
