// Lists of the frame that the loop appends numbers to, and tuples of numbers. The kernel keeps a log, in the order of the appends.
#include "capture/native/loop_reader.h"
#include "support/error.h"

namespace tatara::capture::native {

using loops::ScalarOp;

namespace {
constexpr size_t kMostOfTuple = 16;  // of a tuple
}  // namespace

/// Number `n` of the log's buffers, made when it is first used.
int LoopReader::log_buffer(int& buffer, DType dtype) {
  if (buffer < 0) {
    buffer = static_cast<int>(program_->buffers.size());
    program_->buffers.push_back({LoopProgram::Buffer::Kind::kLog, dtype, -1, true, 0, kMostAppended, std::nullopt});
    builder_->add_buffer("appended", dtype, builder_->constant(kMostAppended));
  }
  return buffer;
}

/// The statement's number in the log, for a value of Python's or NumPy's.
ScalarId LoopReader::append_site(AppendSite site, bool numpys) {
  site.numpys = numpys;
  site.tag = tag_of(site.dtype, numpys);
  program_->appends.push_back(site);
  return builder_->number(static_cast<double>(program_->appends.size() - 1), DType::kInt64);
}

void LoopReader::append(PyObject* list, const Value& value) {
  const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&value);
  if (tuple != nullptr && (*tuple)->is_list) throw Unsupported("a list of lists");
  const std::vector<Value> items = tuple != nullptr ? (*tuple)->items : std::vector{value};
  if (items.empty() || items.size() > kMostOfTuple) throw Unsupported("a list of long tuples");
  AppendLog& log = program_->log;
  if (log.count < 0) log.count = memory_.flag_slots++;
  const Expr slot = builder_->constant(log.count);
  const auto number = static_cast<int64_t>(items.size());
  const Number before{builder_->load(memory_.flags, slot), DType::kInt64, Strength::kWeak};
  const Expr first = bounded_int(before, builder_->constant(kMostAppended - number), false).value;
  for (int64_t n = 0; n < number; ++n) {
    const Value& item = items[static_cast<size_t>(n)];
    const std::optional<NumberType> type = number_type(item);
    if (!type || is_complex(type->dtype)) throw Unsupported("a list of other items than real numbers");
    const bool whole = is_integral(type->dtype) || type->dtype == DType::kBool;
    const int of_tuple = tuple == nullptr ? 0 : n == 0 ? static_cast<int>(number) : -1;
    const AppendSite site{lists_.at(list), whole, type->dtype, false, NumberTag::kNone, of_tuple};
    const Expr at = builder_->ctx().add(first, builder_->constant(n));
    ScalarId statement = loops::kNoScalar;
    if (type->strength == Strength::kEither) {
      const ScalarId tag = type->dtype == DType::kBool ? loops::kNoScalar : tag_in(item, type->dtype);
      if (tag == loops::kNoScalar) throw Unsupported("a list of numbers of Python's or NumPy's, as it comes");
      const auto is = [&](NumberTag other) {
        const ScalarId own = builder_->number(static_cast<double>(other), DType::kInt64);
        return builder_->emit(ScalarOp::kEq, DType::kBool, {tag, own});
      };
      const ScalarId pythons = is(NumberTag::kFloat), numpys = is(NumberTag::kFloat64);
      const ScalarId told = builder_->emit(ScalarOp::kOr, DType::kBool, {pythons, numpys});
      builder_->stop_if(builder_->emit(ScalarOp::kNot, DType::kBool, {told}));  // an int in a float
      const ScalarId as_numpys = append_site(site, true), as_pythons = append_site(site, false);
      statement = builder_->emit(ScalarOp::kSelect, DType::kInt64, {numpys, as_numpys, as_pythons});
    } else {
      statement = append_site(site, type->strength == Strength::kStrong);
    }
    builder_->store(log_buffer(log.sites, DType::kInt64), at, statement);
    if (!whole) {
      builder_->store(log_buffer(log.floats, DType::kFloat64), at, as_number(item, type->dtype).id);
      continue;
    }
    const auto* condition = std::get_if<Condition>(&item);
    ScalarId id = loops::kNoScalar;
    if (condition != nullptr) {
      id = condition->known ? builder_->number(*condition->known ? 1 : 0, DType::kInt64) : condition->id;
    } else {
      id = as_number(item, type->dtype).id;
    }
    builder_->store(log_buffer(log.wholes, DType::kInt64), at, id);
  }
  const ScalarId more = builder_->number(static_cast<double>(number), DType::kInt64);
  builder_->store(memory_.flags, slot, builder_->emit(ScalarOp::kAdd, DType::kInt64, {before.id, more}));
}

/// What an array of as many rows or elements is unpacked to, the first one on top.
void LoopReader::push_rows(const GridRef& grid, int count) {
  if (grid->extents.empty() || !grid->extents[0].is_const(count)) throw Unsupported("the items of a value");
  const GridRef source = grid->view ? grid : materialise(grid);
  for (int64_t n = count; n-- > 0;) push(get_item(source, Whole{builder_->constant(n), {n, n}}));
}

}  // namespace tatara::capture::native
