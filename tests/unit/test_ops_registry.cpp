#include <set>

#include "ops/core/builder.h"
#include "ops/core/op_def.h"
#include "testing.h"

using namespace tatara;

TEST(OpRegistry, EveryFamilyRegisters) {
  const OpRegistry& r = OpRegistry::global();
  EXPECT_GT(r.all().size(), 300u);
  for (const char* name :
       {"add", "mul", "where", "view", "slice", "full", "cat", "softmax", "mm", "sum", "cast", "clone"}) {
    EXPECT_TRUE(r.find(name) != nullptr) << name;
  }
}

TEST(OpRegistry, EveryOperatorHasAWayToRun) {
  for (const OpDef* op : OpRegistry::global().all()) {
    const bool runs =
        op->lower || op->decompose || op->choose || op->kind == OpKind::kHost || op->kind == OpKind::kRandom;
    EXPECT_TRUE(runs) << op->name;
    EXPECT_TRUE(op->meta || op->decompose || op->choose || op->kind == OpKind::kHost || op->kind == OpKind::kRandom)
        << op->name;
  }
}

TEST(OpRegistry, PythonNamesLeadToOperators) {
  const OpRegistry& r = OpRegistry::global();
  const auto* max = r.find_python("torch.max");
  ASSERT_TRUE(max != nullptr);
  EXPECT_GE(max->size(), 2u);
  const auto* iadd = r.find_python("torch.Tensor.add_");
  ASSERT_TRUE(iadd != nullptr);
  EXPECT_EQ(iadd->front().op->name, std::string("add"));
  EXPECT_TRUE(iadd->front().form == OpRegistry::PythonName::Form::kInplace);
  EXPECT_TRUE(r.find_python("torch.no_such_thing") == nullptr);
}
