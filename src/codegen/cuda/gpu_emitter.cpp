#include "codegen/cuda/gpu_emitter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "codegen/cuda/attention_tile.h"
#include "codegen/cuda/column_reduce.h"
#include "codegen/cuda/grouped_entry.h"
#include "codegen/cuda/product_tile.h"
#include "codegen/cuda/row_reduce.h"
#include "codegen/cuda/row_scan.h"
#include "codegen/cuda/row_sort.h"
#include "support/error.h"
#include "symbolic/multiples.h"

namespace tatara::codegen {

using namespace loops;

namespace {

constexpr size_t kPart = 32;       // elements of a product that a thread does at a time
constexpr size_t kShortBody = 48;  // statements of a loop of which four passes are written out
constexpr int64_t kUnrolled = 8;   // passes over a row that are written out: the row stays in registers then
constexpr const char* kWrittenOut = ", !llvm.loop !4";

/// Whether several passes of a thread's loop are to be under way at once, for it waits for what it loads.
bool waits_for_memory(const For& loop) {
  const std::vector<Stmt>& body = loop.body->stmts;
  const bool innermost =
      std::none_of(body.begin(), body.end(), [](const Stmt& s) { return std::holds_alternative<For>(s); });
  return innermost && body.size() <= kShortBody &&
         std::any_of(body.begin(), body.end(), [](const Stmt& s) { return std::holds_alternative<Load>(s); });
}

}  // namespace

// ---- The module --------------------------------------------------------------------------------------------------------

std::string emit_gpu_module(const Kernel& kernel, bool adds_vectors, std::string_view symbol) {
  TargetTraits traits;
  traits.has_float_power = true;
  EmitContext context(kernel, traits);
  GpuContext gpu(context);
  return GpuEmitter(gpu, adds_vectors).run(symbol);
}

/// The parameters of buffers and sizes; `tiles` gets the definitions of shared memory for scratch buffers.
std::string GpuEmitter::parameters(std::string& tiles) {
  const Kernel& kernel = context_.kernel;
  std::string text;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const BufferArg& buffer = kernel.buffers[i];
    if (buffer.kind == ArgKind::kScratch) {
      const int64_t bytes = buffer.numel.const_value() * dtype_size(buffer.dtype);
      const std::string name = "@tatara_tile" + std::to_string(i);
      tiles += name + " = internal addrspace(3) global [" + std::to_string(bytes) + " x i8] poison, align 16\n";
      scope_.add_base("addrspacecast (ptr addrspace(3) " + name + " to ptr)");
      continue;
    }
    const std::string name = "%b" + std::to_string(i);
    scope_.add_base(name);
    if (buffer.kind == ArgKind::kValue) {
      if (buffer.dtype == DType::kComplex128) throw Unsupported("a complex128 number of the host in a kernel of a GPU");
      text += "i64 " + name + ", ";
      continue;
    }
    text += std::string("ptr noalias align 16 ") + (buffer.kind == ArgKind::kInput ? "readonly " : "") + name + ", ";
  }
  for (size_t i = 0; i < kernel.sizes.size(); ++i) {
    const std::string name = "%s" + std::to_string(i);
    text += "i64 " + name + ", ";
    scope_.bind(kernel.sizes[i], name);
  }
  return text;
}

