#include "compiler/loops.h"

#include <utility>

#include "ops/core/builder.h"
#include "ops/rules/loop_node.h"
#include "support/error.h"

namespace tatara {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw Unsupported(str_cat("a loop of a plan: ", what));
}

std::vector<int64_t> constants(const std::vector<Expr>& list) {
  std::vector<int64_t> values;
  for (const Expr e : list) {
    require(e.valid() && e.is_const(), "sizes that vary");
    values.push_back(e.const_value());
  }
  return values;
}

int64_t elements(const std::vector<Expr>& sizes) {
  int64_t count = 1;
  for (const int64_t size : constants(sizes)) count *= size;
  return count;
}

/// The step's arguments as those of a node.
std::vector<Arg> node_args(const HostCall& call) {
  std::vector<Arg> args;
  for (const HostCall::HostArg& arg : call.args) {
    if (const auto* text = std::get_if<std::string>(&arg)) {
      args.emplace_back(*text);
    } else if (const auto* numbers = std::get_if<SymInts>(&arg)) {
      static_cast<void>(constants(numbers->values));
      args.emplace_back(*numbers);
    } else {
      args.emplace_back(TensorList{});
    }
  }
  return args;
}

class LoopCompiler {
 public:
  LoopCompiler(const HostCall& call, const Plan& plan)
      : call_(call),
        plan_(plan),
        form_(read_loop(node_args(call), std::make_shared<ExprContext>())),
        body_(*form_.body) {}

  std::shared_ptr<const LoopPlan> compile(const CompileOptions& options, CompileResult& result) {
    const auto* list = std::get_if<HostCall::TensorListSlot>(call_.args.data());
    require(list != nullptr && list->indices.size() == body_.inputs().size(), "operands");
    made_.turns = form_.turns;
    made_.reverse = form_.reverse;
    made_.history = form_.history;
    require(form_.turns > 0 && form_.carries() + form_.scans.size() <= list->indices.size() &&
                form_.carries() <= body_.outputs().size(),
            "its shape");
    for (size_t i = 0; i < list->indices.size(); ++i) {
      const int index = list->indices[i];
      require(index >= 0 && static_cast<size_t>(index) < call_.tensors.size(), "operands");
      take_input(i, call_.tensors[static_cast<size_t>(index)]);
    }
    check_results();
    GraphBuilder builder(body_);
    for (GraphOutput& output : body_.outputs()) {
      const TensorType type = body_.type(output.value);
      const std::vector<Expr> strides = contiguous_strides(body_.ctx(), type.sizes);
      if (type.strides == strides && !is_part(output.value)) continue;
      output.value = builder.op("relayout", {TensorArg{output.value}, SymInts{strides}});
    }
    CompileResult compiled = compile_graph(body_, options);
    result.kernels_compiled += compiled.kernels_compiled;
    result.cache_hits += compiled.cache_hits;
    result.loop_texts += str_cat("loop of ", form_.turns, " turns: ", compiled.lowered_text);
    made_.body = std::move(compiled.executable);
    const Plan& inner = made_.body->plan();
    for (size_t i = 0; i < inner.outputs.size(); ++i) take_output(inner, inner.outputs[i]);
    return std::make_shared<const LoopPlan>(std::move(made_));
  }

 private:
  void take_input(size_t i, const BufferRef& ref) {
    const ValueId v = body_.inputs()[i];
    TensorType type = body_.type(v);
    std::vector<int64_t> sizes = constants(ref.sizes), strides = constants(ref.strides);
    require(type.dtype == ref.dtype, "an operand of another type");
    const size_t carries = form_.carries();
    if (i < carries) {
      require(constants(type.sizes) == sizes, "an operand of other sizes");
      strides = constants(contiguous_strides(body_.ctx(), type.sizes));
    } else if (i < carries + form_.scans.size()) {
      const LoopScan& scan = form_.scans[i - carries];
      require(scan.dim >= 0 && static_cast<size_t>(scan.dim) < sizes.size(), "a dimension");
      const auto dim = static_cast<size_t>(scan.dim);
      const int64_t last = scan.start + (form_.turns - 1) * scan.step, width = scan.width < 0 ? 1 : scan.width;
      require(scan.start >= 0 && last >= 0 && std::max(scan.start, last) + width <= sizes[dim],
              "a part that is not there");
      const int64_t item = dtype_size(ref.dtype);
      made_.scans.push_back({scan.start * strides[dim] * item, scan.step * strides[dim] * item});
      if (scan.width < 0) {
        sizes.erase(sizes.begin() + scan.dim);
        strides.erase(strides.begin() + scan.dim);
      } else {
        sizes[dim] = scan.width;
      }
      require(constants(type.sizes) == sizes, "a part of other sizes");
    } else {
      require(constants(type.sizes) == sizes, "an operand of other sizes");
    }
    for (size_t d = 0; d < strides.size(); ++d) type.strides[d] = body_.ctx().constant(strides[d]);
    body_.set_type(v, type);
  }

