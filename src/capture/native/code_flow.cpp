#include "capture/native/code_flow.h"

#include <opcode.h>

#include <algorithm>

#include "capture/native/loop_code.h"

namespace tatara::capture::native {

CodeFlow::CodeFlow(PyCodeObject* code) : code_(code) {
  std::vector<int> todo = {0};
  std::map<int, std::set<int>> before;
  while (!todo.empty()) {
    const int at = todo.back();
    todo.pop_back();
    if (next_.contains(at)) continue;
    next_[at] = next_places(code, at);
    whole_.inside.insert(at);
    for (const int to : next_[at]) {
      before[to].insert(at);
      todo.push_back(to);
    }
  }
  // A step back goes to the head of a loop. What comes to such a step without coming through the head is inside.
  for (const auto& [from, all] : next_) {
    for (const int head : all) {
      if (head > from) continue;
      CodePart& part = loops_[head];
      part.head = head;
      part.inside.insert(head);
      std::vector<int> back = {from};
      while (!back.empty()) {
        const int at = back.back();
        back.pop_back();
        if (!part.inside.insert(at).second) continue;
        back.insert(back.end(), before[at].begin(), before[at].end());
      }
    }
  }
}

std::set<int> CodeFlow::exits_of(int head) const {
  const CodePart& part = loops_.at(head);
  std::set<int> exits;
  for (const int at : part.inside) {
    if (at == head && instruction_at(code_, head).opcode == FOR_ITER) continue;
    for (const int to : next_.at(at)) {
      if (!part.holds(to)) exits.insert(to);
    }
  }
  return exits;
}

int CodeFlow::ends_of(int head) const {
  int ends = 0;
  for (const int at : loops_.at(head).inside) {
    const std::vector<int>& all = next_.at(at);
    ends += static_cast<int>(std::count(all.begin(), all.end(), head));
  }
  return ends;
}

int CodeFlow::returns() const {
  return static_cast<int>(
      std::count_if(next_.begin(), next_.end(), [](const auto& each) { return each.second.empty(); }));
}

const CodeFlow::Ways& CodeFlow::ways_in(const CodePart& part) {
  const auto [found, is_new] = ways_.try_emplace(part.head);
  Ways& ways = found->second;
  if (!is_new) return ways;
  ways.places.assign(part.inside.begin(), part.inside.end());
  for (size_t n = 0; n < ways.places.size(); ++n) ways.number[ways.places[n]] = static_cast<int>(n);
  ways.behind.resize(ways.places.size());
  // The part ends at the last place where it may end. Ways that end before say nothing: an empty set stands for all places.
  int last = -1;
  for (const int at : ways.places) {
    const std::vector<int>& all = next_.at(at);
    if (all.empty() || std::any_of(all.begin(), all.end(), [&](int to) { return part.is_left_by(to); })) last = at;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t n = ways.places.size(); n-- > 0;) {
      Bits now;
      const std::vector<int>& all = next_.at(ways.places[n]);
      for (const int to : all) {
        if (part.is_left_by(to)) continue;
        const Bits& behind = ways.behind[static_cast<size_t>(ways.number.at(to))];
        if (behind.empty()) continue;
        if (now.empty()) now = behind;
        for (size_t bit = 0; bit < now.size(); ++bit) now[bit] = now[bit] && behind[bit];
      }
      if (now.empty() && ways.places[n] != last) continue;
      if (now.empty()) now.assign(ways.places.size(), false);
      now[n] = true;
      changed = changed || now != ways.behind[n];
      ways.behind[n] = std::move(now);
    }
  }
  return ways;
}

int CodeFlow::join_of(int place, const CodePart& part) {
  const Ways& ways = ways_in(part);
  std::vector<const Bits*> sides;
  for (const int to : next_.at(place)) {
    if (part.is_left_by(to)) continue;
    const Bits& behind = ways.behind[static_cast<size_t>(ways.number.at(to))];
    if (!behind.empty()) sides.push_back(&behind);
  }
  int join = -1;
  ptrdiff_t most = 0;
  for (size_t n = 0; n < ways.places.size(); ++n) {
    const bool common = std::all_of(sides.begin(), sides.end(), [n](const Bits* side) { return (*side)[n]; });
    if (!common || sides.empty()) continue;
    // The nearest one has all of the others behind it.
    const ptrdiff_t count = std::count(ways.behind[n].begin(), ways.behind[n].end(), true);
    if (count > most) {
      most = count;
      join = ways.places[n];
    }
  }
  return join;
}

}  // namespace tatara::capture::native
