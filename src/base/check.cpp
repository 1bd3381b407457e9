#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace quire {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  message_ << "\n";
  std::fputs(message_.str().c_str(), stderr);
  std::fflush(stderr);
  std::abort();
}

}  // namespace quire
