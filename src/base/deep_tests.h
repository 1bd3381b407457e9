#pragma once
#include <cstdlib>

namespace quire {

// Whether tests that measure time run too. A busy machine may fail them, so only the deep ring asks
// for them, by an environment variable.
inline bool deep_tests() {
  const char* set = std::getenv("QUIRE_DEEP_TESTS");
  return set != nullptr && *set != '\0';
}

}  // namespace quire
