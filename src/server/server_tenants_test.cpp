// The whole server over real sockets, with a scripted engine: whom a request is for.
#include "server/test_server.h"

namespace quire::server {
namespace {

using std::chrono::milliseconds;

class TenantsTest : public ServerTest {
 protected:
  struct Seen {
    int status;
    uint64_t tenant;
    std::string salt;
  };
  Seen ask(const std::string& key, const std::string& more = "") {
    const std::string header = key.empty() ? "" : "Authorization: Bearer " + key + "\r\n";
    const auto answer =
        post("/v1/completions", R"({"prompt": "x", "max_tokens": 1)" + more + "}", header);
    return {answer.status, engine_->last_tenant(), engine_->last_cache_salt()};
  }
  // Sends a completion that goes on until the engine is no longer paused.
  std::unique_ptr<TestClient> begin(const std::string& more = "", const std::string& key = "") {
    const size_t before = engine_->num_submitted();
    auto client = std::make_unique<TestClient>(port_);
    const std::string header = key.empty() ? "" : "Authorization: Bearer " + key + "\r\n";
    client->send(TestClient::post_text("/v1/completions",
                                       R"({"prompt": "x", "max_tokens": 2)" + more + "}", header));
    EXPECT_TRUE(engine_->wait_for([&] { return engine_->num_submitted() > before; }));
    return client;
  }
};

TEST_F(TenantsTest, KeysAreTenantsWithCachesOfTheirOwn) {
  start([](FakeEngine::Script&, ServerOptions& options) { options.api_keys = {"a", "b"}; });
  const Seen a = ask("a"), b = ask("b"), salted = ask("a", R"(, "cache_salt": "s")");
  EXPECT_EQ(ask("a").tenant, a.tenant);
  EXPECT_EQ(ask("a").salt, a.salt);
  EXPECT_NE(a.tenant, b.tenant);
  EXPECT_NE(a.salt, b.salt);
  EXPECT_EQ(salted.salt, a.salt + "s");
  // Another key's salt cannot be written: what a client sends comes after its own.
  EXPECT_NE(ask("b", R"(, "cache_salt": ")" + a.salt + "\"").salt, a.salt);

  server_->replace_api_keys({"c", "a"});
  EXPECT_EQ(ask("a").salt, a.salt);
  EXPECT_EQ(ask("b").status, 401);
  EXPECT_NE(ask("c").tenant, a.tenant);
}

TEST_F(TenantsTest, AKeyThatWasAloneSharesNothingWithLaterOnes) {
  start([](FakeEngine::Script&, ServerOptions& options) { options.api_keys = {"a"}; });
  const Seen alone = ask("a");
  server_->replace_api_keys({"a", "b"});
  EXPECT_EQ(ask("a").salt, alone.salt);
  EXPECT_NE(ask("b").salt, alone.salt);
}

TEST_F(TenantsTest, KeysShareTheirCacheIfTold) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.api_keys = {"a", "b"};
    options.share_prefix_cache = true;
  });
  const Seen a = ask("a"), b = ask("b");
  EXPECT_NE(a.tenant, b.tenant);
  EXPECT_EQ(a.salt, "");
  EXPECT_EQ(b.salt, "");
  EXPECT_EQ(ask("a", R"(, "cache_salt": "s")").salt, "s");
}

TEST_F(TenantsTest, OnLoopbackConnectionsAreTenants) {
  for (const bool with_key : {false, true}) {
    start([&](FakeEngine::Script&, ServerOptions& options) {
      if (with_key) options.api_keys = {"a"};
    });
    const auto ask_over = [&](TestClient& client) {
      const std::string body = R"({"prompt": "x", "max_tokens": 1})";
      EXPECT_EQ(client.post("/v1/completions", body, "X-Api-Key: a\r\n").status, 200);
      EXPECT_FALSE(engine_->last_beside_others());
      return engine_->last_tenant();
    };
    TestClient first(port_), second(port_);
    const uint64_t tenant = ask_over(first);
    EXPECT_EQ(ask_over(first), tenant);
    EXPECT_NE(ask_over(second), tenant);
    EXPECT_EQ(engine_->last_cache_salt().empty(), !with_key);
    server_.reset();
  }
}

