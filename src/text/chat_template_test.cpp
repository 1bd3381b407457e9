#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "base/error.h"

namespace quire::text {
namespace {

using testing::HasSubstr;

constexpr std::string_view kHello = R"([{"role": "user", "content": "Hello"}])";

Result<std::string, std::string> render(std::string_view source, ChatTemplateInput input = {}) {
  if (input.messages.empty()) input.messages = kHello;
  auto chat = ChatTemplate::parse(source, R"({"bos_token": "<s>"})");
  if (!chat.ok()) return Err{chat.error()};
  return (*chat)->render(input);
}

std::string repeat(std::string_view piece, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += piece;
  return text;
}

using Outcome = Result<std::string, std::string>;

// Must end soon and without a crash; an error is fine.
Outcome run_hostile(std::string_view source, std::string_view kwargs = "") {
  const auto start = std::chrono::steady_clock::now();
  auto result = render(source, {.kwargs = kwargs});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120))
      << source.substr(0, 80);
  return result;
}

void survive(std::string_view source, std::string_view kwargs = "") {
  (void)run_hostile(source, kwargs);
}

void expect_refused(std::string_view source, std::string_view kwargs = "") {
  const auto result = run_hostile(source, kwargs);
  EXPECT_FALSE(result.ok()) << source.substr(0, 80) << " gave " << result.value().size()
                            << " bytes";
}

TEST(ChatTemplate, ShowsSpecialTokensAndArguments) {
  EXPECT_EQ(*render("{{ bos_token }}{{ messages[0].content }}{{ enable_thinking }}",
                    {.messages = kHello, .kwargs = R"({"enable_thinking": false})"}),
            "<s>HelloFalse");
}

TEST(ChatTemplate, PassesOnWhatTheTemplateRaises) {
  EXPECT_EQ(render("{{ raise_exception('Roles must \"alternate\"!') }}").error(),
            "Roles must \"alternate\"!");
}

TEST(ChatTemplate, SyntaxErrorsNameTheLine) {
  EXPECT_THAT(render("a\n{% if x %}\n{{ }}").error(), HasSubstr("line 3"));
}

TEST(ChatTemplate, RefusesBadInput) {
  EXPECT_FALSE(render("x", {.messages = "[{"}).ok());
  EXPECT_FALSE(render("x", {.messages = "{}"}).ok());
  EXPECT_FALSE(render("x", {.messages = "[1]"}).ok());
  EXPECT_FALSE(render("x", {.messages = "[]"}).ok());
  EXPECT_FALSE(render("x", {.messages = "[{\"role\": \"\xFF\"}]"}).ok());
  EXPECT_FALSE(render("x", {.messages = kHello, .kwargs = "[]"}).ok());
  EXPECT_FALSE(render("\xFF").ok());
}

TEST(ChatTemplate, ArgumentsCannotReplaceTheConversation) {
  for (const char* name :
       {"messages", "tools", "documents", "add_generation_prompt", "chat_template"}) {
    const std::string kwargs = std::string("{\"") + name + "\": []}";
    EXPECT_THAT(render("x", {.messages = kHello, .kwargs = kwargs}).error(), HasSubstr(name));
  }
}

// A template in an argument is text like any other.
TEST(ChatTemplate, ArgumentsAreNotTemplates) {
  EXPECT_EQ(*render("{{ x }}", {.messages = kHello, .kwargs = R"({"x": "{{ 1 + 1 }}"})"}),
            "{{ 1 + 1 }}");
}

TEST(ChatTemplateLimits, StringBombs) {
  const std::string grow = "{% set ns = namespace(s='x') %}{% for i in range(100) %}";
  expect_refused(grow + "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s | length }}");
  expect_refused(grow + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s | length }}");
  expect_refused(grow + "{% set ns.s = ns.s * 10 %}{% endfor %}{{ ns.s | length }}");
  expect_refused(grow +
                 "{% set ns.s = ns.s.replace('x', 'xxxx') %}{% endfor %}{{ ns.s | length }}");
  expect_refused(grow +
                 "{% set ns.s = ns.s | replace('x', 'xx') %}{% endfor %}{{ ns.s | length }}");
  expect_refused(grow +
                 "{% set ns.s = [ns.s, ns.s] | join(ns.s) %}{% endfor %}{{ ns.s | length }}");
  expect_refused(grow + "{% set ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}{{ ns.s | length }}");
  expect_refused(grow +
                 "{% set ns.s = '%s%s' | format(ns.s, ns.s) %}{% endfor %}{{ ns.s | length }}");
  expect_refused(grow + "{% set ns.s = '{0}{0}'.format(ns.s) %}{% endfor %}{{ ns.s | length }}");
  expect_refused(grow + "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}");
  expect_refused(grow + "{% set ns.s = ns.s | indent(9999, true) ~ '\\n' ~ ns.s %}{% endfor %}");
  expect_refused("{{ 'x' * 1000000000 }}");
  expect_refused("{{ ('x' * 60000) * 60000 }}");
  expect_refused("{{ 60000 * ('x' * 60000) }}");
  expect_refused("{{ ('x' ~ 'y' * n) | length }}", R"({"n": 1000000000000})");
  expect_refused("{% if false %}" + repeat("{{ 'x' * 100000000 }}", 1000) + "{% endif %}");
}

