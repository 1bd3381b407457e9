#pragma once
#include <coroutine>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace quire::dialects {

// A parser in the form of a coroutine: plain code that stops where the text ends for now and goes
// on with the next byte. A driver resumes the innermost one; none resumes another, so the machine's
// stack does not grow with the text.
class TaskStack {
 public:
  void push(std::coroutine_handle<> task) { stack_.push_back(task); }
  // Until `stopped` or the outermost task is done. True: done.
  template <class Stopped>
  bool run(Stopped stopped) {
    while (!stack_.empty()) {
      const std::coroutine_handle<> task = stack_.back();  // the stack may grow meanwhile
      task.resume();
      if (stopped()) return false;
      while (!stack_.empty() && stack_.back().done()) stack_.pop_back();
    }
    return true;
  }
  void clear() { stack_.clear(); }

 private:
  std::vector<std::coroutine_handle<>> stack_;
};

template <class T>
struct TaskResult {
  std::optional<T> result;
  void return_value(T value) { result = std::move(value); }
  T take() { return std::move(*result); }
};
template <>
struct TaskResult<void> {
  void return_void() {}
  void take() {}
};

template <class T = void>
class [[nodiscard]] Task {
 public:
  struct promise_type : TaskResult<T> {
    TaskStack* stack = nullptr;
    // The first parameter of every parser is the reader, which knows the stack.
    template <class Reader, class... Rest>
    explicit promise_type(Reader& reader, const Rest&...) : stack(&reader.stack()) {}
    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void unhandled_exception() { throw; }
  };

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  void start() { handle_.promise().stack->push(handle_); }

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<>) { start(); }
  T await_resume() { return handle_.promise().take(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace quire::dialects
