#include "server/call_ids.h"

#include <gtest/gtest.h>

#include "server/chat_rendering.h"

namespace quire::server {
namespace {

std::shared_ptr<const text::ChatTemplate> parsed(const std::string& source) {
  return *text::ChatTemplate::parse(source, "{}");
}

// As Mistral's templates check ids.
const std::string kChecking =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}"
    "{{ raise_exception('length 9!') }}{% endif %}<{{ c.id }}>{% endfor %}"
    "{% if m.tool_call_id is defined %}[{{ m.tool_call_id }}]{% endif %}{% endfor %}";
const std::string kShowing =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "<{{ c.id }}>{% endfor %}{% endfor %}";

json::array talk_with(const std::string& id) {
  return {json::object{{"role", "user"}, {"content", "q"}},
          json::object{{"role", "assistant"},
                       {"content", nullptr},
                       {"tool_calls", json::array{json::object{
                                          {"id", id},
                                          {"type", "function"},
                                          {"function", {{"name", "f"}, {"arguments", "{}"}}}}}}},
          json::object{{"role", "tool"}, {"tool_call_id", id}, {"content", "1"}}};
}

std::string rendered(const text::ChatTemplate& chat_template, const std::string& id) {
  openai::ChatInput chat;
  chat.messages = talk_with(id);
  WorkBudget budget;
  text::ChatTemplateInput input;
  input.budget = &budget;
  const auto text = render_chat(chat_template, forms_of(chat_template, nullptr), input, chat);
  EXPECT_TRUE(text.ok());
  return text.ok() ? *text : text.error();
}

TEST(CallIds, AreShortWhereTheTemplateWantsThem) {
  const auto checking = parsed(kChecking);
  EXPECT_TRUE(wants_short_ids(*checking));
  const std::string text = rendered(*checking, "call_Ab3xyz0123456789Ab3xyz01");
  ASSERT_EQ(text.size(), 22u) << text;
  const std::string id = text.substr(1, 9);
  EXPECT_EQ(text, "<" + id + ">[" + id + "]");
  EXPECT_EQ(id.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
            std::string::npos);
  // The same again, and another for another.
  EXPECT_EQ(rendered(*checking, "call_Ab3xyz0123456789Ab3xyz01"), text);
  EXPECT_NE(rendered(*checking, "call_Ab3xyz0123456789Ab3xyz02"), text);
  EXPECT_EQ(rendered(*checking, "Ab3xyz012"), "<Ab3xyz012>[Ab3xyz012]");
  EXPECT_NE(rendered(*checking, "Ab3-yz012"), "<Ab3-yz012>[Ab3-yz012]");
}

TEST(CallIds, AreTheClientsElsewhere) {
  const auto showing = parsed(kShowing);
  EXPECT_FALSE(wants_short_ids(*showing));
  EXPECT_EQ(rendered(*showing, "call_Ab3"), "<call_Ab3>");
  // A template that refuses calls whatever their ids says nothing about these.
  EXPECT_FALSE(wants_short_ids(*parsed("{{ raise_exception('no') }}")));
}

}  // namespace
}  // namespace quire::server
