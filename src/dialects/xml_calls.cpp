#include "dialects/xml_calls.h"

#include "dialects/json_calls.h"
#include "dialects/json_text.h"

namespace quire::dialects {
namespace {

struct Tag {
  std::string name;
  std::string_view string_attribute = {};  // "true", "false" or nothing
};

std::string_view unquoted(std::string_view text) {
  text = trimmed(text);
  if (text.size() >= 2 && (text[0] == '"' || text[0] == '\'') && text.back() == text[0])
    return text.substr(1, text.size() - 2);
  return text;
}

// The rest of an opening tag: a name, maybe in quotes, and maybe an attribute.
Task<Tag> read_tag(Reader& in) {
  const std::string inside = co_await read_until(in, ">");
  std::string_view text = trimmed(inside);
  Tag tag;
  if (const size_t at = text.find("string="); at != std::string_view::npos && at > 0) {
    tag.string_attribute = unquoted(text.substr(at + 7)) == "true" ? "true" : "false";
    text = trimmed(text.substr(0, at));
  }
  tag.name = std::string(unquoted(text));
  if (tag.name.empty() || tag.name.find('<') != std::string::npos) co_await in.fail();
  co_return std::move(tag);
}

Task<> read_argument(Reader& in, const XmlCalls& syntax, TaggedArguments& arguments) {
  const Tag tag = co_await read_tag(in);
  arguments.open_key(tag.name);
  if (!syntax.has_string_attribute || tag.string_attribute.empty()) {
    co_await tagged_value(in, syntax.value, tag.name);
  } else if (tag.string_attribute == "true") {
    co_await tagged_value(in, syntax.value, "");  // no argument's name: a string
  } else {
    co_await tagged_json_value(in, syntax.value);
  }
}

}  // namespace

Task<> xml_function(Reader& in, const XmlCalls& syntax) {
  const Tag function = co_await read_tag(in);
  in.begin_call(function.name);
  TaggedArguments arguments(in);
  for (;;) {
    co_await closers(in, syntax.value.closer);
    const bool more = co_await accept_spaced(in, syntax.argument_open);
    if (!more) break;
    co_await read_argument(in, syntax, arguments);
  }
  // A missing end is made up for by what would follow it.
  const bool closed = co_await accept_spaced(in, syntax.function_close);
  if (!closed) {
    bool ends = co_await follows(in, syntax.outer_close);
    if (!ends) ends = co_await follows(in, syntax.function_open);
    if (!ends) ends = co_await follows_end(in);
    if (!ends || (in.reached_end() && in.cut())) co_await in.fail();
  }
  arguments.close();
  in.end_call();
  in.commit();
  co_await closers(in, syntax.function_close, syntax.outer_close);
  if (!syntax.other_outer_close.empty()) co_await closers(in, syntax.other_outer_close);
}

Task<> xml_calls(Reader& in, const XmlCalls& syntax) {
  co_await skip_space(in);
  co_await expect(in, syntax.function_open);
  for (;;) {
    co_await xml_function(in, syntax);
    const bool more = co_await accept_spaced(in, syntax.function_open);
    if (!more) break;
  }
}

}  // namespace quire::dialects
