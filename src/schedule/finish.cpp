// Kernels get contexts of their own, with canonical names of loop variables: equal kernels print alike wherever they come
// from, and can be compiled side by side.
#include <algorithm>

#include "schedule/internal.h"
#include "schedule/plan_check.h"
#include "support/error.h"

namespace tatara::sched {

namespace {

class Detacher {
 public:
  Detacher(State& s, loops::Kernel& kernel) : s_(s), kernel_(kernel), fresh_(std::make_shared<ExprContext>()) {}

  void run(std::vector<Expr>& sizes) {
    visit(kernel_.body, [&](Expr& e) { collect_symbols(e, seen_); }, [&](Expr& var, Expr&) { locals_.push_back(var); });
    for (loops::BufferArg& arg : kernel_.buffers) collect_symbols(arg.numel, seen_);
    for (const Expr e : seen_) {
      if (std::find(locals_.begin(), locals_.end(), e) == locals_.end()) sizes.push_back(e);
    }
    std::sort(sizes.begin(), sizes.end(), [&](Expr a, Expr b) {
      const auto x = s_.ctx.symbol_name(a);
      const auto y = s_.ctx.symbol_name(b);
      return x.size() != y.size() ? x.size() < y.size() : x < y;
    });
    for (const Expr e : sizes) {
      kernel_.sizes.push_back(fresh_->symbol(s_.ctx.symbol_name(e), s_.ctx.range(e), s_.ctx.hint(e)));
    }
    // Facts about sizes hold here too.
    int loops = 0;
    int lookups = 0;
    visit(
        kernel_.body, [&](Expr& e) { e = move(e); },
        [&](Expr& var, Expr& extent) {
          const bool is_lookup = s_.ctx.symbol_name(var).starts_with("_x");
          const std::string name = is_lookup ? str_cat("x", lookups++) : str_cat("i", loops++);
          const Expr bound = move(extent);
          rename_[var] = s_.ctx.symbol("~" + name);
          const Expr symbol = fresh_->loop_symbol(name, bound);
          back_[fresh_->symbol("~" + name)] = symbol;
          var = symbol;
        });
    for (loops::BufferArg& arg : kernel_.buffers) arg.numel = move(arg.numel);
    kernel_.ctx = fresh_;
  }

 private:
  Expr move(Expr e) {
    if (!e.valid() || &e.context() == fresh_.get()) return e;
    const Expr renamed = rename_.empty() ? e : s_.ctx.substitute(e, rename_);
    const Expr there = fresh_->import(renamed);
    return back_.empty() ? there : fresh_->substitute(there, back_);
  }

