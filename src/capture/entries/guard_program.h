// All that must hold for an entry to serve a call, as one list that is checked, and printed, in its order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/entries/constant_tensors.h"
#include "capture/entries/guards.h"
#include "capture/tape/tape.h"

namespace tatara::capture {

class GraphRunner;

/// A condition on the values of an entry's symbols.
struct Fact {
  ExprProgram program;
  std::string text;
};

/// What a call brings, and what the guards find of it.
struct GuardedCall {
  PyObject* const* roots;
  size_t count;
  TorchApi& api;
  std::vector<PyObject*>& objects;
  std::vector<int64_t>& symbols;
  std::string* why;  // null: nobody asks
  [[gnu::cold]] bool fail(const char* text) const {
    if (why != nullptr) *why = text;
    return false;
  }
};

/// What guards look at beside themselves. All may be null.
struct GuardedEntry {
  const Tape* tape;
  GraphRunner* runner;
  PyObject* code;
  int offset;
};

/// The steps are in guard_program.cpp, in one table: what is cheap and fails most often comes first, and what needs the
/// objects or the symbols after what finds them. `TATARA_LOG=guards` and the dumps print it.
class GuardProgram {
 public:
  GlobalState state;
  ValueGuard arguments;
  ObjectGuards objects;  // numbers first, the rest once sizes are known to fit
  std::vector<Fact> facts;
  std::vector<std::shared_ptr<ConstantGuard>> size_checks;
  std::vector<size_t> made_symbols;  ///< which data decide while the graph runs: nothing is known of them here
  Identities identities;

  bool hold(GuardedCall& call, const GuardedEntry& entry);
  /// One line for each thing that is checked.
  std::vector<std::string> lines(const GuardedEntry& entry) const;
  int traverse(const Visitor& visit) const { return visit(arguments, identities, objects); }

 private:
  struct Steps;
};

}  // namespace tatara::capture
