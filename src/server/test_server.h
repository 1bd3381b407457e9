#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "base/source_dir.h"
#include "server/server.h"
#include "server/test_client.h"
#include "server/test_fake_engine.h"

namespace quire::server {

inline const std::string kModelDir = source_dir() + "/tests/parity/models/qwen3";
inline const std::string kStory = "Once upon a time, ünïcödé 🙂 met STOP and \"quotes\"\n. ";

inline ModelText model_text() {
  static const ModelText loaded = [] {
    ModelText text;
    text.tokenizer = text::Tokenizer::load(kModelDir);
    text.chat_template = text::ChatTemplate::load(kModelDir);
    text.eos_token_ids = {315, 318};
    text.grammars = text::GrammarFactory::create(text.tokenizer, text.eos_token_ids);
    return text;
  }();
  return loaded;
}

inline std::vector<int32_t> encode(std::string_view text) {
  return model_text().tokenizer->encode(text, false).value();
}

// A server on a free port, with a scripted engine and the tokenizer of a tiny model.
class ServerTest : public testing::Test {
 protected:
  using Change = std::function<void(FakeEngine::Script&, ServerOptions&)>;

  void start(const Change& change = {}, ModelText text = model_text()) {
    FakeEngine::Script script;
    script.tokens = encode(kStory);
    script.eos = {315, 318};
    ServerOptions options;
    options.http.port = 0;
    options.served_model_names = {"tiny", "alias"};
    options.access_log = false;
    if (change) change(script, options);
    engine_ = std::make_unique<FakeEngine>(script);
    server_ = std::make_unique<Server>(*engine_, std::move(text), options);
    port_ = server_->start();
  }
  void TearDown() override {
    server_.reset();
    engine_.reset();
  }

  ClientResponse post(const std::string& path, const std::string& body,
                      const std::string& headers = "") {
    return TestClient(port_).post(path, body, headers);
  }
  ClientResponse complete(const std::string& fields) {
    return post("/v1/completions", R"({"model": "tiny", "prompt": "Hi", )" + fields + "}");
  }
  ClientResponse chat(const std::string& fields) {
    return post(
        "/v1/chat/completions",
        R"({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], )" + fields + "}");
  }
  // The sum of quire:http_buffered_bytes, or of one kind.
  double held(const std::string& kind = "", const std::string& headers = "") {
    const std::string text = TestClient(port_).get("/metrics", headers).body;
    double sum = 0;
    for (size_t at = 0;
         (at = text.find("\nquire:http_buffered_bytes{", at)) != std::string::npos;) {
      const size_t end = text.find('\n', ++at);
      const std::string line = text.substr(at, end - at);
      if (line.find("kind=\"" + kind) != std::string::npos)
        sum += std::stod(line.substr(line.rfind(' ')));
    }
    return sum;
  }
  // The text of a completion, streamed: the chunks' texts of choice `index` joined.
  static std::string streamed_text(const ClientResponse& response, int64_t index = 0) {
    std::string text;
    for (const auto& event : response.events()) {
      for (const auto& choice : event.at("choices").as_array()) {
        if (choice.at("index").as_int64() != index) continue;
        if (const auto* plain = choice.as_object().if_contains("text")) {
          text += plain->as_string().c_str();
        } else if (const auto* content = choice.at("delta").as_object().if_contains("content")) {
          text += content->as_string().c_str();
        }
      }
    }
    return text;
  }
  static std::string text_of(const ClientResponse& response, size_t index = 0) {
    return response.json().at("choices").at(index).at("text").as_string().c_str();
  }

  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Server> server_;
  uint16_t port_ = 0;
};

}  // namespace quire::server
