// What a plan is made of, said once: the writer, the reader and the check of plans from the disk cache all go through it. Each
// description takes a type apart by all of its fields, so that it does not compile when one is added and not described.
//
// An Io says what happens to a field:
//   flag(bool&), choice(enum&), number(integer or floating-point&), text(std::string&), expr(Expr&)
//   index(integer&, Of, bool none): a number of an element of another list; -1 where `none`
//   count(size): how many elements a list has
//   enter(call): the operands of a host call, which its arguments count, come next
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/plan.h"
#include "support/error.h"

namespace tatara::plan_fields {

/// What an index counts.
enum class Of : uint8_t { kBuffers, kKernels, kInputs, kOutputs, kSteps, kTensors, kNodes, kValues };

template <typename Io>
inline constexpr bool kReading = Io::kReading;

template <typename Io, typename T, typename Fn>
void list(Io& io, std::vector<T>& values, Fn&& element) {
  const uint64_t count = io.count(values.size());
  if constexpr (kReading<Io>) {
    // One after the other: a wrong count runs out of bytes before it takes memory.
    values.clear();
    for (uint64_t i = 0; i < count; ++i) {
      T value{};
      element(value);
      values.push_back(std::move(value));
    }
  } else {
    for (uint64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, bool>) {
        bool value = values[i];
        element(value);
      } else {
        element(values[i]);
      }
    }
  }
}

template <typename Io>
void exprs(Io& io, std::vector<Expr>& values) {
  list(io, values, [&](Expr& e) { io.expr(e); });
}

template <typename Io>
void texts(Io& io, std::vector<std::string>& values) {
  list(io, values, [&](std::string& text) { io.text(text); });
}

/// The alternative of a variant, then what it holds by `describe`.
template <typename Io, typename... Ts, typename Fn>
void variant(Io& io, std::variant<Ts...>& value, Fn&& describe) {
  auto kind = static_cast<uint8_t>(value.index());
  io.number(kind);
  if constexpr (kReading<Io>) {
    if (kind >= sizeof...(Ts)) throw CompilationError("a cached plan has an unknown alternative");
    size_t at = 0;
    static_cast<void>(((at++ == kind ? (value = Ts{}, true) : false) || ...));
  }
  std::visit(describe, value);
}

template <typename Io>
void fields(Io& io, Device& device) {
  auto& [kind, index] = device;
  io.choice(kind);
  io.number(index);
}

template <typename Io>
void fields(Io& io, Scalar& scalar) {
  variant(io, scalar, [&]<typename T>(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      io.flag(value);
    } else if constexpr (std::is_same_v<T, Expr>) {
      io.expr(value);
    } else if constexpr (std::is_same_v<T, std::complex<double>>) {
      double re = value.real(), im = value.imag();
      io.number(re);
      io.number(im);
      value = {re, im};
    } else {
      io.number(value);
    }
  });
}

