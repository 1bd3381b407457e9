#include "group.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace quire::emulator {
namespace {

constexpr size_t kThreadgroupMemory = 32 << 10;  // what every Apple GPU has

Group* running = nullptr;

std::string text_of(const char* operation, const Place& at) {
  return std::string(operation) + " at " + at.file_name() + ":" + std::to_string(at.line());
}

// Mostly the very same literals.
bool same_text(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }
bool same_place(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         same_text(a.file_name(), b.file_name());
}

// Fibers are kept: to map and to unmap a thousand stacks takes longer than most launches. They are
// the process's, whatever thread launches: every engine has a thread, and Linux counts maps.
std::deque<Fiber>& fibers_of_process(size_t count) {
  static std::deque<Fiber> fibers;
  while (fibers.size() < count) fibers.emplace_back();
  return fibers;
}

}  // namespace

Group& Group::current() { return *running; }

Group::Group(const Launch& launch, const std::function<void(const Arguments&)>& call, Order order,
             std::mt19937& random)
    : launch_(launch),
      call_(call),
      order_(order),
      random_(random),
      fibers_(fibers_of_process(launch.threads.count())) {
  const auto count = static_cast<uint32_t>(launch.threads.count());
  threads_.resize(count);
  simdgroups_.resize((count + kSimdWidth - 1) / kSimdWidth);
  for (uint32_t i = 0; i < count; ++i)
    sequence_.push_back(order == Order::kBackward ? count - 1 - i : i);
  body_ = [this] {
    try {
      call_(Arguments{&launch_});
    } catch (const Fault& fault) {
      if (!fault_) fault_ = fault.what();
    }
  };
  for (const auto& [index, bytes] : launch.threadgroup_bytes) {
    memory_.emplace_back(bytes);
    memory_buffers_[index] = {memory_.back().data(), bytes};
  }
}

Group::~Group() = default;

void Group::start_threads(Size3 place) {
  const Size3 size = launch_.threads;
  alive_ = static_cast<uint32_t>(threads_.size());
  meeting_ = {};
  declared_.clear();
  declared_bytes_ = 0;
  for (auto& memory : memory_) add_memory(memory.data(), memory.size());
  if (declared_bytes_ > kThreadgroupMemory)
    throw Fault(launch_.kernel + ": threadgroup memory of " + std::to_string(declared_bytes_) +
                " bytes");
  for (Simdgroup& simdgroup : simdgroups_) {
    simdgroup.meeting = {};
    simdgroup.present = 0;
  }
  for (uint32_t i = 0; i < alive_; ++i) {
    threads_[i].position = {{place.x, place.y, place.z},
                            {launch_.groups.x, launch_.groups.y, launch_.groups.z},
                            {i % size.x, i / size.x % size.y, i / size.x / size.y},
                            {size.x, size.y, size.z}};
    threads_[i].done = threads_[i].waiting = false;
    simdgroups_[i / kSimdWidth].present |= 1u << i % kSimdWidth;
    fibers_[i].start(&body_, &Fiber::of_thread());
  }
  at_ = 0;
  order_threads();
}

void Group::order_threads() {
  if (order_ == Order::kShuffled) std::shuffle(sequence_.begin(), sequence_.end(), random_);
}

// The next thread that can go on, in this round or, if there is none, in a new one.
std::optional<uint32_t> Group::next_thread() {
  for (int rounds = 0; rounds < 2; ++rounds) {
    while (at_ < sequence_.size()) {
      const uint32_t i = sequence_[at_++];
      if (!threads_[i].done && !threads_[i].waiting) return i;
    }
    at_ = 0;
    order_threads();
  }
  return std::nullopt;
}

// Threads switch to one another (wait()); they come back here where one has returned, or where none
// can go on.
void Group::run(Size3 place) {
  running = this;
  start_threads(place);
  while (alive_ > 0) {
    const auto next = next_thread();
    if (next) {
      current_ = *next;
      Fiber::of_thread().switch_to(fibers_[current_]);
    }
    if (!fault_ && (!next || threads_[current_].waiting))
      fault_ = "threads wait for one another: " + waiting_places();
    if (!fault_) finished(current_);
    if (fault_) throw Fault(launch_.kernel + ": " + *fault_);
  }
}

void Group::finished(uint32_t thread) {
  threads_[thread].done = true;
  --alive_;
  if (meeting_.arrived > 0) {
    fault_ = "not all threads come to " + text_of(meeting_.operation, meeting_.at);
    return;
  }
  Simdgroup& simdgroup = simdgroups_[thread / kSimdWidth];
  simdgroup.present &= ~(1u << thread % kSimdWidth);
  if (simdgroup.meeting.arrived > 0) end_if_all_are_there(thread / kSimdWidth);
}

void Group::arrive(Meeting& meeting, const char* operation, const Place& at) {
  if (meeting.arrived++ == 0) {
    meeting.operation = operation;
    meeting.at = at;
  } else if (!same_text(meeting.operation, operation) || !same_place(meeting.at, at)) {
    throw Fault("threads part: some are at " + text_of(meeting.operation, meeting.at) +
                ", others at " + text_of(operation, at));
  }
}

// All of these wait for the same meeting, and go on.
void Group::release(uint32_t first, uint32_t end) {
  for (uint32_t i = first; i < std::min<uint32_t>(end, threads_.size()); ++i)
    threads_[i].waiting = false;
}

