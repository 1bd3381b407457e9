#include "server/content_parts.h"

#include <gtest/gtest.h>

#include "server/openai/parse.h"

namespace quire::server {
namespace {

constexpr const char* kText = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
constexpr const char* kParts =
    "{% for m in messages %}<{{ m.role }}>{% for part in m['content'] %}"
    "{% if part.type == 'text' %}[{{ part['text'] }}]{% endif %}{% endfor %}{% endfor %}";
constexpr const char* kBoth =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endif %}{% endfor %}";
constexpr const char* kJson =
    "{% for m in messages %}<{{ m.role }}>{{ m.content | tojson }}{% endfor %}";
constexpr const char* kStrict =
    "{% for m in messages %}{% if m.content is not string %}{{ raise_exception('text only') }}"
    "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";

std::shared_ptr<const text::ChatTemplate> parse(const char* source) {
  return text::ChatTemplate::parse(source, {}).value();
}

TEST(ContentParts, TheTemplateItselfDecides) {
  struct Case {
    const char* source;
    bool walks_parts, takes_text;
  };
  for (const auto& [source, walks_parts, takes_text] : {Case{kText, false, true},
                                                        {kParts, true, false},
                                                        {kBoth, true, true},
                                                        {kJson, false, true},
                                                        {kStrict, false, true}}) {
    const ContentForm form = content_form(*parse(source));
    EXPECT_EQ(form.walks_parts, walks_parts) << source;
    EXPECT_EQ(form.takes_text, takes_text) << source;
  }
}

// As clients send it: a system text, a question in two parts, an answer, a result in a part.
constexpr const char* kBody = R"({"messages": [
  {"role": "system", "content": "Be kind."},
  {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
  {"role": "assistant", "content": "three"},
  {"role": "user", "content": [{"type": "text", "text": "four"}]}]})";

std::string rendered(const char* source) {
  const auto request = openai::parse_chat(kBody, {});
  EXPECT_TRUE(request.ok()) << request.error().message;
  const auto chat_template = parse(source);
  const std::string messages = dump_json(messages_in(content_form(*chat_template), request->chat));
  text::ChatTemplateInput input;
  input.messages = messages;
  return chat_template->render(input).value();
}

TEST(ContentParts, EachTemplateGetsWhatItWants) {
  EXPECT_EQ(rendered(kText), "<system>Be kind.<user>one\ntwo<assistant>three<user>four");
  EXPECT_EQ(rendered(kParts), "<system>[Be kind.]<user>[one][two]<assistant>[three]<user>[four]");
  EXPECT_EQ(rendered(kBoth), "<system>Be kind.<user>[one][two]<assistant>three<user>[four]");
  EXPECT_EQ(rendered(kStrict), "<system>Be kind.<user>one\ntwo<assistant>three<user>four");
}

}  // namespace
}  // namespace quire::server
