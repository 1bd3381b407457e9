// What the server logs, over real sockets, with a scripted engine.
#include "server/test_logged_server.h"

namespace quire::server {
namespace {

using ServerLogTest = LoggedServerTest;

TEST_F(ServerLogTest, SaysWhatKeepsPromptsOutOfThePrefixCache) {
  start();
  const auto ask = [&](const std::string& changes, const std::string& id) {
    std::string ids = "5";
    for (const int32_t token : encode(changes)) ids += "," + std::to_string(token);
    for (int i = 0; i < 450; ++i) ids += "," + std::to_string(i % 300);
    return post("/v1/completions", R"({"max_tokens": 1, "prompt": [)" + ids + "]}",
                "X-Request-Id: " + id + "\r\n");
  };
  ASSERT_EQ(ask("at 10", "first").status, 200);
  ASSERT_EQ(ask("@12\n", "second").status, 200);
  const std::string line = line_with("are the same again");
  EXPECT_NE(line.find("id=second"), std::string::npos) << line;
  EXPECT_NE(line.find("differ at token 1"), std::string::npos) << line;
  EXPECT_NE(line.find(R"("at 10" became "@12\\n")"), std::string::npos) << line;
  ASSERT_EQ(ask("now 13", "third").status, 200);
  EXPECT_EQ(lines_->all().find("id=third"), std::string::npos) << "it is said once";
}

TEST_F(ServerLogTest, LogsRequestsWithIdAndTokens) {
  start([](FakeEngine::Script& script, ServerOptions& options) {
    options.access_log = true;
    // 500 tokens take 75 s: they are not done before it is seen that their client has gone.
    script.step_time = std::chrono::milliseconds(150);
  });
  const std::string prompt_tokens = std::to_string(encode("Hi").size());
  for (const std::string stream : {"false", "true"}) {
    const std::string id = "done-" + stream;
    post("/v1/completions",
         R"({"prompt": "Hi", "max_tokens": 5, "n": 2, "stream": )" + stream + "}",
         "X-Request-Id: " + id + "\r\n");
    const std::string line = line_with(id);
    EXPECT_NE(line.find(R"(POST "/v1/completions" 200 id=)" + id + " prompt=" + prompt_tokens +
                        " cached=1 output=10 "),
              std::string::npos)
        << line;
    EXPECT_TRUE(line.ends_with(" ms")) << line;
  }
  {
    TestClient client(port_);
    client.send(TestClient::post_text("/v1/completions",
                                      R"({"prompt": "Hi", "max_tokens": 500, "stream": true})",
                                      "X-Request-Id: left\r\n"));
    ASSERT_TRUE(client.read_until("data: "));
  }
  const std::string left = line_with("id=left");
  EXPECT_NE(left.find(" prompt=" + prompt_tokens + " cached=1 output="), std::string::npos) << left;
  EXPECT_TRUE(left.ends_with(" ms (client gone)")) << left;
  TestClient(port_).get("/nothing", "X-Request-Id: none\r\n");
  EXPECT_NE(line_with("id=none").find(R"(GET "/nothing" 404 id=none )"), std::string::npos);
}

TEST_F(ServerLogTest, LogsWhichKeyARequestCameWith) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.access_log = true;
    options.api_keys = {"first", "second"};
  });
  const auto ask = [&](const std::string& key, const std::string& id) {
    TestClient(port_).get("/version",
                          "Authorization: Bearer " + key + "\r\nX-Request-Id: " + id + "\r\n");
    return line_with("id=" + id + " ");
  };
  EXPECT_NE(ask("second", "b").find(" 200 id=b key=2 "), std::string::npos);
  EXPECT_NE(ask("first", "a").find(" 200 id=a key=1 "), std::string::npos);
  EXPECT_EQ(ask("third", "c").find("key="), std::string::npos);
  EXPECT_EQ(lines_->all().find("second"), std::string::npos) << "no key stands in the log";
  server_->replace_api_keys({"second"});
  EXPECT_EQ(ask("second", "d").find("key="), std::string::npos) << "there is one key";
}

TEST_F(ServerLogTest, UnknownFieldsAreLoggedInOneLine) {
  start();
  const auto response =
      post("/v1/completions", R"({"prompt": "x", "max_tokens": 1, "a\nb": 1, "future": {}})",
           "X-Request-Id: curious\r\n");
  EXPECT_EQ(response.status, 200);
  const std::string line = line_with("id=curious");
  EXPECT_NE(line.find(R"("a\nb", "future")"), std::string::npos) << line;
}

