// The whole server over real sockets, with a scripted engine: what requests may make it do and
// hold.
#include <future>

#include "base/deep_tests.h"
#include "server/test_eventually.h"
#include "server/test_server.h"
#include "text/stop_strings.h"

namespace quire::server {
namespace {

using std::chrono::milliseconds;

class ServerLimits : public ServerTest {
 protected:
  static std::string sixty_four_prompts() {
    std::string prompts;
    for (int i = 0; i < 64; ++i)
      prompts += (i > 0 ? ",\"" : "\"") + std::to_string(i) + " lazy dogs jump over the fox\"";
    return "[" + prompts + "]";
  }
};

// The beginning is a text that cannot be taken in.
TEST_F(ServerLimits, OfATruncatedPromptOnlyTheEndIsTokenised) {
  start();
  std::string text(2'000'000, 'a');
  while (text.size() < 20'000'000) text += "Once upon a time the lazy dogs, all 12, slept. ";
  const auto response =
      post("/v1/completions", R"({"prompt": ")" + text + R"(", "truncate_prompt_tokens": 100})");
  ASSERT_EQ(response.status, 200) << response.body;
  const std::vector<int32_t> tail = encode(text.substr(text.size() - 4700));
  EXPECT_EQ(engine_->last_prompt(), std::vector<int32_t>(tail.end() - 100, tail.end()));
}

TEST_F(ServerLimits, TextThatTakesTooLongNamesTheLimit) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_text_time = milliseconds(20);
  });
  std::string text;
  while (text.size() < 4'000'000) text += "lazy dogs ";
  const auto slow = post("/tokenize", R"({"prompt": ")" + text + R"("})");
  EXPECT_EQ(slow.status, 400);
  EXPECT_NE(slow.body.find("more than 20 ms"), std::string::npos) << slow.body;
  // Where the machine is busy, once may be too slow as well.
  EXPECT_TRUE(
      eventually([&] { return post("/tokenize", R"({"prompt": "lazy dogs"})").status == 200; }));
  EXPECT_TRUE(engine_->wait_for([&] { return held() == 0; }));
}

TEST_F(ServerLimits, ALargeTextIsRefusedUntokenised) {
  start();
  const std::string text(5'000'000, 'a');
  const auto large = post("/tokenize", R"({"prompt": ")" + text + R"("})");
  EXPECT_EQ(large.status, 400);
  EXPECT_NE(large.body.find("4194304 bytes"), std::string::npos) << large.body;
}

std::string ids_of(std::string_view text, size_t count) {
  const std::string id = std::to_string(encode(text).at(0));
  std::string ids = id;
  for (size_t i = 1; i < count; ++i) ids += "," + id;
  return "[" + ids + "]";
}

TEST_F(ServerLimits, DecodingHasABudget) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_text_time = milliseconds(1);
  });
  const auto slow = post("/detokenize", R"({"tokens": )" + ids_of("dog", 1 << 20) + "}");
  EXPECT_EQ(slow.status, 400);
  EXPECT_NE(slow.body.find("more than 1 ms"), std::string::npos) << slow.body;
  const std::string few = R"({"tokens": )" + ids_of("dog", 100) + "}";
  // Where the machine is busy, once may be too slow as well.
  EXPECT_TRUE(eventually([&] { return post("/detokenize", few).status == 200; }));
  EXPECT_TRUE(engine_->wait_for([&] { return held() == 0; }));
}

