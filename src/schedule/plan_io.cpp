#include "schedule/plan_io.h"

#include <cstring>
#include <string>
#include <type_traits>

#include "support/error.h"

namespace tatara {
namespace {

// Writer and Reader have the same interface, so that one function per type describes its layout for both directions.

class Writer {
 public:
  static constexpr bool kReading = false;
  explicit Writer(ExprContext& ctx) : ctx_(ctx) {}
  ExprContext& ctx() { return ctx_; }

  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void raw(const T& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof(T));
  }
  void text(const std::string& value) {
    raw(static_cast<uint64_t>(value.size()));
    out_.insert(out_.end(), value.begin(), value.end());
  }
  void expr(const Expr& value) { text(value.valid() ? value.str() : std::string()); }
  uint64_t count(uint64_t n) {
    raw(n);
    return n;
  }
  std::vector<uint8_t> take() { return std::move(out_); }

 private:
  ExprContext& ctx_;
  std::vector<uint8_t> out_;
};

class Reader {
 public:
  static constexpr bool kReading = true;
  Reader(std::span<const uint8_t> bytes, ExprContext& ctx) : bytes_(bytes), ctx_(ctx) {}
  ExprContext& ctx() { return ctx_; }

  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void raw(T& value) {
    need(sizeof(T));
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
  }
  void text(std::string& value) {
    uint64_t size = 0;
    raw(size);
    need(size);
    value.assign(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
  }
  void expr(Expr& value) {
    std::string source;
    text(source);
    value = source.empty() ? Expr() : ctx_.parse(source);
  }
  uint64_t count(uint64_t) {
    uint64_t n = 0;
    raw(n);
    // Every element takes at least one byte: a larger count is damage, and must not make us allocate.
    need(n);
    return n;
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  void need(uint64_t size) const {
    if (size > bytes_.size() - at_) throw CompilationError("a cached plan is truncated");
  }
  std::span<const uint8_t> bytes_;
  ExprContext& ctx_;
  size_t at_ = 0;
};

template <typename Io, typename T, typename Fn>
void list(Io& io, std::vector<T>& values, Fn&& element) {
  values.resize(io.count(values.size()));
  for (T& value : values) element(io, value);
}

template <typename Io>
void bits(Io& io, std::vector<bool>& values) {
  values.resize(io.count(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    uint8_t bit = values[i] ? 1 : 0;
    io.raw(bit);
    values[i] = bit != 0;
  }
}

const auto expr_field = [](auto& io, Expr& e) { io.expr(e); };
const auto raw_field = [](auto& io, auto& value) { io.raw(value); };
const auto text_field = [](auto& io, std::string& value) { io.text(value); };

template <typename Io>
void exprs(Io& io, std::vector<Expr>& values) {
  list(io, values, expr_field);
}

template <typename Io>
void device(Io& io, Device& value) {
  io.raw(value.kind);
  io.raw(value.index);
}

template <typename Io>
void scalar(Io& io, Scalar& value) {
  uint8_t kind = static_cast<uint8_t>(value.index());
  io.raw(kind);
  const auto field = [&]<typename T>(T initial, auto&& transfer) {
    if constexpr (!Io::kReading) initial = std::get<T>(value);
    transfer(initial);
    value = initial;
  };
  switch (kind) {
    case 0: field(false, [&](bool& v) { io.raw(v); }); break;
    case 1: field(int64_t{0}, [&](int64_t& v) { io.raw(v); }); break;
    case 2: field(0.0, [&](double& v) { io.raw(v); }); break;
    case 3:
      field(std::complex<double>(), [&](std::complex<double>& v) {
        double re = v.real();
        double im = v.imag();
        io.raw(re);
        io.raw(im);
        v = {re, im};
      });
      break;
    case 4: field(Expr(), [&](Expr& v) { io.expr(v); }); break;
    default: throw CompilationError("a cached plan has an unknown scalar kind");
  }
}

template <typename Io>
void host_arg(Io& io, HostCall::HostArg& arg) {
  uint8_t kind = static_cast<uint8_t>(arg.index());
  io.raw(kind);
  const auto field = [&]<typename T>(T initial, auto&& transfer) {
    if constexpr (!Io::kReading) initial = std::get<T>(arg);
    transfer(initial);
    arg = std::move(initial);
  };
  switch (kind) {
    case 0: field(NoneArg{}, [](NoneArg&) {}); break;
    case 1: field(HostCall::TensorSlot{0}, [&](auto& v) { io.raw(v.index); }); break;
    case 2: field(HostCall::TensorListSlot{}, [&](auto& v) { list(io, v.indices, raw_field); }); break;
    case 3: field(HostCall::OutSlot{0}, [&](auto& v) { io.raw(v.index); }); break;
    case 4: field(Scalar(), [&](Scalar& v) { scalar(io, v); }); break;
    case 5: field(SymInts{}, [&](SymInts& v) { exprs(io, v.values); }); break;
    case 6: field(DType::kBool, [&](DType& v) { io.raw(v); }); break;
    case 7: field(Device{}, [&](Device& v) { device(io, v); }); break;
    case 8: field(std::string(), [&](std::string& v) { io.text(v); }); break;
    case 9: field(std::vector<bool>(), [&](std::vector<bool>& v) { bits(io, v); }); break;
    case 10: field(std::vector<double>(), [&](std::vector<double>& v) { list(io, v, raw_field); }); break;
    default: throw CompilationError("a cached plan has an unknown argument kind");
  }
}

template <typename Io>
void tensor_type(Io& io, TensorType& type) {
  io.raw(type.dtype);
  device(io, type.device);
  exprs(io, type.sizes);
  exprs(io, type.strides);
  io.raw(type.is_wrapped_number);
}

template <typename Io>
void buffer(Io& io, PlanBuffer& value) {
  io.raw(value.home);
  io.raw(value.index);
  io.expr(value.offset);
  io.expr(value.nbytes);
  io.raw(value.dtype);
  device(io, value.device);
  exprs(io, value.sizes);
  exprs(io, value.strides);
  list(io, value.constant, raw_field);
}

template <typename Io>
void buffer_ref(Io& io, BufferRef& value) {
  io.raw(value.buffer);
  exprs(io, value.sizes);
  exprs(io, value.strides);
  io.expr(value.offset);
  io.raw(value.dtype);
}

template <typename Io>
void location(Io& io, SourceLocation& value) {
  std::string file = value.file ? *value.file : std::string();
  std::string function = value.function ? *value.function : std::string();
  io.text(file);
  io.text(function);
  io.raw(value.line);
  if constexpr (Io::kReading) {
    if (!file.empty()) value.file = std::make_shared<const std::string>(std::move(file));
    if (!function.empty()) value.function = std::make_shared<const std::string>(std::move(function));
  }
}

template <typename Io>
void step(Io& io, PlanStep& value) {
  uint8_t kind = static_cast<uint8_t>(value.index());
  io.raw(kind);
  if (kind > 1) throw CompilationError("a cached plan has an unknown step kind");
  if constexpr (Io::kReading) {
    if (kind == 1) value = HostCall{};
  }
  if (auto* launch = std::get_if<KernelLaunch>(&value)) {
    io.raw(launch->kernel);
    list(io, launch->buffers, raw_field);
    exprs(io, launch->sizes);
    exprs(io, launch->buffer_offsets);
    io.expr(launch->parallel_iterations);
    io.expr(launch->work);
    io.raw(launch->clears);
    io.raw(launch->gpu_threads);
    io.expr(launch->gpu_blocks);
    exprs(io, launch->item_blocks);
    io.raw(launch->list_items);
    return;
  }
  auto& call = std::get<HostCall>(value);
  io.text(call.op);
  io.text(call.overload);
  list(io, call.args, [](auto& i, HostCall::HostArg& arg) { host_arg(i, arg); });
  list(io, call.tensors, [](auto& i, BufferRef& ref) { buffer_ref(i, ref); });
  list(io, call.results, raw_field);
  location(io, call.location);
  io.raw(call.node);
}

template <typename Io>
void kernel(Io& io, PlanKernel& value) {
  io.text(value.name);
  io.text(value.symbol);
  io.text(value.loop_text);
  io.text(value.cache_key);
  list(io, value.fused_ops, text_field);
  list(io, value.nodes, raw_field);
  io.raw(value.bytes_read);
  io.raw(value.bytes_written);
  list(io, value.fault_sites, text_field);
}

template <typename Io>
void alias(Io& io, OutputAlias& value) {
  io.raw(value.kind);
  io.raw(value.index);
  io.expr(value.storage_offset);
}

template <typename Io>
void whole_plan(Io& io, Plan& plan) {
  exprs(io, plan.size_symbols);
  list(io, plan.inputs, [](auto& i, PlanInput& input) {
    tensor_type(i, input.type);
    i.raw(input.used);
  });
  list(io, plan.buffers, [](auto& i, PlanBuffer& b) { buffer(i, b); });
  list(io, plan.kernels, [](auto& i, PlanKernel& k) { kernel(i, k); });
  list(io, plan.steps, [](auto& i, PlanStep& s) { step(i, s); });
  list(io, plan.outputs, [](auto& i, PlanOutput& output) {
    buffer_ref(i, output.ref);
    alias(i, output.alias);
  });
  list(io, plan.input_writes, [](auto& i, InputWrite& write) {
    i.raw(write.input_index);
    i.raw(write.value);
  });
  io.raw(plan.first_write);
  io.expr(plan.arena_bytes);
}

}  // namespace

std::vector<uint8_t> encode_plan(const Plan& plan) {
  Writer writer(*plan.ctx);
  Plan copy = plan;  // the shared description takes mutable references
  whole_plan(writer, copy);
  return writer.take();
}

Plan decode_plan(std::span<const uint8_t> bytes) {
  Plan plan;
  plan.ctx = std::make_shared<ExprContext>();
  Reader reader(bytes, *plan.ctx);
  whole_plan(reader, plan);
  if (!reader.at_end()) throw CompilationError("a cached plan has trailing bytes");
  return plan;
}

}  // namespace tatara