std::string GpuEmitter::run(std::string_view symbol) {
  if (!context_.kernel.scalar_args.empty()) throw Unsupported("numbers as arguments of a kernel on a GPU");
  std::string tiles;
  const std::string arguments = parameters(tiles);
  gpu_.threads.compute_positions();
  block(context_.kernel.body);
  ir_.jump("exit");
  const bool list = map_.items > 0;
  std::string text = tiles, maps;
  for (size_t i = 0; i < tensor_maps(context_.kernel).size(); ++i) {
    maps += str_cat(", ptr byval([", TensorMap::kBytes, " x i8]) align ", TensorMap::kAlign,
                    " \"nvvm.grid_constant\" %map", i);
  }
  text += list ? std::string("define internal void @tatara_item(") : str_cat("define ptx_kernel void @", symbol, "(");
  text += arguments + "i64 %iterations, ptr noalias %fault" + maps + (list ? ", i64 %block) #0" : ") #1") +
          " {\nentry:\n" + locals_ + ir_.take() + "exit:\n  ret void\n}\n";
  if (list) text += grouped_entry(context_, symbol);
  if (const int64_t words = gpu_.threads.shared_words(); words > 0) {
    text = str_cat("@tatara_shared = internal addrspace(3) global [", words, " x i64] poison, align 8\n", text);
  }
  // Where threads hand registers to each other, it must be known how many there are at the begin.
  const std::string resident = map_.resident > 0 ? str_cat(" \"nvvm.minctasm\"=\"", map_.resident, "\"") : "";
  return str_cat(
      text, text_of(context_.declarations),
      "attributes #0 = { nounwind alwaysinline }\nattributes #1 = { nounwind \"nvvm.maxntid\"=\"", map_.threads, "\"",
      resident,
      " }\nattributes #2 = { convergent nounwind }\n!0 = !{!\"branch_weights\", i32 1, i32 1000000}\n!1 = !{}\n",
      rolled_ ? "!2 = distinct !{!2, !3}\n!3 = !{!\"llvm.loop.unroll.disable\"}\n" : "",
      written_out_ ? "!4 = distinct !{!4, !5}\n!5 = !{!\"llvm.loop.unroll.count\", i32 4}\n" : "");
}

// ---- Statements --------------------------------------------------------------------------------------------------------

void GpuEmitter::all_iterations(const std::function<void(const std::string&)>& body) {
  if (map_.resident == 0) {
    body(gpu_.threads.iteration());
    return;
  }
  if (const Attention* attention = attention_of(context_.kernel); attention != nullptr) {
    attention_tiles(*attention, body);
    return;
  }
  // Those who load run ahead of those who multiply, into the next tiles.
  ProductTile tile(gpu_, *this, *product_of(context_.kernel));
  tile.begin();
  const std::string step = map_.items > 0 ? "%iterations" : gpu_.threads.blocks();
  const std::string loads = ir_.label(), multiplies = ir_.label(), first = ir_.label();
  const int site = site_;
  const auto tiles = [&](ProductTile::Turn turn) {
    counted_loop(turn.first, "%iterations", turn.step, {DType::kInt32, DType::kInt32}, turn.state,
                 [&](const std::string& iteration, std::vector<Reg>& now) {
                   site_ = site;
                   stage_ = &now;
                   body(iteration);
                 });
  };
  const std::string lane = gpu_.threads.lane();
  ir_.branch(ir_.assign("icmp ult i64 " + lane + ", " + std::to_string(ProductLayout::kGroup)), loads, multiplies);
  ir_.start_block(loads);
  tile.take_role(true);
  ir_.branch(ir_.assign("icmp eq i64 " + lane + ", 0"), first, "exit");
  ir_.start_block(first);
  loading_ = true;
  tiles({gpu_.threads.iteration(), step, std::vector<Reg>(2, Reg{"0", false})});
  ir_.jump("exit");
  loading_ = false;
  ir_.start_block(multiplies);
  tile.take_role(false);
  tiles(tile.turn(gpu_.threads.iteration(), step));
}

std::pair<std::string, std::string> GpuEmitter::divide_position(const std::string& iteration,
                                                                const std::string& extent) {
  return gpu_.threads.divide_position(iteration, extent);
}

std::string GpuEmitter::store_condition(const Store& store) {
  std::string own = gpu_.loop.guard;
  if (map_.row > 1 && !gpu_.loop.inside) {
    // All threads of a row have the value: the first one stores it.
    own = ir_.assign("icmp eq i64 " + gpu_.threads.lane() + ", 0");
  }
  if (own.empty()) return KernelEmitter::store_condition(store);
  if (store.mask == kNoScalar) return own;
  return ir_.binary("and", "i1", own, scope_.reg(store.mask).text);
}

