#pragma once
#include <cstdlib>

namespace quire {

// Whether tests are the deep ring's, which an environment variable says. There limits of time are
// those that the code promises, which a busy machine may miss: elsewhere only a hang reaches a
// limit. And grids are whole, of which `make test` takes a half.
inline bool deep_tests() {
  const char* set = std::getenv("QUIRE_DEEP_TESTS");
  return set != nullptr && *set != '\0';
}

}  // namespace quire