// 100,000 ids take 10.5 MB; a long token's text, twice 1.2 MB more, does not fit.
TEST_F(ServerLimits, TextsOfIdsAreInTheAccount) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_buffered_bytes = 23u << 20;
    options.http.max_body_bytes = 4u << 20;
    options.http.max_connections = 16;
  });
  const std::string body = R"({"tokens": )";
  const auto small = post("/detokenize", body + ids_of("dog", 100'000) + "}");
  EXPECT_EQ(small.status, 200) << small.body.substr(0, 300);
  EXPECT_EQ(post("/detokenize", body + ids_of("<|reserved|>", 100) + "}").status, 200);
  EXPECT_TRUE(engine_->wait_for([&] { return held() == 0; }));
  const auto large = post("/detokenize", body + ids_of("<|reserved|>", 100'000) + "}");
  EXPECT_EQ(large.status, 400);
  EXPECT_NE(large.body.find("--max-buffered-bytes"), std::string::npos)
      << large.body.substr(0, 300);
  EXPECT_TRUE(engine_->wait_for([&] { return held() == 0; }));
}

// A word is tokenised in one go, and the same bytes as words in pieces, which need no memory that
// others could want.
TEST_F(ServerLimits, WhatTokenisingTakesIsInTheAccount) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_buffered_bytes = 23u << 20;
    options.http.max_body_bytes = 4u << 20;
    options.http.max_connections = 16;
  });
  const std::string word(40'000, 'a');
  std::string words;
  while (words.size() < word.size()) words += "lazy dogs ";
  const auto messages = [](const std::string& text) {
    return R"({"messages": [{"role": "user", "content": ")" + text + R"("}])";
  };
  const std::string cut = R"(, "max_tokens": 1, "truncate_prompt_tokens": 9})";
  const auto completion = [&](const std::string& text) {
    return R"({"prompt": ["a", ")" + text + R"("])" + cut;
  };
  const auto prompt = [](const std::string& text) { return R"({"prompt": ")" + text + R"("})"; };
  const auto pair = [](const std::string& path, const std::string& fits, const std::string& large) {
    return std::tuple(path, fits, large);
  };
  for (const auto& [path, fits, large] :
       {pair("/tokenize", prompt(words), prompt(word)),
        pair("/tokenize", messages(words) + "}", messages(word) + "}"),
        pair("/v1/completions", completion(words), completion(word)),
        pair("/v1/chat/completions", messages(words) + cut, messages(word) + cut)}) {
    const auto taken = post(path, fits);
    EXPECT_EQ(taken.status, 200) << path << taken.body.substr(0, 300);
    const auto refused = post(path, large);
    EXPECT_EQ(refused.status, 400) << path;
    EXPECT_NE(refused.body.find("tokenising them"), std::string::npos)
        << path << refused.body.substr(0, 300);
  }
  EXPECT_EQ(post("/tokenize", prompt(word.substr(0, 16'000))).status, 200);
  EXPECT_TRUE(engine_->wait_for([&] { return held() == 0; }));
}

TEST_F(ServerLimits, LargeAnswersSayWhatSmallOnesDo) {
  start();
  const std::string fields = R"(, "prompt_logprobs": 20, "logprobs": 20, "max_tokens": 30,
                                "return_token_ids": true, "seed": 1})";
  const auto large = post("/v1/completions", R"({"prompt": )" + sixty_four_prompts() + fields);
  ASSERT_EQ(large.status, 200);
  EXPECT_TRUE(large.complete);
  EXPECT_TRUE(large.headers.contains("transfer-encoding"));
  const auto choices = large.json().at("choices").as_array();
  ASSERT_EQ(choices.size(), 64u);
  for (const size_t i : {0, 17, 63}) {
    const auto small = post("/v1/completions", R"({"prompt": ")" + std::to_string(i) +
                                                   R"( lazy dogs jump over the fox")" + fields);
    EXPECT_FALSE(small.headers.contains("transfer-encoding"));
    json::object choice = choices[i].as_object();
    EXPECT_EQ(choice["index"], i);
    choice["index"] = 0;
    EXPECT_EQ(json::value(choice), small.json().at("choices").at(0)) << i;
  }
  EXPECT_EQ(large.json().at("usage").at("completion_tokens"), 64 * 30);
}

// 28,000 events, faster than they can be written.
TEST_F(ServerLimits, EventsOfOneRequestLeaveTimeForOthers) {
  start([](FakeEngine::Script& script, ServerOptions& options) {
    options.http.io_threads = 1;
    script.step_time = {};
  });
  const TimePoint begin = Clock::now();
  auto answer = std::async(std::launch::async, [&] {
    return complete(
        R"("n": 64, "max_tokens": 450, "stream": true, "ignore_eos": true, "logprobs": 20)");
  });
  double longest = 0;
  while (answer.wait_for(milliseconds(1)) != std::future_status::ready) {
    const TimePoint asked = Clock::now();
    ASSERT_EQ(TestClient(port_).get("/health").status, 200);
    longest = std::max(longest, seconds_between(asked, Clock::now()));
  }
  EXPECT_TRUE(answer.get().complete);
  if (deep_tests()) {  // a busy machine may hold up any one of them
    EXPECT_LT(longest, seconds_between(begin, Clock::now()) / 3);
  }
}

TEST_F(ServerLimits, AnAnswerThatCannotFitNamesItsFactors) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_buffered_bytes = 4u << 20;
    options.http.max_connections = 16;
  });
  const auto never = post("/v1/completions", R"({"prompt": )" + sixty_four_prompts() +
                                                 R"(, "n": 8, "logprobs": 20, "max_tokens": 400})");
  EXPECT_EQ(never.status, 400);
  for (const char* factor : {"64 prompts", "`n` of 8", "400 tokens", "`logprobs` of 20"})
    EXPECT_NE(never.body.find(factor), std::string::npos) << never.body;
  EXPECT_EQ(engine_->num_submitted(), 0u);
  EXPECT_TRUE(engine_->wait_for([&] { return held() == 0; }));
}

