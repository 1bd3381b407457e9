#include "cli/config_file.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace quire::cli {
namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(ConfigFile, AnApostropheIsALetter) {
  const auto entries = parse_config("name: it's # a comment\nother: 'it # is'  # one\n", "f");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].value, "it's");
  EXPECT_EQ(entries[1].value, "it # is");
}

TEST(ConfigFile, HasALineForEachFlag) {
  const auto entries = parse_config(
      "\xEF\xBB\xBF# a server\n---\nport: 8001\nmax_model_len = 4096  # tokens\n\n"
      "chat-template: \"a # b: c\"\r\napi-key: 'x'\nlog: a#b\n",
      "f");
  ASSERT_EQ(entries.size(), 5u);
  EXPECT_EQ(entries[0].name + "=" + entries[0].value, "port=8001");
  EXPECT_EQ(entries[0].line, 3);
  EXPECT_EQ(entries[1].name + "=" + entries[1].value, "max_model_len=4096");
  EXPECT_EQ(entries[2].value, "a # b: c");
  EXPECT_EQ(entries[3].value, "x");
  EXPECT_EQ(entries[4].value, "a#b");
  for (const char* bad : {"port", "port:", ": 3", "a:\n  - b", "keys: [a, b]", "\tport: 3",
                          "api-key: ''", "api-key = \"\" # x"})
    EXPECT_NE(error_of([&] { parse_config(std::string("x: 1\n") + bad, "f"); }).find("f:"),
              std::string::npos)
        << bad;
}

// A command line, its variables and its file.
class Flags : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "quire-config-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    command_ = app_.add_subcommand("serve");
    command_->add_option("model,--model", model_)->required();
    command_->add_option("--port", port_);
    command_->add_option("--names", names_)->delimiter(',');
    command_->add_option("--api-key", keys_)->envname("OLD_API_KEY");
    command_->add_flag("--caching,!--no-caching", caching_);
    command_->add_flag("--disable-log{false}", log_);
    command_->add_option("--config", config_);
  }
  void TearDown() override {
    for (const char* name : {"QUIRE_MODEL", "QUIRE_PORT", "QUIRE_NAMES", "QUIRE_API_KEY",
                             "QUIRE_CACHING", "QUIRE_DISABLE_LOG", "OLD_API_KEY", "QUIRE_PROT"})
      unsetenv(name);
    std::filesystem::remove_all(dir_);
  }
  std::vector<std::string> parse(const std::string& file, std::vector<std::string> words) {
    std::string path;
    if (!file.empty()) {
      path = dir_ + "/quire.conf";
      std::ofstream(path) << file;
    }
    auto notices = use_variables(*command_, path);
    words.insert(words.begin(), "serve");
    std::reverse(words.begin(), words.end());
    app_.parse(words);
    return notices;
  }

  std::string dir_, model_ = "-", config_;
  int port_ = 8000;
  std::vector<std::string> names_, keys_;
  bool caching_ = true, log_ = true;
  CLI::App app_;
  CLI::App* command_ = nullptr;
};