TEST_F(TenantsTest, BeyondLoopbackAddressesAreTenantsWithoutKeysOrWithOne) {
  const auto beyond = [](FakeEngine::Script&, ServerOptions& options) {
    options.http.host = "0.0.0.0";
  };
  const auto tenant_of = [&](const char* address) {
    TestClient client(port_, address);
    const auto answer =
        client.post("/v1/completions", R"({"prompt": "x", "max_tokens": 1})", "X-Api-Key: a\r\n");
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(engine_->last_beside_others());
    return engine_->last_tenant();
  };
  start(beyond);
  const uint64_t tenant = tenant_of("127.0.0.1");
  EXPECT_EQ(tenant_of("127.0.0.1"), tenant);
  EXPECT_NE(tenant_of("127.0.0.2"), tenant);
  EXPECT_EQ(engine_->last_cache_salt(), "");

  server_.reset();
  start([&](FakeEngine::Script& script, ServerOptions& options) {
    beyond(script, options);
    options.api_keys = {"a"};
  });
  EXPECT_EQ(tenant_of("127.0.0.1"), tenant);
  const std::string salt = engine_->last_cache_salt();
  EXPECT_NE(tenant_of("127.0.0.2"), tenant);
  EXPECT_EQ(engine_->last_cache_salt(), salt) << "the cache is the key's";
  server_->replace_api_keys({"a", "b"});
  const uint64_t key = tenant_of("127.0.0.1");
  EXPECT_NE(key, tenant);
  EXPECT_EQ(tenant_of("127.0.0.2"), key);
  EXPECT_EQ(engine_->last_cache_salt(), salt);
}

// An address that holds half of the shared memory leaves room for another one, key or not.
TEST_F(TenantsTest, AddressesWithOneKeyHaveMemoryOfTheirOwn) {
  constexpr size_t kMiB = 1u << 20;
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.api_keys = {"a"};
    options.http.max_buffered_bytes = 32 * kMiB;
    options.http.max_connections = 64;
  });
  TestClient greedy(port_, "127.0.0.2");
  greedy.try_send(
      "POST /tokenize HTTP/1.1\r\nHost: h\r\nX-Api-Key: a\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\nd00000\r\n" +
      std::string(13 * kMiB, 'x'));
  ASSERT_TRUE(engine_->wait_for([&] { return held("bodies", "X-Api-Key: a\r\n") >= 13 * kMiB; }));
  const std::string body(4 * kMiB, 'x');  // no JSON, but read to its end
  const auto status = [&](const char* address) {
    return TestClient(port_, address).post("/tokenize", body, "X-Api-Key: a\r\n").status;
  };
  EXPECT_EQ(status("127.0.0.2"), 503);
  EXPECT_EQ(status("127.0.0.3"), 400);
}

// As they are behind a proxy.
TEST_F(TenantsTest, KeysOfOneAddressHaveMemoryOfTheirOwn) {
  constexpr size_t kMiB = 1u << 20;
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.api_keys = {"a", "b"};
    options.http.max_buffered_bytes = 32 * kMiB;
    options.http.max_connections = 64;
  });
  const auto unfinished = [&](const std::string& key) {
    auto client = std::make_unique<TestClient>(port_);
    client->try_send("POST /tokenize HTTP/1.1\r\nHost: h\r\nX-Api-Key: " + key +
                     "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "d00000\r\n" +
                     std::string(13 * kMiB, 'x'));
    return client;
  };
  const auto greedy = unfinished("a");
  ASSERT_TRUE(engine_->wait_for([&] { return held("bodies", "X-Api-Key: a\r\n") >= 13 * kMiB; }));
  const std::string body(4 * kMiB, 'x');  // no JSON, but read to its end
  EXPECT_EQ(post("/tokenize", body, "X-Api-Key: a\r\n").status, 503);
  EXPECT_EQ(post("/tokenize", body, "X-Api-Key: b\r\n").status, 400);
}

