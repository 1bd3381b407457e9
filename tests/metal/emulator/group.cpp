#include "group.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace quire::emulator {
namespace {

constexpr size_t kThreadgroupMemory = 32 << 10;  // what every Apple GPU has

Group* running = nullptr;

std::string text_of(const char* operation, const Place& at) {
  return std::string(operation) + " at " + at.file_name() + ":" + std::to_string(at.line());
}

size_t contents_of(const void* memory, size_t bytes) {
  return std::hash<std::string_view>()({static_cast<const char*>(memory), bytes});
}

bool same_place(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::strcmp(a.file_name(), b.file_name()) == 0;
}

}  // namespace

Group& Group::current() { return *running; }

Group::Group(const Launch& launch, const std::function<void(const Arguments&)>& call, Order order,
             std::mt19937& random)
    : launch_(launch), call_(call), order_(order), random_(random) {
  const auto count = static_cast<uint32_t>(launch.threads.count());
  for (uint32_t i = 0; i < count; ++i) fibers_.emplace_back();
  threads_.resize(count);
  simdgroups_.resize((count + kSimdWidth - 1) / kSimdWidth);
  for (uint32_t i = 0; i < count; ++i) {
    threads_[i].body = [this] {
      try {
        call_(Arguments{&launch_});
      } catch (const Fault& fault) {
        if (!fault_) fault_ = fault.what();
      }
    };
    sequence_.push_back(order == Order::kBackward ? count - 1 - i : i);
  }
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
    fibers_[i].start(&threads_[i].body);
  }
}

void Group::order_threads() {
  if (order_ == Order::kShuffled) std::shuffle(sequence_.begin(), sequence_.end(), random_);
}

void Group::run(Size3 place) {
  running = this;
  start_threads(place);
  while (alive_ > 0) {
    order_threads();
    bool moved = false;
    for (const uint32_t i : sequence_) {
      if (threads_[i].done || threads_[i].waiting) continue;
      moved = true;
      current_ = i;
      if (fibers_[i].resume()) finished(i);
      if (fault_) throw Fault(launch_.kernel + ": " + *fault_);
    }
    if (!moved) throw Fault(launch_.kernel + ": threads wait for one another: " + waiting_places());
  }
}

void Group::finished(uint32_t thread) {
  threads_[thread].done = true;
  --alive_;
  if (fault_) return;
  if (meeting_.arrived > 0) {
    fault_ = "not all threads come to " + text_of(meeting_.operation, meeting_.at);
    return;
  }
  Simdgroup& simdgroup = simdgroups_[thread / kSimdWidth];
  simdgroup.present &= ~(1u << thread % kSimdWidth);
  if (simdgroup.meeting.arrived > 0 &&
      simdgroup.meeting.arrived == static_cast<uint32_t>(__builtin_popcount(simdgroup.present))) {
    simdgroup.met = simdgroup.present;
    simdgroup.turn ^= 1;
    simdgroup.meeting = {};
    release(thread / kSimdWidth * kSimdWidth, thread / kSimdWidth * kSimdWidth + kSimdWidth);
  }
}

void Group::arrive(Meeting& meeting, const char* operation, const Place& at) {
  if (meeting.arrived++ == 0) {
    meeting.operation = operation;
    meeting.at = at;
  } else if (std::strcmp(meeting.operation, operation) != 0 || !same_place(meeting.at, at)) {
    throw Fault("threads part: some are at " + text_of(meeting.operation, meeting.at) +
                ", others at " + text_of(operation, at));
  }
}

// All of these wait for the same meeting, and go on.
void Group::release(uint32_t first, uint32_t end) {
  for (uint32_t i = first; i < std::min<uint32_t>(end, threads_.size()); ++i)
    threads_[i].waiting = false;
}

void Group::wait() { fibers_[current_].yield(); }

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

Lanes Group::meet_lanes(const char* operation, const void* bytes, size_t count, const Place& at) {
  const uint32_t lane = current_ % kSimdWidth, first = current_ - lane;
  Simdgroup& simdgroup = simdgroups_[current_ / kSimdWidth];
  arrive(simdgroup.meeting, operation, at);
  const uint32_t turn = simdgroup.turn;
  if (count > 0) std::memcpy(simdgroup.slots[turn] + lane * kSlotBytes, bytes, count);
  threads_[current_].waiting = true;
  if (simdgroup.meeting.arrived == static_cast<uint32_t>(__builtin_popcount(simdgroup.present))) {
    simdgroup.met = simdgroup.present;
    simdgroup.turn ^= 1;
    simdgroup.meeting = {};
    release(first, first + kSimdWidth);
  }
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
  declared_.push_back({static_cast<char*>(memory), bytes, 0});
  declared_.back().contents = contents_of(memory, bytes);
  declared_bytes_ += bytes;
}

void Group::order_memory(bool orders, const Place& at) {
  for (Memory& memory : declared_) {
    const size_t contents = contents_of(memory.data, memory.bytes);
    if (!orders && contents != memory.contents)
      throw Fault("threadgroup memory was written before a barrier that does not order it, at " +
                  std::string(at.file_name()) + ":" + std::to_string(at.line()));
    memory.contents = contents;
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

void fail(const std::string& what, const Place& at) {
  throw Fault(what + " at " + at.file_name() + ":" + std::to_string(at.line()));
}

void meet_group(const char* operation, bool orders_threadgroup_memory, const Place& at) {
  Group::current().meet_group(operation, orders_threadgroup_memory, at);
}

Lanes meet_lanes(const char* operation, const void* bytes, size_t count, const Place& at) {
  return Group::current().meet_lanes(operation, bytes, count, at);
}

void declare_threadgroup_memory(void* memory, size_t bytes, const Place& at) {
  Group::current().declare(memory, bytes, at);
}

Argument Arguments::threadgroup(int index) const {
  return {Group::current().threadgroup_memory(index), index};
}

}  // namespace quire::emulator