  /// Of a larger tensor, all of which would be written to the row.
  bool is_part(ValueId v) const {
    const int64_t own = elements(body_.type(v).sizes);
    for (const Node* node = body_.producer(v); node != nullptr && node->op->kind == OpKind::kView;
         node = body_.producer(v)) {
      v = std::get<TensorArg>(node->args[0]).value;
    }
    return elements(body_.type(v).sizes) != own;
  }

  /// Results of the step have the sizes that turns write to.
  void check_results() const {
    std::vector<const BufferRef*> outs;
    for (const HostCall::HostArg& arg : call_.args) {
      if (const auto* out = std::get_if<HostCall::OutSlot>(&arg)) {
        outs.push_back(&call_.tensors[static_cast<size_t>(out->index)]);
      }
    }
    size_t next = 0;
    const auto check = [&](size_t output, int64_t rows) {
      require(next < outs.size() && output < body_.outputs().size(), "results");
      const BufferRef& ref = *outs[next++];
      const TensorType& type = body_.type(body_.outputs()[output].value);
      require(ref.dtype == type.dtype && elements(ref.sizes) == rows * elements(type.sizes), "a result of other sizes");
      require(constants(ref.strides) == constants(contiguous_strides(*plan_.ctx, ref.sizes)), "a result's layout");
    };
    for (size_t k = 0; k < form_.carries(); ++k) check(k, 1);
    for (size_t k = 0; k < form_.carries(); ++k) {
      if (form_.history[k]) check(k, form_.turns + 1);
    }
    for (size_t k = form_.carries(); k < body_.outputs().size(); ++k) check(k, form_.turns);
    require(next == outs.size(), "results");
  }

  void take_output(const Plan& inner, const PlanOutput& output) {
    LoopPlan::Result result;
    const PlanBuffer& buffer = inner.buffers[static_cast<size_t>(output.ref.buffer)];
    result.item = dtype_size(output.ref.dtype);
    result.bytes = elements(output.ref.sizes) * result.item;
    if (buffer.home == BufferHome::kOutput) {
      const bool whole = !output.ref.offset.valid() || output.ref.offset.is_const(0);
      require(whole && constants(output.ref.strides) == constants(contiguous_strides(*inner.ctx, output.ref.sizes)),
              "a result of a turn that is a part");
      require(elements(buffer.sizes) == elements(output.ref.sizes), "a result of a turn in a larger memory");
      result.buffer = buffer.index;
      for (const LoopPlan::Result& other : made_.results) {
        require(other.buffer != result.buffer, "two results of a turn in one memory");
      }
    } else {
      require(buffer.home == BufferHome::kHost, "a result of a turn that is no output");
    }
    made_.results.push_back(std::move(result));
  }

  const HostCall& call_;
  const Plan& plan_;
  LoopForm form_;
  Graph body_;
  LoopPlan made_;
};

}  // namespace

std::vector<std::shared_ptr<const LoopPlan>> compile_loops(const Plan& plan, const CompileOptions& options,
                                                           CompileResult& result) {
  std::vector<std::shared_ptr<const LoopPlan>> loops;
  for (const PlanStep& step : plan.steps) {
    const auto* call = std::get_if<HostCall>(&step);
    if (call == nullptr || !is_loop_call(*call)) continue;
    loops.push_back(LoopCompiler(*call, plan).compile(options, result));
  }
  return loops;
}

}  // namespace tatara
