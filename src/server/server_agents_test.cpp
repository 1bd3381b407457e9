// What agents do to servers, as requests of their kind: waiting, parts, reasoning that comes back.
#include <fstream>
#include <sstream>

#include "server/test_server.h"

namespace quire::server {
namespace {

using std::chrono::milliseconds;

// As Qwen3's: earlier reasoning is shown by its field, or taken out of the text.
constexpr const char* kThinking =
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){{ m.content }}"
    "{% elif '</think>' in (m.content or '') %}"
    "({{ m.content.split('</think>')[0].replace('<think>', '') }})"
    "{{ m.content.split('</think>')[1] }}{% else %}{{ m.content }}{% endif %}{% endfor %}";
constexpr const char* kParts =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endif %}{% endfor %}";

ModelText with_template(const char* source) {
  ModelText text = model_text();
  text.chat_template = text::ChatTemplate::parse(source, {}).value();
  return text;
}

class AgentServer : public ServerTest {
 protected:
  std::vector<int32_t> prompt_of(const std::string& path, const std::string& body) {
    const auto response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return engine_->last_prompt();
  }
  std::vector<int32_t> chat_prompt(const std::string& messages) {
    return prompt_of("/v1/chat/completions",
                     R"({"max_tokens": 1, "messages": [)" + messages + "]}");
  }
};

// A prompt that is fed for long is not taken for a dead connection.
TEST_F(AgentServer, StreamsSayThatTheyLiveWhileAPromptIsFed) {
  EXPECT_EQ(ServerOptions().http.ping_interval, milliseconds(15'000));
  start([](auto&, ServerOptions& options) { options.http.ping_interval = milliseconds(50); });
  for (const std::string path : {"/v1/chat/completions", "/v1/messages"}) {
    engine_->pause(true);
    TestClient client(port_);
    client.send(TestClient::post_text(
        path,
        R"({"stream": true, "max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]})"));
    ASSERT_TRUE(client.read_until(": ping\n\n")) << path;
    engine_->pause(false);
    const char* const end = path == "/v1/messages" ? "message_stop" : "[DONE]";
    ASSERT_TRUE(client.read_until(end)) << path;
  }
}

TEST_F(AgentServer, ATemplateThatWalksOverPartsGetsThem) {
  const std::string question =
      R"({"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]})";
  start({}, with_template(kParts));
  EXPECT_EQ(chat_prompt(question), encode("<user>[one][two]"));
  server_.reset();
  start({}, with_template("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"));
  EXPECT_EQ(chat_prompt(question), encode("<user>one\ntwo"));
}

// What is tried after a refusal is in parts, too, where a template reads nothing else.
TEST_F(AgentServer, ASecondTryHasTheFormOfTheFirst) {
  start({}, with_template("{% for m in messages %}{% if not loop.first and m.role == 'system' %}"
                          "{{ raise_exception('the system message must be first') }}{% endif %}"
                          "<{{ m.role }}>{% for part in m.content %}[{{ part.text }}]{% endfor %}"
                          "{% endfor %}"));
  EXPECT_EQ(chat_prompt(R"({"role": "user", "content": "one"},
                           {"role": "system", "content": "two"})"),
            encode("<user>[one\ntwo]"));
}

json::value recorded(const std::string& name) {
  std::ifstream file(source_dir() + "/tests/api/recorded/" + name);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return parse_json(text.str()).value();
}

// A body as it was sent, for one token of this server's model.
std::string short_of(json::object body) {
  body["model"] = "tiny";
  body["stream"] = false;
  body.erase("stream_options");
  body[body.contains("input") ? "max_output_tokens" : "max_tokens"] = 1;
  return dump_json(body);
}

// Roles where templates forbid or ignore them.
TEST_F(AgentServer, RecordedRequestsBecomePromptsOfEveryTemplate) {
  const json::value file = recorded("roles.json");
  size_t count = 0;
  for (const auto& [name, source] : file.at("templates").as_object()) {
    TearDown();
    start([](FakeEngine::Script& script, ServerOptions&) { script.max_model_len = 8192; },
          with_template(source.as_string().c_str()));
    for (const json::value& request : file.at("requests").as_array()) {
      const json::value* expected = request.at("prompts").as_object().if_contains(name);
      if (expected == nullptr) continue;
      const auto ids = prompt_of(request.at("path").as_string().c_str(),
                                 short_of(request.at("body").as_object()));
      EXPECT_EQ(model_text().tokenizer->decode(ids, false).value(),
                std::string(expected->as_string()))
          << name << ": " << request.at("client");
      ++count;
    }
  }
  EXPECT_EQ(count, 16u);
}