/// Adds four float32 neighbours to memory.
bool GpuEmitter::update_vector(const Store& store, const Reg& value, const std::string& mask) {
  const DType type = scope_.buffer(store.buffer).dtype;
  if (!adds_vectors_ || type != DType::kFloat32 || ir_.lanes() != 4 || !mask.empty()) return false;
  if (store.mode != StoreMode::kAdd || scope_.stride_of(store.index) != Stride::kUnit) return false;
  if (!multiple_of(context_.kernel.ctx->sub(store.index, scope_.vector_var()), ir_.lanes())) return false;
  run_if(gpu_.loop.guard, [&] {
    std::string elements;
    for (int i = 0; i < ir_.lanes(); ++i) elements += ", float " + lane_of(ir_, type, value, i).text;
    const std::string at = memory_.address(store.buffer, scope_.index(store.index));
    const std::string global = ir_.assign("addrspacecast ptr " + at + " to ptr addrspace(1)");
    ir_.line(
        "call void asm sideeffect \"red.relaxed.gpu.global.add.v4.f32 [$0], {$1, $2, $3, $4};\", "
        "\"l,f,f,f,f,~{memory}\"(ptr addrspace(1) " +
        global + elements + ")");
  });
  return true;
}

/// The kernel goes on with another index, since other threads may wait for this one.
void GpuEmitter::leave_after_fault(const std::string& next) {
  const std::string raised_at = ir_.assign("getelementptr i8, ptr %fault, i64 20");
  ir_.line("store i32 1, ptr " + raised_at);
  ir_.jump(next);
}

std::string GpuEmitter::safe_index(const std::string& bad, const std::string& index, bool vec) {
  return ir_.select(bad, ir_.type_of("i64", vec), vec ? "zeroinitializer" : "0", index, vec);
}

void GpuEmitter::sort(const Sort& sort) {
  RowSorter sorter(gpu_, *this, sort);
  sorter.run();
  rolled_ = rolled_ || sorter.has_loops();
}

void GpuEmitter::product(const Product& product) {
  ProductTile tile(gpu_, *this, product);
  if (loading_) {
    tile.load(*stage_);
    return;
  }
  tile.multiply(locals_, *stage_);
  if (product.rows.is_const()) {
    product_elements(product, tile);
    return;
  }
  // A tile may have no rows. Without a branch before them, the loads of blocks are made by what all threads of a warp have alike.
  const std::string first = scope_.index(product.left.first), rows = scope_.index(product.rows);
  run_if(ir_.assign("icmp ult i64 " + first + ", " + rows), [&] { product_elements(product, tile); });
}

void GpuEmitter::product_elements(const Product& product, ProductTile& tile) {
  const For& each = *product.each;
  const bool whole_rows = multiple_of(product.rows, static_cast<int>(product.left.extent));
  const bool whole_columns = multiple_of(each.extent, static_cast<int>(product.right.extent));
  const auto run = static_cast<int>(tile.run_length());
  const int lanes = multiple_of(each.extent, run) ? run : 1;
  const std::string rows = scope_.index(product.rows), columns = scope_.index(each.extent);
  const int site = site_;
  std::vector<Reg> none;
  const auto elements = [&](const Reg* values, const std::string& column) {
    gpu_.enter_loop(each, lanes);
    Reg value = *values;
    if (lanes > 1) value = {"poison", true};
    for (int i = 0; lanes > 1 && i < lanes; ++i) {
      value.text = ir_.assign(
          str_cat("insertelement <", lanes, " x float> ", value.text, ", float ", values[i].text, ", i32 ", i));
    }
    scope_.set(product.value, value);
    pass(each, column, site, none);
    gpu_.leave_loop();
  };
  // Written out, what becomes of all elements would not fit into the cache of instructions: a loop does a part of a row at a time, and
  // moves the rest up.
  std::vector<Reg> all = tile.elements();
  const size_t part = tile.part(kPart);
  const auto one = [&](const std::string& number, std::vector<Reg>& now) {
    const auto [row, begin] = tile.place(number, part);
    run_if(whole_rows ? "" : ir_.assign("icmp ult i64 " + row + ", " + rows), [&] {
      scope_.bind(product.row, row);
      std::vector<std::string> columns_of;
      std::vector<std::unordered_map<ScalarId, Reg>> loaded;
      for (int i = 0; i < static_cast<int>(part); i += lanes) {
        columns_of.push_back(tile.column(begin, i));
        if (whole_columns) loaded.push_back(loads_ahead(each, lanes, columns_of.back()));
      }
      for (size_t i = 0; i < columns_of.size(); ++i) {
        if (whole_columns) ready_ = std::move(loaded[i]);
        run_if(whole_columns ? "" : ir_.assign("icmp ult i64 " + columns_of[i] + ", " + columns),
               [&] { elements(&now[i * static_cast<size_t>(lanes)], columns_of[i]); });
        ready_.clear();
      }
    });
    for (size_t i = 0; i < now.size(); ++i) now[i] = i + part < now.size() ? now[i + part] : Reg{"poison", false};
  };
  rolled_ = true;
  const std::vector<DType> types(all.size(), DType::kFloat32);
  counted_loop("0", std::to_string(all.size() / part), "1", types, all, one, ", !llvm.loop !2");
}

