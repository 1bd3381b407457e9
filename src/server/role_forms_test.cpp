#include "server/role_forms.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

std::shared_ptr<const text::ChatTemplate> parse(const std::string& source) {
  return text::ChatTemplate::parse(source, {}).value();
}

TEST(RoleForms, TheTemplateItselfSaysWhichRolesItShows) {
  struct Case {
    const char* source;
    bool shows_developer, drops_late_system;
  };
  for (const auto& [source, shows_developer, drops_late_system] :
       {Case{"{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", true, false},
        // Qwen3's way: other roles are nobody's.
        Case{"{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}"
             "{{ m.content }}{% endif %}{% endfor %}",
             false, false},
        Case{"{{ messages[0].content }}{% for m in messages[1:] %}"
             "{% if m.role in ['user', 'assistant'] %}{{ m.content }}{% endif %}{% endfor %}",
             true, true},
        Case{"{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}"
             "{{ raise_exception('odd role') }}{% endif %}{{ m.content }}{% endfor %}",
             false, false}}) {
    const RoleForm form = role_form(*parse(source));
    EXPECT_EQ(form.shows_developer, shows_developer) << source;
    EXPECT_EQ(form.drops_late_system, drops_late_system) << source;
  }
}

std::string after(size_t steps, const char* messages) {
  json::array list = parse_json(messages)->get_array();
  for (size_t i = 0; i < steps; ++i) list = role_steps()[i](list);
  return dump_json(list);
}

std::string normal(const char* messages) { return dump_json(*parse_json(messages)); }

TEST(RoleForms, OneSystemMessageComesFirst) {
  EXPECT_EQ(after(1, R"([{"role": "developer", "content": "A"}, {"role": "system", "content": "B"},
      {"role": "user", "content": "C", "name": "kept"}, {"role": "user", "content": "D"},
      {"role": "assistant", "content": "E"}, {"role": "developer", "content": "F"}])"),
            normal(R"([{"role": "system", "content": "A\nB"},
      {"role": "user", "content": "C\nD", "name": "kept"},
      {"role": "assistant", "content": "E"}, {"role": "user", "content": "F"}])"));
}

TEST(RoleForms, TurnsComeInOrder) {
  EXPECT_EQ(after(2, R"([{"role": "system", "content": "A"}, {"role": "assistant", "content": "B"},
      {"role": "assistant", "content": "C", "tool_calls": [1]},
      {"role": "assistant", "content": "", "tool_calls": [2]},
      {"role": "tool", "content": "D"}, {"role": "tool", "content": "E"},
      {"role": "assistant", "content": "F"}, {"role": "tool", "content": "G"},
      {"role": "user", "content": "H"}])"),
            normal(R"([{"role": "system", "content": "A"}, {"role": "user", "content": ""},
      {"role": "assistant", "content": "B\nC", "tool_calls": [1, 2]},
      {"role": "tool", "content": "D"}, {"role": "tool", "content": "E"},
      {"role": "assistant", "content": "F"}, {"role": "user", "content": "G\nH"}])"));
}

TEST(RoleForms, AQuestionBehindAResultIsPartOfIt) {
  EXPECT_EQ(after(3, R"([{"role": "user", "content": "A"},
      {"role": "assistant", "content": "", "tool_calls": [1]}, {"role": "tool", "content": "B"},
      {"role": "user", "content": "C"}])"),
            normal(R"([{"role": "user", "content": "A"},
      {"role": "assistant", "content": "", "tool_calls": [1]}, {"role": "tool", "content": "B\nC"}])"));
}

TEST(RoleForms, TheSystemTextStandsBeforeTheUsers) {
  EXPECT_EQ(after(4, R"([{"role": "system", "content": "A"}, {"role": "user", "content": "B"}])"),
            normal(R"([{"role": "user", "content": "A\nB"}])"));
  EXPECT_EQ(after(4, R"([{"role": "system", "content": "A"}])"),
            normal(R"([{"role": "user", "content": "A"}])"));
}

TEST(RoleForms, WhatIsInOrderStaysAsItIs) {
  const char* const fine =
      R"([{"role": "user", "content": "A"}, {"role": "assistant", "content": "",
      "reasoning_content": "x", "tool_calls": [1]}, {"role": "tool", "content": "B"},
      {"role": "assistant", "content": "C"}, {"role": "user", "content": "D"}])";
  EXPECT_EQ(after(4, fine), normal(fine));
}

}  // namespace
}  // namespace quire::server
