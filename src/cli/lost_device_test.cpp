// A server whose device is lost: its clients get an error, and the process ends, whole, with its
// own status. The engine is the real one, on a device of tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/source_dir.h"
#include "cli/serve_loop.h"
#include "cli/signals.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "models/model.h"
#include "ops/runtime/test_device.h"
#include "server/engine_adapter.h"
#include "server/log.h"
#include "server/test_client.h"

namespace quire::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::ExitedWithCode;

const std::string kModelDir = source_dir() + "/tests/parity/models/qwen3";

std::unique_ptr<engine::Engine> start_engine(const std::shared_ptr<ops::Device>& device) {
  mlx::core::set_default_device(mlx::core::Device::cpu);
  const auto checkpoint = formats::Checkpoint::open(kModelDir);
  auto model = models::load_model(ops::make_context(1, device), checkpoint);
  engine::EngineOptions options;
  options.scheduler.max_model_len = 256;
  options.scheduler.num_blocks = 64;
  return std::make_unique<engine::Engine>(std::move(model), std::move(options));
}

// A streamed answer that the loss cuts says so, and is closed as a stream should be.
bool hears_of_it(uint16_t port) {
  const auto answer = server::TestClient(port).post(
      "/v1/completions",
      R"({"prompt": "Hi", "max_tokens": 200, "ignore_eos": true, "stream": true})");
  return answer.ends_with_done() && answer.body.find("the device is on fire") != std::string::npos;
}

// Serves until the kernels of the 20th step fail. The exit status of serve, or 1 if a client was
// told nothing.
int serve_until_lost() {
  server::Log log(STDERR_FILENO);
  Signals signals([](const char* reason) { std::fprintf(stderr, "%s\n", reason); });
  const auto device = std::make_shared<ops::testing::TestDevice>("cpu");
  const auto engine = start_engine(device);
  const auto client = server::make_engine_client(*engine);
  server::ModelText text;
  text.tokenizer = text::Tokenizer::load(kModelDir);
  server::ServerOptions options;
  options.http.port = 0;
  options.served_model_names = {"tiny"};
  server::Server server(*client, std::move(text), options);
  const uint16_t port = server.start();
  device->lose_at_wait(20);
  bool heard = false;
  std::thread other([&] { heard = hears_of_it(port); });
  const ExitStatus status = serve_until_stopped(signals, server, *client, milliseconds(0), [] {});
  other.join();
  engine->shutdown(std::chrono::seconds(0));
  return heard ? status : 1;
}

TEST(LostDeviceDeathTest, EndsTheProcessAndTellsItsClients) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(serve_until_lost()), ExitedWithCode(kEngineFailed),
              "the engine has failed: cpu: a kernel failed: the device is on fire");
}

}  // namespace
}  // namespace quire::cli