/// As of products: who loads runs ahead.
void GpuEmitter::attention_tiles(const Attention& attention, const std::function<void(const std::string&)>& body) {
  AttentionTile tile(gpu_, *this, attention);
  tile.begin();
  const std::string loads = ir_.label(), multiplies = ir_.label(), first = ir_.label();
  const std::string step = gpu_.threads.blocks(), lane = gpu_.threads.lane();
  const int site = site_;
  const auto tiles = [&] {
    std::vector<Reg> state = AttentionTile::first_state();
    counted_loop(gpu_.threads.iteration(), "%iterations", step, std::vector<DType>(state.size(), DType::kInt32), state,
                 [&](const std::string& iteration, std::vector<Reg>& now) {
                   site_ = site;
                   stage_ = &now;
                   body(iteration);
                 });
  };
  ir_.branch(ir_.assign(str_cat("icmp ult i64 ", lane, ", ", AttentionLayout::kGroup)), loads, multiplies);
  ir_.start_block(loads);
  tile.take_role(true);
  ir_.branch(ir_.assign(str_cat("icmp ult i64 ", lane, ", ", kWarp)), first, "exit");
  ir_.start_block(first);
  loading_ = true;
  tiles();
  ir_.jump("exit");
  loading_ = false;
  ir_.start_block(multiplies);
  tile.take_role(false);
  tiles();
}

