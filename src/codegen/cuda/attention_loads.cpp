// The part of an attention's kernel that loads: matrices by the copy engine into stages of shared memory.
#include "codegen/cuda/attention_tile.h"
#include "codegen/cuda/ptx.h"

namespace tatara::codegen {

using namespace loops;

namespace {

/// The next matrix's map and numbers, from the operands from `operand` on.
void enter_matrix(Ptx& p, const char* name, size_t& operand) {
  p("mov.u64 ", name, "map, $", operand, ";");
  p("cvt.u32.u64 ", name, "b, $", operand + 1, ";");
  p("cvt.u32.u64 ", name, "h, $", operand + 2, ";");
  operand += 3;
}

}  // namespace

/// Boxes of a matrix, to the address `at`, which moves on, where `one` is true. The registers NAMErow, NAMEh, NAMEb say which of its rows,
/// and which matrix.
std::string AttentionTile::copies(const Attention::Side& side, int64_t rows, const std::string& name) const {
  Ptx p;
  for (int64_t box = 0; box < AttentionLayout::boxes(side.width); ++box) {
    p("@one cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [at], [", name, "map, {",
      box * TensorMap::kBox, ", ", name, "row, ", name, "h, ", name, "b}], [full];");
    p("add.u32 at, at, ", rows * kLine, ";");
  }
  return p.take();
}

/// $0: base, $1: first row, $2: parity of the queries' round; then of each matrix its map and numbers.
std::string AttentionTile::query_loader() const {
  Ptx p;
  p("{");
  p(".reg .pred p, one;");
  p(".reg .b32 full, empty, other, at, qrow, qh, qb;");
  p(".reg .b64 qmap;");
  p("cvt.u32.u64 at, $0;");
  p("cvt.u32.u64 qrow, $1;");
  p("xor.b32 other, $2, 1;");
  p("add.u32 full, at, ", bars(), ";");
  p("add.u32 empty, full, 8;");
  p.wait("TAKEN", "empty", "other");
  p("mov.u32 other, %tid.x;");
  p("setp.eq.u32 one, other, 0;");
  p("@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], ", layout_.query_bytes(), ";");
  size_t operand = 3;
  for (const Attention::Score& score : attention_.scores) {
    enter_matrix(p, "q", operand);
    p.raw(copies(score.queries, layout_.rows, "q"));
  }
  return p.take() + "}";
}

/// $0: base, $1: block, $2, $3: stage and parity; then of each matrix its map and numbers.
std::string AttentionTile::block_loader() const {
  Ptx p;
  p("{");
  p(".reg .pred p, one;");
  p(".reg .b32 base, full, empty, other, at, krow, kh, kb;");
  p(".reg .b64 kmap;");
  p("cvt.u32.u64 base, $0;");
  p("cvt.u32.u64 krow, $1;");
  p("mul.lo.u32 krow, krow, ", attention_.block, ";");
  p("mad.lo.u32 full, $2, ", AttentionLayout::kStageBarriers, ", base;");
  p("add.u32 full, full, ", bars() + AttentionLayout::kQueryBarriers, ";");
  p("add.u32 empty, full, 16;");
  p("xor.b32 other, $3, 1;");
  p.wait("FREE", "empty", "other");
  p("mov.u32 other, %tid.x;");
  p("setp.eq.u32 one, other, 0;");
  p("mad.lo.u32 at, $2, ", layout_.stage_bytes(), ", base;");
  p("add.u32 at, at, ", layout_.query_bytes(), ";");
  p("@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], ", layout_.key_bytes(), ";");
  size_t operand = 4;
  for (const Attention::Score& score : attention_.scores) {
    enter_matrix(p, "k", operand);
    p.raw(copies(score.keys, layout_.keys, "k"));
  }
  if (layout_.value_bytes() > 0) {
    p("add.u32 full, full, 8;");
    p("@one mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], ", layout_.value_bytes(), ";");
  }
  for (const Attention::Sum& sum : attention_.sums) {
    if (attention_.keys_of(sum) >= 0) continue;
    enter_matrix(p, "k", operand);
    p.raw(copies(sum.values, layout_.keys, "k"));
  }
  return p.take() + "}";
}

void AttentionTile::load(std::vector<Reg>& state) {
  // Maps are numbered as tensor_maps() has them.
  int number = 0;
  const auto matrix = [&](const Attention::Side& side, int map) {
    return str_cat(", ptr %map", map, ", i64 ", scope_.index(side.number[0]), ", i64 ", scope_.index(side.number[1]));
  };
  std::string queries, keys, query_types, key_types;
  for (const Attention::Score& score : attention_.scores) {
    queries += matrix(score.queries, number++);
    keys += matrix(score.keys, number++);
    query_types += ",l,l,l";
    key_types += ",l,l,l";
  }
  for (const Attention::Sum& sum : attention_.sums) {
    if (attention_.keys_of(sum) >= 0) continue;
    keys += matrix(sum.values, number++);
    key_types += ",l,l,l";
  }
  const std::string base = str_cat("ptr addrspace(3) ", kStages);
  piece(query_loader(), "void", "l,l,r" + query_types + ",~{memory}",
        str_cat(base, ", i64 ", scope_.index(attention_.first), ", i32 ", state[2].text, queries));
  std::vector<Reg> now{state[0], state[1]};
  each_block({DType::kInt32, DType::kInt32}, now, [&](const std::string& block, std::vector<Reg>& at) {
    piece(block_loader(), "void", "l,l,r,r" + key_types + ",~{memory}",
          str_cat(base, ", i64 ", block, ", i32 ", at[0].text, ", i32 ", at[1].text, keys));
    const Stage next = after({at[0].text, at[1].text});
    at = {{next.stage, false}, {next.parity, false}};
  });
  state[0] = now[0];
  state[1] = now[1];
  state[2].text = ir_.binary("xor", "i32", state[2].text, "1");
}

}  // namespace tatara::codegen
