#include "cli/serve_loop.h"

#include <spdlog/spdlog.h>

namespace quire::cli {
namespace {

// How late a failed engine may be noticed.
constexpr std::chrono::milliseconds kHealthInterval{100};
static_assert(kHealthInterval + kFailureGrace < std::chrono::seconds(1));

}  // namespace

ExitStatus serve_until_stopped(Signals& signals, server::Server& server,
                               const server::EngineClient& engine,
                               std::chrono::milliseconds shutdown_timeout,
                               const std::function<void()>& reload) {
  signals.serving(shutdown_timeout + kStopGrace);
  for (;;) {
    const Signals::Event event = signals.wait(kHealthInterval);
    if (event == Signals::Event::kStop) break;
    if (event == Signals::Event::kReload) reload();
    const engine::EngineStats stats = engine.stats();
    if (stats.healthy) continue;
    spdlog::critical("the engine has failed: {}; ending", stats.failure);
    signals.end_within(kFailureGrace, kEngineFailed);
    server.stop(std::chrono::milliseconds(0));
    return kEngineFailed;
  }
  spdlog::info("stopping: {} s for running requests", shutdown_timeout.count() / 1000);
  server.stop(shutdown_timeout);
  signals.end_within(kStopGrace);
  return kStopped;
}

}  // namespace quire::cli