void GpuEmitter::attention(const Attention& attention) {
  AttentionTile tile(gpu_, *this, attention);
  if (loading_) {
    tile.load(*stage_);
    return;
  }
  rolled_ = true;
  const int site = site_;
  int after = site;
  std::vector<Reg> none;
  using Two = AttentionTile::Pair;
  using Given = std::vector<std::pair<ScalarId, Two>>;
  // Runs a loop's body for two neighbours from `index` (i32) on, and gives what it computes of `wanted` there. Side by side where something
  // is read or written: else integers of 32 bits are kept apart from vectors.
  const auto pass_pair = [&](const For& loop, const Given& given, const std::vector<ScalarId>& wanted, int from,
                             const std::string& index) {
    const auto touches = [](const Stmt& stmt) { return !std::holds_alternative<Let>(stmt); };
    const std::vector<Stmt>& body = loop.body->stmts;
    const int lanes = multiple_of(loop.extent, 2) && std::any_of(body.begin(), body.end(), touches) ? 2 : 1;
    std::vector<Two> results(wanted.size());
    for (int begin = 0; begin < 2; begin += lanes) {
      gpu_.enter_loop(loop, lanes);
      for (const auto& [id, values] : given) {
        Reg value{values[static_cast<size_t>(begin)], false};
        if (lanes == 2) {
          value = {ir_.assign("insertelement <2 x float> poison, float " + values[0] + ", i32 0"), true};
          value.text = ir_.assign("insertelement <2 x float> " + value.text + ", float " + values[1] + ", i32 1");
        }
        scope_.set(id, value);
      }
      const std::string own = begin == 0 ? index : ir_.binary("add nuw nsw", "i32", index, "1");
      pass(loop, ir_.assign("zext nneg i32 " + own + " to i64"), from, none);
      for (size_t n = 0; n < wanted.size(); ++n) {
        const Reg& found = scope_.reg(wanted[n]);
        for (int i = begin; i < begin + lanes; ++i) {
          results[n][static_cast<size_t>(i)] =
              found.vec ? ir_.assign(str_cat("extractelement <2 x float> ", found.text, ", i32 ", i - begin))
                        : found.text;
        }
      }
      gpu_.leave_loop();
    }
    after = site_;
    return results;
  };
  const auto inside = [&](const char* type, const std::string& index, const std::string& last) {
    const std::string name = str_cat("@llvm.umin.", type);
    ir_.declare(str_cat("declare ", type, " ", name, "(", type, ", ", type, ")"));
    return ir_.call(name, type, str_cat(type, " ", index, ", ", type, " ", last));
  };
  const For& each = *attention.each;
  const bool whole_rows = multiple_of(attention.rows, static_cast<int>(attention.extent));
  const bool whole_keys = attention.keys() % attention.block == 0;
  const auto narrow = [&](const std::string& wide) { return ir_.assign("trunc i64 " + wide + " to i32"); };
  const std::string last_row = ir_.binary("sub", "i32", narrow(scope_.index(attention.rows)), "1");
  const int64_t last_key = attention.keys() - (multiple_of(each.extent, 2) ? 2 : 1);
  std::vector<ScalarId> shares;
  for (const Attention::Sum& sum : attention.sums) shares.push_back(sum.share);
  tile.compute(
      [&](const std::string& row, const std::string& key, const std::vector<Two>& products) {
        // What is past an end is computed as its last neighbour is, and not used.
        const std::string own = whole_rows ? "" : inside("i32", narrow(row), last_row);
        scope_.bind(attention.row, whole_rows ? row : ir_.assign("zext nneg i32 " + own + " to i64"));
        Given given;
        for (size_t i = 0; i < products.size(); ++i) given.emplace_back(attention.scores[i].product, products[i]);
        return pass_pair(each, given, shares, site, whole_keys ? key : inside("i32", key, std::to_string(last_key)));
      },
      *stage_);
  for (size_t i = 0; i < attention.sums.size(); ++i) {
    const Attention::Sum& sum = attention.sums[i];
    const int before = after;
    tile.give(i, [&](const std::string& row, const std::string& element, const Two& values) {
      scope_.bind(attention.row, row);
      pass_pair(*sum.done, {{sum.result, values}}, {}, before, element);
    });
  }
  if (attention.norms < 0) return;
  tile.give_norms([&](const std::string& row, const std::string& norm) {
    scope_.bind(attention.row, row);
    const std::string at = ir_.assign("getelementptr float, ptr " + scope_.base(attention.norms) + ", i64 " +
                                      scope_.index(attention.norm_index));
    ir_.line("store float " + norm + ", ptr " + at);
  });
}

/// What the loop's body loads from inputs at `column`, so that many loads are under way at once: nothing that a lookup tells where to load.
std::unordered_map<ScalarId, Reg> GpuEmitter::loads_ahead(const For& loop, int lanes, const std::string& column) {
  std::unordered_map<ScalarId, Reg> loaded;
  const std::vector<Stmt>& body = loop.body->stmts;
  if (std::any_of(body.begin(), body.end(), [](const Stmt& s) { return std::holds_alternative<IndexValue>(s); })) {
    return loaded;
  }
  gpu_.enter_loop(loop, lanes);
  scope_.bind(loop.var, column);
  for (const Stmt& stmt : body) {
    const auto* load = std::get_if<Load>(&stmt);
    if (load == nullptr || load->mask != kNoScalar || scope_.buffer(load->buffer).kind != ArgKind::kInput) continue;
    statement(*load);
    loaded[load->dst] = scope_.reg(load->dst);
  }
  gpu_.leave_loop();
  return loaded;
}

void GpuEmitter::transpose(const Transpose& tile) { tiles_.copy(tile); }

void GpuEmitter::serial_loop(const For& loop) {
  if (tiles_.copied()) {
    tiles_.rows(loop);
  } else if (map_.column > 1 && gpu_.loop.inside && !in_column_) {
    column(loop);
  } else {
    KernelEmitter::serial_loop(loop);
  }
}

// ---- Vector loops ------------------------------------------------------------------------------------------------------

