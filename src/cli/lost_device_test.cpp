// A server whose device is lost: its clients get an error, and the process ends, whole, with its
// own status. The engine is the real one, on a device of tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/deep_tests.h"
#include "base/source_dir.h"
#include "cli/serve_loop.h"
#include "cli/signals.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "models/model.h"
#include "ops/cuda/cuda_device.h"
#include "ops/cuda/has_cuda.h"
#include "ops/gather_rows/gather_rows_cuda.h"
#include "ops/runtime/test_device.h"
#include "ops/runtime/test_util.h"
#include "server/engine_adapter.h"
#include "server/log.h"
#include "server/test_client.h"
#include "server/test_eventually.h"

namespace quire::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::ExitedWithCode;

const std::string kModelDir = source_dir() + "/tests/parity/models/qwen3";

// On a GPU its own; elsewhere one of tests, with the CPU's kernels.
std::shared_ptr<ops::Device> make_device() {
  if (ops::testing::on_cuda()) return ops::make_cuda_device();
  return std::make_shared<ops::testing::TestDevice>("cpu");
}

// The device's next kernels fail: on a GPU one reads where nothing is.
void lose(ops::Device& device) {
  if constexpr (ops::kHasCuda)
    if (ops::CudaDevice* cuda = device.cuda()) {
      const auto* nowhere = reinterpret_cast<const int32_t*>(alignof(int32_t));
      return ops::gather_rows_cuda(cuda->stream(),
                                   {.count = 1, .row_bytes = 4, .rows = nowhere, .from = nowhere});
    }
  dynamic_cast<ops::testing::TestDevice&>(device).lose_at_wait(1);
}

const char* reason() {
  return ops::testing::on_cuda() ? "an illegal memory access was encountered"
                                 : "the device is on fire";
}

std::unique_ptr<engine::Engine> start_engine(const std::shared_ptr<ops::Device>& device) {
  mlx::core::set_default_device(mlx::core::Device::cpu);
  const auto checkpoint = formats::Checkpoint::open(kModelDir);
  auto model = models::load_model(ops::make_context(1, device), checkpoint);
  engine::EngineOptions options;
  options.scheduler.max_model_len = 512;
  options.scheduler.num_blocks = 64;
  return std::make_unique<engine::Engine>(std::move(model), std::move(options));
}

// A streamed answer that the loss cuts says so, and is closed as a stream should be. Those before
// it may have ended; one that it meets before its first token is an error from the start.
bool hears_of_it(uint16_t port) {
  for (int asked = 0; asked < 1000; ++asked) {
    const auto answer = server::TestClient(port).post(
        "/v1/completions",
        R"({"prompt": "Hi", "max_tokens": 480, "ignore_eos": true, "stream": true})");
    const bool is_told = answer.body.find(reason()) != std::string::npos;
    if (answer.status == 500) return is_told;
    if (!answer.ends_with_done()) return false;
    if (is_told) return true;
  }
  return false;
}

// Serves until a kernel fails in the midst of an answer. The exit status of serve, or 1 if a client
// was told nothing, /health called the engine well, or the end took more than a second.
int serve_until_lost() {
  server::Log log(STDERR_FILENO);
  Signals signals([](const char* reason) { std::fprintf(stderr, "%s\n", reason); });
  const auto device = make_device();
  auto engine = start_engine(device);
  const auto client = server::make_engine_client(*engine);
  server::ModelText text;
  text.tokenizer = text::Tokenizer::load(kModelDir);
  server::ServerOptions options;
  options.http.port = 0;
  options.served_model_names = {"tiny"};
  server::Server server(*client, text, options);
  const uint16_t port = server.start();
  bool heard = false, shown = false;
  TimePoint lost;
  std::thread other([&] { heard = hears_of_it(port); });
  std::thread breaker([&] {
    server::eventually([&] { return engine->stats().generation_tokens >= 20; });
    lost = Clock::now();
    lose(*device);
    server::eventually([&] { return !engine->stats().healthy; });
    shown = server::TestClient(port).get("/health").status == 503;
  });
  const ExitStatus status = serve_until_stopped(signals, server, *client, milliseconds(0), [] {});
  other.join();
  breaker.join();
  engine->shutdown(std::chrono::seconds(0));
  const double seconds = seconds_since(lost);
  std::fprintf(stderr, "ended %.3f s after the loss\n", seconds);
  // Nothing in the ring of tests that runs beside others judges by a clock.
  const bool in_time = seconds < 1 || !(ops::testing::on_cuda() || deep_tests());
  return heard && shown && in_time ? status : 1;
}

TEST(LostDeviceDeathTest, EndsTheProcessAndTellsItsClients) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // On a GPU whoever meets the failure first says what it did.
  const std::string failure = ops::testing::on_cuda()
                                  ? "the engine has failed: .*"
                                  : "the engine has failed: cpu: a kernel failed: ";
  EXPECT_EXIT(std::exit(serve_until_lost()), ExitedWithCode(kEngineFailed), failure + reason());
}

}  // namespace
}  // namespace quire::cli
