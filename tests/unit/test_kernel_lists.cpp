// Launches on a GPU that become one for a list: which of them, where, and the table of arguments that they pass.
#include <cstring>

#include "loops/list_table.h"
#include "loops/parser.h"
#include "programs.h"
#include "runtime/cuda/cuda.h"
#include "schedule/plan_io.h"
#include "testing.h"

namespace tatara {
namespace {

const Device kGpu{DeviceKind::kCuda, 0};

ValueId softmax(Program& p, ValueId x) { return p.b.op("softmax", {TensorArg{x}, Scalar(int64_t{-1})}); }

/// Items of each step of the plan: 0 for launches of their own, -1 for calls of the host.
std::vector<int> items(const Schedule& s) {
  std::vector<int> result;
  for (const PlanStep& step : s.plan.steps) {
    const auto* launch = std::get_if<KernelLaunch>(&step);
    result.push_back(launch == nullptr ? -1 : static_cast<int>(launch->item_blocks.size()));
  }
  return result;
}

const KernelLaunch& launch(const Schedule& s, size_t step) { return std::get<KernelLaunch>(s.plan.steps[step]); }

using Items = std::vector<int>;

Schedule scaled(Program& p, const std::vector<std::vector<int64_t>>& sizes) {
  std::vector<ValueId> results;
  for (const auto& each : sizes) {
    results.push_back(p.b.binary("add", p.b.binary("mul", p.input(each), Scalar(2.0)), Scalar(1.0)));
  }
  return p.schedule(results);
}

TEST(KernelLists, EqualKernelsAreOneLaunch) {
  Program p{kGpu};
  const Schedule s = scaled(p, std::vector<std::vector<int64_t>>(5, {256, 1000}));
  EXPECT_EQ(items(s), Items{5});
  EXPECT_EQ(s.kernels.size(), 1u);
  EXPECT_EQ(s.plan.kernels.size(), 1u);
  EXPECT_EQ(s.kernels[0]->gpu.items, 8);
  EXPECT_EQ(launch(s, 0).list_items, 8);
  EXPECT_EQ(launch(s, 0).buffers.size(), 10u);
  EXPECT_EQ(launch(s, 0).sizes.size(), 0u);
  EXPECT_EQ(launch(s, 0).gpu_blocks.const_value(), 5 * 250);
  EXPECT_EQ(s.plan.kernels[0].bytes_read, 5 * 256000 * 4);
  const std::string text = loops::print_kernel(*s.kernels[0]);
  EXPECT_NE(text.find(" items 8)"), std::string::npos) << text;
  EXPECT_EQ(loops::print_kernel(loops::parse_kernel(text)), text);
}

TEST(KernelLists, ExtentsMayDiffer) {
  Program p{kGpu};
  const Schedule s = scaled(p, {{256, 1000}, {4096}, {64, 64, 3}, {8}});
  EXPECT_EQ(items(s), Items{4});
  const KernelLaunch& list = launch(s, 0);
  // In vectors of four: nothing is left over.
  EXPECT_EQ(s.kernels[0]->gpu.lanes, 4);
  std::vector<int64_t> sizes, blocks;
  for (const Expr e : list.sizes) sizes.push_back(e.const_value());
  for (const Expr e : list.item_blocks) blocks.push_back(e.const_value());
  EXPECT_EQ(sizes, (std::vector<int64_t>{64000, 1024, 3072, 2}));
  EXPECT_EQ(blocks, (std::vector<int64_t>{250, 4, 12, 1}));
  const std::string text = loops::print_kernel(*s.kernels[0]);
  EXPECT_NE(text.find("4*n {"), std::string::npos) << text;
}

TEST(KernelLists, OddExtentsKeepTheirRest) {
  Program p{kGpu};
  const Schedule s = scaled(p, {{1000}, {1001}, {3}});
  EXPECT_EQ(items(s), Items{3});
  EXPECT_EQ(launch(s, 0).sizes[1].const_value(), 1001);
  EXPECT_EQ(launch(s, 0).item_blocks[2].const_value(), 1);
}

TEST(KernelLists, OtherTypesAreApart) {
  Program p{kGpu};
  std::vector<ValueId> results;
  for (int i = 0; i < 3; ++i) results.push_back(p.b.cast(p.input({1024}), DType::kFloat16));
  for (int i = 0; i < 2; ++i) results.push_back(p.b.cast(p.input({1024}, DType::kFloat16), DType::kFloat32));
  EXPECT_EQ(items(p.schedule(results)), (Items{3, 2}));
}

TEST(KernelLists, RowsOfOneLength) {
  Program p{kGpu};
  std::vector<ValueId> results;
  for (int i = 0; i < 3; ++i) results.push_back(softmax(p, p.input({512, 1024})));
  results.push_back(softmax(p, p.input({512, 512})));
  const Schedule s = p.schedule(results);
  EXPECT_EQ(items(s), (Items{3, 0}));
  EXPECT_EQ(launch(s, 0).sizes.size(), 3u);  // iterations
  EXPECT_EQ(launch(s, 0).sizes[0].const_value(), 512);
}

TEST(KernelLists, PartsOfReductions) {
  Program p{kGpu};
  std::vector<ValueId> results;
  for (int i = 0; i < 4; ++i) results.push_back(p.b.reduce("sum", p.input({1 << 20}), {0}, false));
  EXPECT_EQ(items(p.schedule(results)), (Items{4, 4}));
}

TEST(KernelLists, WhatDependsIsNoList) {
  Program p{kGpu};
  const ValueId x = softmax(p, p.input({128, 128}));
  EXPECT_EQ(items(p.schedule({softmax(p, p.b.binary("mm", x, p.input({128, 128})))})), (Items{0, -1, 0}));
}

TEST(KernelLists, LaunchesComeToTheFirstOrWaitForTheLast) {
  {
    Program p{kGpu};
    const ValueId a = softmax(p, p.input({128, 128}));
    const ValueId product = p.b.binary("mm", a, p.input({128, 128}));
    const ValueId second = softmax(p, p.input({128, 128}));
    // The second one joins the first; what depends on the product stays behind it.
    EXPECT_EQ(items(p.schedule({product, second, softmax(p, product)})), (Items{2, -1, 0}));
  }
  Program p{kGpu};
  const ValueId a = softmax(p, p.input({128, 128}));
  const ValueId z = softmax(p, p.b.binary("mm", p.input({128, 128}), p.input({128, 128})));
  EXPECT_EQ(items(p.schedule({a, z})), (Items{-1, 2}));
}

TEST(KernelLists, OrderOfWritesStays) {
  // A product reads the first input before it is written: that write can only wait, or stay.
  Program p{kGpu};
  const ValueId x = p.input({128, 128}), y = p.input({128, 128}), w = p.input({128, 128});
  const ValueId product = p.b.binary("mm", x, w);
  p.graph.add_input_write(1, p.b.binary("mul", y, Scalar(2.0)));
  p.graph.add_input_write(0, p.b.binary("mul", x, Scalar(2.0)));
  const Schedule s = p.schedule({product});
  EXPECT_EQ(items(s), (Items{-1, 2}));

  // The new contents of one are made from the other's: no list, for one reads what the other writes.
  Program q{kGpu};
  const ValueId from = q.input({128, 128});
  static_cast<void>(q.input({128, 128}));
  const ValueId doubled = q.b.binary("mul", from, Scalar(2.0));
  const ValueId turned = q.b.permute(doubled, {1, 0});
  q.graph.add_input_write(0, doubled);
  q.graph.add_input_write(1, q.b.binary("mul", softmax(q, turned), Scalar(2.0)));
  for (const int n : items(q.schedule({}))) EXPECT_EQ(n, 0);
}

/// Softmaxes of inputs, each an operand of a product.
std::vector<ValueId> products(Program& p, int64_t rows) {
  std::vector<ValueId> results;
  for (int i = 0; i < 4; ++i) {
    results.push_back(p.b.binary("mm", softmax(p, p.input({rows, 256})), p.input({256, 16})));
  }
  return results;
}

TEST(KernelLists, MemoryDoesNotGrow) {
  Program small{kGpu};
  EXPECT_EQ(items(small.schedule(products(small, 64))).front(), 4);
  Program big{kGpu};
  const Schedule s = big.schedule(products(big, 1 << 14));
  EXPECT_EQ(items(s).size(), 8u);
  EXPECT_EQ(s.plan.arena_bytes.const_value(), (1 << 14) * 256 * 4);
}

TEST(KernelLists, LongListsAreSeveral) {
  Program p{kGpu};
  const Schedule s = scaled(p, std::vector<std::vector<int64_t>>(300, {1024}));
  const Items parts = items(s);
  EXPECT_EQ(parts.size(), 3u);
  int all = 0;
  for (const int n : parts) {
    all += n;
    EXPECT_LE(n, ListTable::most_items(2));
  }
  EXPECT_EQ(all, 300);
}

TEST(KernelLists, SizesOfTheCallArePassed) {
  Program p{kGpu};
  const Expr n = p.ctx->fresh_size_symbol(128);
  std::vector<ValueId> results;
  for (const int64_t width : {64, 128, 8}) {
    results.push_back(p.b.unary("tanh", p.symbolic({n, p.ctx->constant(width)})));
  }
  const Schedule s = p.schedule(results);
  EXPECT_EQ(items(s), Items{3});
  EXPECT_EQ(launch(s, 0).sizes.back().str(), "8*" + n.str());
  EXPECT_EQ(s.plan.size_symbols.size(), 1u);
}

/// Places of the plan's launches and calls by the buffers that they use, and whether each of these is written.
struct Place {
  size_t step;
  std::vector<std::pair<BufferId, bool>> uses;
};

std::vector<Place> places(const Schedule& s) {
  std::vector<Place> result;
  for (size_t i = 0; i < s.plan.steps.size(); ++i) {
    const auto* one = std::get_if<KernelLaunch>(&s.plan.steps[i]);
    if (one == nullptr) {
      Place place{i, {}};
      for (const BufferRef& ref : std::get<HostCall>(s.plan.steps[i]).tensors)
        place.uses.emplace_back(ref.buffer, true);
      result.push_back(std::move(place));
      continue;
    }
    std::vector<bool> written;
    for (const loops::BufferArg& arg : s.kernels[static_cast<size_t>(one->kernel)]->buffers) {
      if (arg.kind != loops::ArgKind::kScratch) written.push_back(arg.kind != loops::ArgKind::kInput);
    }
    for (size_t first = 0; first < one->buffers.size(); first += written.size()) {
      Place place{i, {}};
      for (size_t b = 0; b < written.size(); ++b) place.uses.emplace_back(one->buffers[first + b], written[b]);
      result.push_back(std::move(place));
    }
  }
  return result;
}

/// A graph of small kernels and products, in which few things have nothing to do with each other.
Schedule random_program(unsigned seed, const PassOptions& passes = {}) {
  Program p{kGpu};
  p.passes = passes;
  unsigned state = seed;
  const auto draw = [&](size_t n) {
    state = state * 1664525u + 1013904223u;
    return static_cast<size_t>(state >> 8) % n;
  };
  std::vector<ValueId> values;
  for (int i = 0; i < 4; ++i) values.push_back(p.input({64, 64}));
  for (int i = 0; i < 40; ++i) {
    const ValueId x = values[draw(values.size())], y = values[draw(values.size())];
    switch (draw(4)) {
      case 0: values.push_back(softmax(p, x)); break;
      case 1: values.push_back(p.b.binary("mm", x, p.b.permute(y, {1, 0}))); break;
      case 2: values.push_back(p.b.op("cumsum", {TensorArg{x}, Scalar(int64_t{1})})); break;
      default: values.push_back(p.b.binary("mm", p.b.unary("tanh", x), y)); break;
    }
  }
  for (int i = 0; i < 3; ++i) p.graph.add_input_write(i, values[values.size() - 3 - draw(20)]);
  return p.schedule({values.back(), values[values.size() - 2]});
}

TEST(KernelLists, RandomProgramsKeepTheirOrder) {
  size_t lists = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const std::vector<Place> apart = places(random_program(seed, {.disabled = "grouped_launches"}));
    const Schedule s = random_program(seed);
    for (const int n : items(s)) lists += n > 1 ? 1 : 0;
    const std::vector<Place> together = places(s);
    EXPECT_EQ(together.size(), apart.size());
    // Where each step of the plan without lists is now: steps that use the same buffers alike are in the same order.
    std::vector<bool> taken(together.size(), false);
    std::vector<size_t> now;
    for (const Place& place : apart) {
      size_t k = 0;
      while (k < together.size() && (taken[k] || together[k].uses != place.uses)) ++k;
      ASSERT_LT(k, together.size());
      taken[k] = true;
      now.push_back(together[k].step);
    }
    bool ordered = true;
    for (size_t i = 0; i < apart.size(); ++i) {
      for (size_t j = i + 1; j < apart.size(); ++j) {
        for (const auto& [buffer, written] : apart[i].uses) {
          for (const auto& [other, also] : apart[j].uses) {
            if (buffer == other && (written || also)) ordered = ordered && now[i] < now[j];
          }
        }
      }
    }
    EXPECT_TRUE(ordered) << "seed " << seed;
  }
  EXPECT_GT(lists, 60u);
}

TEST(KernelLists, NotOnTheCpuAndNotWhereDisabled) {
  Program cpu;
  EXPECT_EQ(items(scaled(cpu, {{1024}, {1024}})), (Items{0, 0}));
  Program p{kGpu};
  p.passes.disabled = "grouped_launches";
  EXPECT_EQ(items(scaled(p, {{1024}, {1024}})), (Items{0, 0}));
}

TEST(KernelLists, PlansKeepThem) {
  Program p{kGpu};
  const Schedule s = scaled(p, {{1024}, {2048}});
  const Plan plan = decode_plan(encode_plan(s.plan));
  const auto& list = std::get<KernelLaunch>(plan.steps[0]);
  EXPECT_EQ(list.list_items, 2);
  EXPECT_EQ(list.item_blocks.size(), 2u);
  EXPECT_EQ(list.item_blocks[1].const_value(), 2);
}

TEST(KernelLists, Table) {
  EXPECT_EQ(ListTable::of(3, 2).items, 4);
  EXPECT_EQ(ListTable::of(100, 5).items, ListTable::most_items(5));
  for (size_t words = 1; words < 40; ++words) {
    EXPECT_LE(ListTable::of(1000, words).bytes(), ListTable::kMostBytes);
    EXPECT_EQ(ListTable::of(1000, words).items_at() % 8, 0u);
  }
  int memory[6];
  void* const buffers[] = {&memory[0], &memory[1], &memory[2], &memory[3], &memory[4], &memory[5]};
  const int64_t sizes[] = {40, 0, 70};
  const int64_t blocks[] = {4, 0, 7};
  cuda::LaunchArguments arguments{.blocks = 11, .threads = 256, .buffers = buffers, .sizes = sizes};
  arguments.list_items = 4;
  arguments.item_blocks = blocks;
  const std::vector<uint32_t> table = cuda::list_table(arguments);
  EXPECT_EQ(table.size() * 4, (ListTable{4, 3}.bytes()));
  EXPECT_EQ((std::vector<uint32_t>(table.begin(), table.begin() + 6)),
            (std::vector<uint32_t>{0, 0, 0, 4, 4, UINT32_MAX}));
  uint64_t row[3];
  std::memcpy(row, reinterpret_cast<const char*>(table.data()) + ListTable{4, 3}.items_at() + 2 * 24, sizeof(row));
  EXPECT_EQ(row[0], reinterpret_cast<uint64_t>(&memory[4]));
  EXPECT_EQ(row[2], 70u);
}

}  // namespace
}  // namespace tatara
