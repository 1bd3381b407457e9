#pragma once
#include <chrono>
#include <functional>

#include "cli/signals.h"
#include "server/engine_client.h"
#include "server/server.h"

namespace quire::cli {

// Beyond the shutdown timeout, the process has this long to end before it is ended by force.
constexpr std::chrono::milliseconds kStopGrace{4500};
// The same once the engine has failed: with what it takes to notice that and to say last words,
// less than a second.
constexpr std::chrono::milliseconds kFailureGrace{500};

enum ExitStatus { kStopped = 0, kEngineFailed = 70 };

// Lets a started server work until a signal asks it to stop or its engine has failed; then stops
// it. Running requests get `shutdown_timeout` to finish, except with an engine that has failed.
// Calls `reload` for each SIGHUP. When this returns every client has its answer.
ExitStatus serve_until_stopped(Signals& signals, server::Server& server,
                               const server::EngineClient& engine,
                               std::chrono::milliseconds shutdown_timeout,
                               const std::function<void()>& reload);

}  // namespace quire::cli
