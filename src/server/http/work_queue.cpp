#include "server/http/work_queue.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace quire::server::http {
namespace {

// Of the threads for large jobs: small ones and the engine get ten times their processor time. And
// of those for grammars: three times, since most take a millisecond and somebody waits.
constexpr int kNiceness = 10, kGrammarNiceness = 5;

// This thread alone. Where it fails the thread is merely not nicer.
void make_nicer([[maybe_unused]] int niceness) {
#if defined(__linux__)
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), niceness);
#elif defined(__APPLE__)  // where a priority belongs to a process
  (void)::pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
#endif
}

}  // namespace

WorkQueue::WorkQueue(int threads, const Limits& limits) : limits_(limits) {
  const int large = std::max(1, threads / 2);
  const int small = std::max(1, threads - large);
  start(lane(Size::kSmall), small, 0);
  start(lane(Size::kLarge), large, kNiceness);
  start(lane(Size::kGrammar), kGrammarThreads, kGrammarNiceness);
}

void WorkQueue::start(Lane& lane, int threads, int niceness) {
  lane.threads = threads;
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, &lane, niceness] {
      if (niceness > 0) make_nicer(niceness);
      run(lane);
    });
  }
}

bool WorkQueue::try_post(Size size, const std::string& owner, Job job, Job refuse_job) {
  std::optional<Work> dropped;
  {
    const std::scoped_lock lock(mutex_);
    if (stopped_) return false;
    if (lane(size).waiting >= limits_.waiting) {
      dropped = make_room(lane(size), owner);
      if (!dropped) return false;
    }
    push(lane(size), owner, std::move(job), std::move(refuse_job));
  }
  if (dropped) refuse(std::move(*dropped));
  return true;
}

void WorkQueue::post(Size size, const std::string& owner, Job job) {
  const std::scoped_lock lock(mutex_);
  if (!stopped_) push(lane(size), owner, std::move(job), nullptr);
}

void WorkQueue::push(Lane& lane, const std::string& owner, Job job, Job refuse_job) {
  std::deque<Work>& works = lane.works[owner];
  if (works.empty()) lane.turns.push_back(owner);
  works.push_back({std::move(job), std::move(refuse_job), Clock::now()});
  ++lane.waiting;
  lane.ready.notify_one();
}

bool WorkQueue::may_run(const Lane& lane, const std::string& owner) {
  const auto running = lane.running.find(owner);
  return running == lane.running.end() || running->second < lane.threads - 1;
}

// Whose turn it is, of those who may have one; the end if nobody.
std::deque<std::string>::iterator WorkQueue::next_owner(Lane& lane) {
  return std::ranges::find_if(lane.turns,
                              [&](const std::string& owner) { return may_run(lane, owner); });
}

WorkQueue::Job WorkQueue::pop(Lane& lane, std::string& owner) {
  owner = *next_owner(lane);
  Work work = take(lane, lane.works.find(owner), 0);
  if (lane.works.contains(owner)) {
    std::erase(lane.turns, owner);
    lane.turns.push_back(owner);
  }
  return std::move(work.run);
}

WorkQueue::Work WorkQueue::take(Lane& lane, Works::iterator owner, size_t index) {
  std::deque<Work>& works = owner->second;
  Work taken = std::move(works[index]);
  works.erase(works.begin() + static_cast<std::ptrdiff_t>(index));
  if (works.empty()) {
    std::erase(lane.turns, owner->first);
    lane.works.erase(owner);
  }
  --lane.waiting;
  return taken;
}

// Takes out the newest job of the owner with most, if that is more than `owner` will have.
std::optional<WorkQueue::Work> WorkQueue::make_room(Lane& lane, const std::string& owner) {
  const auto most = std::max_element(
      lane.works.begin(), lane.works.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const auto own = lane.works.find(owner);
  const size_t own_size = own == lane.works.end() ? 0 : own->second.size();
  if (most->second.size() <= own_size + 1) return std::nullopt;
  for (size_t i = most->second.size(); i-- > 0;)
    if (most->second[i].refuse) return take(lane, most, i);
  return std::nullopt;
}

void WorkQueue::refuse_late(TimePoint now) {
  std::vector<Work> late;
  {
    const std::scoped_lock lock(mutex_);
    for (Lane& lane : lanes_) {
      for (auto next = lane.works.begin(); next != lane.works.end();) {
        const auto owner = next++;
        for (size_t i = owner->second.size(); i-- > 0;) {  // with the last one the owner goes
          const Work& work = owner->second[i];
          if (work.refuse && now - work.posted > limits_.wait) late.push_back(take(lane, owner, i));
        }
      }
    }
  }
  for (Work& work : late) refuse(std::move(work));
}

// What the job holds is free before its client can know.
void WorkQueue::refuse(Work work) {
  work.run = nullptr;
  work.refuse();
}

void WorkQueue::run(Lane& lane) {
  std::unique_lock lock(mutex_);
  std::string owner;
  while (true) {
    lane.ready.wait(lock, [&] { return stopped_ || next_owner(lane) != lane.turns.end(); });
    if (stopped_) return;
    Job job = pop(lane, owner);
    ++lane.running[owner];
    lock.unlock();
    job();
    job = nullptr;  // what it owns goes before the lock is taken again
    lock.lock();
    // This thread looks for work itself, of this owner or another.
    if (--lane.running[owner] == 0) lane.running.erase(owner);
  }
}

size_t WorkQueue::num_waiting() const {
  const std::scoped_lock lock(mutex_);
  size_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.waiting;
  return sum;
}

void WorkQueue::stop() {
  std::array<Works, 3> dropped;
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      dropped[i].swap(lanes_[i].works);
      lanes_[i].turns.clear();
      lanes_[i].waiting = 0;
      lanes_[i].ready.notify_all();
    }
  }
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace quire::server::http
