#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "emulator.h"
#include "fiber.h"
#include "threads.h"

namespace quire::emulator {

// The threads of a threadgroup; one object runs all groups of a launch, one after the other.
class Group {
 public:
  Group(const Launch& launch, const std::function<void(const Arguments&)>& call, Order order,
        std::mt19937& random);
  ~Group();

  void run(Size3 place);

  // Of the thread that runs:
  const Position& position() const { return threads_[current_].position; }
  void meet_group(const char* operation, bool orders_threadgroup_memory, const Place& at);
  Lanes meet_lanes(const char* operation, const void* bytes, size_t count, const Place& at,
                   CombineLanes combine);
  void declare(void* memory, size_t bytes, const Place& at);
  const Buffer* threadgroup_memory(int index) const;

  static Group& current();

 private:
  struct Meeting {
    const char* operation = nullptr;
    Place at;
    uint32_t arrived = 0;
    CombineLanes combine = nullptr;
  };
  // Threadgroup memory, and its contents when a barrier ordered it last.
  struct Memory {
    char* data;
    std::vector<char> contents;
  };
  struct Thread {
    Position position;
    bool done = false, waiting = false;
  };
  struct Simdgroup {
    Meeting meeting;
    uint32_t present = 0;  // lanes that have not returned
    uint32_t met = 0;      // those of the last meeting
    uint32_t turn = 0;     // which of the two sets of slots is written
    alignas(16) char slots[2][kSimdWidth * kSlotBytes];
  };

  void start_threads(Size3 place);
  void order_threads();
  std::optional<uint32_t> next_thread();
  void finished(uint32_t thread);
  void arrive(Meeting& meeting, const char* operation, const Place& at);
  void end_if_all_are_there(uint32_t simdgroup);
  void release(uint32_t first, uint32_t end);
  void wait();
  void add_memory(void* memory, size_t bytes);
  void order_memory(bool orders, const Place& at);
  void poison(void* memory, size_t bytes);
  std::string waiting_places() const;

  const Launch& launch_;
  const std::function<void(const Arguments&)>& call_;
  Order order_;
  std::mt19937& random_;
  std::deque<Fiber>& fibers_;   // at least one for each thread
  std::function<void()> body_;  // of a fiber
  std::vector<Thread> threads_;
  std::vector<uint32_t> sequence_;  // the order of threads
  size_t at_ = 0;                   // how much of it this round has passed
  std::vector<Simdgroup> simdgroups_;
  Meeting meeting_;
  uint32_t current_ = 0, alive_ = 0;
  std::vector<Memory> declared_;
  size_t declared_bytes_ = 0;
  std::deque<std::vector<char>> memory_;  // that the launch gives
  std::map<int, Buffer> memory_buffers_;
  std::optional<std::string> fault_;
};

}  // namespace quire::emulator
