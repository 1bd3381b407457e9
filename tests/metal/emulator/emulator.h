#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

// Runs kernels in Metal's language on the host, to find mistakes in them. A kernel's text is
// compiled as C++ (translate.py says how); every thread of a threadgroup is a fiber, and what
// threads do together (barriers, simd operations, matrices) are meeting points. What Metal leaves
// undefined is a Fault here, as far as that can be seen: see run().
//
// What it cannot show: time, whether Apple's compiler takes the text, and the order of the sums in
// simd_sum() and in products of matrices, which Apple does not state.
namespace quire::emulator {

struct Size3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// A kernel did, or was asked for, what Metal does not define. The text names the line.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The value of a function constant: a bool, an integer or a float.
struct Constant {
  uint8_t bytes[8] = {};
  size_t size = 0;
  template <class T>
  static Constant of(T value) {
    Constant constant;
    constant.size = sizeof value;
    std::memcpy(constant.bytes, &value, sizeof value);
    return constant;
  }
};

// Memory of the test's, bound to an index. It should end where its allocation ends, so that
// AddressSanitizer sees what goes beyond.
struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
  bool is_read_only = false;  // run_in_all_orders() leaves it alone
};
template <class T>
Buffer buffer_of(std::vector<T>& values) {
  return {values.data(), values.size() * sizeof(T)};
}
template <class T>
Buffer buffer_of(T& value) {
  return {&value, sizeof value};
}

// One dispatch, as an encoder of Metal's is told of it.
struct Launch {
  std::string kernel;                            // the host name
  std::map<int, Constant> constants = {};        // by index; all that the kernel's text declares
  std::map<int, Buffer> buffers = {};            // by index
  std::map<int, size_t> threadgroup_bytes = {};  // by index; multiples of 16
  Size3 groups = {}, threads = {};               // threads of a threadgroup
};

enum class Order { kForward, kBackward, kShuffled };

// Runs all threadgroups, one after the other. Threads go on from meeting point to meeting point in
// this order, groups follow one another in it. Throws Fault if
//   - the kernel is unknown, a buffer or constant is missing, misaligned or of the wrong size
//   - threads of a group meet at different barriers, or some never come
//   - threadgroup memory is written before a barrier whose flags leave it out
//   - lanes of a simdgroup meet at different operations, or a lane is read that does not take part
//   - threadgroup memory exceeds 32 KiB
// Threadgroup memory is filled before each group, with other bytes for each order and seed.
void run(const Launch& launch, Order order = Order::kForward, uint32_t seed = 1);

// Runs in several orders, each from the same contents of the buffers, and throws Fault if they
// leave different bits: then threads race, or something was read that nobody wrote.
void run_in_all_orders(const Launch& launch);

std::vector<std::string> kernel_names();

}  // namespace quire::emulator
