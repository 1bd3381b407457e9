#include "server/engine_adapter.h"

#include "engine/engine.h"

namespace quire::server {
namespace {

class Adapter final : public EngineClient {
 public:
  explicit Adapter(engine::Engine& engine) : engine_(engine) {}

  Result<std::vector<engine::RequestId>, engine::RequestError> submit_all(
      std::vector<engine::Request> requests) override {
    return engine_.submit_all(std::move(requests));
  }
  void abort(engine::RequestId id) override { engine_.abort(id); }
  int64_t max_model_len() const override { return engine_.max_model_len(); }
  int64_t vocab_size() const override { return engine_.vocab_size(); }
  int64_t hidden_size() const override { return engine_.hidden_size(); }
  bool honours_priority() const override { return engine_.honours_priority(); }

  engine::EngineStats stats() const override { return engine_.stats(); }

 private:
  engine::Engine& engine_;
};

}  // namespace

std::unique_ptr<EngineClient> make_engine_client(engine::Engine& engine) {
  return std::make_unique<Adapter>(engine);
}

}  // namespace quire::server
