// Arrays that a turn replaces (`x = x + dx`) and a later one reads: each such local has memory of its own in the kernel.
#include <algorithm>
#include <utility>

#include "capture/native/loop_reader.h"
#include "support/error.h"

namespace tatara::capture::native {

namespace {

bool reads_from(const Value& value, int array) {
  const auto reads = [array](const GridRef& grid) {
    return std::any_of(grid->reads.begin(), grid->reads.end(),
                       [array](const Read& read) { return read.view.array == array; });
  };
  if (const auto* grid = std::get_if<GridRef>(&value)) return reads(*grid);
  if (const auto* masked = std::get_if<Masked>(&value)) return reads(masked->elements) || reads(masked->mask);
  const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&value);
  return tuple != nullptr && std::any_of((*tuple)->items.begin(), (*tuple)->items.end(),
                                         [array](const Value& item) { return reads_from(item, array); });
}

}  // namespace

/// The memory of a local, which begins as the frame's array.
GridRef LoopReader::carry(int local) {
  const Value given = given_local(local);
  const auto* array = std::get_if<GridRef>(&given);
  if (array == nullptr) throw Unsupported("a local that is an array and a number");
  const LocalFact& fact = program_->locals.back();
  if (!describes_dense(fact)) throw Unsupported("an array of another layout that is replaced");
  const auto buffer_of_array = static_cast<size_t>((*array)->view->array);
  LoopProgram::Buffer buffer = program_->buffers[buffer_of_array];
  buffer.kind = LoopProgram::Buffer::Kind::kScratch;
  buffer.local = -1;
  buffer.written = true;
  buffer.low = 0;
  buffer.begins_as = static_cast<int>(buffer_of_array);
  View view = *(*array)->view;
  Expr numel = builder_->constant(1);
  for (const Expr extent : view.extents) numel = builder_->ctx().mul(numel, extent);
  view.offset = builder_->constant(0);
  view.array = builder_->add_buffer("carried", buffer.dtype, numel);
  program_->buffers.push_back(std::move(buffer));
  replaced_.insert(view.array);
  const GridRef kept = view_grid(std::move(view));
  carried_[local] = kept;
  return kept;
}

/// The local is given another array: its elements go into the local's memory.
void LoopReader::store_carried(int local, const GridRef& grid) {
  const GridRef kept = carried_.at(local);
  const int memory = kept->view->array;
  if (grid->dtype != kept->dtype || grid->extents != kept->extents)
    throw Unsupported("an array that is replaced by one of another type or size");
  // An array that has a name is itself, not a copy.
  Grid made = *grid;
  if (grid->view) {
    const bool fresh =
        program_->buffers[static_cast<size_t>(grid->view->array)].kind == LoopProgram::Buffer::Kind::kScratch &&
        !replaced_.contains(grid->view->array) && (made.extents.size() == 1 || made.in_rows);
    const bool named = std::any_of(locals_.begin(), locals_.end(), [&](const auto& each) {
      return each.first < kLocalsOfCall && each.second.state == Local::State::kKnown &&
             reads_from(each.second.value, grid->view->array);
    });
    if (!fresh || named) throw Unsupported("an array that is replaced by one with a name");
    made.view.reset();
  }
  const bool waits =
      std::any_of(stack_.begin(), stack_.end(), [&](const Value& value) { return reads_from(value, memory); });
  const bool seen = std::any_of(locals_.begin(), locals_.end(), [&](const auto& each) {
    return each.first != local && each.first < kLocalsOfCall && each.second.state == Local::State::kKnown &&
           reads_from(each.second.value, memory);
  });
  if (waits || seen) throw Unsupported("an array that is replaced while something else reads it");
  replaced_.erase(memory);
  assign(*kept->view, grid);
  replaced_.insert(memory);
  keep_array(local, made, *kept->view);
  if (lost_.contains(local)) throw Unsupported("an array that is replaced, in another layout");
  locals_[local] = {Local::State::kKnown, kept};
}

/// The arrays that such locals had before the loop: in the first turn they are the same objects.
void LoopReader::check_carried() const {
  for (const auto& [local, kept] : carried_) {
    const int given = program_->buffers[static_cast<size_t>(kept->view->array)].begins_as;
    if (program_->buffers[static_cast<size_t>(given)].written)
      throw Unsupported("an array that is replaced and written to");
  }
}

}  // namespace tatara::capture::native
