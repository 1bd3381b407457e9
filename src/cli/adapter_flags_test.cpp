#include "cli/adapter_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quire::cli {
namespace {

using testing::HasSubstr;

std::string error_of(const AdapterFlags& flags) {
  try {
    parse_adapters(flags);
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(AdapterFlags, TakesNamesWithFoldersAndVllmsObjects) {
  const auto adapters = parse_adapters(
      {.modules = {"sql=/adapters/a=b",
                   R"({"name": "chat", "path": "/c", "base_model_name": "Qwen/Qwen3-0.6B"})"}});
  ASSERT_EQ(adapters.size(), 2u);
  EXPECT_EQ(adapters[0].name, "sql");
  EXPECT_EQ(adapters[0].path, "/adapters/a=b");
  EXPECT_EQ(adapters[1].name, "chat");
  EXPECT_EQ(adapters[1].path, "/c");
}

// As files and variables give them.
TEST(AdapterFlags, TakesSeveralInOneText) {
  const auto adapters =
      parse_adapters({.modules = {"a=/a, b=/b,c=/c", R"({"name": "d", "path": "/d,e"})"}});
  ASSERT_EQ(adapters.size(), 4u);
  EXPECT_EQ(adapters[1].name, "b");
  EXPECT_EQ(adapters[1].path, "/b");
  EXPECT_EQ(adapters[2].path, "/c");
  EXPECT_EQ(adapters[3].path, "/d,e");
}

TEST(AdapterFlags, RefusesAnythingElse) {
  for (const char* text :
       {"/folder", "=/folder", "name=", "{\"name\": \"a\"}", "{\"name\": 1}", "{", "a=/a,",
        "a=/a,/b", "a\n=/a", "a\x1b=/a", "", R"({"name": "a", "path": "b", "rank": 3})"})
    EXPECT_THAT(error_of({.modules = {text}}), HasSubstr("--lora-modules: ")) << text;
  EXPECT_THAT(error_of({.modules = {"a=b", "a=c"}}), HasSubstr("a=c gives a name"));
  EXPECT_THAT(error_of({.modules = {}, .max_loras = 2}),
              HasSubstr("nothing without --lora-modules"));
  EXPECT_THAT(error_of({.modules = {}, .max_rank = 8}),
              HasSubstr("nothing without --lora-modules"));
}

// The model may stand behind the adapters, which are any number.
TEST(AdapterFlags, LeaveTheModelAlone) {
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"--lora-modules", "a=/a", "b=/b", "model"},
        {"model", "--lora-modules", "a=/a", "--lora-modules", "b=/b"},
        {"--lora-modules", "a=/a", "b=/b", "--max-loras", "1", "model"}}) {
    CLI::App app;
    AdapterFlags flags;
    std::string model;
    app.add_option("model", model)->required();
    add_adapter_flags(app, flags);
    app.parse(std::vector<std::string>(line.rbegin(), line.rend()));
    EXPECT_EQ(model, "model");
    EXPECT_EQ(parse_adapters(flags).size(), 2u);
  }
}

}  // namespace
}  // namespace quire::cli
