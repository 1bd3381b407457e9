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
  // What runs on this thread's own stack, for fibers to go back to.
  static Fiber& of_thread();

  // Begins anew with this function, which must not throw, when it is switched to; where the
  // function returns, `then` goes on. What was left of an unfinished call is forgotten: nothing in
  // it is destroyed.
  void start(const std::function<void()>* function, Fiber* then);
  // Called by what runs as this fiber: lets the other go on, and returns when somebody switches
  // back.
  void switch_to(Fiber& other);

 private:
  struct Context;
  struct OfThread {};
  explicit Fiber(OfThread);
  static void enter(Fiber* fiber);

  char* memory_ = nullptr;  // a page that must not be touched, then the stack; null: a thread's
  size_t memory_bytes_ = 0;
  char* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  Context* context_;  // what differs between processors
  const std::function<void()>* function_ = nullptr;
  Fiber* then_ = nullptr;
  bool done_ = true;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace quire::emulator