void GpuEmitter::vector_loop(const For& loop) {
  if (loop.scan) {
    RowScan(gpu_, *this, loop).run();
  } else if (map_.row == 0) {
    independent_elements(loop);
  } else {
    row(loop);
  }
}

void GpuEmitter::pass(const For& loop, const std::string& base, int site, std::vector<Reg>& carried) {
  site_ = site;
  gpu_.memory.note_aligned_loads(loop);
  vector_pass(loop, base, "", carried);
  gpu_.memory.forget_aligned_loads();
}

Reg GpuEmitter::next_carried(const For& loop, size_t i, const Reg& before, const std::string& mask) {
  const std::vector<bool>& same = gpu_.loop.same_lanes;
  if (!same.empty() && same[i]) return scope_.reg(loop.carried[i].next);
  return KernelEmitter::next_carried(loop, i, before, mask);
}

void GpuEmitter::independent_passes(const For& loop, int site) {
  const std::string& first = gpu_.threads.lane();
  std::vector<Reg> none;
  for (int k = 0; k < map_.passes; ++k) {
    const int64_t apart = k == 0 ? 0 : loop.extent.const_value() / map_.passes * k;
    gpu_.enter_loop(loop, map_.lanes);
    // All threads of a column have what its loops leave: the first one stores it.
    if (map_.column > 1) gpu_.loop.guard = ir_.assign("icmp eq i64 " + gpu_.threads.group() + ", 0");
    pass(loop, k == 0 ? first : ir_.binary("add nuw nsw", "i64", first, std::to_string(apart)), site, none);
    if (map_.column > 1) gpu_.loop.guard.clear();
    gpu_.leave_loop();
  }
}

/// This thread's passes of a serial loop, combined with those of the other threads of the column.
void GpuEmitter::column(const For& loop) {
  const bool custom = loop.combine_fn != nullptr;
  std::vector<Reg> given;
  std::vector<Reg> carried;
  for (const Carried& c : loop.carried) {
    given.push_back(widened(ir_, c.dtype, scope_.reg(c.init)));
    carried.push_back(custom ? given.back() : widened(ir_, c.dtype, scalars_.identity(c.combine, c.dtype)));
  }
  const bool waits = waits_for_memory(loop);
  written_out_ = written_out_ || waits;
  const std::string guard = std::exchange(gpu_.loop.guard, {});
  in_column_ = true;
  serial_from(loop, gpu_.threads.group(), scope_.index(loop.extent), std::move(carried), map_.column,
              waits ? kWrittenOut : "");
  in_column_ = false;
  gpu_.loop.guard = guard;
  if (loop.carried.empty()) return;
  carried.clear();
  for (const Carried& c : loop.carried) carried.push_back(scope_.reg(c.result));
  const ColumnReduction::Merge merge = [&](const std::vector<Reg>& left, const std::vector<Reg>& right) {
    std::vector<Reg> merged = left;
    combine_parts(loop, left, right, merged);
    return merged;
  };
  ColumnReduction(gpu_, loop, merge).run(carried);
  for (size_t i = 0; i < carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    const bool vec = ir_.lanes() > 1;
    scope_.set(c.result, custom ? carried[i] : scalars_.combine(c.combine, c.dtype, given[i], carried[i], vec));
  }
}

/// The part of a loop that this thread has to itself.
void GpuEmitter::independent_elements(const For& loop) {
  const int site = site_;
  TATARA_CHECK(
      map_.passes == 1 || (loop.extent.is_const() && loop.extent.const_value() % (map_.lanes * map_.passes) == 0),
      "passes of ", context_.kernel.name);
  if (multiple_of(loop.extent, map_.lanes)) {
    independent_passes(loop, site);
    return;
  }
  const std::string& first = gpu_.threads.lane();
  const std::string end = ir_.binary("add nuw nsw", "i64", first, std::to_string(map_.lanes));
  const std::string extent = scope_.index(loop.extent);
  const std::string whole = ir_.label();
  const std::string rest = ir_.label();
  const std::string done = ir_.label();
  ir_.branch(ir_.assign("icmp ule i64 " + end + ", " + extent), whole, rest);
  ir_.start_block(whole);
  independent_passes(loop, site);
  ir_.jump(done);
  ir_.start_block(rest);
  site_ = site;
  gpu_.loop.inside = true;
  serial_from(loop, first, extent, {});
  gpu_.loop.inside = false;
  ir_.jump(done);
  ir_.start_block(done);
}

