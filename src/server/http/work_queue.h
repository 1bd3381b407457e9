#pragma once
#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace quire::server::http {

// The threads that parse, render, tokenise and write large answers. The queue is bounded in number
// and time, and owners (see HttpHandler::owner) take turns. Large jobs have threads of their own,
// with a lower priority for the operating system: they never stand before a small one. An idle
// thread for small jobs takes no large one: it could not lower its own priority for it and raise it
// again, which only root may, and it would be away for as long as max_text_time.
//
// Compiling a grammar cannot be stopped, and its size does not say how long it takes (up to a
// second): that has threads of its own too.
//
// No size says for sure how long a job takes. So an owner uses all threads of a size but one at a
// time: the next owner's job need not wait until one of its jobs ends.
class WorkQueue {
 public:
  enum class Size { kSmall, kLarge, kGrammar };
  using Job = std::function<void()>;  // must not throw

  struct Limits {
    size_t waiting = 1024;                   // jobs of each size
    std::chrono::milliseconds wait{30'000};  // of one job
  };

  static constexpr int kGrammarThreads = 2;

  // Half of the threads, at least one, takes large jobs; kGrammarThreads come on top.
  WorkQueue(int threads, const Limits& limits);
  ~WorkQueue() { stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // False: the queue is full (or stopped), and the job is dropped. A full queue makes room for an
  // owner at the cost of the one with most jobs. `refuse` is called, on any thread, if the job is
  // dropped later, for this reason or since it has waited too long.
  bool try_post(Size size, const std::string& owner, Job job, Job refuse);
  // A further step of accepted work: never refused for want of room.
  void post(Size size, const std::string& owner, Job job);

  // To be called now and then.
  void refuse_late(TimePoint now);

  size_t num_waiting() const;
  // Drops what waits and returns when the running jobs have ended.
  void stop();

 private:
  struct Work {
    Job run;
    Job refuse;  // null: it must be done
    TimePoint posted;
  };
  using Works = std::map<std::string, std::deque<Work>>;  // by owner; none is empty
  struct Lane {
    Works works;
    std::deque<std::string> turns;  // the owners, next one first
    int threads = 0;
    std::map<std::string, int> running;  // jobs, by owner; none is 0
    size_t waiting = 0;
    std::condition_variable ready;
  };

  void run(Lane& lane);
  void push(Lane& lane, const std::string& owner, Job job, Job refuse);
  static bool may_run(const Lane& lane, const std::string& owner);
  static std::deque<std::string>::iterator next_owner(Lane& lane);
  static Job pop(Lane& lane, std::string& owner);
  void start(Lane& lane, int threads, int niceness);
  static Work take(Lane& lane, Works::iterator owner, size_t index);
  static std::optional<Work> make_room(Lane& lane, const std::string& owner);
  static void refuse(Work work);
  Lane& lane(Size size) { return lanes_[static_cast<size_t>(size)]; }

  const Limits limits_;
  mutable std::mutex mutex_;
  std::array<Lane, 3> lanes_;  // by Size
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire::server::http
