#include "server/anthropic/answer.h"

#include "server/test_server.h"

namespace quire::server::anthropic {
namespace {

// What a stream's events say: blocks that begin and end, and what is added to them.
std::string story(const std::string& events) {
  std::string out;
  for (size_t at = 0; (at = events.find("\ndata: ", at)) != std::string::npos;) {
    at += 7;
    const json::value event = parse_json(events.substr(at, events.find('\n', at) - at)).value();
    const std::string type = event.at("type").as_string().c_str();
    if (type == "content_block_start") {
      const json::object& block = event.at("content_block").as_object();
      out += "begin(" + std::string(block.at("type").as_string());
      if (const json::value* id = block.if_contains("id"))
        out += " " + std::string(id->as_string());
      out += ") ";
    } else if (type == "content_block_delta") {
      for (const char* key : {"text", "thinking", "partial_json"})
        if (const json::value* added = event.at("delta").as_object().if_contains(key))
          out += std::string(added->as_string()) + " ";
    } else if (type == "content_block_stop") {
      out += "end ";
    }
  }
  return out;
}

TextDelta call(int64_t index, const std::string& id, const std::string& arguments,
               const std::string& text = "") {
  TextDelta delta;
  delta.text = text;
  delta.calls.push_back({index, id, id.empty() ? "" : "f", arguments});
  return delta;
}

TEST(MessageFormat, TheRestOfACallComesBeforeTheTextBehindIt) {
  MessageFormat format({"msg_1", "1", "m"});
  const Session session(model_text().tokenizer, {1}, {});
  const auto events = [&](const TextDelta& delta) {
    return story(format.events(0, session, delta, {}));
  };
  EXPECT_EQ(events(call(0, "toolu_1", "{\"a\"", "Sure")),
            "begin(text) Sure end begin(tool_use toolu_1) {\"a\" ");
  TextDelta more = call(0, "", ": 1}", "Then");
  more.calls.push_back(call(1, "toolu_2", "{}").calls.front());
  EXPECT_EQ(events(more), ": 1} end begin(text) Then end begin(tool_use toolu_2) {} ");
}

}  // namespace
}  // namespace quire::server::anthropic