TEST_F(ServerLimits, AnAnswerThatDoesNotFitNowIsRefusedUntilItDoes) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_buffered_bytes = 4u << 20;
    options.http.max_connections = 16;
  });
  engine_->pause(true);
  const std::string body =
      R"({"prompt": "Hi", "n": 8, "logprobs": 20, "max_tokens": 400, "ignore_eos": true})";
  TestClient first(port_);
  first.send(TestClient::post_text("/v1/completions", body));
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 8; }));
  EXPECT_GT(held("answers"), 800'000);
  EXPECT_GT(held("prompts"), 0);
  const auto second = post("/v1/completions", body);
  EXPECT_EQ(second.status, 503);
  EXPECT_TRUE(second.headers.contains("retry-after"));
  // Small requests go on.
  TestClient small(port_);
  small.send(TestClient::post_text("/v1/completions", R"({"prompt": "Hi", "max_tokens": 8})"));
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 9; }));
  engine_->pause(false);
  EXPECT_EQ(small.receive().status, 200);
  EXPECT_EQ(first.receive().status, 200);
  first.close();
  ASSERT_TRUE(engine_->wait_for([&] { return held() == 0; }));
  EXPECT_EQ(post("/v1/completions", body).status, 200);
}

TEST_F(ServerLimits, WhatEveryChoiceKeepsOfItsRequestCounts) {
  start();
  engine_->pause(true);
  const auto bytes_with = [&](const std::string& fields) {
    TestClient client(port_);
    client.send(TestClient::post_text(
        "/v1/completions",
        R"({"prompt": "Hi", "stream": true, "n": 50, "max_tokens": 9)" + fields + "}"));
    EXPECT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 50; }));
    const double bytes = held("prompts");
    client.close();
    EXPECT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 0 && held() == 0; }));
    return bytes;
  };
  std::string ids, biases;
  for (int i = 0; i < 300; ++i) {
    ids += (i > 0 ? "," : "") + std::to_string(i);
    biases += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  }
  const double plain = bytes_with("");
  const std::string stop(4000, 'x');
  const size_t one_for_all = text::StopSet::bytes({stop}) - text::StopSet::bytes({});
  EXPECT_EQ(bytes_with(R"(, "stop": [")" + stop + "\"]") - plain, static_cast<double>(one_for_all));
  EXPECT_GE(bytes_with(R"(, "stop_token_ids": [)" + ids + "]") - plain, 50 * 300 * 4 * 2);
  EXPECT_GE(bytes_with(R"(, "logit_bias": {)" + biases + "}") - plain, 50 * 300 * 8 * 2);
  EXPECT_GE(bytes_with(R"(, "echo": true)") - plain, 50 * 2);
}

TEST_F(ServerLimits, WhatItsChoicesKeepCanBeTooMuch) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_buffered_bytes = 1u << 20;
    options.http.max_body_bytes = 100u << 10;
    options.http.max_connections = 4;
  });
  std::string ids = "0";
  while (ids.size() < 2 * 1024 - 1) ids += ",0";
  const auto never =
      post("/v1/completions",
           R"({"prompt": "Hi", "n": 64, "stream": true, "stop_token_ids": [)" + ids + "]}");
  EXPECT_EQ(never.status, 400) << never.body;
  EXPECT_NE(never.body.find("`stop_token_ids`"), std::string::npos) << never.body;
  EXPECT_EQ(engine_->num_submitted(), 0u);
}

TEST_F(ServerLimits, ADocumentOfManyValuesIsRefusedBeforeItIsParsed) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_buffered_bytes = 16u << 20;
    options.http.max_connections = 16;
  });
  std::string ids = "1";
  while (ids.size() < 2'000'000) ids += ",1";
  const auto response = post("/v1/completions", R"({"prompt": [)" + ids + "]}");
  EXPECT_EQ(response.status, 400);  // however often it comes
  EXPECT_NE(response.body.find("--max-buffered-bytes"), std::string::npos) << response.body;
  EXPECT_EQ(post("/tokenize", R"({"prompt": [)" + ids + "]}").status, 400);
  EXPECT_TRUE(engine_->wait_for([&] { return held() == 0; }));
}