// OpenCode's question for a title has two turns of the user, as it was recorded.
TEST_F(AgentServer, OpenCodesTitleIsAskedForWhereTurnsMustAlternate) {
  const json::value templates = recorded("roles.json").at("templates");
  const json::value body = recorded("opencode.json").at(0);
  start([](FakeEngine::Script& script, ServerOptions&) { script.max_model_len = 8192; },
        with_template(templates.at("gemma").as_string().c_str()));
  const auto ids = prompt_of("/v1/chat/completions", short_of(body.as_object()));
  const std::string prompt = model_text().tokenizer->decode(ids, false).value();
  EXPECT_TRUE(prompt.starts_with("<user>You are a title generator."));
  EXPECT_NE(prompt.find("Generate a title for this conversation:\n\nCall the function read"),
            std::string::npos);
}

// As OpenCode, Cline and others send it, or leave it out.
TEST_F(AgentServer, ReasoningComesBackByAnyName) {
  start({}, with_template(kThinking));
  const std::string user = R"({"role": "user", "content": "q"}, )";
  const std::vector<int32_t> expected = encode("<user>q<assistant>(hm)a");
  for (const char* turn : {
           R"({"role": "assistant", "content": "a", "reasoning_content": "hm"})",
           R"({"role": "assistant", "content": "a", "reasoning": "hm"})",
           R"({"role": "assistant", "content": "a", "thinking": "hm"})",
           R"({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"},
               {"type": "text", "text": "a"}]})",
           R"({"role": "assistant", "content": [{"type": "reasoning", "text": "hm"},
               {"type": "text", "text": "a"}]})",
           R"({"role": "assistant", "content": "<think>hm</think>a"})",
       })
    EXPECT_EQ(chat_prompt(user + turn), expected) << turn;
  EXPECT_EQ(chat_prompt(user + R"({"role": "assistant", "content": "a", "reasoning": null})"),
            encode("<user>q<assistant>a"));
}

TEST_F(AgentServer, ReasoningComesBackAsBlocksWithSignatures) {
  start({}, with_template(kThinking));
  const std::string body = R"({"max_tokens": 1, "messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"},
      {"type": "text", "text": "a"}]}, {"role": "user", "content": "r"}]})";
  EXPECT_EQ(prompt_of("/v1/messages", body), encode("<user>q<assistant>(hm)a<user>r"));
  const std::string items = R"({"max_output_tokens": 1, "input": [{"role": "user", "content": "q"},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text",
      "text": "hm"}]}, {"type": "message", "role": "assistant", "content":
      [{"type": "output_text", "text": "a"}]}, {"role": "user", "content": "r"}]})";
  EXPECT_EQ(prompt_of("/v1/responses", items), encode("<user>q<assistant>(hm)a<user>r"));
}

TEST_F(AgentServer, TheDocumentHasEveryEndpoint) {
  start();
  const json::value document = parse_json(TestClient(port_).get("/openapi.json").body).value();
  const json::object& paths = document.at("paths").as_object();
  for (const char* path : {"/health", "/v1/models/{name}", "/v1/chat/completions", "/v1/messages",
                           "/v1/responses", "/v1/embeddings", "/score", "/tokenizer_info"})
    EXPECT_TRUE(paths.contains(path)) << path;
  EXPECT_GT(document.at("paths")
                .at("/v1/chat/completions")
                .at("post")
                .at("requestBody")
                .at("content")
                .at("application/json")
                .at("schema")
                .at("properties")
                .as_object()
                .size(),
            40u);
}

TEST_F(AgentServer, TheTokenizerIsDescribed) {
  start();
  const json::value info = parse_json(TestClient(port_).get("/tokenizer_info").body).value();
  EXPECT_EQ(info.at("chat_template").as_string(), model_text().chat_template->source());
  EXPECT_EQ(info.at("model_max_length").as_int64(), 512);
  EXPECT_EQ(info.at("eos_token").as_string(), *model_text().tokenizer->special_token("eos_token"));
}

TEST_F(AgentServer, MetricsHaveTheCacheAndTheProcess) {
  start();
  EXPECT_EQ(complete(R"("max_tokens": 5, "n": 2)").status, 200);
  std::string text;
  EXPECT_TRUE(engine_->wait_for([&] {
    text = TestClient(port_).get("/metrics").body;
    return text.find(
               "vllm:request_max_num_generation_tokens_count{engine=\"0\","
               "model_name=\"tiny\"} 1\n") != std::string::npos;
  })) << text;
  for (const char* line :
       {"vllm:request_max_num_generation_tokens_sum{engine=\"0\",model_name=\"tiny\"} 5\n",
        "vllm:prompt_tokens_cached_total{engine=\"0\",model_name=\"tiny\"} 2\n",
        "quire:prefix_cache_evictions_total{engine=\"0\",model_name=\"tiny\"} 0\n",
        "\nprocess_resident_memory_bytes ", "\nprocess_cpu_seconds_total ",
        "\nprocess_start_time_seconds ", "\nprocess_open_fds ", "\nprocess_max_fds "})
    EXPECT_NE(text.find(line), std::string::npos) << line;
}

}  // namespace
}  // namespace quire::server
