#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "text/grammar.h"

namespace quire::engine {

// Which tokens a grammar allows at one place of one sequence.
struct TokenMask {
  std::shared_ptr<const std::vector<uint32_t>> words;  // as GrammarMatcher::fill_mask; null: error
  std::string error;
  bool client_is_to_blame = false;  // the grammar reached a limit
  bool lacks_memory = false;        // for its tables, at this time
};

// Threads that work masks out, so that no grammar holds up the steps. The engine thread asks for a
// sequence's next mask as soon as the token before it is known, and takes it when it samples.
//
// Of the masks that wait, those of the tenant that has lately taken the least CPU time for masks go
// first; of its own, the one whose request has taken the least, and one request's sequences take
// turns: a slow grammar delays its own request, and then its own tenant's. A mask cannot be put
// aside, so slow ones could still keep every thread busy: "light" threads work only for tenants
// that have taken little.
class MaskWorkers {
 public:
  // The masks of one sequence, one after another.
  class Row;
  using RowPtr = std::shared_ptr<Row>;

  // The threads start with the first row. `before_mask` is for tests: a worker calls it before each
  // mask.
  MaskWorkers(int num_threads, int64_t vocab_size, std::function<void()> before_mask = {},
              int num_light_threads = 0);
  ~MaskWorkers();
  MaskWorkers(const MaskWorkers&) = delete;
  MaskWorkers& operator=(const MaskWorkers&) = delete;

  RowPtr add(std::unique_ptr<text::GrammarMatcher> matcher, uint64_t tenant);
  // Asks for the next mask: that after `token`, or the first one. No other may be under way.
  void request(const RowPtr& row, std::optional<int32_t> token);
  // Nobody wants the row's masks any more.
  void drop(const RowPtr& row);

  // Asked for, and not taken: whether or not it is there.
  bool is_wanted(const RowPtr& row) const;
  bool is_ready(const RowPtr& row) const;
  // Waits until `enough` of the rows are ready. False: the time is over.
  bool wait(std::span<const RowPtr> rows, size_t enough, std::chrono::microseconds timeout);
  // The mask of a row that is ready.
  TokenMask take(const RowPtr& row);

 private:
  void run(bool light);
  RowPtr next_row(bool light);
  double most_of_light_tenant(TimePoint now) const;
  double seconds_of(uint64_t tenant, TimePoint now) const;
  void count(uint64_t tenant, double seconds);
  TokenMask work_out(Row& row) const;

  // A tenant's CPU seconds at that time; older ones count less and less.
  struct Spent {
    double seconds = 0;
    TimePoint at;
  };

  const int num_threads_, num_light_threads_;
  const size_t num_words_;
  const std::function<void()> before_mask_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  std::vector<RowPtr> waiting_;           // in order of arrival
  std::vector<size_t> running_families_;  // whose tables are in use
  std::map<uint64_t, Spent> spent_;       // by tenant; none is next to nothing
  size_t wanted_ = 0;                     // rows that wait() still misses
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire::engine
