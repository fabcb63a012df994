// What an iterator of a `for` loop gives in the turns to come, without a step of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "capture/python/py.h"

namespace tatara::capture {

/// One part of the items.
struct TurnItems {
  Ref sequence;                      ///< a tuple or list; null: numbers, each turn as much larger
  int64_t first = 0;                 ///< of the sequence: where the next one is
  int64_t step = 1;                  ///< and the one behind it
  int64_t left = 0;                  ///< INT64_MAX: no end
  PyObject* at(int64_t turn) const;  ///< borrowed; of the sequence
};

/// Of a range, a tuple, a list, and enumerate and zip of these: the parts of its items, in order. False, without an error: it is another
/// one.
bool read_items(PyObject* iterator, std::vector<TurnItems>& items);
int64_t turns_left(const std::vector<TurnItems>& items);
/// The parts of an item that are no tuples, in order.
void flatten_item(PyObject* item, std::vector<Ref>& parts);
/// What one int is more than another; nothing: they are no ints of 62 bits.
std::optional<int64_t> step_between(const Ref& before, const Ref& after);

}  // namespace tatara::capture
