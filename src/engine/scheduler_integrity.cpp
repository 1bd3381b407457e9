#include <vector>

#include "base/check.h"
#include "engine/scheduler.h"

namespace quire::engine {

void Scheduler::check_integrity() const {
  blocks_.check_integrity();
  check_queues();
  check_state_slots();
  std::vector<BlockOwners> owners(options_.num_blocks);
  for (const SequencePtr& sequence : running_) check_sequence(*sequence, owners);
  for (int64_t b = 0; b < options_.num_blocks; ++b) {
    const auto block = static_cast<int32_t>(b);
    QUIRE_CHECK(owners[b].count == blocks_.ref_count(block))
        << "block " << b << " is in " << owners[b].count << " tables, counted "
        << blocks_.ref_count(block);
    const bool cached = options_.enable_prefix_caching && cache_.contains(block);
    QUIRE_CHECK(cached == blocks_.is_registered(block)) << "block " << b;
  }
}

void Scheduler::check_queues() const {
  QUIRE_CHECK(num_running() <= options_.max_num_seqs) << num_running();
  for (size_t i = 0; i < running_.size(); ++i) {
    QUIRE_CHECK(running_[i]->state == Sequence::State::kRunning) << running_[i]->id;
    QUIRE_CHECK(i == 0 || before(*running_[i - 1], *running_[i])) << running_[i]->id;
  }
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Sequence& sequence = *waiting_[i];
    QUIRE_CHECK(sequence.state == Sequence::State::kWaiting) << sequence.id;
    QUIRE_CHECK(sequence.blocks.empty() && sequence.kv_len == 0) << sequence.id;
    QUIRE_CHECK(i == 0 || before(*waiting_[i - 1], sequence)) << sequence.id;
  }
}

void Scheduler::check_sequence(const Sequence& sequence, std::vector<BlockOwners>& owners) const {
  const int64_t size = options_.block_size;
  const auto known = static_cast<int64_t>(sequence.tokens.size());
  QUIRE_CHECK(sequence.num_pending >= 0 && sequence.num_pending <= 2) << sequence.num_pending;
  QUIRE_CHECK(sequence.kv_len <= sequence.target_len()) << "request " << sequence.id;
  QUIRE_CHECK(sequence.kv_len <= options_.max_model_len) << "request " << sequence.id;
  QUIRE_CHECK(static_cast<int64_t>(sequence.blocks.size()) >= blocks_.blocks_for(sequence.kv_len))
      << "request " << sequence.id;
  QUIRE_CHECK(sequence.shared_len <= sequence.registered_blocks * size) << sequence.id;
  QUIRE_CHECK(sequence.registered_blocks * size <=
              std::max(std::min(sequence.kv_len, known), sequence.shared_len))
      << "request " << sequence.id << " has offered a block that is not written or not known";
  for (size_t i = 0; i < sequence.blocks.size(); ++i) {
    const int32_t block = sequence.blocks[i];
    BlockOwners& owner = owners[block];
    QUIRE_CHECK(owner.last != &sequence) << "block " << block << " is twice in one table";
    owner.last = &sequence;
    ++owner.count;
    const bool is_full = static_cast<int64_t>(i) < sequence.registered_blocks;
    const bool is_read_only = blocks_.ref_count(block) > 1 || blocks_.is_registered(block);
    QUIRE_CHECK(is_full || !is_read_only)
        << "request " << sequence.id << " may write into block " << block << ", which is shared";
    QUIRE_CHECK(blocks_.ref_count(block) == 1 || blocks_.is_registered(block))
        << "block " << block << " is shared but not in the prefix cache";
  }
}

}  // namespace quire::engine