template <typename Io>
void fields(Io& io, HostCall::HostArg& arg) {
  variant(io, arg, [&]<typename T>(T& value) {
    if constexpr (std::is_same_v<T, NoneArg>) {
      static_assert(std::is_empty_v<NoneArg>);
    } else if constexpr (std::is_same_v<T, HostCall::TensorSlot>) {
      auto& [index] = value;
      io.index(index, Of::kTensors, true);
    } else if constexpr (std::is_same_v<T, HostCall::TensorListSlot>) {
      auto& [indices] = value;
      list(io, indices, [&](int& index) { io.index(index, Of::kTensors, true); });
    } else if constexpr (std::is_same_v<T, HostCall::OutSlot> || std::is_same_v<T, HostCall::NumberSlot>) {
      auto& [index] = value;
      io.index(index, Of::kTensors, false);
    } else if constexpr (std::is_same_v<T, Scalar> || std::is_same_v<T, Device>) {
      fields(io, value);
    } else if constexpr (std::is_same_v<T, SymInts>) {
      auto& [values] = value;
      exprs(io, values);
    } else if constexpr (std::is_same_v<T, DType>) {
      io.choice(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      io.text(value);
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      list(io, value, [&](bool& bit) { io.flag(bit); });
    } else {
      static_assert(std::is_same_v<T, std::vector<double>>);
      list(io, value, [&](double& number) { io.number(number); });
    }
  });
}

template <typename Io>
void fields(Io& io, TensorType& type) {
  auto& [dtype, device, sizes, strides, is_wrapped_number] = type;
  io.choice(dtype);
  fields(io, device);
  exprs(io, sizes);
  exprs(io, strides);
  io.flag(is_wrapped_number);
}

template <typename Io>
void fields(Io& io, PlanBuffer& buffer) {
  auto& [home, index, offset, nbytes, dtype, device, sizes, strides, constant] = buffer;
  io.choice(home);
  io.number(index);
  io.expr(offset);
  io.expr(nbytes);
  io.choice(dtype);
  fields(io, device);
  exprs(io, sizes);
  exprs(io, strides);
  list(io, constant, [&](uint8_t& byte) { io.number(byte); });
}

template <typename Io>
void fields(Io& io, BufferRef& ref) {
  auto& [buffer, sizes, strides, offset, dtype] = ref;
  io.index(buffer, Of::kBuffers, true);
  exprs(io, sizes);
  exprs(io, strides);
  io.expr(offset);
  io.choice(dtype);
}

template <typename Io>
void fields(Io& io, SourceLocation& location) {
  auto& [file, function, line, call] = location;
  static_cast<void>(call);  // a number of the trace that made the plan
  const auto shared = [&](std::shared_ptr<const std::string>& text) {
    std::string value = text ? *text : std::string();
    io.text(value);
    if constexpr (kReading<Io>) text = value.empty() ? nullptr : std::make_shared<const std::string>(std::move(value));
  };
  shared(file);
  shared(function);
  io.number(line);
}

template <typename Io>
void fields(Io& io, loops::TensorMap& map) {
  auto& [buffer, offset, dims, bytes] = map;
  io.number(buffer);
  io.number(offset);
  list(io, dims, [&](loops::TensorMap::Dim& dim) {
    auto& [size, stride, box] = dim;
    io.number(size);
    io.number(stride);
    io.number(box);
  });
  io.number(bytes);
}

template <typename Io>
void fields(Io& io, KernelLaunch& launch) {
  auto& [kernel, buffers, sizes, buffer_offsets, parallel_iterations, work, clears, gpu_threads, gpu_shared, gpu_blocks,
         item_blocks, list_items, maps] = launch;
  io.index(kernel, Of::kKernels, false);
  list(io, buffers, [&](BufferId& id) { io.index(id, Of::kBuffers, false); });
  exprs(io, sizes);
  exprs(io, buffer_offsets);
  io.expr(parallel_iterations);
  io.expr(work);
  io.flag(clears);
  io.number(gpu_threads);
  io.number(gpu_shared);
  io.expr(gpu_blocks);
  exprs(io, item_blocks);
  io.number(list_items);
  list(io, maps, [&](loops::TensorMap& map) { fields(io, map); });
}

template <typename Io>
void fields(Io& io, HostCall& call) {
  auto& [op, overload, args, tensors, results, location, node] = call;
  io.text(op);
  io.text(overload);
  io.enter(call);
  list(io, args, [&](HostCall::HostArg& arg) { fields(io, arg); });
  list(io, tensors, [&](BufferRef& ref) { fields(io, ref); });
  list(io, results, [&](BufferId& id) { io.index(id, Of::kBuffers, true); });
  fields(io, location);
  io.index(node, Of::kNodes, true);
}

template <typename Io>
void fields(Io& io, PlanStep& step) {
  variant(io, step, [&](auto& value) { fields(io, value); });
}

template <typename Io>
void fields(Io& io, PlanInput& input) {
  auto& [type, used] = input;
  fields(io, type);
  io.flag(used);
}

template <typename Io>
void fields(Io& io, OutputAlias& alias) {
  auto& [kind, index, storage_offset, sharing, group] = alias;
  static_cast<void>(sharing);  // as group: of graphs before expand_transforms() alone
  static_cast<void>(group);
  io.choice(kind);
  io.number(index);
  io.expr(storage_offset);
}

template <typename Io>
void fields(Io& io, PlanOutput& output) {
  auto& [ref, alias] = output;
  fields(io, ref);
  fields(io, alias);
}

template <typename Io>
void fields(Io& io, PlanKernel& kernel) {
  // The LLVM text of a kernel from the cache is made when somebody asks for it.
  auto& [name, symbol, loop_text, llvm_text, cache_key, fused_ops, nodes, bytes_read, bytes_written, fault_sites] =
      kernel;
  static_cast<void>(llvm_text);
  io.text(name);
  io.text(symbol);
  io.text(loop_text);
  io.text(cache_key);
  texts(io, fused_ops);
  list(io, nodes, [&](NodeId& node) { io.index(node, Of::kNodes, false); });
  io.number(bytes_read);
  io.number(bytes_written);
  texts(io, fault_sites);
}

template <typename Io>
void fields(Io& io, InputWrite& write) {
  auto& [input_index, value, times] = write;
  io.index(input_index, Of::kInputs, false);
  io.index(value, Of::kValues, false);
  io.number(times);
}

template <typename Io>
void fields(Io& io, Plan& plan) {
  auto& [ctx, size_symbols, inputs, buffers, kernels, steps, outputs, input_writes, first_write, arena_bytes] = plan;
  static_cast<void>(ctx);
  exprs(io, size_symbols);
  list(io, inputs, [&](PlanInput& input) { fields(io, input); });
  list(io, buffers, [&](PlanBuffer& buffer) { fields(io, buffer); });
  list(io, kernels, [&](PlanKernel& kernel) { fields(io, kernel); });
  list(io, steps, [&](PlanStep& step) { fields(io, step); });
  list(io, outputs, [&](PlanOutput& output) { fields(io, output); });
  list(io, input_writes, [&](InputWrite& write) { fields(io, write); });
  io.index(first_write, Of::kSteps, true);
  io.expr(arena_bytes);
}

}  // namespace tatara::plan_fields
