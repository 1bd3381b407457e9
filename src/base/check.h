#pragma once
#include <sstream>

namespace quire {

// Collects the message of a failed QUIRE_CHECK and aborts when it goes out of scope.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

}  // namespace quire

// Our own bug if it fails: prints the condition and what is streamed into it, then aborts. Always
// on.
#define QUIRE_CHECK(condition) \
  if (condition) [[likely]] {  \
  } else                       \
    ::quire::CheckFailure(__FILE__, __LINE__, #condition).stream()