// Lets the others go on until this thread's turn has come.
void Group::wait() {
  const uint32_t own = current_;
  const auto next = next_thread();
  if (next == own) return;
  if (next) current_ = *next;
  fibers_[own].switch_to(next ? fibers_[*next] : Fiber::of_thread());
}

void Group::meet_group(const char* operation, bool orders_threadgroup_memory, const Place& at) {
  arrive(meeting_, operation, at);
  if (alive_ < threads_.size()) throw Fault("not all threads come to " + text_of(operation, at));
  threads_[current_].waiting = true;
  if (meeting_.arrived == threads_.size()) {
    order_memory(orders_threadgroup_memory, at);
    meeting_ = {};
    release(0, static_cast<uint32_t>(threads_.size()));
  }
  wait();
}

void Group::end_if_all_are_there(uint32_t index) {
  Simdgroup& simdgroup = simdgroups_[index];
  if (simdgroup.meeting.arrived != static_cast<uint32_t>(std::popcount(simdgroup.present))) return;
  if (simdgroup.meeting.combine)
    simdgroup.meeting.combine(simdgroup.slots[simdgroup.turn], simdgroup.present);
  simdgroup.met = simdgroup.present;
  simdgroup.turn ^= 1;
  simdgroup.meeting = {};
  release(index * kSimdWidth, (index + 1) * kSimdWidth);
}

Lanes Group::meet_lanes(const char* operation, const void* bytes, size_t count, const Place& at,
                        CombineLanes combine) {
  const uint32_t lane = current_ % kSimdWidth;
  Simdgroup& simdgroup = simdgroups_[current_ / kSimdWidth];
  arrive(simdgroup.meeting, operation, at);
  simdgroup.meeting.combine = combine;
  const uint32_t turn = simdgroup.turn;
  if (count > 0) std::memcpy(simdgroup.slots[turn] + lane * kSlotBytes, bytes, count);
  threads_[current_].waiting = true;
  end_if_all_are_there(current_ / kSimdWidth);
  wait();
  return {simdgroup.slots[turn], simdgroup.met, lane, at};
}

void Group::declare(void* memory, size_t bytes, const Place& at) {
  for (const Memory& declared : declared_)
    if (declared.data == memory) return;
  add_memory(memory, bytes);
  if (declared_bytes_ > kThreadgroupMemory)
    throw Fault("threadgroup memory of " + std::to_string(declared_bytes_) + " bytes at " +
                at.file_name() + ":" + std::to_string(at.line()));
}

void Group::add_memory(void* memory, size_t bytes) {
  poison(memory, bytes);
  auto* data = static_cast<char*>(memory);
  declared_.push_back({data, {data, data + bytes}});
  declared_bytes_ += bytes;
}

void Group::order_memory(bool orders, const Place& at) {
  for (Memory& memory : declared_) {
    const bool changed =
        std::memcmp(memory.data, memory.contents.data(), memory.contents.size()) != 0;
    if (changed && !orders)
      throw Fault("threadgroup memory was written before a barrier that does not order it, at " +
                  std::string(at.file_name()) + ":" + std::to_string(at.line()));
    if (changed) std::memcpy(memory.contents.data(), memory.data, memory.contents.size());
  }
}

// What a kernel finds in memory that it has not written: NaNs, another number, anything.
void Group::poison(void* memory, size_t bytes) {
  auto* to = static_cast<uint8_t*>(memory);
  if (order_ == Order::kForward) std::memset(to, 0xFF, bytes);
  if (order_ == Order::kBackward) std::memset(to, 0x3F, bytes);
  if (order_ != Order::kShuffled) return;
  for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(random_());
}

const Buffer* Group::threadgroup_memory(int index) const {
  const auto found = memory_buffers_.find(index);
  if (found == memory_buffers_.end())
    throw Fault("threadgroup memory " + std::to_string(index) + " is not given");
  return &found->second;
}

std::string Group::waiting_places() const {
  std::string all;
  if (meeting_.arrived > 0)
    all = std::to_string(meeting_.arrived) + " at " + text_of(meeting_.operation, meeting_.at);
  for (size_t i = 0; i < simdgroups_.size(); ++i) {
    const Meeting& meeting = simdgroups_[i].meeting;
    if (meeting.arrived == 0) continue;
    if (!all.empty()) all += ", ";
    all += std::to_string(meeting.arrived) + " of simdgroup " + std::to_string(i) + " at " +
           text_of(meeting.operation, meeting.at);
  }
  return all;
}

const Position& position() { return Group::current().position(); }

void Lanes::fail_without(uint32_t lane) const {
  fail("lane " + std::to_string(lane) + " is read and takes no part", at_);
}

void fail(const std::string& what, const Place& at) {
  throw Fault(what + " at " + at.file_name() + ":" + std::to_string(at.line()));
}

void meet_group(const char* operation, bool orders_threadgroup_memory, const Place& at) {
  Group::current().meet_group(operation, orders_threadgroup_memory, at);
}

Lanes meet_lanes(const char* operation, const void* bytes, size_t count, const Place& at,
                 CombineLanes combine) {
  return Group::current().meet_lanes(operation, bytes, count, at, combine);
}

void declare_threadgroup_memory(void* memory, size_t bytes, const Place& at) {
  Group::current().declare(memory, bytes, at);
}

Argument Arguments::threadgroup(int index) const {
  return {Group::current().threadgroup_memory(index), index};
}

}  // namespace quire::emulator
