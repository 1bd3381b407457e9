#pragma once
#include <cstddef>
#include <functional>

namespace quire::emulator {

// A call that can stop in the middle, on a stack of its own. AddressSanitizer is told of every
// switch. A fiber belongs to the thread that made it.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Begins anew with this function, which must not throw. What was left of an unfinished call is
  // forgotten: nothing in it is destroyed.
  void start(const std::function<void()>* function);
  // Runs until the function yields or returns. True: it has returned.
  bool resume();
  // Called by the function: back to where resume() was called.
  void yield();

 private:
  struct Context;
  static void enter(Fiber* fiber);

  char* memory_ = nullptr;  // a page that must not be touched, then the stack
  size_t memory_bytes_ = 0;
  char* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  Context* context_;  // what differs between processors
  const std::function<void()>* function_ = nullptr;
  bool done_ = true;
  void* own_fake_stack_ = nullptr;  // AddressSanitizer's
  void* caller_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_stack_bytes_ = 0;
};

}  // namespace quire::emulator
