#include "server/api_keys.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"

namespace quire::server {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(ApiKeys, FindsEachKeyAndNothingElse) {
  const ApiKeys keys({"first", "second", "first"});
  EXPECT_EQ(keys.size(), 2u);  // one was given twice
  ASSERT_TRUE(keys.find("first") && keys.find("second"));
  EXPECT_NE(*keys.find("first"), *keys.find("second"));
  for (const char* wrong : {"", "firs", "firstx", "First", "secone", "first\n"})
    EXPECT_FALSE(keys.find(wrong)) << wrong;
}

TEST(ApiKeys, TenantsAreNotTheSameInAnotherProcessOrServer) {
  EXPECT_NE(*ApiKeys({"key"}).find("key"), *ApiKeys({"key"}).find("key"));
}

TEST(ApiKeys, KeysThatStayKeepTheirTenant) {
  ApiKeys keys({"stays", "goes"});
  const uint64_t tenant = *keys.find("stays");
  keys.replace({"new", "stays"});
  EXPECT_EQ(keys.find("stays"), tenant);
  EXPECT_FALSE(keys.find("goes"));
  EXPECT_NE(keys.find("new"), tenant);
}

// Requests wait while keys are replaced, and a stranger's wrong key must not cost more where there
// are many. The limit is for what grows with the square of their number: minutes.
TEST(ApiKeys, ManyOfThemAreReplacedAndLookedUpInNoTime) {
  std::vector<std::string> many;
  for (int i = 0; i < 200'000; ++i) many.push_back("key-of-some-length-" + std::to_string(i));
  const std::clock_t start = std::clock();
  ApiKeys keys(many);
  const auto tenant = keys.find(many.back());
  keys.replace(many);
  EXPECT_EQ(keys.find(many.back()), tenant);
  for (int i = 0; i < 10'000; ++i) EXPECT_FALSE(keys.find("key-of-some-length-1x" + many[i]));
  EXPECT_EQ(keys.size(), many.size());
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 60);
}

TEST(ApiKeys, NoKeyIsEmptyOrCannotBeSent) {
  for (const char* bad : {"", " ", "two words", "line\nbreak", "tab\t", "\x7f"}) {
    const std::string error = error_of([&] { ApiKeys keys({"good", bad}); });
    EXPECT_FALSE(error.empty()) << bad;
    EXPECT_EQ(error.find("words"), std::string::npos) << "a key in the log";
    EXPECT_EQ(error_of([&] { ApiKeys({"good"}).replace({bad}); }), error);
  }
}

TEST(KeyFile, HasOneKeyALine) {
  const auto keys = parse_key_file("# ours\n\n  alice-1 \r\n\tbob\n#carol\ndave", "keys");
  EXPECT_EQ(keys, (std::vector<std::string>{"alice-1", "bob", "dave"}));
}

TEST(KeyFile, BrokenOnesAreNamedWithTheLine) {
  for (const char* empty : {"", "\n\n", "# nobody yet\n"})
    EXPECT_NE(error_of([&] { parse_key_file(empty, "the file"); }).find("the file has no key"),
              std::string::npos);
  EXPECT_EQ(parse_key_file("\xEF\xBB\xBF"
                           "first\n",
                           "keys"),
            std::vector<std::string>{"first"});
  EXPECT_NE(error_of([] { parse_key_file("caf\xC3\xA9", "keys"); }).find("printable ASCII"),
            std::string::npos);
  const std::string error = error_of([] { parse_key_file("good\n\nse cret\n", "the file"); });
  EXPECT_NE(error.find("the file line 3"), std::string::npos) << error;
  EXPECT_EQ(error.find("cret"), std::string::npos) << error;
  EXPECT_NE(error.find("has a blank in it"), std::string::npos) << error;
}

}  // namespace
}  // namespace quire::server
