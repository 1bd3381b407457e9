#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire::engine {
namespace {

int64_t checkpoint_capacity(const SchedulerOptions& options) {
  const bool used = options.enable_prefix_caching && options.num_state_slots > 0;
  return used ? options.num_state_checkpoints : 0;
}

int64_t cache_capacity(const SchedulerOptions& options) {
  return options.enable_prefix_caching ? options.num_blocks : 0;
}

// If all tables have windows, a prefix of any length keeps few blocks, but a node for each of its
// blocks.
int64_t node_capacity(const SchedulerOptions& options, const BlockDemand& demand) {
  return cache_capacity(options) * (demand.always_gives_back() ? 16 : 2);
}

}  // namespace

Scheduler::Scheduler(SchedulerOptions options)
    : options_(std::move(options)),
      demand_(options_.block_size, options_.windows),
      cache_(cache_capacity(options_), options_.block_size, options_.block_hash,
             demand_.num_tables(), node_capacity(options_, demand_)),
      blocks_(options_.num_blocks, options_.block_size,
              [this](int32_t block) {
                ++stats_.prefix_evictions;
                cache_.erase(block);
                checkpoints_.drop(block);
              }),
      state_slots_(options_.num_state_slots),
      checkpoints_(checkpoint_capacity(options_), options_.num_state_slots, options_.num_blocks),
      cost_(options_.chunks_have_base) {
  QUIRE_CHECK(options_.max_num_batched_tokens > 0);
  QUIRE_CHECK(options_.max_num_seqs > 0);
  QUIRE_CHECK(options_.max_model_len > 0 &&
              demand_.least_blocks(options_.max_model_len) <= options_.num_blocks)
      << "a sequence of " << options_.max_model_len << " tokens must fit the pool";
  QUIRE_CHECK(!has_state() || (demand_.num_tables() == 1 && !demand_.gives_back()));
  running_.reserve(options_.max_num_seqs);
  chunks_.reserve(options_.max_num_seqs);
  prompts_.reserve(options_.max_num_seqs);
  rows_.reserve(options_.max_num_seqs);
  row_shares_.reserve(options_.max_num_seqs);
  committed_.reserve(options_.max_num_seqs);
  hit_runs_.resize(demand_.num_tables());
  offered_.resize(demand_.num_tables());
}

// -- queues --------------------------------------------------------------------------------------

// Of two sequences of one tenant.
bool Scheduler::before(const Sequence& a, const Sequence& b) const {
  if (options_.policy == SchedulingPolicy::kPriority && a.request.priority != b.request.priority) {
    return a.request.priority < b.request.priority;
  }
  return a.arrival < b.arrival;
}

void Scheduler::add(SequencePtr sequence) {
  const auto length = static_cast<int64_t>(sequence->tokens.size());
  QUIRE_CHECK(length > 0 && length == sequence->prompt_len && length <= options_.max_model_len)
      << "a prompt of " << length << " tokens";
  if (!has_work()) decoded_at_.clear();  // nobody was there meanwhile
  sequence->arrival = ++last_arrival_;
  sequence->tables.resize(demand_.num_tables());
  const Request& request = sequence->request;
  sequence->facts = RowFacts(request);
  sequence->cache_root = std::to_string(request.adapter) + ' ' + request.cache_salt;
  enqueue(std::move(sequence));
}

void Scheduler::enqueue(SequencePtr sequence) {
  sequence->state = Sequence::State::kWaiting;
  ++num_waiting_;
  num_waiting_tokens_ += sequence->prompt_len;
  adapter_loads_.add_waiting(sequence->request.adapter, 1);
  Tenant& tenant = tenants_[sequence->request.tenant];
  tenant.waiting_tokens += sequence->prompt_len;
  auto& waiting = tenant.waiting;
  if (waiting.empty()) tenant.fed = std::max(tenant.fed, least_fed_);
  const auto place =
      std::upper_bound(waiting.begin(), waiting.end(), sequence,
                       [this](const auto& a, const auto& b) { return before(*a, *b); });
  waiting.insert(place, std::move(sequence));
}

void Scheduler::leave_waiting(const Sequence& sequence) {
  --num_waiting_;
  num_waiting_tokens_ -= sequence.prompt_len;
  adapter_loads_.add_waiting(sequence.request.adapter, -1);
  Tenant& tenant = tenant_of(sequence);
  tenant.waiting_tokens -= sequence.prompt_len;
  if (tenant.refused_arrival == sequence.arrival) tenant.refused_arrival = 0;
  const auto erased = std::erase_if(
      tenant.waiting, [&](const SequencePtr& other) { return other.get() == &sequence; });
  QUIRE_CHECK(erased == 1) << "request " << sequence.id << " does not wait";
}