  /// Calls `define` with each variable and its extent where it is bound (before what is inside), `use` with the rest.
  template <typename Use, typename Define>
  void visit(loops::Block& block, Use&& use, Define&& define) {
    for (loops::Stmt& stmt : block.stmts) {
      if (auto* let = std::get_if<loops::Let>(&stmt)) {
        if (let->scalar.index.valid()) use(let->scalar.index);
      } else if (auto* load = std::get_if<loops::Load>(&stmt)) {
        use(load->index);
      } else if (auto* store = std::get_if<loops::Store>(&stmt)) {
        use(store->index);
      } else if (auto* index = std::get_if<loops::IndexValue>(&stmt)) {
        define(index->symbol, index->size);
        use(index->size);
      } else if (auto* tile = std::get_if<loops::Transpose>(&stmt)) {
        for (Expr* e :
             {&tile->from_index, &tile->from_stride, &tile->to_index, &tile->to_stride, &tile->rows, &tile->columns}) {
          use(*e);
        }
      } else if (auto* sort = std::get_if<loops::Sort>(&stmt)) {
        for (loops::Sort::Row* row : {&sort->from, &sort->values, &sort->places}) {
          if (row->buffer < 0) continue;
          use(row->index);
          use(row->stride);
        }
      } else if (auto* product = std::get_if<loops::Product>(&stmt)) {
        for (loops::Product::Side* side : {&product->left, &product->right}) {
          use(side->matrices ? side->matrices->number : side->index);
          use(side->first);
        }
        use(product->blocks);
        if (product->span) {
          use(product->span->first);
          use(product->span->end);
        }
        if (product->scales) {
          use(product->scales->left_index);
          use(product->scales->right_index);
        }
        define(product->row, product->rows);
        use(product->rows);
        define(product->each->var, product->each->extent);
        use(product->each->extent);
        visit(*product->each->body, use, define);
      } else if (auto* attention = std::get_if<loops::Attention>(&stmt)) {
        loops::Attention::each_side(*attention, [&](loops::Attention::Side& side) {
          for (Expr& number : side.number) use(number);
        });
        use(attention->first);
        if (attention->table >= 0) {
          Expr blocks = s_.ctx.constant(attention->keys() / attention->block);
          define(attention->table_block, blocks);
          use(attention->table_index);
        }
        define(attention->row, attention->rows);
        use(attention->rows);
        if (attention->norms >= 0) use(attention->norm_index);
        std::vector<loops::For*> own{attention->each.get()};
        for (const loops::Attention::Sum& sum : attention->sums) own.push_back(sum.done.get());
        for (loops::For* each : own) {
          define(each->var, each->extent);
          use(each->extent);
          visit(*each->body, use, define);
        }
      } else if (auto* weighed = std::get_if<loops::WeighedProduct>(&stmt)) {
        for (Expr* e : {&weighed->first_row, &weighed->first_result}) use(*e);
        define(weighed->result, weighed->results);
        use(weighed->results);
        define(weighed->row, weighed->count);
        use(weighed->count);
        for (loops::For* each : {weighed->weigh.get(), weighed->each.get()}) {
          define(each->var, each->extent);
          use(each->extent);
          visit(*each->body, use, define);
        }
      } else if (auto* loop = std::get_if<loops::For>(&stmt)) {
        define(loop->var, loop->extent);
        use(loop->extent);
        if (loop->combine_fn) visit(*loop->combine_fn->body, use, define);
        visit(*loop->body, use, define);
      } else if (auto* branch = std::get_if<loops::If>(&stmt)) {
        visit(*branch->body, use, define);
      }
    }
  }

  State& s_;
  loops::Kernel& kernel_;
  std::shared_ptr<ExprContext> fresh_;
  std::vector<Expr> seen_;
  std::vector<Expr> locals_;
  ExprMap rename_;
  ExprMap back_;
};

}  // namespace

loops::Kernel detach_kernel(State& s, loops::Kernel kernel, std::vector<Expr>& sizes) {
  Detacher(s, kernel).run(sizes);
  return kernel;
}

void find_first_write(State& s) {
  std::vector<const loops::Kernel*> kernels;
  for (const auto& kernel : s.out.kernels) kernels.push_back(kernel.get());
  s.out.plan.first_write = first_write_of(s.out.plan, kernels);
}

void collect_plan_symbols(State& s) {
  Plan& plan = s.out.plan;
  std::vector<Expr> found;
  const auto all = [&](const std::vector<Expr>& list) {
    for (const Expr e : list) collect_symbols(e, found);
  };
  // A part of a buffer may be all that an argument of the program decides.
  const auto view = [&](const BufferRef& ref) {
    all(ref.sizes);
    all(ref.strides);
    collect_symbols(ref.offset, found);
  };
  for (const PlanOutput& output : plan.outputs) view(output.ref);
  for (const PlanInput& input : plan.inputs) {
    all(input.type.sizes);
    all(input.type.strides);
  }
  for (const PlanBuffer& buffer : plan.buffers) {
    all(buffer.sizes);
    all(buffer.strides);
    collect_symbols(buffer.offset, found);
  }
  for (const PlanStep& step : plan.steps) {
    if (const auto* launch = std::get_if<KernelLaunch>(&step)) {
      all(launch->sizes);
      all(launch->buffer_offsets);
    } else {
      for (const BufferRef& ref : std::get<HostCall>(step).tensors) view(ref);
      for (const HostCall::HostArg& arg : std::get<HostCall>(step).args) {
        if (const auto* list = std::get_if<SymInts>(&arg)) all(list->values);
        if (const auto* scalar = std::get_if<Scalar>(&arg)) {
          if (const auto* e = std::get_if<Expr>(scalar)) collect_symbols(*e, found);
        }
      }
    }
  }
  plan.size_symbols = std::move(found);
}

}  // namespace tatara::sched
