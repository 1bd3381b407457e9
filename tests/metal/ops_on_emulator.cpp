// Lets the tests of the ops, which are compiled with it, run on the emulator of Metal.
#include <cstdlib>

#include "emulated_gpu.h"
#include "ops/runtime/test_util.h"

namespace quire::emulator::testing {
namespace {

const bool is_set = [] {
  setenv("QUIRE_TEST_METAL", "1", /*overwrite=*/1);
  ops::testing::make_metal_for_tests = [] {
    return std::shared_ptr<ops::Device>(make_emulated_gpu());
  };
  return true;
}();

}  // namespace
}  // namespace quire::emulator::testing
