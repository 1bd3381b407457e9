#include "engine/mask_workers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace quire::engine {
namespace {

constexpr double kMemory = 10;       // seconds in which what a tenant has taken fades by e
constexpr double kForgotten = 1e-4;  // CPU seconds: as if it were nothing
// A tenant has taken little: so many CPU seconds, or this part of what tenants have taken on
// average.
constexpr double kLittle = 0.02, kLittlePart = 0.25;

}  // namespace

class MaskWorkers::Row {
 public:
  Row(std::unique_ptr<text::GrammarMatcher> grammar, uint64_t tenant)
      : matcher(std::move(grammar)), family(matcher->family()), tenant(tenant) {}

  enum class State { kIdle, kWaiting, kRunning, kReady };

  // Used by the worker while the row is running, by nobody else.
  const std::unique_ptr<text::GrammarMatcher> matcher;
  const size_t family;
  const uint64_t tenant;
  // Guarded by MaskWorkers::mutex_.
  State state = State::kIdle;
  std::optional<int32_t> token;             // to be accepted first
  std::chrono::nanoseconds spent_before{};  // by its request, when the mask was asked for
  bool awaited = false;                     // by wait()
  TokenMask mask;
};

MaskWorkers::MaskWorkers(int num_threads, int64_t vocab_size, std::function<void()> before_mask,
                         int num_light_threads)
    : num_threads_(num_threads),
      num_light_threads_(num_light_threads),
      num_words_(static_cast<size_t>(vocab_size + 31) / 32),
      before_mask_(std::move(before_mask)) {}

MaskWorkers::~MaskWorkers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting_.clear();
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

MaskWorkers::RowPtr MaskWorkers::add(std::unique_ptr<text::GrammarMatcher> matcher,
                                     uint64_t tenant) {
  while (threads_.size() < static_cast<size_t>(num_threads_ + num_light_threads_)) {
    const bool light = threads_.size() >= static_cast<size_t>(num_threads_);
    threads_.emplace_back([this, light] { run(light); });
  }
  return std::make_shared<Row>(std::move(matcher), tenant);
}

void MaskWorkers::request(const RowPtr& row, std::optional<int32_t> token) {
  const std::lock_guard lock(mutex_);
  QUIRE_CHECK(row->state == Row::State::kIdle) << "a mask is under way";
  row->state = Row::State::kWaiting;
  row->token = token;
  row->spent_before = row->matcher->cpu_time();
  waiting_.push_back(row);
  work_.notify_all();  // a light thread may not take it
}

void MaskWorkers::drop(const RowPtr& row) {
  const std::lock_guard lock(mutex_);
  std::erase(waiting_, row);
}

bool MaskWorkers::is_wanted(const RowPtr& row) const {
  const std::lock_guard lock(mutex_);
  return row->state != Row::State::kIdle;
}

bool MaskWorkers::is_ready(const RowPtr& row) const {
  const std::lock_guard lock(mutex_);
  return row->state == Row::State::kReady;
}

bool MaskWorkers::wait(std::span<const RowPtr> rows, size_t enough,
                       std::chrono::microseconds timeout) {
  std::unique_lock lock(mutex_);
  size_t ready = 0;
  for (const RowPtr& row : rows) {
    row->awaited = row->state != Row::State::kReady;
    ready += !row->awaited;
  }
  wanted_ = enough > ready ? enough - ready : 0;
  const bool is_enough = done_.wait_for(lock, timeout, [this] { return wanted_ == 0; });
  for (const RowPtr& row : rows) row->awaited = false;
  return is_enough;
}

TokenMask MaskWorkers::take(const RowPtr& row) {
  const std::lock_guard lock(mutex_);
  QUIRE_CHECK(row->state == Row::State::kReady) << "the mask is not there";
  row->state = Row::State::kIdle;
  return std::move(row->mask);
}

// -- on the workers ------------------------------------------------------------------------------

void MaskWorkers::run(bool light) {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const RowPtr row = next_row(light);
    if (!row) {
      work_.wait(lock);
      continue;
    }
    row->state = Row::State::kRunning;
    running_families_.push_back(row->family);
    lock.unlock();
    const auto before = row->matcher->cpu_time();
    TokenMask mask = work_out(*row);
    const std::chrono::duration<double> taken = row->matcher->cpu_time() - before;
    lock.lock();
    count(row->tenant, taken.count());
    running_families_.erase(std::ranges::find(running_families_, row->family));
    row->mask = std::move(mask);
    row->state = Row::State::kReady;
    if (std::exchange(row->awaited, false) && wanted_ > 0 && --wanted_ == 0) done_.notify_one();
    // Other threads may have passed over rows of this family.
    if (!waiting_.empty()) work_.notify_all();
  }
}

double MaskWorkers::seconds_of(uint64_t tenant, TimePoint now) const {
  const auto found = spent_.find(tenant);
  if (found == spent_.end()) return 0;
  return found->second.seconds * std::exp(-seconds_between(found->second.at, now) / kMemory);
}

void MaskWorkers::count(uint64_t tenant, double seconds) {
  const TimePoint now = Clock::now();
  spent_[tenant] = {seconds_of(tenant, now) + seconds, now};
  std::erase_if(spent_, [&](const auto& entry) {
    return entry.first != tenant && seconds_of(entry.first, now) < kForgotten;
  });
}

double MaskWorkers::most_of_light_tenant(TimePoint now) const {
  double sum = 0;
  for (const auto& [tenant, spent] : spent_) sum += seconds_of(tenant, now);
  const auto tenants = static_cast<double>(std::max<size_t>(1, spent_.size()));
  return std::max(kLittle, kLittlePart * sum / tenants);
}

// Takes out the waiting row whose tenant, and then whose request, has had the least, if its tables
// are free.
MaskWorkers::RowPtr MaskWorkers::next_row(bool light) {
  if (waiting_.empty()) return nullptr;
  const TimePoint now = Clock::now();
  const double most = light ? most_of_light_tenant(now) : std::numeric_limits<double>::infinity();
  const auto rank = [&](const Row& row) {
    return std::pair(seconds_of(row.tenant, now), row.spent_before);
  };
  auto best = waiting_.end();
  for (auto row = waiting_.begin(); row != waiting_.end(); ++row) {
    if (std::ranges::find(running_families_, (*row)->family) != running_families_.end()) continue;
    if (best == waiting_.end() || rank(**row) < rank(**best)) best = row;
  }
  if (best == waiting_.end() || seconds_of((*best)->tenant, now) > most) return nullptr;
  RowPtr row = std::move(*best);
  waiting_.erase(best);
  return row;
}

TokenMask MaskWorkers::work_out(Row& row) const {
  try {
    if (before_mask_) before_mask_();
    const auto failure = [&](const std::string& error) {
      const bool lacks_memory = row.matcher->lacks_memory();
      return TokenMask{.words = {},
                       .error = error,
                       .client_is_to_blame = !lacks_memory,
                       .lacks_memory = lacks_memory};
    };
    bool accepted = true;
    if (row.token) {
      const auto result = row.matcher->accept(*row.token);
      if (!result) return failure(result.error());
      accepted = *result;
    }
    auto words = std::make_shared<std::vector<uint32_t>>(num_words_);
    const auto filled = row.matcher->fill_mask(*words);
    if (!filled) return failure(filled.error());
    // Not by a limit, which the matcher would have named by now.
    if (!accepted) return {.words = {}, .error = "the grammar refused a token that it allowed"};
    return {.words = std::move(words), .error = {}};
  } catch (const std::exception& error) {
    return {.words = {}, .error = error.what()};
  }
}

}  // namespace quire::engine