void Scheduler::start_running(SequencePtr sequence) {
  sequence->state = Sequence::State::kRunning;
  sequence->started_in_plan = num_plans_;
  sequence->last_turn = ++num_turns_;
  ++tenant_of(*sequence).num_running;
  adapter_loads_.add_running(sequence->request.adapter, 1);
  running_.push_back(std::move(sequence));
  order_running();
}

// Arrivals say which places a tenant has, `before` which of its sequences has which of them.
void Scheduler::order_running() {
  std::ranges::sort(running_, {}, [](const SequencePtr& sequence) { return sequence->arrival; });
  if (options_.policy == SchedulingPolicy::kFcfs) return;
  std::vector<SequencePtr> by_tenant = running_;
  std::ranges::sort(by_tenant, [this](const SequencePtr& a, const SequencePtr& b) {
    if (a->request.tenant != b->request.tenant) return a->request.tenant < b->request.tenant;
    return before(*a, *b);
  });
  for (size_t i = by_tenant.size(); i-- > 0;) tenant_of(*by_tenant[i]).next_place = i;
  for (SequencePtr& place : running_) place = by_tenant[tenant_of(*place).next_place++];
}

LoadByTenant Scheduler::waiting_by_tenant() const {
  LoadByTenant loads;
  for (const auto& [id, tenant] : tenants_)
    if (!tenant.waiting.empty())
      loads[id] = {static_cast<int64_t>(tenant.waiting.size()), tenant.waiting_tokens};
  return loads;
}

void Scheduler::finish(Sequence& sequence) {
  if (sequence.state == Sequence::State::kFinished) return;
  const bool was_running = sequence.state == Sequence::State::kRunning;
  const uint64_t tenant = sequence.request.tenant;
  release_blocks(sequence);
  sequence.state = Sequence::State::kFinished;
  stats_.ended += sequence.started_in_plan > 0;
  was_running ? leave_running(sequence) : leave_waiting(sequence);
  drop_if_empty(tenant);
}

void Scheduler::leave_running(const Sequence& sequence) {
  --tenant_of(sequence).num_running;
  adapter_loads_.add_running(sequence.request.adapter, -1);
  const auto erased =
      std::erase_if(running_, [&](const SequencePtr& other) { return other.get() == &sequence; });
  QUIRE_CHECK(erased == 1) << "request " << sequence.id << " does not run";
}

void Scheduler::drop_if_empty(uint64_t tenant) {
  const auto it = tenants_.find(tenant);
  if (it->second.waiting.empty() && it->second.num_running == 0) tenants_.erase(it);
}

// What is out of sight first, then the last block first: of the blocks that stay cached, those
// deeper in the tree are evicted earlier.
void Scheduler::release_blocks(Sequence& sequence) {
  give_back_unseen(sequence);
  for (int64_t i = sequence.table_len(); i-- > 0;)
    for (const BlockTable& table : sequence.tables)
      if (i >= table.given_back) blocks_.release(table.blocks[i]);
  for (BlockTable& table : sequence.tables) {
    table.blocks.clear();
    table.given_back = 0;
  }
  touch_branches(sequence);
  cache_.let_go(sequence.cache_node);
  release_state(sequence);
  sequence.forget_kv();
}

// What no later query of a running sequence sees. The step in flight may: whoever gets such a block
// writes to it in a later step of the same stream. Oldest first, so that of those that stay cached
// the oldest are evicted first.
void Scheduler::give_back_unseen(Sequence& sequence) {
  for (size_t t = 0; t < sequence.tables.size(); ++t) {
    BlockTable& table = sequence.tables[t];
    const int64_t first = std::min(demand_.first_seen(t, sequence.kv_len), sequence.table_len());
    for (; table.given_back < first; ++table.given_back)
      blocks_.release(std::exchange(table.blocks[table.given_back], BlockTable::kGivenBack));
  }
}

