#pragma once
#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"

namespace quire {

// Wraps an error so that a Result<T, E> can be made from it even when T and E are the same type.
template <class E>
struct Err {
  E error;
};
template <class E>
Err(E) -> Err<E>;

// Either a value or the reason why there is none. For what a client can get wrong; never for our
// own bugs.
template <class T, class E>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  template <class F>
  Result(Err<F> err) : state_(std::in_place_index<1>, std::move(err.error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return check_ok(), std::get<0>(state_); }
  const T& value() const& { return check_ok(), std::get<0>(state_); }
  T&& value() && { return check_ok(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  E& error() & { return check_error(), std::get<1>(state_); }
  const E& error() const& { return check_error(), std::get<1>(state_); }
  E&& error() && { return check_error(), std::get<1>(std::move(state_)); }

 private:
  void check_ok() const { QUIRE_CHECK(ok()) << "value() of a Result that holds an error"; }
  void check_error() const { QUIRE_CHECK(!ok()) << "error() of a Result that holds a value"; }

  std::variant<T, E> state_;
};

// The outcome of an action without a value.
template <class E>
class [[nodiscard]] Result<void, E> {
 public:
  Result() = default;
  template <class F>
  Result(Err<F> err) : error_(std::move(err.error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const E& error() const {
    QUIRE_CHECK(!ok()) << "error() of a Result without one";
    return *error_;
  }

 private:
  std::optional<E> error_;
};

}  // namespace quire