TEST(ChatTemplateLimits, WidthBombs) {
  expect_refused("{{ 'x'.center(2000000000) }}");
  expect_refused("{{ 'x'.zfill(2000000000) }}");
  expect_refused("{{ '%1000000000d' | format(1) }}");
  expect_refused("{{ '%*d' | format(1000000000, 1) }}");
  expect_refused("{{ '%1000000000d' % 1 }}");
  expect_refused("{{ '{:1000000000}'.format(1) }}");
  expect_refused("{{ '{:{}}'.format(1, 1000000000) }}");
  expect_refused("{{ strftime_now('%1000000000Y') }}");
  expect_refused("{{ 'x' | indent(1000000000, true) }}");
  expect_refused("{{ [1] | batch(1000000000, 'x') | list }}");
  expect_refused("{{ range(10000000) | list | length }}");
}

TEST(ChatTemplateLimits, ListBombs) {
  const std::string grow = "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}";
  expect_refused(grow + "{% set ns.l = ns.l + ns.l %}{% endfor %}");
  expect_refused(grow + "{% set ns.l = ns.l * 10 %}{% endfor %}");
  // A few objects that print, compare or serialise as 2^64.
  expect_refused(grow + "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}");
  expect_refused(grow + "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l }}");
  expect_refused(grow + "{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% endfor %}{{ ns.l | tojson }}");
  expect_refused(grow + "{% set ns.l = dict(a=ns.l, b=ns.l) %}{% endfor %}");
  expect_refused(grow + "{% set ns.l = [ns.l, ns.l] | list %}{% endfor %}");
  expect_refused(grow + "{% set ns.l = ns.l | map('string') | list + ns.l %}{% endfor %}");
}

TEST(ChatTemplateLimits, DepthBombs) {
  const std::string nest = "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}";
  expect_refused(nest + "{% set ns.l = [ns.l] %}{% endfor %}");
  expect_refused(nest + "{% set ns.l = {'a': ns.l} %}{% endfor %}");
  survive(nest + "{% set ns.l = ns.l | reverse %}{% endfor %}");
  survive(nest + "{% set ns.l = ns.l[0:] %}{% endfor %}{{ ns.l }}");
  survive(nest + "{% set ns.l = ns.l + [i] %}{% endfor %}");
  expect_refused("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}");
  expect_refused("{% set ns = namespace() %}{% set ns.self = [{'a': ns}] %}");
  expect_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  expect_refused("{% macro f() %}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}");
  survive(
      "{% macro f(x) %}{{ x }}{% endmacro %}{% set ns = namespace(f=f) %}{% for i in "
      "range(20000) %}{% set g = ns.f %}{% macro h() %}{{ g }}{% endmacro %}{% set ns.f = h "
      "%}{% endfor %}");
}

TEST(ChatTemplateLimits, EndlessLoops) {
  expect_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  expect_refused("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}");
  expect_refused("{% for a in range(99999) %}{% set x = range(99999) | list | sort %}{% endfor %}");
  expect_refused(
      "{% set s = 'ab' * n %}{% for a in range(99999) %}{% if s.count('a') %}{% endif %}"
      "{% endfor %}",
      R"({"n": 1000000})");
  expect_refused(
      "{% set s = 'ab' * n %}{% for a in range(99999) %}{% if 'x' in [s] %}{% endif %}"
      "{{ s | upper | length }}{% endfor %}",
      R"({"n": 1000000})");
}

