// Linear algebra of small matrices as kernels: what is a loop, what stays the host's, and what NVIDIA's assembler says of the code.
#include <string>

#include "llvm_for_tests.h"
#include "nvidia_assembler.h"
#include "programs.h"
#include "testing.h"

namespace tatara {
namespace {

const Device kGpu{DeviceKind::kCuda, 0};

Schedule schedule_of(Program& p, const std::vector<ValueId>& outputs) {
  for (const ValueId output : outputs) p.graph.add_output(output);
  const Graph g = eliminate_dead_code(eliminate_common_subexpressions(canonicalize(decompose(canonicalize(p.graph)))));
  ScheduleOptions options;
  options.num_threads = 2;
  if (p.device.kind == DeviceKind::kCuda) {
    options.gpu = GpuShape{.multiprocessors = 132};
    options.num_threads = 132;
  }
  Schedule made = schedule_graph(g, options);
  for (const auto& kernel : made.kernels) loops::verify_kernel(*kernel);
  return made;
}

size_t calls_of(const Schedule& s) {
  size_t count = 0;
  for (const PlanStep& step : s.plan.steps) count += std::holds_alternative<HostCall>(step) ? 1 : 0;
  return count;
}

std::vector<ValueId> operators_on(Program& p, int64_t n, DType dtype) {
  const ValueId a = p.input({1000, n, n}, dtype), right = p.input({1000, n, 2}, dtype);
  std::vector<ValueId> results = p.b.op_multi("linalg_inv_ex", {TensorArg{a}, Scalar(false)});
  const auto add = [&](const std::vector<ValueId>& more) { results.insert(results.end(), more.begin(), more.end()); };
  add(p.b.op_multi("linalg_slogdet", {TensorArg{a}}));
  add(p.b.op_multi("linalg_lu_factor_ex", {TensorArg{a}}));
  add(p.b.op_multi("linalg_cholesky_ex", {TensorArg{a}}));
  add(p.b.op_multi("linalg_solve_ex", {TensorArg{a}, TensorArg{right}}));
  add({p.b.op("linalg_det", {TensorArg{a}}), p.b.op("cholesky_solve", {TensorArg{right}, TensorArg{a}})});
  add({p.b.op("linalg_solve_triangular", {TensorArg{a}, TensorArg{right}, Scalar(true), Scalar(true), Scalar(false)})});
  return results;
}

TEST(SmallMatrices, AreLoopsOverTheBatch) {
  Program p;
  const Schedule s = schedule_of(p, operators_on(p, 3, DType::kFloat32));
  EXPECT_EQ(calls_of(s), 0u);
  for (const auto& kernel : s.kernels) {
    // An iteration does a matrix: no element of it is chosen by a place.
    EXPECT_EQ(loops::print_kernel(*kernel).find("index(i1"), std::string::npos) << loops::print_kernel(*kernel);
    EXPECT_NE(loops::print_kernel(*kernel).find("vector i0"), std::string::npos) << loops::print_kernel(*kernel);
  }
}

TEST(SmallMatrices, LargerOnesAndErrorsOnAGpuAreTheHosts) {
  Program large;
  EXPECT_EQ(calls_of(schedule_of(large, {large.b.op("linalg_inv", {TensorArg{large.input({10, 7, 7})}})})), 1u);
  Program wide;
  EXPECT_EQ(
      calls_of(schedule_of(wide, {wide.b.op("linalg_det", {TensorArg{wide.input({9, 3, 3}, DType::kComplex128)}})})),
      1u);
  Program gpu{kGpu};
  EXPECT_EQ(calls_of(schedule_of(gpu, {gpu.b.op("linalg_inv", {TensorArg{gpu.input({10, 3, 3})}})})), 1u);
}

TEST(SmallMatrices, NvidiasAssemblerTakesThem) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr || !has_assembler()) GTEST_SKIP() << "no LLVM or no ptxas";
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kComplex64}) {
    for (const int64_t n : {2, 4}) {
      Program p{kGpu};
      const Schedule s = schedule_of(p, operators_on(p, n, dtype));
      EXPECT_EQ(calls_of(s), is_complex(dtype) ? 1u : 0u);  // pivots of complex numbers
      for (const auto& kernel : s.kernels) {
        // A thread a matrix.
        const std::string text = loops::print_kernel(*kernel);
        EXPECT_EQ(text.find("serial"), std::string::npos) << text;
        EXPECT_EQ(text.find("index("), std::string::npos) << text;
        const Assembled made = assemble(*llvm, *kernel);
        EXPECT_TRUE(made.good) << made.log;
        EXPECT_FALSE(made.spills()) << n << made.log << loops::print_kernel(*kernel);
      }
    }
  }
}

}  // namespace
}  // namespace tatara
