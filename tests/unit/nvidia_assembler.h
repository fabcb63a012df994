// What NVIDIA's assembler says of kernels.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "codegen/emit_gpu.h"
#include "run_command.h"
#include "runtime/jit/llvm_provider.h"
#include "support/str_cat.h"

namespace tatara {

inline bool has_assembler() { return run_command("ptxas --version").second == 0; }

struct Assembled {
  std::string ptx, log;
  bool good = false;

  bool spills() const { return log.find("0 bytes spill stores, 0 bytes spill loads") == std::string::npos; }
};

/// For an H100. The file stays where KEEP_PTX is set.
inline Assembled assemble(LlvmProvider& llvm, const loops::Kernel& kernel) {
  TargetOptions options;
  options.triple = kGpuTriple;
  options.cpu = "sm_90a";
  options.features = "+ptx81";
  options.opt_level = 2;
  options.output = TargetOptions::Output::kAssembly;
  Assembled result;
  result.ptx = llvm.compile(emit_gpu(kernel, {90, options.cpu, options.features}, "k"), options).bytes;
  const std::string file = str_cat("/tmp/tatara-kernel-", getpid(), ".ptx");
  std::ofstream(file) << result.ptx;
  const auto [log, code] = run_command("ptxas -arch=sm_90a -v -o /dev/null " + file);
  if (std::getenv("KEEP_PTX") == nullptr) remove(file.c_str());
  result.log = log;
  result.good = code == 0;
  return result;
}

}  // namespace tatara
