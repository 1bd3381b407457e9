#include "server/responses/answer.h"

#include "server/test_server.h"

namespace quire::server::responses {
namespace {

// The types of a stream's events, and of items that begin.
std::string story(const std::string& events) {
  std::string out;
  for (size_t at = 0; (at = events.find("\ndata: ", at)) != std::string::npos;) {
    at += 7;
    const json::value event = parse_json(events.substr(at, events.find('\n', at) - at)).value();
    std::string type = event.at("type").as_string().c_str();
    if (type.starts_with("response.output_item")) {
      type += "(" + std::string(event.at("item").at("type").as_string()) + ")";
    } else if (type.ends_with(".delta")) {
      type += "(" + std::string(event.at("delta").as_string()) + ")";
    }
    out += type.substr(sizeof "response") + " ";
  }
  return out;
}

class Answers : public testing::Test {
 protected:
  std::string events(TextDelta delta) { return story(format_.events(0, session_, delta, {})); }
  static TextDelta call(int64_t index, const std::string& arguments, const std::string& text = "") {
    TextDelta delta;
    delta.text = text;
    delta.calls.push_back({index, arguments.starts_with('{') ? "call_" + std::to_string(index) : "",
                           arguments.starts_with('{') ? "f" : "", arguments});
    return delta;
  }

  ResponseFormat format_{{"1", "m", 0, std::make_shared<openai::ResponsesEcho>()}};
  Session session_{model_text().tokenizer, {1}, {}};
};

TEST_F(Answers, TheRestOfACallComesBeforeTheTextBehindIt) {
  EXPECT_EQ(events(call(0, "{\"a\"", "Sure")),
            "output_item.added(message) content_part.added output_text.delta(Sure) "
            "output_text.done content_part.done output_item.done(message) "
            "output_item.added(function_call) function_call_arguments.delta({\"a\") ");
  EXPECT_EQ(events(call(0, ": 1}", "Done")),
            "function_call_arguments.delta(: 1}) function_call_arguments.done "
            "output_item.done(function_call) output_item.added(message) content_part.added "
            "output_text.delta(Done) ");
}

TEST_F(Answers, CallsThatFollowOneAnotherAreItemsOfTheirOwn) {
  TextDelta two = call(0, "{}");
  two.calls.push_back(call(1, "{}").calls.front());
  EXPECT_EQ(events(two),
            "output_item.added(function_call) function_call_arguments.delta({}) "
            "function_call_arguments.done output_item.done(function_call) "
            "output_item.added(function_call) function_call_arguments.delta({}) ");
}

TEST_F(Answers, ThoughtsBetweenTextsAreItemsOfTheirOwn) {
  TextDelta thought, text;
  thought.reasoning = "hm";
  text.text = "a";
  EXPECT_EQ(events(thought),
            "output_item.added(reasoning) content_part.added reasoning_text.delta(hm) ");
  EXPECT_EQ(events(text),
            "reasoning_text.done content_part.done output_item.done(reasoning) "
            "output_item.added(message) content_part.added output_text.delta(a) ");
  EXPECT_EQ(events(thought),
            "output_text.done content_part.done output_item.done(message) "
            "output_item.added(reasoning) content_part.added reasoning_text.delta(hm) ");
}

}  // namespace
}  // namespace quire::server::responses
