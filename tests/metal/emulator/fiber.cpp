#include "fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <new>

// The emulator itself is compiled without AddressSanitizer; what it runs, and is linked with, is
// not.
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
// A stack of stand-ins for each of a thousand fibers would take gigabytes.
extern "C" const char* __asan_default_options() { return "detect_stack_use_after_return=0"; }

namespace quire::emulator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kStack = 128 << 10;  // AddressSanitizer's frames are large

}  // namespace

#if defined(__x86_64__)

// swapcontext asks the kernel for the signal mask each time, which takes longer than all else.
struct Fiber::Context {
  void* stack_pointer = nullptr;
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
  ucontext_t own;
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

Fiber::Fiber(OfThread) : context_(new Context()) {
  pthread_attr_t attributes;
  void* stack = nullptr;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) std::abort();
  pthread_attr_getstack(&attributes, &stack, &stack_bytes_);
  pthread_attr_destroy(&attributes);
  stack_ = static_cast<char*>(stack);
}

Fiber::~Fiber() {
  if (memory_) {
    __asan_unpoison_memory_region(stack_, stack_bytes_);
    munmap(memory_, memory_bytes_);
  }
  delete context_;
}

Fiber& Fiber::of_thread() {
  thread_local Fiber fiber{OfThread()};
  return fiber;
}

void Fiber::enter(Fiber* fiber) {
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
  (*fiber->function_)();
  fiber->done_ = true;
  fiber->switch_to(*fiber->then_);
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

void Fiber::start(const std::function<void()>* function, Fiber* then) {
  if (!done_) __asan_unpoison_memory_region(stack_, stack_bytes_);
  function_ = function;
  then_ = then;
  done_ = false;
  fake_stack_ = nullptr;
  auto* top = reinterpret_cast<uintptr_t*>(stack_ + stack_bytes_ - 16);
  *--top = reinterpret_cast<uintptr_t>(&quire_fiber_begins);
  *--top = 0;                                           // rbp
  *--top = 0;                                           // rbx
  *--top = reinterpret_cast<uintptr_t>(this);           // r12
  *--top = reinterpret_cast<uintptr_t>(&Fiber::enter);  // r13
  *--top = 0;                                           // r14
  *--top = 0;                                           // r15
  context_->stack_pointer = top;
}

void Fiber::switch_to(Fiber& other) {
  __sanitizer_start_switch_fiber(&fake_stack_, other.stack_, other.stack_bytes_);
  quire_switch_stack(&context_->stack_pointer, other.context_->stack_pointer);
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
}

#else

void Fiber::start(const std::function<void()>* function, Fiber* then) {
  if (!done_) __asan_unpoison_memory_region(stack_, stack_bytes_);
  function_ = function;
  then_ = then;
  done_ = false;
  fake_stack_ = nullptr;
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

void Fiber::switch_to(Fiber& other) {
  __sanitizer_start_switch_fiber(&fake_stack_, other.stack_, other.stack_bytes_);
  swapcontext(&context_->own, &other.context_->own);
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
}

#endif

}  // namespace quire::emulator
