#include "fiber.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUIRE_FIBER_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
// A stack of stand-ins for each of a thousand fibers would take gigabytes.
extern "C" const char* __asan_default_options() { return "detect_stack_use_after_return=0"; }
#endif
#endif

namespace quire::emulator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kStack = 128 << 10;  // AddressSanitizer's frames are large

void start_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* bottom,
                  [[maybe_unused]] size_t bytes) {
#ifdef QUIRE_FIBER_ASAN
  __sanitizer_start_switch_fiber(save, bottom, bytes);
#endif
}
void finish_switch([[maybe_unused]] void* saved, [[maybe_unused]] const void** bottom,
                   [[maybe_unused]] size_t* bytes) {
#ifdef QUIRE_FIBER_ASAN
  __sanitizer_finish_switch_fiber(saved, bottom, bytes);
#endif
}

}  // namespace

#if defined(__x86_64__)

// swapcontext asks the kernel for the signal mask each time, which takes longer than all else.
struct Fiber::Context {
  void* own = nullptr;  // stack pointers
  void* caller = nullptr;
};

extern "C" void quire_switch_stack(void** save, void* to);
asm(R"(
.text
.globl quire_switch_stack
.type quire_switch_stack, @function
quire_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size quire_switch_stack, .-quire_switch_stack
)");

#else

struct Fiber::Context {
  ucontext_t own, caller;
};

#endif

Fiber::Fiber() : memory_bytes_(kPage + kStack), stack_bytes_(kStack), context_(new Context()) {
  void* memory = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  mprotect(memory_, kPage, PROT_NONE);
  stack_ = memory_ + kPage;
}

Fiber::~Fiber() {
#ifdef QUIRE_FIBER_ASAN
  __asan_unpoison_memory_region(stack_, stack_bytes_);
#endif
  munmap(memory_, memory_bytes_);
  delete context_;
}

void Fiber::enter(Fiber* fiber) {
  finish_switch(nullptr, &fiber->caller_stack_, &fiber->caller_stack_bytes_);
  (*fiber->function_)();
  fiber->done_ = true;
  start_switch(nullptr, fiber->caller_stack_, fiber->caller_stack_bytes_);
#if defined(__x86_64__)
  void* unused;
  quire_switch_stack(&unused, fiber->context_->caller);
#else
  setcontext(&fiber->context_->caller);
#endif
  std::abort();
}

#if defined(__x86_64__)

// The first return of quire_switch_stack on a new stack comes here; %r12 is the fiber.
extern "C" void quire_fiber_begins();
asm(R"(
.text
.globl quire_fiber_begins
.type quire_fiber_begins, @function
quire_fiber_begins:
  movq %r12, %rdi
  xorl %ebp, %ebp
  pushq $0
  jmp *%r13
.size quire_fiber_begins, .-quire_fiber_begins
)");

void Fiber::start(const std::function<void()>* function) {
#ifdef QUIRE_FIBER_ASAN
  if (!done_) __asan_unpoison_memory_region(stack_, stack_bytes_);
#endif
  function_ = function;
  done_ = false;
  own_fake_stack_ = nullptr;
  auto* top = reinterpret_cast<uintptr_t*>(stack_ + stack_bytes_ - 16);
  *--top = reinterpret_cast<uintptr_t>(&quire_fiber_begins);
  *--top = 0;                                           // rbp
  *--top = 0;                                           // rbx
  *--top = reinterpret_cast<uintptr_t>(this);           // r12
  *--top = reinterpret_cast<uintptr_t>(&Fiber::enter);  // r13
  *--top = 0;                                           // r14
  *--top = 0;                                           // r15
  context_->own = top;
}

bool Fiber::resume() {
  start_switch(&caller_fake_stack_, stack_, stack_bytes_);
  quire_switch_stack(&context_->caller, context_->own);
  finish_switch(caller_fake_stack_, nullptr, nullptr);
  return done_;
}

void Fiber::yield() {
  start_switch(&own_fake_stack_, caller_stack_, caller_stack_bytes_);
  quire_switch_stack(&context_->own, context_->caller);
  finish_switch(own_fake_stack_, &caller_stack_, &caller_stack_bytes_);
}

#else

void Fiber::start(const std::function<void()>* function) {
#ifdef QUIRE_FIBER_ASAN
  if (!done_) __asan_unpoison_memory_region(stack_, stack_bytes_);
#endif
  function_ = function;
  done_ = false;
  own_fake_stack_ = nullptr;
  getcontext(&context_->own);
  context_->own.uc_stack.ss_sp = stack_;
  context_->own.uc_stack.ss_size = stack_bytes_;
  context_->own.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  using Entry = void (*)();
  // makecontext passes ints.
  auto entry = [](unsigned high, unsigned low) {
    Fiber::enter(reinterpret_cast<Fiber*>((uintptr_t{high} << 32) | low));
  };
  void (*plain)(unsigned, unsigned) = entry;
  makecontext(&context_->own, reinterpret_cast<Entry>(plain), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

bool Fiber::resume() {
  start_switch(&caller_fake_stack_, stack_, stack_bytes_);
  swapcontext(&context_->caller, &context_->own);
  finish_switch(caller_fake_stack_, nullptr, nullptr);
  return done_;
}

void Fiber::yield() {
  start_switch(&own_fake_stack_, caller_stack_, caller_stack_bytes_);
  swapcontext(&context_->own, &context_->caller);
  finish_switch(own_fake_stack_, &caller_stack_, &caller_stack_bytes_);
}

#endif

}  // namespace quire::emulator