// A stack overflow cannot be caught: each of these would end the process.
TEST(ChatTemplateLimits, DeepSources) {
  survive("{{ " + repeat("(", 100'000) + "1" + repeat(")", 100'000) + " }}");
  survive("{{ " + repeat("[", 200'000) + " }}");
  survive("{{ " + repeat("-", 200'000) + "1 }}");
  survive("{{ " + repeat("not ", 200'000) + "1 }}");
  survive("{{ 1" + repeat("+1", 400'000) + " }}");
  survive("{{ x" + repeat("~x", 400'000) + " }}");
  survive("{{ x" + repeat("|e", 400'000) + " }}");
  survive("{{ x" + repeat(".a", 400'000) + " }}");
  survive("{{ x" + repeat("[0]", 300'000) + " }}");
  survive("{{ 1" + repeat(" if 1 else 1", 80'000) + " }}");
  survive("{{ x" + repeat(" is defined", 80'000) + " }}");
  survive("{{ 1" + repeat(" and 1", 160'000) + " }}");
  survive("{{ 1" + repeat("<1", 400'000) + " }}");
  survive("{{ 1" + repeat("**1", 300'000) + " }}");
  survive(repeat("{% if 1 %}", 100'000));
  survive(repeat("{% if 1 %}", 20'000) + repeat("{% endif %}", 20'000));
  survive(repeat("{% for i in [1] %}", 20'000) + repeat("{% endfor %}", 20'000));
  survive("{% if 0 %}" + repeat("{% elif 0 %}", 80'000) + "{% endif %}");
  survive(repeat("{% generation %}", 60'000));
  EXPECT_FALSE(run_hostile(repeat("x", 2 << 20)).ok());
}

TEST(ChatTemplateLimits, DeepArguments) {
  EXPECT_FALSE(run_hostile("{{ x }}", "{\"x\": " + repeat("[", 100'000) + "}").ok());
  EXPECT_FALSE(
      run_hostile("{{ x }}", "{\"x\": " + repeat("[", 100'000) + repeat("]", 100'000) + "}").ok());
  EXPECT_TRUE(run_hostile("{{ x }}", "{\"x\": " + repeat("[", 60) + repeat("]", 60) + "}").ok());
}

TEST(ChatTemplateLimits, OutputIsBounded) {
  ChatTemplateInput input{.messages = kHello, .limits = {.output_bytes = 1000}};
  EXPECT_TRUE(render("{{ 'x' * 900 }}", input).ok());
  EXPECT_THAT(render("{{ 'x' * 1100 }}", input).error(), HasSubstr("1000 bytes"));
}

// The defaults leave room for what servers really see.
TEST(ChatTemplateLimits, LargeConversationsPass) {
  std::string messages = "[";
  const std::string content = repeat("words and more words, ", 500);
  for (int i = 0; i < 500; ++i) {
    messages += std::string(i ? "," : "") + "{\"role\": \"" + (i % 2 ? "assistant" : "user") +
                "\", \"content\": \"" + content + "\"}";
  }
  messages += "]";
  const auto result = render(
      "{% set ns = namespace(last=none, all=[]) %}{% for m in messages[::-1] %}{% set ns.last = m "
      "%}"
      "{% set ns.all = ns.all + [m] %}{% endfor %}{% for m in messages %}{% if '</think>' in "
      "m.content %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.role + m.content | trim }}"
      "{% endif %}{% endfor %}",
      {.messages = messages});
  ASSERT_TRUE(result.ok()) << result.error();
  EXPECT_GT(result->size(), 5'000'000u);
}

class ChatTemplateFiles : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void write(const char* name, std::string_view text) { std::ofstream(dir_ / name) << text; }
  std::string use(std::string_view tools) {
    return *ChatTemplate::load(dir_)->render({.messages = kHello, .tools = tools});
  }

  std::filesystem::path dir_ = std::filesystem::path(testing::TempDir()) /
                               (std::string("chat_template_") +
                                testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ChatTemplateFiles, NoTemplateIsNotAnError) {
  EXPECT_EQ(ChatTemplate::load(dir_), nullptr);
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(ChatTemplate::load(dir_), nullptr);
}

TEST_F(ChatTemplateFiles, TheJinjaFileWins) {
  write("tokenizer_config.json",
        R"({"chat_template": "config", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(use(""), "config");
  write("chat_template.jinja", "file {{ eos_token }}");
  EXPECT_EQ(use(""), "file </s>");
}

TEST_F(ChatTemplateFiles, ToolsSelectTheToolTemplate) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"},
                              {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(use(""), "plain");
  EXPECT_EQ(use("[]"), "tools");
}

TEST_F(ChatTemplateFiles, BrokenFilesNameThemselves) {
  const auto message = [&] {
    try {
      ChatTemplate::load(dir_);
      return std::string("no error");
    } catch (const LoadError& e) {
      return std::string(e.what());
    }
  };
  write("tokenizer_config.json", "{");
  EXPECT_THAT(message(), HasSubstr("tokenizer_config.json"));
  write("tokenizer_config.json", R"({"chat_template": "{% if %}"})");
  EXPECT_THAT(message(), HasSubstr("tokenizer_config.json"));
  write("chat_template.jinja", "{{ \xFF }}");
  EXPECT_THAT(message(), HasSubstr("chat_template.jinja"));
}

}  // namespace
}  // namespace quire::text
