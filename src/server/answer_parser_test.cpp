// What becomes of calls on their way to a client, who can take nothing back.
#include "server/answer_parser.h"

#include <gtest/gtest.h>

#include "server/request_size.h"
#include "server/session.h"

namespace quire::server {
namespace {

const char* const kTools = R"([{"name": "add", "parameters": {}}, {"name": "now"}])";

ParsingOptions options_for(const char* dialect) {
  ParsingOptions options;
  options.dialect.calls = options.dialect.reasoning = dialects::find_dialect(dialect);
  options.tools = *dialects::ToolSet::parse(*parse_json(kTools));
  return options;
}

struct Answer {
  TextDelta whole;
  size_t argument_deltas = 0;

  std::string text() const {
    std::string out = "[" + whole.text + "|" + whole.reasoning + "]";
    for (const CallDelta& call : whole.calls)
      out += " " + std::to_string(call.index) + " " + call.name + " " + call.arguments;
    return out;
  }
};

Answer parse(const ParsingOptions& options, std::string_view text, size_t piece, bool cut = false) {
  AnswerParser parser(std::make_shared<ParsingOptions>(options));
  Answer answer;
  const auto take = [&answer](ParsedDelta&& parsed) {
    TextDelta next;
    next.text = parsed.content;
    next.reasoning = parsed.reasoning;
    for (const CallDelta& call : parsed.calls) answer.argument_deltas += !call.arguments.empty();
    next.calls = std::move(parsed.calls);
    answer.whole.append(std::move(next));
  };
  for (size_t at = 0; at < text.size(); at += piece) {
    ParsedDelta parsed;
    parser.push(text.substr(at, piece), parsed);
    take(std::move(parsed));
  }
  ParsedDelta parsed;
  parser.finish(cut, parsed);
  take(std::move(parsed));
  return answer;
}

// However the text comes.
Answer parse_all_ways(const ParsingOptions& options, std::string_view text, bool cut = false) {
  const Answer whole = parse(options, text, text.size(), cut);
  for (size_t piece = 1; piece < std::min<size_t>(text.size(), 40); ++piece)
    EXPECT_EQ(parse(options, text, piece, cut).text(), whole.text()) << piece;
  return whole;
}

std::string call_of(const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"add\", \"arguments\": " + arguments + "}\n</tool_call>";
}

TEST(AnswerParser, SendsCallsWithIdsAndIndexes) {
  const Answer answer =
      parse_all_ways(options_for("hermes"), "<think>hm</think>Sure.\n" + call_of("{\"a\": 1}") +
                                                "\n<tool_call>{\"name\": \"now\"}</tool_call>");
  EXPECT_EQ(answer.text(), R"([Sure.|hm] 0 add {"a": 1} 1 now {})");
  EXPECT_TRUE(answer.whole.calls[0].id.starts_with("call_"));
  EXPECT_EQ(answer.whole.calls[0].id.size(), 29u);
  EXPECT_NE(answer.whole.calls[0].id, answer.whole.calls[1].id);
}

TEST(AnswerParser, WhatIsNoCallStaysContentWhole) {
  for (const std::string& text :
       {call_of("{\"a\": 1,}"), call_of("{\"a\": 1, \"b\": tru}"), std::string("<tool_call>hello"),
        std::string("<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>")}) {
    const Answer answer = parse_all_ways(options_for("hermes"), text);
    EXPECT_EQ(answer.whole.text, text);
    EXPECT_TRUE(answer.whole.calls.empty());
  }
  // A list of which the first entry is a call and the second is not.
  const std::string list =
      "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {}}, {\"name\": \"add\", \"arguments\": {]";
  const Answer answer = parse_all_ways(options_for("mistral_v3"), list);
  EXPECT_EQ(answer.whole.text, list);
  EXPECT_TRUE(answer.whole.calls.empty());
}

TEST(AnswerParser, LongArgumentsComeAsTheyAreWritten) {
  const std::string text(2000, 'x');
  const std::string call = call_of("{\"text\": \"" + text + "\"}");
  const Answer answer = parse(options_for("hermes"), call, 4);
  EXPECT_EQ(answer.text(), "[|] 0 add {\"text\": \"" + text + "\"}");
  EXPECT_GT(answer.argument_deltas, 400u);
  // A grammar makes a call certain from its first byte.
  ParsingOptions certain = options_for("hermes");
  certain.calls_are_certain = true;
  EXPECT_GT(parse(certain, call_of("{\"a\": 12, \"b\": 34}"), 2).argument_deltas, 5u);
  EXPECT_EQ(parse(options_for("hermes"), call_of("{\"a\": 12, \"b\": 34}"), 2).argument_deltas, 1u);
}

// Sent is sent: it stays a call, and nothing of the text is lost.
TEST(AnswerParser, LongCallsThatBreakStayCallsAndAreContentBesides) {
  const std::string text = call_of("{\"text\": \"" + std::string(600, 'x') + "\" oops}") + " End.";
  const Answer answer = parse_all_ways(options_for("hermes"), text);
  EXPECT_EQ(answer.whole.text, text);
  ASSERT_EQ(answer.whole.calls.size(), 1u);
  EXPECT_TRUE(answer.whole.calls[0].arguments.starts_with("{\"text\": \"xxx"));
}

TEST(AnswerParser, CallsThatAreCutOffStayPartial) {
  const std::string text = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1";
  EXPECT_EQ(parse_all_ways(options_for("hermes"), text, true).text(), "[|] 0 add {\"a\": 1");
  EXPECT_EQ(parse_all_ways(options_for("hermes"), text, false).text(), "[" + text + "|]");
}

TEST(AnswerParser, OneCallEndsTheAnswer) {
  ParsingOptions options = options_for("hermes");
  options.one_call = true;
  const std::string text = "A " + call_of("{\"a\": 1}") + call_of("{\"a\": 2}") + " B";
  EXPECT_EQ(parse_all_ways(options, text).text(), R"([A|] 0 add {"a": 1})");
  // Within one list.
  options.dialect.calls = dialects::find_dialect("mistral_v3");
  const std::string long_text(400, 'x');
  const std::string list =
      "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": "
      "\"add\", \"arguments\": {\"a\": \"" +
      long_text + "\"}}]";
  EXPECT_EQ(parse_all_ways(options, list).text(), R"([|] 0 add {"a": 1})");
}

TEST(AnswerParser, LeavesReasoningOutOnRequest) {
  ParsingOptions options = options_for("hermes");
  options.starts_in_reasoning = true;
  EXPECT_EQ(parse_all_ways(options, "hm\n</think>\n\nYes").text(), "[Yes|hm]");
  options.include_reasoning = false;
  EXPECT_EQ(parse_all_ways(options, "hm\n</think>\n\nYes").text(), "[Yes|]");
}

TEST(AnswerParser, IdsAreAsTheDialectNeedsThem) {
  const auto id = [](const char* dialect, const std::string& text) {
    return parse(options_for(dialect), text, text.size()).whole.calls.at(0).id;
  };
  const std::string kimi =
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:3"
      "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
  EXPECT_EQ(id("kimi_k2", kimi), "functions.add:3");
  EXPECT_EQ(id("mistral_v11", "[TOOL_CALLS]add[CALL_ID]abc123XYZ[ARGS]{}"), "abc123XYZ");
  EXPECT_EQ(id("mistral_v11", "[TOOL_CALLS]add[CALL_ID]a b[ARGS]{}").size(), 9u);
  EXPECT_EQ(id("mistral_v13", "[TOOL_CALLS]add[ARGS]{}").size(), 9u);
}

// A streamed answer is not collected, but the text of a call that is not over is.
TEST(AnswerParser, WhatItHoldsIsCounted) {
  openai::GenerationRequest request;
  request.stream = true;
  EXPECT_EQ(answer_bytes(request, {1, 10, 100, false}), 0u);
  EXPECT_GE(answer_bytes(request, {1, 10, 100, true}), 100u * 2 * sizeof("text"));
}

}  // namespace
}  // namespace quire::server
