// What is in lists and dicts of a guard that the trace has not looked into: those to which it has only added, or which it has
// not met at all. Later calls find them with other contents (histories, banks of features), and that is the same to the graph.
#include <algorithm>

#include "capture/entries/value_guard.h"

namespace tatara::capture {

struct ValueGuard::Unread {
  ValueGuard& guard;
  const std::vector<PyObject*>& objects;
  const UnreadQuestions& questions;
  const std::vector<SymbolSource>& sources;
  std::vector<bool> forgotten;
  size_t at = 0, object = 0;

  void children(size_t count) {
    for (size_t i = 0; i < count; ++i) walk();
  }

  /// `outer`: the item itself stays as it is.
  void walk(bool outer = false) {
    const size_t here = at++;
    const Kind kind = guard.items_[here].kind;
    if (kind == Kind::kNull || kind == Kind::kConst || kind == Kind::kSame) return;
    const size_t self = object++, first = at, inside = object;
    const size_t named = guard.items_[here].keys.size();
    switch (kind) {
      case Kind::kTuple:
      case Kind::kList: children(static_cast<size_t>(guard.items_[here].count)); break;
      case Kind::kDict: children(named + (guard.items_[here].has_maker ? 1 : 0)); break;
      case Kind::kInstance: children(named); break;
      case Kind::kCell: children(1); break;
      case Kind::kMethod: children(2); break;
      case Kind::kFunction: children(3); break;
      case Kind::kNull:
      case Kind::kConst:
      case Kind::kSame:
      case Kind::kInt:
      case Kind::kFloat:
      case Kind::kIdentity:
        if (self < objects.size() && questions.idle(static_cast<int>(self), objects[self])) {
          guard.items_[here].kind = Kind::kPassive;
          guard.items_[here].object = HeldObject();
        }
        return;
      case Kind::kNotANumber:
      case Kind::kGenerator:
      case Kind::kPassive:
      case Kind::kTensor:
      case Kind::kForeign:
      case Kind::kEmptySet: return;
    }
    if (guard.items_[here].has_dict) {  // no plain list or dict
      children(guard.items_[at++].keys.size());
      return;
    }
    const bool container = kind == Kind::kList || kind == Kind::kDict;
    if (container && !outer && self < objects.size() && !questions.read(objects[self]) && may_forget(first, inside))
      forget(guard.items_[here], first, inside);
  }

  /// The items from `first` on to the present one, with the objects from `inside` on: nothing else speaks of them.
  bool may_forget(size_t first, size_t inside) const {
    for (size_t i = inside; i < object; ++i) {
      if (i >= objects.size() || questions.used(static_cast<int>(i), objects[i])) return false;
    }
    const auto within = [&](int index) {
      return index >= static_cast<int>(inside) && index < static_cast<int>(object);
    };
    for (size_t i = 0; i < guard.items_.size(); ++i) {
      const Item& item = guard.items_[i];
      if ((i < first || i >= at) && item.kind == Kind::kSame && within(item.same)) return false;
    }
    return std::none_of(sources.begin(), sources.end(), [&](const SymbolSource& s) { return within(s.object); });
  }

  void forget(Item& item, size_t first, size_t inside) {
    item.unread = true;
    item.unread_items = at - first;
    item.unread_objects = object - inside;
    item.keys.clear();
    item.order.clear();
    for (size_t i = first; i < at; ++i) guard.items_[i] = Item();
    for (size_t i = inside; i < object; ++i) forgotten[i] = true;
  }
};

std::vector<int> ValueGuard::found_again() const {
  std::vector<int> result;
  for (const Item& item : items_) {
    if (item.kind == Kind::kSame) result.push_back(item.same);
  }
  return result;
}

std::vector<bool> ValueGuard::forget_unread(const std::vector<PyObject*>& objects,
                                            const std::vector<SymbolSource>& sources,
                                            const UnreadQuestions& questions) {
  Unread walk{*this, objects, questions, sources, std::vector<bool>(objects.size())};
  if (!states_.empty()) return std::move(walk.forgotten);
  // The interpreter has looked into defaults and cells to make the call.
  constexpr size_t kBeside = 3;
  for (size_t i = 0; i < root_count_; ++i) walk.walk(of_call && i + kBeside >= root_count_);
  return std::move(walk.forgotten);
}

}  // namespace tatara::capture
