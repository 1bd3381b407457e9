// How a server ends, each time in a process of its own: a scripted engine, real signals.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>
#include <thread>

#include "base/check.h"
#include "base/source_dir.h"
#include "cli/serve_loop.h"
#include "cli/signals.h"
#include "server/log.h"
#include "server/test_eventually.h"
#include "server/test_fake_engine.h"

namespace quire::cli {
namespace {

using std::chrono::milliseconds;
using testing::ExitedWithCode;

const std::string kModelDir = source_dir() + "/tests/parity/models/qwen3";

// Serves and returns the exit status; `meanwhile` runs on another thread once it does, `afterwards`
// before the signals do again what they did. That it serves shows by a first SIGHUP, which only
// serve_until_stopped() answers.
int serve(
    const std::function<void(server::FakeEngine&)>& meanwhile,
    const std::function<void()>& reload = [] {}, const std::function<void()>& afterwards = [] {}) {
  server::Log log(STDERR_FILENO);
  Signals signals([](const char* reason) { std::fprintf(stderr, "%s\n", reason); });
  server::FakeEngine::Script script;
  script.tokens = {1};
  server::FakeEngine engine(script);
  server::ModelText text;
  text.tokenizer = text::Tokenizer::load(kModelDir);
  server::ServerOptions options;
  options.http.port = 0;
  options.served_model_names = {"tiny"};
  server::Server server(engine, text, options);
  server.start();
  std::promise<void> serving;
  std::thread other([&] {
    ::kill(::getpid(), SIGHUP);
    serving.get_future().wait();
    meanwhile(engine);
  });
  bool is_serving = false;
  const ExitStatus status = serve_until_stopped(signals, server, engine, milliseconds(0), [&] {
    if (is_serving) return reload();
    is_serving = true;
    serving.set_value();
  });
  other.join();
  afterwards();
  return status;
}

class LifecycleDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(LifecycleDeathTest, SigtermAndSigintEndInOrder) {
  for (const int signal : {SIGTERM, SIGINT})
    EXPECT_EXIT(std::exit(serve([=](auto&) { ::kill(::getpid(), signal); })), ExitedWithCode(0),
                "stopping: 0 s");
}

TEST_F(LifecycleDeathTest, AFailedEngineEndsTheProcess) {
  EXPECT_EXIT(std::exit(serve([](server::FakeEngine& engine) { engine.die("on fire"); })),
              ExitedWithCode(kEngineFailed), "the engine has failed: on fire");
}

// A shell shows SIGABRT as 134.
TEST_F(LifecycleDeathTest, AFailedCheckAborts) {
  static_assert(128 + SIGABRT == 134);
  EXPECT_EXIT(std::exit(serve([](auto&) { QUIRE_CHECK(false) << "a bug"; })),
              testing::KilledBySignal(SIGABRT), "a bug");
}

// Its end waits for nothing that hangs.
TEST_F(LifecycleDeathTest, AFailedEngineEndsAProcessThatHangs) {
  EXPECT_EXIT(std::exit(serve([](server::FakeEngine& engine) { engine.die("on fire"); }, [] {},
                              [] {
                                for (;;) ::pause();
                              })),
              ExitedWithCode(kEngineFailed), "took too long");
}

TEST_F(LifecycleDeathTest, SighupReadsAgainAndEndsNothing) {
  static std::atomic<int> reloads{0};
  EXPECT_EXIT(std::exit(serve(
                  [](auto&) {
                    ::kill(::getpid(), SIGHUP);
                    server::eventually([] { return reloads > 0; });
                    ::kill(::getpid(), SIGTERM);
                  },
                  [] {
                    ++reloads;
                    std::fprintf(stderr, "read again\n");
                  })),
              ExitedWithCode(0), "read again");
}

// What `action` does never ends by itself.
void hang_after(const std::function<void(Signals&)>& action) {
  Signals signals([](const char* reason) { std::fprintf(stderr, "%s\n", reason); });
  action(signals);
  for (;;) ::pause();
}

TEST_F(LifecycleDeathTest, AHangingProcessIsEndedAfterTheGrace) {
  EXPECT_EXIT(hang_after([](Signals& signals) {
                signals.serving(milliseconds(200));
                ::kill(::getpid(), SIGTERM);
              }),
              ExitedWithCode(128 + SIGTERM), "took too long");
  EXPECT_EXIT(hang_after([](Signals& signals) { signals.end_within(milliseconds(200), 70); }),
              ExitedWithCode(70), "took too long");
}

TEST_F(LifecycleDeathTest, WhatHangsAfterTheServerIsNoOrderlyEnd) {
  EXPECT_EXIT(std::exit(serve([](auto&) { ::kill(::getpid(), SIGTERM); }, [] {},
                              [] {
                                for (;;) ::pause();
                              })),
              ExitedWithCode(128 + SIGTERM), "took too long");
}

TEST_F(LifecycleDeathTest, ASecondSignalEndsAtOnce) {
  EXPECT_EXIT(hang_after([](Signals& signals) {
                signals.serving(milliseconds(600'000));
                ::kill(::getpid(), SIGTERM);
                while (signals.wait(milliseconds(60'000)) != Signals::Event::kStop) continue;
                ::kill(::getpid(), SIGINT);
              }),
              ExitedWithCode(128 + SIGINT), "a second signal");
}

// A launcher may signal a process and its group.
TEST_F(LifecycleDeathTest, TheSameSignalTwiceAtOnceIsOne) {
  EXPECT_EXIT(hang_after([](Signals& signals) {
                signals.serving(milliseconds(300));
                ::kill(::getpid(), SIGTERM);
                while (signals.wait(milliseconds(60'000)) != Signals::Event::kStop) continue;
                ::kill(::getpid(), SIGTERM);
              }),
              ExitedWithCode(128 + SIGTERM), "took too long");
}

TEST_F(LifecycleDeathTest, BeforeServingOneSignalIsEnough) {
  EXPECT_EXIT(hang_after([](Signals&) { ::kill(::getpid(), SIGTERM); }), ExitedWithCode(0),
              "stopped while starting");
}

}  // namespace
}  // namespace quire::cli
