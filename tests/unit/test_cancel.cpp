// Work that is ended early: everywhere within a compilation, and while LLVM is at work.
#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

#include "compiler/compiler.h"
#include "llvm_for_tests.h"
#include "programs.h"
#include "support/cancel.h"

namespace tatara {
namespace {

/// A chain of `operators` operators, with a sum in between here and there.
Graph chain(int operators) {
  Program p;
  const ValueId x = p.input({6, 10});
  ValueId y = x;
  for (int i = 0; i < operators; ++i) {
    y = i % 3 == 0 ? p.b.unary("exp", y) : i % 3 == 1 ? p.b.binary("add", y, x) : p.b.unary("sin", y);
    if (i % 20 == 19) y = p.b.binary("add", x, p.b.reduce("sum", y, {1}, true));
  }
  p.graph.add_output(y);
  return std::move(p.graph);
}

/// Counts the questions, and says yes from the given one on.
class Asked {
 public:
  explicit Asked(int64_t yes_from) : yes_from_(yes_from) {}
  CancelScope::Wanted wanted() {
    return [this] { return ++count_ >= yes_from_; };
  }
  int64_t count() const { return count_; }

 private:
  int64_t yes_from_;
  std::atomic<int64_t> count_{0};
};

int64_t questions(const Graph& graph, int64_t yes_from) {
  Asked asked(yes_from);
  const CancelScope::Wanted wanted = asked.wanted();
  const CancelScope scope(&wanted);
  CompileOptions options;
  options.use_cache = false;
  compile_graph(graph, options);
  return asked.count();
}

constexpr int64_t kNever = INT64_MAX;

TEST(Cancel, ACompilationEndsWhereverItIsAsked) {
  if (llvm_for_tests() == nullptr) GTEST_SKIP() << "no LLVM";
  const Graph graph = chain(60);
  const int64_t all = questions(graph, kNever);
  // How often a wait for LLVM asks differs from time to time.
  for (int64_t at = 1; at < all * 9 / 10; at += std::max<int64_t>(all / 97, 1)) {
    EXPECT_THROW(questions(graph, at), Cancelled);
  }
  // Nothing of those is in the way of the next one.
  EXPECT_EQ(compile_graph(graph, {.use_cache = false}).kernels_compiled,
            compile_graph(chain(60), {.use_cache = false}).kernels_compiled);
}

TEST(Cancel, IsAskedForEveryOperator) {
  if (llvm_for_tests() == nullptr) GTEST_SKIP() << "no LLVM";
  const int64_t few = questions(chain(100), kNever), many = questions(chain(400), kNever);
  EXPECT_GT(many - few, 300 * 10);  // of each, in several passes
}

TEST(Cancel, ScopesNestAndEnd) {
  EXPECT_EQ(CancelScope::current(), nullptr);
  check_cancelled();
  const CancelScope::Wanted no = [] { return false; }, yes = [] { return true; };
  {
    const CancelScope outer(&yes);
    EXPECT_THROW(check_cancelled(), Cancelled);
    {
      const CancelScope inner(&no);
      check_cancelled();
    }
    EXPECT_THROW(check_cancelled(), Cancelled);
    std::thread([] { check_cancelled(); }).join();
  }
  check_cancelled();
}

TEST(Cancel, WorkThatCannotEndIsLeftBehind) {
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  const auto done = std::make_shared<std::promise<int>>();
  std::future<int> result = done->get_future();
  const auto begun = std::make_shared<std::promise<void>>();
  std::atomic<bool> stop{false};
  const CancelScope::Wanted wanted = [&stop] { return stop.load(); };
  const CancelScope scope(&wanted);
  // Cancelled before, it would not begin.
  std::thread signal([&stop, begins = begun->get_future()] {
    begins.wait();
    stop = true;
  });
  EXPECT_THROW(run_or_abandon([open, begun, done] {
                 begun->set_value();
                 open.wait();
                 done->set_value(7);
               }),
               Cancelled);
  signal.join();
  gate.set_value();
  EXPECT_EQ(result.get(), 7);
}

TEST(Cancel, WorkHandsOnWhatItThrows) {
  const auto fails = [] { throw std::out_of_range("so"); };
  EXPECT_THROW(run_or_abandon(fails), std::out_of_range);
  const CancelScope::Wanted no = [] { return false; };
  const CancelScope scope(&no);
  EXPECT_THROW(run_or_abandon(fails), std::out_of_range);
  int ran = 0;
  run_or_abandon([&ran] { ++ran; });
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace tatara
