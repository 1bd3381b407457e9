#include <stdexcept>
#include <string>

namespace quire::ops {

// Declared in launch.cuh, which nvcc alone can read.
[[noreturn]] void throw_from_op(const char* op, const char* reason) {
  throw std::runtime_error(std::string(op) + ": " + reason);
}

}  // namespace quire::ops