TEST_F(ServerLogTest, UnknownKeysOfMessagesAreLoggedInOneLine) {
  start();
  const auto chat = [&](const std::string& keys, const std::string& id) {
    return post("/v1/chat/completions",
                R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x", )" + keys +
                    R"(}, {"role": "user", "content": "y", )" + keys + "}]}",
                "X-Request-Id: " + id + "\r\n");
  };
  EXPECT_EQ(chat(R"("name": "me", "weight": 1, "fu\nture": {})", "odd").status, 200);
  const std::string line = line_with("template may read");
  EXPECT_NE(line.find("id=odd"), std::string::npos) << line;
  EXPECT_NE(line.find(R"(: "weight", "fu\nture")"), std::string::npos) << line;
  EXPECT_EQ(line.find("more"), std::string::npos) << line;
  EXPECT_EQ(chat(R"("images": [])", "none").status, 200);
  const auto refused = chat(R"("images": ["iVBORw0KGgo="])", "some");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("messages[0].images"), std::string::npos) << refused.body;
}

TEST_F(ServerLogTest, KeysOfContentsThatNobodyReadsAreLogged) {
  start();
  const std::string part = R"({"type": "text", "text": "x", "odd": 1, "cache_control": {}})";
  const std::string call = R"({"id": "1", "type": "function", "extra_content": {}, "function":
      {"name": "f", "arguments": "{}", "weight": 1}})";
  const auto logged = [&](const std::string& path, const std::string& fields, const std::string& id,
                          const std::string& what) {
    EXPECT_EQ(
        post(path, "{\"max_tokens\": 1, " + fields + "}", "X-Request-Id: " + id + "\r\n").status,
        200)
        << id;
    return line_with("id=" + id + " has " + what);
  };
  const std::string ignored = "keys in what is said, which are ignored: ";
  const std::string user = R"("messages": [{"role": "user", "content": [)" + part + "]}";
  EXPECT_TRUE(logged("/v1/chat/completions", user + "]", "chat", ignored)
                  .ends_with(R"(: "messages[].content[].odd")"));
  EXPECT_TRUE(logged("/v1/chat/completions",
                     user + R"(, {"role": "assistant", "tool_calls": [)" + call + "]}]", "calls",
                     "keys in messages")
                  .ends_with(R"(: "tool_calls[].extra_content", "tool_calls[].function.weight")"));
  EXPECT_TRUE(
      logged("/v1/messages", user + "]", "messages", ignored).ends_with(R"(: "content[].odd")"));
  EXPECT_TRUE(logged("/v1/messages/count_tokens", user + R"(], "future": 1)", "count", "unknown")
                  .ends_with(R"(: "future")"));
  EXPECT_TRUE(logged("/v1/messages/count_tokens", user + "]", "count-keys", ignored)
                  .ends_with(R"(: "content[].odd")"));
  const std::string unused = "fields of a generation, which change nothing here: ";
  EXPECT_TRUE(logged("/tokenize", R"("prompt": "x", "top_p": 1)", "tokenize", unused)
                  .ends_with(R"(: "max_tokens", "top_p")"));
  EXPECT_TRUE(logged("/tokenize", user + "]", "tokenize-keys", ignored)
                  .ends_with(R"(: "messages[].content[].odd")"));
  EXPECT_TRUE(logged("/detokenize", R"("tokens": [1])", "detokenize", unused)
                  .ends_with(R"(: "max_tokens")"));
}

TEST_F(ServerLogTest, VariablesThatTheTemplateDoesNotReadAreLogged) {
  start();
  const auto response = post("/v1/chat/completions",
                             R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}],
                                 "chat_template_kwargs": {"no_such_switch": true}})",
                             "X-Request-Id: typo\r\n");
  EXPECT_EQ(response.status, 200);
  const std::string line = line_with("chat_template_kwargs");
  EXPECT_NE(line.find(R"(id=typo)"), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with(R"(: "no_such_switch")")) << line;
}

TEST_F(ServerLogTest, PathsAreQuotedOnceInTheLog) {
  start([](FakeEngine::Script&, ServerOptions& options) { options.access_log = true; });
  TestClient(port_).get("/a%22%20200%20id=x%5C%1b%C3%BC");
  EXPECT_NE(line_with(R"(GET "/a\" 200 id=x\\)"
                      "\x1b\xc3\xbc\" 404 id="),
            "");
}

TEST_F(ServerLogTest, LeavesSilentPathsOutOfTheLog) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.access_log = true;
    options.silent_paths = {"/health", "/metrics"};
  });
  TestClient client(port_);
  for (const char* path : {"/health", "/metrics", "/version"}) client.get(path);
  EXPECT_NE(line_with("/version"), "");  // the last: the others would be there by now
  EXPECT_EQ(lines_->all().find("/health"), std::string::npos);
  EXPECT_EQ(lines_->all().find("/metrics"), std::string::npos);
}

TEST_F(ServerLogTest, SilentPathsAreThoseBehindTheRootPath) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.access_log = true;
    options.root_path = "/sub";
    options.silent_paths = {"/health", "/sub/metrics"};
  });
  TestClient client(port_);
  for (const char* path : {"/sub/health", "/health", "/sub/metrics", "/sub/version"})
    client.get(path);
  EXPECT_NE(line_with("/sub/version"), "");
  EXPECT_EQ(lines_->all().find("/health"), std::string::npos);
  EXPECT_EQ(lines_->all().find("/metrics"), std::string::npos);
}

}  // namespace
}  // namespace quire::server
