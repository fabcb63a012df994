#include "capture/entries/guard_program.h"

#include <iterator>
#include <utility>

#include "capture/entries/entry_cache.h"
#include "capture/tape/tape_print.h"
#include "support/str_cat.h"

namespace tatara::capture {

struct GuardProgram::Steps {
  using Lines = std::vector<std::string>;
  struct Step {
    const char* name;
    bool (*holds)(GuardProgram& guards, GuardedCall& call, const GuardedEntry& entry);
    Lines (*describe)(const GuardProgram& guards, const GuardedEntry& entry);
  };

  static bool state_holds(GuardProgram& guards, GuardedCall& call, const GuardedEntry&) {
    return guards.state.check(call.api, call.why);
  }
  static Lines state_lines(const GuardProgram& guards, const GuardedEntry&) { return {guards.state.describe()}; }

  /// Fills the call's objects and symbols.
  static bool arguments_hold(GuardProgram& guards, GuardedCall& call, const GuardedEntry&) {
    return guards.arguments.check(call.roots, call.count, call.api, call.objects, call.symbols, call.why);
  }
  static Lines argument_lines(const GuardProgram& guards, const GuardedEntry& entry) {
    return entry.code != nullptr ? guards.arguments.describe(entry.code, entry.offset) : Lines();
  }

  /// Adds to both.
  static bool numbers_hold(GuardProgram& guards, GuardedCall& call, const GuardedEntry&) {
    if (!guards.objects.check_numbers(call.api, call.objects, call.symbols, call.why)) return false;
    for (const size_t made : guards.made_symbols) {
      if (made >= call.symbols.size()) call.symbols.resize(made + 1);
      call.symbols[made] = 0;
    }
    return true;
  }
  static Lines number_lines(const GuardProgram& guards, const GuardedEntry&) {
    return guards.objects.describe_numbers();
  }

  static bool facts_hold(GuardProgram& guards, GuardedCall& call, const GuardedEntry&) {
    for (const Fact& fact : guards.facts) {
      if (fact.program.try_evaluate(call.symbols).value_or(0) != 0) continue;
      if (call.why != nullptr) {
        *call.why = fact.text + " no longer holds for";
        for (size_t i = 0; i < call.symbols.size(); ++i) {
          *call.why += str_cat(i == 0 ? " " : ", ", "s", i, " = ", call.symbols[i]);
        }
      }
      return false;
    }
    return true;
  }
  static Lines fact_lines(const GuardProgram& guards, const GuardedEntry&) {
    Lines lines;
    for (const Fact& fact : guards.facts) lines.push_back(fact.text);
    return lines;
  }

  static bool constants_hold(GuardProgram& guards, GuardedCall& call, const GuardedEntry&) {
    for (const auto& check : guards.size_checks) {
      if (check->holds(call.symbols)) continue;
      if (call.why != nullptr) *call.why = "not any longer: " + check->str();
      return false;
    }
    return true;
  }
  static Lines constant_lines(const GuardProgram& guards, const GuardedEntry&) {
    Lines lines;
    for (const auto& check : guards.size_checks) lines.push_back(check->str());
    return lines;
  }

  static bool tape_holds(GuardProgram&, GuardedCall& call, const GuardedEntry& entry) {
    return entry.tape == nullptr || entry.tape->checks_hold(call.symbols, call.why);
  }
  static Lines tape_lines(const GuardProgram&, const GuardedEntry& entry) {
    Lines lines;
    for (size_t n = 0; entry.tape != nullptr && n < entry.tape->nodes().size(); ++n) {
      const TapeNode& node = entry.tape->nodes()[n];
      if (const NumberOperation* call = number_operation(node); call != nullptr && call->guarded)
        lines.push_back(node_text(*entry.tape, node));
    }
    return lines;
  }

  /// Adds to the objects.
  static bool objects_hold(GuardProgram& guards, GuardedCall& call, const GuardedEntry&) {
    return guards.objects.check(call.api, call.objects, call.why);
  }
  static Lines object_lines(const GuardProgram& guards, const GuardedEntry&) { return guards.objects.describe(); }

  static bool identities_hold(GuardProgram& guards, GuardedCall& call, const GuardedEntry&) {
    return guards.identities.hold(call.objects, call.why);
  }
  static Lines identity_lines(const GuardProgram& guards, const GuardedEntry&) { return guards.identities.describe(); }

  static bool parameters_hold(GuardProgram&, GuardedCall& call, const GuardedEntry& entry) {
    return entry.runner == nullptr || entry.runner->pinned_unchanged(call.api) ||
           call.fail("the type, sizes or strides of a parameter changed");
  }
  static Lines parameter_lines(const GuardProgram&, const GuardedEntry& entry) {
    return entry.runner != nullptr ? entry.runner->describe_pinned() : Lines();
  }

  static bool hooks_hold(GuardProgram&, GuardedCall& call, const GuardedEntry& entry) {
    return entry.runner == nullptr || entry.runner->given_unchanged(call.objects) ||
           call.fail("the hooks on a tensor changed");
  }
  static Lines hook_lines(const GuardProgram&, const GuardedEntry& entry) {
    return entry.runner != nullptr ? entry.runner->describe_given() : Lines();
  }

  static constexpr Step kAll[] = {
      {"state", state_holds, state_lines},
      {"arguments", arguments_hold, argument_lines},
      {"numbers", numbers_hold, number_lines},
      {"facts", facts_hold, fact_lines},
      {"constants", constants_hold, constant_lines},
      {"tape", tape_holds, tape_lines},
      {"objects", objects_hold, object_lines},
      {"identities", identities_hold, identity_lines},
      {"parameters", parameters_hold, parameter_lines},
      {"hooks", hooks_hold, hook_lines},
  };

  /// Without a loop, so that calls of the steps are direct.
  template <size_t... I>
  static bool hold(std::index_sequence<I...>, GuardProgram& guards, GuardedCall& call, const GuardedEntry& entry) {
    return (kAll[I].holds(guards, call, entry) && ...);
  }
};

bool GuardProgram::hold(GuardedCall& call, const GuardedEntry& entry) {
  return Steps::hold(std::make_index_sequence<std::size(Steps::kAll)>(), *this, call, entry);
}

std::vector<std::string> GuardProgram::lines(const GuardedEntry& entry) const {
  const ErrorAside aside;
  std::vector<std::string> all;
  for (const Steps::Step& step : Steps::kAll) {
    std::vector<std::string> lines = step.describe(*this, entry);
    all.insert(all.end(), std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end()));
  }
  return all;
}

}  // namespace tatara::capture
