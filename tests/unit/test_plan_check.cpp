// Plans from the disk cache whose fields are out of range: none is run.
#include "schedule/plan_check.h"

#include <climits>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "plan_runner.h"
#include "schedule/plan_fields.h"
#include "schedule/plan_io.h"
#include "stored_plans.h"
#include "support/error.h"
#include "support/utf8.h"
#include "testing.h"

namespace tatara {
namespace {

enum class FieldKind : uint8_t { kNumber, kFloat, kChoice, kFlag, kIndex, kText, kCount, kExpr, kAlternative };

/// Where a field lies among the bytes of a plan.
struct Field {
  FieldKind kind;
  size_t at;
  size_t size;
};

/// Goes over the fields as the writer does, and notes where it puts them.
class Places {
 public:
  static constexpr bool kReading = false;
  template <typename T>
  void number(const T&) {
    add(std::is_floating_point_v<T> ? FieldKind::kFloat : FieldKind::kNumber, sizeof(T));
  }
  template <typename E>
  void choice(const E&) {
    add(FieldKind::kChoice, sizeof(E));
  }
  void flag(const bool&) { add(FieldKind::kFlag, 1); }
  void index(const int&, plan_fields::Of, bool) { add(FieldKind::kIndex, sizeof(int)); }
  void text(const std::string& value) {
    add(FieldKind::kCount, 8);
    if (!value.empty()) add(FieldKind::kText, value.size());
  }
  void expr(const Expr& value) {
    add(FieldKind::kAlternative, 1);
    if (value.valid()) add(FieldKind::kExpr, 8);
  }
  uint64_t count(uint64_t n) {
    add(FieldKind::kCount, 8);
    return n;
  }
  void enter(const HostCall&) {}

  std::vector<Field> fields;
  size_t at = 0;

