#include "engine/fake_device_test.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace quire::engine::testing {
namespace {

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// What a position's slot of a table holds: tables must not be taken for one another.
uint64_t number_of(uint64_t prefix, size_t table) {
  return table == 0 ? prefix : mix(prefix + table);
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

uint64_t root_hash(std::string_view salt) { return mix(std::hash<std::string_view>{}(salt)); }
uint64_t extend_hash(uint64_t prefix, int32_t token) {
  return mix(prefix ^ mix(static_cast<uint64_t>(token) + 1));
}
int32_t next_token(uint64_t prefix) { return static_cast<int32_t>(mix(prefix) % kVocabSize); }

Outcome run_alone(const Request& request, std::string_view salt, int64_t max_model_len) {
  const SamplingParams& sampling = request.sampling;
  Outcome outcome{.tokens = request.prompt, .finish = {}, .stop_token = {}};
  uint64_t prefix = root_hash(salt);
  for (const int32_t token : request.prompt) prefix = extend_hash(prefix, token);
  for (int64_t produced = 0;; ++produced) {
    const bool no_room = static_cast<int64_t>(outcome.tokens.size()) >= max_model_len;
    if (produced >= sampling.max_tokens || (produced > 0 && no_room)) {
      outcome.finish = FinishReason::kLength;
      return outcome;
    }
    const int32_t token = next_token(prefix);
    outcome.tokens.push_back(token);
    prefix = extend_hash(prefix, token);
    const bool is_eos = token == kEos && !sampling.ignore_eos;
    if (is_eos || contains(sampling.stop_token_ids, token)) {
      outcome.finish = FinishReason::kStop;
      if (!is_eos) outcome.stop_token = token;
      return outcome;
    }
  }
}

FakeDevice::FakeDevice(const Scheduler& scheduler, Fault fault)
    : scheduler_(scheduler),
      fault_(fault),
      memory_(scheduler.options().num_blocks * scheduler.options().block_size, 0),
      states_(scheduler.options().num_state_slots + scheduler.options().num_state_checkpoints, 0) {}

std::vector<int32_t> FakeDevice::launch(const StepPlan& plan) {
  ++num_launches_;
  scramble_free();
  check_plan(plan);
  copy_states(plan.restores, false);
  if (fault_ == Fault::kEarlySave) copy_states(plan.saves, true);
  std::vector<Fed> fed;
  for (const StepItem& item : plan.items) fed.push_back(feed(item));
  for (size_t i = 0; i < plan.items.size(); ++i) write(plan.items[i], fed[i]);
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const StepItem& item = plan.items[i];
    read_back(item, fed[i]);
    advance_state(item, fed[i]);
    if (!item.samples) continue;
    const Sequence& sequence = *item.sequence;
    // From memory: what is wrong there shows in the output too.
    const int64_t last = item.start + item.num_tokens - 1;
    Sampled& sampled = sampled_[sequence.id];
    sampled = {next_token(memory_[slot(sequence, last)]), sampled.token, num_launches_};
    tokens.push_back(sampled.token);
  }
  if (fault_ != Fault::kEarlySave) copy_states(plan.saves, true);
  return tokens;
}

void FakeDevice::copy_states(const std::vector<StateCopy>& copies, bool saves) {
  if (!saves && fault_ == Fault::kSkippedRestore && num_launches_ % 2 == 0) return;
  const auto num_running = static_cast<int32_t>(scheduler_.options().num_state_slots);
  const auto num_slots = static_cast<int32_t>(states_.size());
  std::set<int32_t> written;
  for (const StateCopy& copy : copies) {
    const int32_t sequence = saves ? copy.from : copy.to, checkpoint = saves ? copy.to : copy.from;
    if (sequence < 0 || sequence >= num_running || checkpoint < num_running ||
        checkpoint >= num_slots || !written.insert(copy.to).second) {
      error_ = "a copy of a state from slot " + std::to_string(copy.from) + " to " +
               std::to_string(copy.to);
      return;
    }
    states_[copy.to] = states_[copy.from];
  }
}

void FakeDevice::advance_state(const StepItem& item, const Fed& fed) {
  if (states_.empty()) return;
  const Sequence& sequence = *item.sequence;
  const auto num_slots = static_cast<int32_t>(scheduler_.options().num_state_slots);
  int32_t slot = sequence.state_slot;
  if (slot < 0 || slot >= num_slots) return fail("has no state slot", sequence, item.start);
  if (fault_ == Fault::kForeignState && sequence.id % 4 == 3) slot = (slot + 1) % num_slots;
  if (item.start > 0 && states_[slot] != fed.prefixes[item.start - 1]) {
    fail("goes on from another prefix's state", sequence, item.start);
  }
  states_[slot] = fed.prefixes.back();
}

void FakeDevice::scramble() {
  for (size_t i = 0; i < states_.size(); ++i) states_[i] = mix(i ^ num_launches_);
  for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = mix(i + num_launches_);
}

void FakeDevice::scramble_free() {
  const int64_t size = scheduler_.options().block_size;
  const BlockManager& blocks = scheduler_.blocks();
  for (int32_t b = 0; b < blocks.num_blocks(); ++b)
    if (blocks.ref_count(b) == 0 && !blocks.is_registered(b))
      for (int64_t i = b * size; i < (b + 1) * size; ++i) memory_[i] = mix(i + num_launches_);
}

void FakeDevice::check_plan(const StepPlan& plan) {
  const SchedulerOptions& options = scheduler_.options();
  std::set<const Sequence*> seen;
  int64_t num_tokens = 0;
  bool met_chunk = false;
  for (const StepItem& item : plan.items) {
    const Sequence& sequence = *item.sequence;
    if (!seen.insert(&sequence).second) fail("is twice in a plan", sequence, item.start);
    if (item.num_tokens == 1 && met_chunk) fail("decodes after a chunk", sequence, item.start);
    if (item.num_tokens < 1) fail("has an empty item", sequence, item.start);
    met_chunk |= item.num_tokens > 1;
    num_tokens += item.num_tokens;
    const int64_t end = item.start + item.num_tokens;
    if (end != sequence.kv_len) fail("has another kv_len than its item", sequence, end);
    if (item.samples != (end >= static_cast<int64_t>(sequence.tokens.size()))) {
      fail("samples at the wrong place", sequence, end);
    }
    if (end > options.max_model_len) fail("is too long", sequence, end);
  }
  if (num_tokens != plan.num_tokens || num_tokens > options.max_num_batched_tokens ||
      static_cast<int64_t>(plan.items.size()) > options.max_num_seqs) {
    error_ = "a plan beyond its limits: " + std::to_string(num_tokens) + " tokens";
  }
}

FakeDevice::Fed FakeDevice::feed(const StepItem& item) {
  Fed fed;
  uint64_t prefix = root_hash(salts_[item.sequence->id]);
  for (int64_t position = 0; position < item.start + item.num_tokens; ++position) {
    prefix = extend_hash(prefix, token_at(item, position));
    fed.prefixes.push_back(prefix);
  }
  return fed;
}

int32_t FakeDevice::token_at(const StepItem& item, int64_t position) {
  const Sequence& sequence = *item.sequence;
  if (position < static_cast<int64_t>(sequence.tokens.size())) return sequence.tokens[position];
  const Sampled& sampled = sampled_[sequence.id];
  const bool is_last = position == item.start + item.num_tokens - 1;
  if (!item.feeds_pending || !is_last || position != static_cast<int64_t>(sequence.tokens.size()) ||
      sampled.launch != num_launches_ - 1) {
    fail("feeds a token that nobody sampled in the step before", sequence, position);
  }
  return fault_ == Fault::kStalePending ? sampled.before : sampled.token;
}

void FakeDevice::write(const StepItem& item, const Fed& fed) {
  const Sequence& sequence = *item.sequence;
  for (int64_t position = item.start; position < item.start + item.num_tokens; ++position) {
    if (position < sequence.shared_len) continue;
    if (fault_ == Fault::kSkippedWrite && num_launches_ % 8 == 0) continue;
    for (size_t t = 0; t < sequence.tables.size(); ++t) {
      const int64_t at = slot(sequence, position, t);
      const auto block = static_cast<int32_t>(at / scheduler_.options().block_size);
      if (at < 0 || scheduler_.blocks().ref_count(block) != 1)
        return fail("writes into a shared block", sequence, position);
      memory_[at] = number_of(fed.prefixes[position], t);
    }
  }
}

void FakeDevice::read_back(const StepItem& item, const Fed& fed) {
  const Sequence& sequence = *item.sequence;
  const SchedulerOptions& options = scheduler_.options();
  const int64_t more = fault_ == Fault::kWideWindow ? options.block_size : 0;
  for (size_t t = 0; t < sequence.tables.size(); ++t) {
    const int64_t window = options.windows[t];
    int64_t position = window < 0 ? 0 : std::max<int64_t>(0, item.start - window - more);
    for (; position < item.start + item.num_tokens; ++position) {
      const int64_t at = slot(sequence, position, t);
      if (at < 0 || memory_[at] != number_of(fed.prefixes[position], t))
        return fail("reads another prefix's K and V", sequence, position);
    }
  }
}

// Negative: the block was given back.
int64_t FakeDevice::slot(const Sequence& sequence, int64_t position, size_t table) const {
  const int64_t size = scheduler_.options().block_size;
  int64_t block = sequence.tables.at(table).blocks.at(position / size);
  if (fault_ == Fault::kForeignBlock && sequence.id % 4 == 3) {
    block = (block + 1) % scheduler_.options().num_blocks;
  }
  return block * size + position % size;
}

void FakeDevice::fail(const std::string& what, const Sequence& sequence, int64_t position) {
  if (!error_.empty()) return;
  std::ostringstream out;
  out << "launch " << num_launches_ << ": request " << sequence.id << " " << what << " at position "
      << position << " of " << sequence.tokens.size() << " known tokens";
  error_ = out.str();
}

std::vector<RequestId> lose_memory(Scheduler& scheduler, FakeDevice& device,
                                   std::optional<LaunchedStep>& in_flight) {
  std::vector<RequestId> ended;
  if (in_flight) {
    for (const StepItem& item : in_flight->plan.items) {
      scheduler.finish(*item.sequence);
      ended.push_back(item.sequence->id);
    }
  }
  in_flight.reset();
  device.scramble();
  scheduler.drop_prefix_cache();
  scheduler.check_integrity();
  return ended;
}

}  // namespace quire::engine::testing
