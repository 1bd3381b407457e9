#pragma once
#include <cstdlib>
#include <string>

namespace quire {

// For tests: the folder that holds src and tests. It comes from the environment, not from the
// compiler, so that the compiler cache serves every clone; without QUIRE_SOURCE_DIR it is the
// working directory.
inline std::string source_dir() {
  const char* dir = std::getenv("QUIRE_SOURCE_DIR");
  return dir ? dir : ".";
}

}  // namespace quire
