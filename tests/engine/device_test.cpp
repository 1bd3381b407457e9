// The engine on a device with memory of its own answers as it does on the host. The kernels are the
// CPU's, so the answers are the same bits; what is given back there is overwritten.
#include <gtest/gtest.h>

#include "engine_harness.h"
#include "ops/runtime/test_device.h"

namespace quire::engine {
namespace {

// Whatever makes a context meanwhile gets this device.
class OnDevice {
 public:
  explicit OnDevice(std::shared_ptr<ops::Device> device) {
    ops::set_default_device(std::move(device));
  }
  ~OnDevice() { ops::set_default_device(nullptr); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

class DevicePath : public testing::TestWithParam<const char*> {};

TEST_P(DevicePath, AnswersAsTheHostDoes) {
  const std::string checkpoint = GetParam();
  const auto jobs = random_jobs(8, open_checkpoint(checkpoint).config().vocab_size, 19, 120, 40);
  const Arrangement base{.checkpoint = checkpoint, .max_model_len = 256};
  const auto solo = run_solo(base, jobs);
  const auto device = std::make_shared<ops::testing::TestDevice>("cpu");
  {
    const OnDevice there(device);
    for (const int64_t budget : {16, 2048}) {
      for (const bool preempt : {false, true}) {
        Arrangement setup = base;
        setup.max_num_batched_tokens = budget;
        setup.block_size = 16;
        setup.prefix_caching = setup.lookahead = preempt;
        if (preempt) setup.num_blocks = 256 / setup.block_size + 1;
        expect_same(solo, run_jobs(setup, jobs, 3), setup.text());
      }
    }
  }
  EXPECT_GT(device->taken(), 1000);
  EXPECT_EQ(device->used(), 0u) << "memory of the device is left over";
}

constexpr const char* kCheckpoints[] = {
    "tests/parity/models/qwen3-bf16", "tests/parity/models/qwen3-4bit",
    "tests/parity/models/qwen3-untied-sharded", "tests/parity/models/qwen3-moe",
    "tests/parity/models/qwen3-next"};
INSTANTIATE_TEST_SUITE_P(Models, DevicePath, testing::ValuesIn(kCheckpoints));

}  // namespace
}  // namespace quire::engine