 private:
  void add(FieldKind kind, size_t size) {
    fields.push_back({kind, at, size});
    at += size;
  }
};

/// Bytes of a value of `size` bytes.
std::string number_bytes(int64_t value, size_t size) { return {reinterpret_cast<const char*>(&value), size}; }

/// What is out of range for such a field, whatever it means.
std::vector<std::string> bad_values(const Field& field, const std::string& bytes) {
  const std::string old = bytes.substr(field.at, field.size);
  std::vector<std::string> values;
  const auto add = [&](int64_t value) { values.push_back(number_bytes(value, field.size)); };
  switch (field.kind) {
    case FieldKind::kFlag:
    case FieldKind::kChoice:
    case FieldKind::kAlternative:
      for (const int64_t value : {20, 127, 128, 255}) add(value);
      if (field.kind == FieldKind::kFlag) add(2);
      break;
    case FieldKind::kIndex:
      for (const int64_t value : {INT_MIN, -1000, -2, 1 << 30, INT_MAX}) add(value);
      break;
    case FieldKind::kCount: {
      int64_t count = 0;
      std::memcpy(&count, old.data(), sizeof(count));
      for (const int64_t value : {count + 1, count - 1, int64_t{-1}, INT64_MAX, INT64_MIN, int64_t{1} << 40})
        add(value);
      break;
    }
    case FieldKind::kExpr:
    case FieldKind::kNumber: {
      const int64_t top = field.size == 8 ? INT64_MAX : (int64_t{1} << (8 * field.size - 1)) - 1;
      for (const int64_t value : {-top - 1, -top, top, top / 2, top / 8 + 1}) add(value);
      break;
    }
    case FieldKind::kText: values.push_back("\xff" + old.substr(1)); break;
    case FieldKind::kFloat: break;  // there is none
  }
  std::erase(values, old);
  return values;
}

/// True when the plan in these bytes is refused before it is run.
bool refused(const std::string& bytes, const StoredCase& original, bool with_kernels) {
  try {
    const Plan plan = decode_plan({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    if (with_kernels) {
      verify_stored_plan(plan, original.graph(), original.target);
    } else {
      verify_plan(plan, original.graph(), original.kernels());
    }
    PlanRunner(plan, original.kernels()).run();
    return false;
  } catch (const Error&) {
    return true;
  }
}

std::string plan_bytes(const StoredCase& stored) {
  const std::vector<uint8_t> bytes = encode_plan(stored.schedule.plan);
  return {bytes.begin(), bytes.end()};
}

TEST(PlanCheck, PlansOfTheCompilerPass) {
  std::set<std::string> homes, arguments, aliases;
  for (const StoredCase& stored : stored_cases()) {
    const Plan& plan = stored.schedule.plan;
    verify_plan(plan, stored.graph(), stored.kernels());
    const StoredPlan again = decode_stored_plan(stored.bytes());
    verify_stored_plan(again.plan, stored.graph(), stored.target);
    EXPECT_EQ(encode_plan(again.plan), encode_plan(plan)) << stored.name;
    EXPECT_EQ(again.notes.size(), stored.schedule.notes.size());
    PlanRunner(again.plan, stored.kernels()).run();
    for (const PlanBuffer& buffer : plan.buffers) homes.insert(str_cat(static_cast<int>(buffer.home)));
    for (const PlanOutput& output : plan.outputs) aliases.insert(str_cat(static_cast<int>(output.alias.kind)));
    for (const PlanStep& step : plan.steps) {
      const auto* call = std::get_if<HostCall>(&step);
      if (call == nullptr) continue;
      for (const HostCall::HostArg& arg : call->args) arguments.insert(str_cat(arg.index()));
    }
  }
  EXPECT_EQ(homes.size(), 4u);  // all that the scheduler makes
  EXPECT_GE(aliases.size(), 2u);
  EXPECT_GE(arguments.size(), 6u);
}

// The fields that may have any value of their type, for nothing that runs depends on them: numbers of Python (Scalar), names of
// operators and their kin, numbers in lists of integers. What the text of a kernel says is held to by its key.
TEST(PlanCheck, EachFieldOutOfRange) {
  size_t tried = 0;
  std::map<FieldKind, size_t> accepted;
  for (const StoredCase& stored : stored_cases()) {
    const std::string good = plan_bytes(stored);
    ASSERT_FALSE(refused(good, stored, true)) << stored.name;
    Places places;
    Plan copy = stored.schedule.plan;
    plan_fields::fields(places, copy);
    ASSERT_EQ(places.at, good.size()) << stored.name;
    for (const Field& field : places.fields) {
      for (const std::string& value : bad_values(field, good)) {
        std::string bad = good;
        bad.replace(field.at, field.size, value);
        ++tried;
        if (refused(bad, stored, true)) continue;
        ++accepted[field.kind];
        const bool free = field.kind == FieldKind::kNumber || field.kind == FieldKind::kExpr;
        EXPECT_TRUE(free) << stored.name << ": field of kind " << static_cast<int>(field.kind) << " at " << field.at;
      }
    }
  }
  EXPECT_GT(tried, 5000u);
  // Most numbers are held to, too.
  EXPECT_LT(accepted[FieldKind::kNumber] + accepted[FieldKind::kExpr], tried / 40)
      << accepted[FieldKind::kNumber] << " " << accepted[FieldKind::kExpr];
}

/// One plan, changed by hand: what is in the range of its type and wrong all the same.
struct Change {
  std::string name;
  std::function<void(Plan&)> change;
  std::string reason;
};

TEST(PlanCheck, Contradictions) {
  const std::vector<StoredCase> cases = stored_cases();
  const auto find = [&](const std::string& name) -> const StoredCase& {
    return *std::find_if(cases.begin(), cases.end(), [&](const StoredCase& c) { return c.name == name; });
  };
  const auto number = [](Plan& plan, int64_t n) { return plan.ctx->constant(n); };
  const auto launch = [](Plan& plan, size_t n) -> KernelLaunch& {
    for (PlanStep& step : plan.steps) {
      auto* found = std::get_if<KernelLaunch>(&step);
      if (found != nullptr && n-- == 0) return *found;
    }
    throw InternalError("no such launch");
  };
  const auto call = [](Plan& plan, size_t n) -> HostCall& {
    for (PlanStep& step : plan.steps) {
      auto* found = std::get_if<HostCall>(&step);
      if (found != nullptr && n-- == 0) return *found;
    }
    throw InternalError("no such call");
  };
  const auto buffer = [](Plan& plan, BufferHome home) -> PlanBuffer& {
    return *std::find_if(plan.buffers.begin(), plan.buffers.end(), [&](const PlanBuffer& b) { return b.home == home; });
  };
  const auto try_all = [&](const StoredCase& stored, const std::vector<Change>& changes) {
    for (const Change& change : changes) {
      Plan plan = stored.schedule.plan;
      change.change(plan);
      std::string reason = "accepted";
      try {
        verify_plan(plan, stored.graph(), stored.kernels());
      } catch (const CompilationError& error) {
        reason = error.what();
      }
      EXPECT_NE(reason.find(change.reason), std::string::npos) << stored.name << ", " << change.name << ": " << reason;
    }
  };
  try_all(find("products through the arena"),
          {{"arena too small", [&](Plan& p) { p.arena_bytes = number(p, p.arena_bytes.const_value() - 64); }, "arena"},
           {"arena too large", [&](Plan& p) { p.arena_bytes = number(p, p.arena_bytes.const_value() + 64); }, "arena"},
           {"two in one place",
            [&](Plan& p) {
              for (PlanBuffer& b : p.buffers) {
                if (b.home == BufferHome::kArena) b.offset = number(p, 0);
              }
            },
            "arena"},
           {"no length", [&](Plan& p) { buffer(p, BufferHome::kArena).nbytes = Expr(); }, "no number"},
           {"a longer buffer", [&](Plan& p) { buffer(p, BufferHome::kArena).nbytes = number(p, 4096); }, "length"},
           {"a larger tensor", [&](Plan& p) { buffer(p, BufferHome::kArena).sizes[0] = number(p, 17); }, "length"},
           {"before the arena", [&](Plan& p) { buffer(p, BufferHome::kArena).offset = number(p, -64); }, "place"},
           {"not aligned", [&](Plan& p) { buffer(p, BufferHome::kArena).offset = number(p, 4); }, "place"},
           {"another input", [&](Plan& p) { p.inputs[0].type.dtype = DType::kInt32; }, "input 0"},
           {"an input less", [&](Plan& p) { p.inputs.pop_back(); }, "other inputs"},
           {"an output less", [&](Plan& p) { p.outputs.pop_back(); }, "outputs"},
           {"a step less", [&](Plan& p) { p.steps.pop_back(); }, "nobody computes"},
           {"no first step", [&](Plan& p) { p.steps.erase(p.steps.begin()); }, "not there yet"},
           {"an output twice", [&](Plan& p) { p.buffers.push_back(buffer(p, BufferHome::kOutput)); }, "twice"},
           {"outputs from 1 on", [&](Plan& p) { buffer(p, BufferHome::kOutput).index = 1; }, "output buffer"},
           {"input twice", [&](Plan& p) { p.buffers.push_back(buffer(p, BufferHome::kInput)); }, "another buffer"},
           {"an output in the arena", [&](Plan& p) { buffer(p, BufferHome::kOutput).home = BufferHome::kArena; }, ""},
           {"symbols", [&](Plan& p) { p.size_symbols.push_back(p.ctx->symbol("s0")); }, "not known"},
           {"a symbolic size", [&](Plan& p) { p.arena_bytes = p.ctx->symbol("s0"); }, "no number"},
           {"reads beyond", [&](Plan& p) { call(p, 0).tensors[0].offset = number(p, 1); }, "beyond"},
           {"reads before", [&](Plan& p) { call(p, 0).tensors[0].strides[0] = number(p, -16); }, "beyond"},
           {"larger strides", [&](Plan& p) { call(p, 0).tensors[0].strides[0] = number(p, 17); }, "beyond"},
           {"sizes without strides", [&](Plan& p) { call(p, 0).tensors[0].strides.pop_back(); }, "layout"},
           {"another kernel", [&](Plan& p) { p.kernels[0].name += "x"; }, "name"},
           {"kernel operands", [&](Plan& p) { launch(p, 0).buffers.pop_back(); }, "operands"},
           {"more sizes", [&](Plan& p) { launch(p, 0).sizes.push_back(number(p, 1)); }, "operands"},
           {"offsets", [&](Plan& p) { launch(p, 0).buffer_offsets.push_back(number(p, 1)); }, "offsets"},
           {"iterations",
            [&](Plan& p) {
              launch(p, 0).parallel_iterations = number(p, launch(p, 0).parallel_iterations.const_value() + 1);
            },
            "iterations"},
           {"on a GPU", [&](Plan& p) { launch(p, 0).gpu_threads = 128; }, "form"},
           {"blocks", [&](Plan& p) { launch(p, 0).gpu_blocks = number(p, 1); }, "blocks"},
           {"a list", [&](Plan& p) { launch(p, 0).item_blocks.push_back(number(p, 1)); }, "list"},
           {"writes an input",
            [&](Plan& p) {
              for (HostCall::HostArg& arg : call(p, 0).args) {
                if (std::holds_alternative<HostCall::OutSlot>(arg)) arg = HostCall::OutSlot{0};
              }
            },
            "writes to an input"},
           {"elements share memory",
            [&](Plan& p) {
              for (HostCall::HostArg& arg : call(p, 0).args) {
                if (const auto* out = std::get_if<HostCall::OutSlot>(&arg)) {
                  call(p, 0).tensors[static_cast<size_t>(out->index)].strides[0] = number(p, 0);
                }
              }
            },
            "share memory"},
           {"clears the arena", [&](Plan& p) { launch(p, 0).clears = true; }, "clears"}});
  const auto offset = [&](Plan& p) -> Expr& {
    for (Expr& e : launch(p, 0).buffer_offsets) {
      if (e.valid()) return e;
    }
    throw InternalError("no such offset");
  };
  try_all(find("rows of an input"),
          {{"a row that is not there", [&](Plan& p) { offset(p) = number(p, 49); }, "part"},
           {"before the first row", [&](Plan& p) { offset(p) = number(p, -16); }, "part"},
           {"the whole as a row", [&](Plan& p) { offset(p) = Expr(); }, "another buffer"},
           {"fewer offsets than buffers", [&](Plan& p) { launch(p, 0).buffer_offsets.pop_back(); }, "offsets"}});
  try_all(find("writes and aliases"),
          {{"writes nothing", [&](Plan& p) { p.input_writes.clear(); }, "inputs"},
           {"writes elsewhere", [&](Plan& p) { p.input_writes[0].input_index = 1; }, "inputs"},
           {"writes first", [&](Plan& p) { p.first_write = 0; }, "first"},
           {"writes never", [&](Plan& p) { p.first_write = -1; }, "first"},
           {"another alias", [&](Plan& p) { p.outputs[1].alias.index = 1; }, "another input"},
           {"no alias", [&](Plan& p) { p.outputs[1].alias = {}; }, ""},
           {"begins elsewhere", [&](Plan& p) { p.outputs[1].alias.storage_offset = number(p, 0); }, "elsewhere"},
           {"reaches beyond", [&](Plan& p) { p.outputs[1].ref.offset = number(p, 9); }, "beyond"},
           {"larger output", [&](Plan& p) { p.outputs[0].ref.sizes[0] = number(p, 9); }, "another type"}});
  try_all(find("results of the host"),
          {{"used before it is there",
            [&](Plan& p) {
              for (PlanStep& step : p.steps) {
                if (auto* c = std::get_if<HostCall>(&step)) std::fill(c->results.begin(), c->results.end(), -1);
              }
            },
            "not there yet"},
           {"bound twice", [&](Plan& p) { call(p, 0).results.push_back(call(p, 0).results[0]); }, "another's memory"},
           {"bound to an input", [&](Plan& p) { call(p, 0).results[0] = 0; }, "another's memory"},
           {"no places that may fail",
            [&](Plan& p) {
              for (PlanKernel& kernel : p.kernels) kernel.fault_sites.clear();
            },
            "may fail"},
           {"as another type", [&](Plan& p) { buffer(p, BufferHome::kHost).dtype = DType::kUInt8; }, ""}});
}

TEST(PlanCheck, KernelsAreTheirText) {
  const std::vector<StoredCase> cases = stored_cases();
  const StoredCase& stored = cases.front();
  const auto accepted = [&](const std::function<void(PlanKernel&)>& change) {
    Plan plan = stored.schedule.plan;
    change(plan.kernels[0]);
    try {
      verify_stored_plan(plan, stored.graph(), stored.target);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(accepted([](PlanKernel&) {}));
  EXPECT_FALSE(accepted([](PlanKernel& k) { k.cache_key.back() ^= 1; }));
  EXPECT_FALSE(accepted([](PlanKernel& k) { k.symbol = "other"; }));
  EXPECT_FALSE(accepted([](PlanKernel& k) { k.loop_text += " "; }));
  EXPECT_FALSE(accepted([&](PlanKernel& k) {
    k.loop_text = "kernel nonsense";
    k.cache_key = request_of_text(k.loop_text, k.name, stored.target).key;
  }));
  KernelTarget other = stored.target;
  other.cpu.features = "+avx2";
  EXPECT_THROW(verify_stored_plan(stored.schedule.plan, stored.graph(), other), CompilationError);
}

TEST(PlanCheck, SymbolicPlansAreNotWritten) {
  Program p;
  const ValueId x = p.symbolic({p.ctx->symbol("s0", {2, 1000})});
  const Schedule s = p.schedule({p.b.unary("exp", x)});
  EXPECT_THROW(encode_plan(s.plan), InternalError);
}

TEST(Utf8, AsPythonReadsIt) {
  for (const char* good :
       {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xe2\x82", "\xe2\x82z"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

}  // namespace
}  // namespace tatara