/// This thread's passes over a row, combined with those of the other threads.
void GpuEmitter::row(const For& loop) {
  const bool custom = loop.combine_fn != nullptr;
  const std::vector<DType> dtypes = carried_types(loop);
  std::vector<Reg> given;
  for (const Carried& c : loop.carried) given.push_back(scope_.reg(c.init));
  const std::string extent = scope_.index(loop.extent);
  gpu_.enter_loop(loop, map_.lanes);
  find_multiply_adds(loop);
  std::vector<bool>& same = gpu_.loop.same_lanes;
  if (custom) same = same_in_lanes(loop, scope_);
  std::vector<Reg> carried;
  for (size_t i = 0; i < given.size(); ++i) {
    const Carried& c = loop.carried[i];
    const Reg first = custom ? given[i] : scalars_.identity(c.combine, c.dtype);
    carried.push_back(custom && same[i] ? first : widened(ir_, c.dtype, first));
  }
  row_passes(loop, extent, carried);
  same.clear();
  for (size_t i = 0; i < carried.size(); ++i) carried[i] = widened(ir_, dtypes[i], carried[i]);
  reduce_lanes(loop, carried);
  gpu_.leave_loop();
  if (!carried.empty()) RowReduction(gpu_, *this, loop).run(carried);
  for (size_t i = 0; i < loop.carried.size(); ++i) {
    const Carried& c = loop.carried[i];
    scope_.set(c.result, custom ? carried[i] : scalars_.combine(c.combine, c.dtype, given[i], carried[i], false));
  }
}

void GpuEmitter::row_passes(const For& loop, const std::string& extent, std::vector<Reg>& carried) {
  const std::vector<DType> dtypes = carried_types(loop);
  const int site = site_;
  const std::string& lane = gpu_.threads.lane();
  const std::string start = map_.lanes > 1 ? ir_.binary("mul nuw nsw", "i64", lane, std::to_string(map_.lanes)) : lane;
  const int64_t step = int64_t{map_.row} * map_.lanes;
  const bool bounded = loop.extent.is_const() || map_.tiles;
  const int64_t passes = bounded ? (context_.kernel.ctx->range(loop.extent).hi + step - 1) / step : kUnrolled + 1;
  if (passes > kUnrolled) {
    const bool waits = waits_for_memory(loop);
    written_out_ = written_out_ || waits;
    counted_loop(
        start, extent, std::to_string(step), dtypes, carried,
        [&](const std::string& base, std::vector<Reg>& values) { pass(loop, base, site, values); },
        waits ? kWrittenOut : "");
    return;
  }
  for (int64_t k = 0; k < passes; ++k) {
    const std::string base = k == 0 ? start : ir_.binary("add nuw nsw", "i64", start, std::to_string(k * step));
    if (loop.extent.is_const() && (k + 1) * step <= loop.extent.const_value()) {
      pass(loop, base, site, carried);
    } else {
      const std::string inside = ir_.assign("icmp ult i64 " + base + ", " + extent);
      when(inside, dtypes, carried, [&](std::vector<Reg>& values) { pass(loop, base, site, values); });
    }
  }
}

/// `body` changes what is carried where the condition holds.
void GpuEmitter::when(const std::string& condition, const std::vector<DType>& dtypes, std::vector<Reg>& carried,
                      const std::function<void(std::vector<Reg>&)>& body) {
  const std::string then = ir_.label();
  const std::string done = ir_.label();
  const std::string before = ir_.block();
  ir_.branch(condition, then, done);
  ir_.start_block(then);
  std::vector<Reg> changed = carried;
  body(changed);
  const std::string last = ir_.block();
  ir_.jump(done);
  ir_.start_block(done);
  for (size_t i = 0; i < carried.size(); ++i) {
    carried[i] = merged(ir_, dtypes[i], changed[i], last, carried[i], before);
  }
}

}  // namespace tatara::codegen
