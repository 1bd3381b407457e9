#pragma once
#include <memory>

#include "server/engine_client.h"

namespace quire::engine {
class Engine;
}

namespace quire::server {

// The real engine behind the server's interface. `engine` must outlive the client.
std::unique_ptr<EngineClient> make_engine_client(engine::Engine& engine);

}  // namespace quire::server