TEST_F(TenantsTest, RequestsOfOneKeyAreCapped) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.api_keys = {"a", "b"};
    options.client_limits.max_requests = 2;
  });
  engine_->pause(true);
  const auto first = begin("", "a"), second = begin(R"(, "stream": true)", "a");
  auto refused = post("/v1/completions", R"({"prompt": "x"})", "Authorization: Bearer a\r\n");
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_NE(refused.body.find("--max-concurrent-requests-per-key"), std::string::npos);
  EXPECT_EQ(post("/tokenize", R"({"prompt": "x"})", "X-Api-Key: a\r\n").status, 429);
  const auto other = begin("", "b");
  engine_->pause(false);
  for (const auto& client : {first.get(), second.get(), other.get()})
    EXPECT_EQ(client->receive().status, 200);
  // One after another never meets the limit: a place is free before its answer is sent.
  for (int i = 0; i < 100; ++i) {
    const Seen one = ask("a"), two = ask("a");
    ASSERT_EQ(one.status, 200) << i;
    ASSERT_EQ(two.status, 200) << i;
  }
}

TEST_F(TenantsTest, APlaceIsFreeWhenItsClientHasGone) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.client_limits.max_requests = 1;  // without keys: of one address
  });
  engine_->pause(true);
  begin();  // and is gone
  EXPECT_TRUE(
      engine_->wait_for([&] { return post("/tokenize", R"({"prompt": "x"})").status == 200; }));
}

TEST_F(TenantsTest, GenerationsOfOneKeyAreCapped) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.api_keys = {"a", "b"};
    options.client_limits.max_generations = 8;
  });
  engine_->pause(true);
  const auto held = begin(R"(, "n": 6)", "a");
  EXPECT_EQ(ask("a", R"(, "n": 3)").status, 429);
  EXPECT_EQ(ask("a", R"(, "n": 9)").status, 400);  // more than it may ever have
  const auto rest = begin(R"(, "n": 2)", "a");
  const auto other = begin(R"(, "n": 8)", "b");
  engine_->pause(false);
  for (const auto& client : {held.get(), rest.get(), other.get()})
    EXPECT_EQ(client->receive().status, 200);
}

TEST_F(TenantsTest, PromptsCountAsGenerations) {
  start([](FakeEngine::Script&, ServerOptions& options) {
    options.client_limits.max_generations = 5;
  });
  const auto status = [&](const std::string& fields) {
    return post("/v1/completions", "{\"max_tokens\": 1, " + fields + "}").status;
  };
  EXPECT_EQ(status(R"("prompt": ["x", "y"], "n": 2)"), 200);
  EXPECT_EQ(status(R"("prompt": ["x", "y"], "n": 3)"), 400);
  EXPECT_EQ(status(R"("prompt": ["x", "y", "z"], "n": 2)"), 400);
  EXPECT_EQ(chat(R"("max_tokens": 1, "n": 6)").status, 400);
}

TEST_F(TenantsTest, UrgentPrioritiesAreForThoseWhoMay) {
  start([](FakeEngine::Script& script, ServerOptions& options) {
    script.honours_priority = true;
    options.limits.min_priority = 0;
  });
  EXPECT_EQ(complete(R"("max_tokens": 1, "priority": 0)").status, 200);
  EXPECT_EQ(complete(R"("max_tokens": 1, "priority": 7)").status, 200);
  const auto refused = complete(R"("max_tokens": 1, "priority": -1)");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json().at("error").at("param"), "priority");
  EXPECT_NE(refused.body.find("--min-priority"), std::string::npos);
}

TEST_F(TenantsTest, AFloorOfPrioritiesLocksNobodyOut) {
  start([](FakeEngine::Script& script, ServerOptions& options) {
    script.honours_priority = true;
    options.limits.min_priority = 5;
  });
  EXPECT_EQ(complete(R"("max_tokens": 1)").status, 200);
  EXPECT_EQ(engine_->last_priority(), 5);
  EXPECT_EQ(complete(R"("max_tokens": 1, "priority": 9)").status, 200);
  EXPECT_EQ(engine_->last_priority(), 9);
  EXPECT_EQ(complete(R"("max_tokens": 1, "priority": 4)").status, 400);
}

}  // namespace
}  // namespace quire::server
