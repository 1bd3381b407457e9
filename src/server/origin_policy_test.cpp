#include "server/origin_policy.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace quire::server {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

http::RequestHead head_with(Headers headers, std::string method = "GET") {
  http::RequestHead head;
  head.method = std::move(method);
  head.headers = std::move(headers);
  return head;
}

std::string value_of(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return "(none)";
}

TEST(OriginPolicy, OriginsAreReadOrRefusedByName) {
  EXPECT_EQ(parse_allowed_origins({"https://Chat.example/,http://b", R"(["http://a:1", "*"])"}),
            (std::vector<std::string>{"https://chat.example", "http://b", "http://a:1", "*"}));
  for (const char* text : {"", "chat.example", "https://", "https://a/b", "https://u@a", "[1]", "[",
                           "https://*.example", "null"}) {
    try {
      parse_allowed_origins({text});
      ADD_FAILURE() << text;
    } catch (const LoadError& error) {
      EXPECT_NE(std::string(error.what()).find("--allowed-origins"), std::string::npos);
    }
  }
}

TEST(OriginPolicy, NamesThatWereMadeToPointHereAreRefused) {
  const OriginPolicy guarded({}, true);
  for (const char* host : {"evil.example:8000", "EVIL.example", "127.0.0.1.evil.example",
                           "localhost.evil.example:80", "127.0.0.1.", "x.localhost.", "a..b"})
    EXPECT_TRUE(guarded.why_refused(head_with({{"host", host}}))) << host;
  for (const char* host : {"localhost:8000", "LOCALHOST", "127.0.0.1:1", "[::1]:8000", "10.0.0.1",
                           "quire:8000", "a.localhost", ""})
    EXPECT_FALSE(guarded.why_refused(head_with({{"host", host}}))) << host;
  EXPECT_FALSE(OriginPolicy({}, false).why_refused(head_with({{"host", "evil.example"}})));
  const OriginPolicy allowing({"https://chat.example"}, true);
  EXPECT_FALSE(allowing.why_refused(head_with({{"host", "Chat.example:443"}})));
  EXPECT_TRUE(allowing.why_refused(head_with({{"host", "evil.example"}})));
}

TEST(OriginPolicy, PagesOfOtherOriginsAreRefusedUnlessAllowed) {
  const Headers page{{"host", "localhost"}, {"origin", "https://Chat.example"}};
  EXPECT_TRUE(OriginPolicy({}, true).why_refused(head_with(page)));
  EXPECT_TRUE(OriginPolicy({"https://other.example"}, true).why_refused(head_with(page)));
  EXPECT_TRUE(OriginPolicy({"http://chat.example"}, true).why_refused(head_with(page)));
  EXPECT_FALSE(OriginPolicy({"https://chat.example"}, true).why_refused(head_with(page)));
  EXPECT_FALSE(OriginPolicy({"*"}, true).why_refused(head_with(page)));
}

TEST(OriginPolicy, OnlyAllowedPagesGetHeaders) {
  const auto head = head_with({{"origin", "https://chat.example"}});
  EXPECT_TRUE(OriginPolicy({}, true).headers_for(head).empty());
  const char* name = "Access-Control-Allow-Origin";
  const OriginPolicy one({"https://chat.example"}, false);
  EXPECT_EQ(value_of(one.headers_for(head), name), "https://chat.example");
  EXPECT_EQ(value_of(one.headers_for(head), "Vary"), "Origin");
  const auto other = one.headers_for(head_with({{"origin", "https://chat.example.evil"}}));
  EXPECT_EQ(value_of(other, name), "(none)");
  EXPECT_EQ(value_of(other, "Vary"), "Origin");
  EXPECT_EQ(value_of(one.headers_for(head_with({})), name), "(none)");
}

TEST(OriginPolicy, PreflightsOfAllowedPagesAreAnswered) {
  const OriginPolicy policy({"https://chat.example"}, false);
  Headers asked{{"origin", "https://chat.example"},
                {"access-control-request-method", "POST"},
                {"access-control-request-headers", "authorization,content-type"}};
  const auto answer = policy.answer_preflight(head_with(asked, "OPTIONS"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(value_of(answer->headers, "Access-Control-Allow-Headers"), asked[2].second);
  EXPECT_FALSE(policy.answer_preflight(head_with(asked, "GET")));
  EXPECT_FALSE(OriginPolicy({}, false).answer_preflight(head_with(asked, "OPTIONS")));
  asked[0].second = "https://evil.example";
  EXPECT_FALSE(policy.answer_preflight(head_with(asked, "OPTIONS")));
  EXPECT_FALSE(policy.answer_preflight(head_with({asked[1]}, "OPTIONS")));
}

}  // namespace
}  // namespace quire::server