// Where prompts have parted others will part, too. Of a prefix that was used, what is seen from
// such a place stays as long as the rest of it, though nobody sees it who goes on beyond.
void Scheduler::touch_branches(const Sequence& sequence) {
  if (!demand_.gives_back()) return;
  int32_t node = sequence.cache_node;
  for (int64_t n = sequence.registered_blocks; n > 0; --n, node = cache_.parent(node))
    if (cache_.is_branch(node)) touch_seen(node, n);
}

// What is seen from the end of a node, the `length`-th of its prefix.
void Scheduler::touch_seen(int32_t node, int64_t length) {
  for (size_t t = 0; t < demand_.num_tables(); ++t) {
    if (options_.windows[t] < 0) continue;
    int32_t at = node;
    const int64_t first = demand_.first_seen(t, length * options_.block_size);
    for (int64_t i = length; i-- > first; at = cache_.parent(at)) {
      const int32_t block = cache_.block(at, t);
      if (block == PrefixCache::kNone || blocks_.ref_count(block) > 0) continue;
      blocks_.retain(block);
      blocks_.release(block);
    }
  }
}

void Scheduler::preempt(size_t index, StepPlan& plan) {
  SequencePtr victim = running_[index];
  leave_running(*victim);
  remove_item(plan, *victim);
  release_blocks(*victim);
  // A row that was never sampled is computed again with the rest.
  if (std::exchange(victim->postponed, false)) --victim->num_pending;
  ++victim->stats.preemptions;
  ++stats_.preemptions;
  enqueue(std::move(victim));
}

void Scheduler::drop_prefix_cache() {
  StepPlan none;
  while (!running_.empty()) preempt(running_.size() - 1, none);
  if (!options_.enable_prefix_caching) return;
  cache_.clear();
  checkpoints_.clear();
  for (int64_t b = 0; b < options_.num_blocks; ++b) {
    blocks_.set_registered(static_cast<int32_t>(b), false);
  }
}

// -- commit --------------------------------------------------------------------------------------

// Full blocks whose tokens the host knows. Their K and V are written before any later step reads.
void Scheduler::register_full_blocks(Sequence& sequence) {
  if (!options_.enable_prefix_caching) return;
  const int64_t size = options_.block_size;
  const int64_t known =
      std::min(sequence.kv_len, static_cast<int64_t>(sequence.tokens.size())) / size;
  for (int64_t& i = sequence.registered_blocks; i < known; ++i) {
    for (size_t t = 0; t < offered_.size(); ++t) offered_[t] = sequence.tables[t].blocks[i];
    const auto tokens = std::span<const int32_t>(sequence.tokens).subspan(i * size, size);
    const int32_t node = cache_.insert(sequence.cache_root, sequence.cache_node, tokens, offered_);
    if (node == PrefixCache::kNone) break;  // until there is room again
    sequence.cache_node = node;
    for (const int32_t block : offered_)
      if (block >= 0 && cache_.contains(block)) blocks_.set_registered(block, true);
  }
  if (has_state() && !sequence.checkpoints.held.empty()) attach_checkpoints(sequence);
}

const std::vector<CommittedToken>& Scheduler::commit(const StepPlan& plan,
                                                     std::span<const int32_t> tokens) {
  committed_.clear();
  size_t row = 0;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (!plan.items[i].samples) continue;
    QUIRE_CHECK(row < tokens.size()) << "one token for each sampling item";
    const int32_t token = tokens[row++];
    if (token == kPostponedToken) continue;
    if (plan.items[i].sequence->state == Sequence::State::kFinished) continue;
    commit_token(plan, i, token);
  }
  QUIRE_CHECK(row == tokens.size()) << tokens.size() << " tokens for " << row << " items";
  return committed_;
}

void Scheduler::commit_token(const StepPlan& plan, size_t item, int32_t token) {
  Sequence& sequence = *plan.items[item].sequence;
  QUIRE_CHECK(sequence.num_pending > 0) << "request " << sequence.id << " has no token in flight";
  --sequence.num_pending;
  CommittedToken committed{.sequence = &sequence, .item = item};
  if (sequence.facts.max_tokens == 0) {
    committed.finish = sequence.facts.pools ? FinishReason::kStop : FinishReason::kLength;
  } else {
    sequence.tokens.push_back(token);
    const StopDecision stop = check_stop(sequence, options_.eos_token_ids, options_.max_model_len);
    committed.token = token;
    committed.finish = stop.finish;
    committed.stop_token = stop.stop_token;
    register_full_blocks(sequence);
  }
  if (committed.finish) finish(sequence);
  committed_.push_back(committed);
}

}  // namespace quire::engine
