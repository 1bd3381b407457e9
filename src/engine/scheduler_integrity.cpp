#include <algorithm>
#include <vector>

#include "base/check.h"
#include "engine/scheduler.h"

namespace quire::engine {

void Scheduler::check_integrity() const {
  blocks_.check_integrity();
  check_queues();
  check_tenants();
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
    for (size_t j = 0; j < i; ++j) {
      const Sequence &a = *running_[j], &b = *running_[i];
      const bool one_order =
          options_.policy == SchedulingPolicy::kFcfs || a.request.tenant == b.request.tenant;
      QUIRE_CHECK(!one_order || before(a, b)) << b.id;
    }
  }
}

void Scheduler::check_tenants() const {
  int64_t waiting = 0, waiting_tokens = 0, running = 0;
  for (const auto& [id, tenant] : tenants_) {
    int64_t tokens_of_tenant = 0;
    QUIRE_CHECK(!tenant.waiting.empty() || tenant.num_running > 0) << "tenant " << id;
    for (size_t i = 0; i < tenant.waiting.size(); ++i) {
      const Sequence& sequence = *tenant.waiting[i];
      QUIRE_CHECK(sequence.request.tenant == id) << sequence.id;
      QUIRE_CHECK(sequence.state == Sequence::State::kWaiting) << sequence.id;
      QUIRE_CHECK(sequence.num_held() == 0 && sequence.kv_len == 0) << sequence.id;
      QUIRE_CHECK(sequence.state_slot < 0 && sequence.checkpoints.held.empty()) << sequence.id;
      QUIRE_CHECK(i == 0 || before(*tenant.waiting[i - 1], sequence)) << sequence.id;
      tokens_of_tenant += sequence.prompt_len;
    }
    QUIRE_CHECK(tokens_of_tenant == tenant.waiting_tokens) << "tenant " << id;
    waiting_tokens += tokens_of_tenant;
    waiting += static_cast<int64_t>(tenant.waiting.size());
    running += tenant.num_running;
    QUIRE_CHECK(tenant.num_running == std::count_if(running_.begin(), running_.end(),
                                                    [&](const SequencePtr& sequence) {
                                                      return sequence->request.tenant == id;
                                                    }))
        << "tenant " << id;
  }
  QUIRE_CHECK(running == num_running()) << running << " of " << num_running();
  QUIRE_CHECK(waiting == num_waiting_) << waiting << " of " << num_waiting_;
  QUIRE_CHECK(waiting_tokens == num_waiting_tokens_) << waiting_tokens;
}

void Scheduler::check_sequence(const Sequence& sequence, std::vector<BlockOwners>& owners) const {
  const int64_t size = options_.block_size;
  const auto known = static_cast<int64_t>(sequence.tokens.size());
  QUIRE_CHECK(sequence.num_pending >= 0 && sequence.num_pending <= 2) << sequence.num_pending;
  QUIRE_CHECK(!sequence.postponed || sequence.num_pending == 1) << sequence.num_pending;
  QUIRE_CHECK(sequence.kv_len <= sequence.target_len()) << "request " << sequence.id;
  QUIRE_CHECK(sequence.kv_len <= options_.max_model_len) << "request " << sequence.id;
  QUIRE_CHECK(sequence.table_len() >= blocks_.blocks_for(sequence.kv_len)) << sequence.id;
  QUIRE_CHECK(sequence.shared_len <= sequence.registered_blocks * size) << sequence.id;
  QUIRE_CHECK(sequence.registered_blocks * size <=
              std::max(std::min(sequence.kv_len, known), sequence.shared_len))
      << "request " << sequence.id << " has offered a block that is not written or not known";
  QUIRE_CHECK(sequence.tables.size() == demand_.num_tables()) << sequence.id;
  for (size_t t = 0; t < sequence.tables.size(); ++t) check_table(sequence, t, owners);
}

void Scheduler::check_table(const Sequence& sequence, size_t t,
                            std::vector<BlockOwners>& owners) const {
  const BlockTable& table = sequence.tables[t];
  const auto length = static_cast<int64_t>(table.blocks.size());
  QUIRE_CHECK(length == sequence.table_len()) << "request " << sequence.id << ", table " << t;
  QUIRE_CHECK(table.given_back <= std::min(demand_.first_seen(t, sequence.kv_len), length))
      << "request " << sequence.id << " has given back a block that it sees, of table " << t;
  for (int64_t i = 0; i < length; ++i) {
    const int32_t block = table.blocks[i];
    QUIRE_CHECK((block == BlockTable::kGivenBack) == (i < table.given_back)) << sequence.id;
    if (i < table.given_back) continue;
    BlockOwners& owner = owners[block];
    QUIRE_CHECK(owner.last != &sequence) << "block " << block << " is twice in one table";
    owner.last = &sequence;
    ++owner.count;
    const bool is_full = i < sequence.registered_blocks;
    const bool is_read_only = blocks_.ref_count(block) > 1 || blocks_.is_registered(block);
    QUIRE_CHECK(is_full || !is_read_only)
        << "request " << sequence.id << " may write into block " << block << ", which is shared";
    QUIRE_CHECK(blocks_.ref_count(block) == 1 || blocks_.is_registered(block))
        << "block " << block << " is shared but not in the prefix cache";
  }
}

}  // namespace quire::engine