TEST_F(ServerLimits, ADocumentThatDoesNotFitNowMayComeAgain) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_buffered_bytes = 16u << 20;
    options.http.max_connections = 16;
  });
  TestClient unfinished(port_);
  unfinished.send(
      "POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
      "Content-Length: 6000000\r\n\r\n" +
      std::string(5'000'000, ' '));
  ASSERT_TRUE(engine_->wait_for([&] { return held("bodies") >= 5e6; }));
  std::string values = "1";
  while (values.size() < 150'000) values += ",1";
  const std::string body = R"({"prompt": "x", "model": "tiny", "a": [)" + values + "]}";
  const auto response = post("/v1/completions", body);
  EXPECT_EQ(response.status, 503) << response.body;
  EXPECT_TRUE(response.headers.contains("retry-after"));
  unfinished.close();
  ASSERT_TRUE(engine_->wait_for([&] { return held() == 0; }));
  EXPECT_EQ(post("/v1/completions", body).status, 200);
}

TEST_F(ServerLimits, GrammarsAreInTheAccount) {
  start();
  engine_->pause(true);
  TestClient client(port_);
  client.send(TestClient::post_text(
      "/v1/completions", R"({"prompt": "x", "guided_regex": "[a-z ]*", "max_tokens": 4})"));
  ASSERT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 1; }));
  EXPECT_GT(held("grammars"), 64 << 10);
  engine_->pause(false);
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_TRUE(eventually([&] { return held("grammars") == 0; })) << held("grammars");
}

// The same request often: what does not fit is refused for now, and all is given back.
TEST_F(ServerLimits, GrammarsThatDoNotFitComeBackLater) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_connections = 64;
    options.http.max_buffered_bytes = 8 << 20;
  });
  engine_->pause(true);
  const std::string body = R"({"prompt": "x", "stream": true, "guided_regex": "[a-z ]*"})";
  std::vector<std::unique_ptr<TestClient>> waiting;
  for (bool full = false; !full;) {  // one after another, until one does not get in
    const size_t taken = waiting.size();
    ASSERT_LT(taken, 50u);
    waiting.push_back(std::make_unique<TestClient>(port_));
    TestClient& client = *waiting.back();
    client.send(TestClient::post_text("/v1/completions", body));
    int status = 0;
    ASSERT_TRUE(eventually([&] {
      if (status == 0 && client.has_input()) status = client.receive(true).status;
      full = status == 503;
      return full || engine_->num_running() > taken;
    }));
  }
  EXPECT_GT(waiting.size(), 10u);
  EXPECT_GT(held("grammars"), 2 << 20);
  const auto refused = post("/v1/completions", R"({"prompt": "x", "guided_regex": "a*"})");
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_LE(held("grammars"), 8 << 20);
  engine_->pause(false);
  waiting.clear();
  EXPECT_TRUE(eventually([&] { return held("grammars") == 0; })) << held("grammars");
}

TEST_F(ServerLimits, AGrammarThatCanNeverFitIsTheClientsFault) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_connections = 16;
    options.http.max_buffered_bytes = 8 << 20;
  });
  const std::string long_rule = R"(start: \")" + std::string(100'000, 'a') + R"(\")";
  const auto response =
      post("/v1/completions", R"({"prompt": "x", "guided_grammar": ")" + long_rule + R"("})");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("more than the"), std::string::npos) << response.body;
  EXPECT_EQ(response.json().at("error").at("param"), "guided_grammar");
}

// The template is given a copy of the messages, and its text is as long again.
TEST_F(ServerLimits, RenderingIsInTheAccountOfTokenizing) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_buffered_bytes = 8 << 20;
  });
  const std::string text(1 << 20, 'a');
  const auto chat =
      post("/tokenize", R"({"messages": [{"role": "user", "content": ")" + text + R"("}]})");
  EXPECT_EQ(chat.status, 400) << chat.body.substr(0, 300);
  EXPECT_NE(chat.body.find("more than the"), std::string::npos) << chat.body.substr(0, 300);
  EXPECT_TRUE(eventually([&] { return held() == 0; })) << held();
}

// JSON in a string is a second document.
TEST_F(ServerLimits, ArgumentsOfToolCallsAreInTheAccount) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.http.max_buffered_bytes = 64 << 20;
  });
  std::string inner = R"(\u005b0)";
  for (int i = 0; i < 400'000; ++i) inner += R"(\u002c0)";
  inner += R"(\u005d)";
  const std::string fields =
      R"("messages": [{"role": "user", "content": "x"}, {"role": "assistant",
         "content": "", "tool_calls": [{"type": "function", "function": {"name": "f",
         "arguments": ")" +
      inner + R"("}}]}])";
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    const auto response = post(path, "{" + fields + "}");
    EXPECT_EQ(response.status, 400) << path << response.body.substr(0, 300);
    EXPECT_NE(response.body.find("more than the"), std::string::npos)
        << response.body.substr(0, 300);
  }
  EXPECT_TRUE(eventually([&] { return held() == 0; })) << held();
}

}  // namespace
}  // namespace quire::server