TEST_F(Flags, ComeFromTheFile) {
  parse("model: org/name\nport = 1\nnames: a , b\ncaching: false\ndisable_log: true\n", {});
  EXPECT_EQ(model_, "org/name");
  EXPECT_EQ(port_, 1);
  EXPECT_EQ(names_, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(caching_);
  EXPECT_FALSE(log_);
}

TEST_F(Flags, OfTheCommandLineComeFirstThenVariables) {
  setenv("QUIRE_PORT", "2", 1);
  setenv("QUIRE_CACHING", "false", 1);
  parse("model: file\nport: 1\nnames: a\nno-caching: false\n", {"typed", "--names", "c"});
  EXPECT_EQ(model_, "typed");
  EXPECT_EQ(port_, 2);
  EXPECT_EQ(names_, (std::vector<std::string>{"c"}));
  EXPECT_FALSE(caching_);
}

TEST_F(Flags, SwitchesMeanWhatTheirNamesSay) {
  parse("model: m\nno_caching: true\ndisable-log: false\n", {});
  EXPECT_FALSE(caching_);
  EXPECT_TRUE(log_);
}

TEST_F(Flags, OlderVariablesComeBeforeTheFile) {
  setenv("OLD_API_KEY", "old", 1);
  parse("model: m\napi-key: file\n", {});
  EXPECT_EQ(keys_, (std::vector<std::string>{"old"}));
}

TEST_F(Flags, VariablesOfOursComeBeforeOlderOnes) {
  setenv("OLD_API_KEY", "old", 1);
  setenv("QUIRE_API_KEY", "new", 1);
  parse("model: m\n", {});
  EXPECT_EQ(keys_, (std::vector<std::string>{"new"}));
}

TEST_F(Flags, EmptyVariablesAreNoUnsetOnes) {
  setenv("QUIRE_API_KEY", "", 1);
  EXPECT_NE(error_of([&] { parse("model: m\n", {}); }).find("QUIRE_API_KEY is empty"),
            std::string::npos);
  EXPECT_NE(error_of([&] { parse("", {"m", "--api-key", "typed"}); }).find("QUIRE_API_KEY"),
            std::string::npos);
}

TEST_F(Flags, MistypedOnesAreToldOf) {
  setenv("QUIRE_PROT", "3", 1);
  const auto notices = parse("model: m\n", {});
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_NE(notices[0].find("did you mean QUIRE_PORT?"), std::string::npos);
  EXPECT_NE(error_of([&] { parse("prot: 3\n", {}); })
                .find(":1: there is no flag --prot; did you "
                      "mean port?"),
            std::string::npos);
  EXPECT_NE(error_of([&] { parse("config: x\n", {}); }).find("there is no flag"),
            std::string::npos);
  EXPECT_NE(error_of([&] { parse("caching: maybe\n", {}); }).find("true or false"),
            std::string::npos);
  EXPECT_NE(error_of([&] { parse("port: 1\nport: 2\n", {}); }).find("twice"), std::string::npos);
  EXPECT_NE(error_of([&] { use_variables(*command_, "/no/such/file"); }).find("/no/such/file"),
            std::string::npos);
}

// As on the command line, with the place.
TEST_F(Flags, OfOtherProgramsAreAcceptedWhereTheyChangeNothing) {
  const auto notices = parse(
      "model: m\nswap-space: 4\ntensor_parallel_size: 1\nenable-chunked-prefill: true\n"
      "disable-log-requests: false\nenable-sleep-mode: false\nflash-attn: auto\n"
      "port: 7\n",
      {});
  ASSERT_EQ(notices.size(), 5u);
  EXPECT_TRUE(notices[0].starts_with(dir_ + "/quire.conf:2: --swap-space 4 changes nothing: "));
  EXPECT_TRUE(notices[1].starts_with(dir_ + "/quire.conf:3: --tensor-parallel-size 1 changes "));
  EXPECT_TRUE(notices[2].starts_with(dir_ + "/quire.conf:4: --enable-chunked-prefill changes "));
  EXPECT_TRUE(notices[3].starts_with(dir_ + "/quire.conf:5: --no-disable-log-requests changes "));
  EXPECT_TRUE(notices[4].starts_with(dir_ + "/quire.conf:7: --flash-attn auto changes nothing"));
  EXPECT_EQ(port_, 7);
  const std::pair<const char*, const char*> bad[] = {
      {"tensor-parallel-size: 2", ":1: --tensor-parallel-size 2: Quire runs one process"},
      {"max_num_partial_prefills: 2", ":1: --max-num-partial-prefills 2: not supported"},
      {"enable-sleep-mode: true", ":1: --enable-sleep-mode: not supported yet"},
      {"enable-chunked-prefill: false", ":1: --no-enable-chunked-prefill: not supported"},
      {"enforce-eager: maybe", ":1: --enforce-eager is a switch: true or false"},
      {"flash-attn: off", ":1: --flash-attn off: attention is always fused"},
      {"ctx-size: 4096", ":1: --ctx-size 4096: is llama.cpp's; use --max-model-len"}};
  for (const auto& [line, told] : bad)
    EXPECT_NE(error_of([&] { parse(line, {}); }).find(dir_ + "/quire.conf" + told),
              std::string::npos)
        << line;
}

TEST_F(Flags, AFileIsNamedByAFlagOrAVariable) {
  EXPECT_EQ(config_argument({"serve", "--config", "a"}), "a");
  EXPECT_EQ(config_argument({"serve", "--config=a"}), "a");
  EXPECT_EQ(config_argument({"serve", "--", "--config=a"}), "");
  setenv("QUIRE_CONFIG", "b", 1);
  EXPECT_EQ(config_argument({"serve"}), "b");
  EXPECT_NE(error_of([] { config_argument({"serve", "--config", ""}); }).find("--config is empty"),
            std::string::npos);
  EXPECT_NE(error_of([] { config_argument({"serve", "--config="}); }).find("--config is empty"),
            std::string::npos);
  setenv("QUIRE_CONFIG", "", 1);
  EXPECT_NE(error_of([] { config_argument({"serve"}); }).find("QUIRE_CONFIG is empty"),
            std::string::npos);
  unsetenv("QUIRE_CONFIG");
}

}  // namespace
}  // namespace quire::cli
