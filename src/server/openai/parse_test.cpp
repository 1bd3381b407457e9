#include "server/openai/parse.h"

#include <gtest/gtest.h>

namespace quire::server::openai {
namespace {

ParseContext context() {
  ParseContext context;
  context.vocab_size = 320;
  context.defaults.temperature = 0.6f;
  context.defaults.top_k = 20;
  return context;
}

// A request that must be refused, and the field that must be blamed.
struct BadCase {
  const char* body;
  const char* param;
};

void expect_refused(const BadCase& bad, bool chat) {
  SCOPED_TRACE(bad.body);
  std::optional<ApiError> error;
  if (chat) {
    if (auto parsed = parse_chat(bad.body, context()); !parsed) error = parsed.error();
  } else {
    if (auto parsed = parse_completion(bad.body, context()); !parsed) error = parsed.error();
  }
  ASSERT_TRUE(error.has_value()) << "accepted";
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->param, bad.param);
  EXPECT_FALSE(error->message.empty());
}

// Fields that both endpoints share; put behind `"prompt": "x"` and behind messages.
const BadCase kBadShared[] = {
    {R"("temperature": -1)", "temperature"},
    {R"("temperature": "hot")", "temperature"},
    {R"("temperature": 101)", "temperature"},
    {R"("temperature": [0])", "temperature"},
    {R"("top_p": 0)", "top_p"},
    {R"("top_p": 1.5)", "top_p"},
    {R"("min_p": -0.1)", "min_p"},
    {R"("min_p": 1.1)", "min_p"},
    {R"("top_k": -2)", "top_k"},
    {R"("top_k": 1.5)", "top_k"},
    {R"("top_k": 99999999999)", "top_k"},
    {R"("presence_penalty": 2.1)", "presence_penalty"},
    {R"("frequency_penalty": -2.1)", "frequency_penalty"},
    {R"("repetition_penalty": 0)", "repetition_penalty"},
    {R"("repetition_penalty": -1)", "repetition_penalty"},
    {R"("logit_bias": [1])", "logit_bias"},
    {R"("logit_bias": {"cat": 1})", "logit_bias"},
    {R"("logit_bias": {"1x": 1})", "logit_bias"},
    {R"("logit_bias": {"320": 1})", "logit_bias"},
    {R"("logit_bias": {"-1": 1})", "logit_bias"},
    {R"("logit_bias": {"1": 101})", "logit_bias"},
    {R"("logit_bias": {"1": "x"})", "logit_bias"},
    {R"("seed": 1.5)", "seed"},
    {R"("seed": 18446744073709551615)", "seed"},
    {R"("stop": 5)", "stop"},
    {R"("stop": ["a", 5])", "stop"},
    {R"("stop": "")", "stop"},
    {R"("stop": ["a", ""])", "stop"},
    {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
     "stop"},
    {R"("stop_token_ids": [320])", "stop_token_ids"},
    {R"("allowed_token_ids": [320])", "allowed_token_ids"},
    {R"("allowed_token_ids": [])", "allowed_token_ids"},
    {R"("allowed_token_ids": {})", "allowed_token_ids"},
    {R"("bad_words": "x")", "bad_words"},
    {R"("bad_words": ["x", 5])", "bad_words"},
    {R"("bad_words": [""])", "bad_words"},
    {R"("bad_words": [" \n"])", "bad_words"},
    {R"("stop_token_ids": ["a"])", "stop_token_ids"},
    {R"("stop_token_ids": 5)", "stop_token_ids"},
    {R"("max_tokens": -1)", "max_tokens"},
    {R"("max_tokens": 0)", "max_tokens"},
    {R"("max_tokens": 1.5)", "max_tokens"},
    {R"("max_tokens": "many")", "max_tokens"},
    {R"("min_tokens": -1)", "min_tokens"},
    {R"("min_tokens": 5, "max_tokens": 4)", "min_tokens"},
    {R"("n": 0)", "n"},
    {R"("n": -1)", "n"},
    {R"("n": 65)", "n"},
    {R"("n": 1000000000000)", "n"},
    {R"("n": 18446744073709551615)", "n"},
    {R"("n": true)", "n"},
    {R"("best_of": 2)", "best_of"},
    {R"("stream": "yes")", "stream"},
    {R"("stream": 1)", "stream"},
    {R"("stream_options": {"include_usage": true})", "stream_options"},
    {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage"},
    {R"("stream": true, "stream_options": 3)", "stream_options"},
    {R"("stream": true, "prompt_logprobs": 1)", "prompt_logprobs"},
    {R"("prompt_logprobs": 21)", "prompt_logprobs"},
    {R"("prompt_logprobs": -1)", "prompt_logprobs"},
    {R"("ignore_eos": 1)", "ignore_eos"},
    {R"("user": 5)", "user"},
    {R"("model": 5)", "model"},
    {R"("cache_salt": "")", "cache_salt"},
    {R"("cache_salt": 5)", "cache_salt"},
    {R"("priority": 3000000000)", "priority"},
    {R"("priority": 1)", "priority"},  // without the policy
    {R"("truncate_prompt_tokens": 0)", "truncate_prompt_tokens"},
    {R"("truncate_prompt_tokens": -2)", "truncate_prompt_tokens"},
    {R"("truncation_side": "up")", "truncation_side"},
    {R"("response_format": "json")", "response_format"},
    {R"("response_format": {})", "response_format.type"},
    {R"("response_format": {"type": "xml"})", "response_format.type"},
    {R"("response_format": {"type": "json_schema"})", "response_format.json_schema"},
    {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})",
     "response_format.json_schema.schema"},
    {R"("response_format": {"type": "json_schema", "json_schema": {"schema": 5}})",
     "response_format.json_schema.schema"},
    {R"("response_format": {"type": "json_schema", "json_schema": {"name": 5, "schema": {}}})",
     "response_format.json_schema.name"},
    {R"("guided_json": 5)", "guided_json"},
    {R"("guided_regex": 5)", "guided_regex"},
    {R"("guided_choice": [])", "guided_choice"},
    {R"("grammar": {})", "grammar"},
    {R"("grammar": "root ::= \"a\"", "guided_regex": "a")", "grammar"},
    {R"("guided_choice": ["a", 1])", "guided_choice"},
    {R"("guided_regex": "a", "guided_choice": ["a"])", "guided_choice"},
    {R"("response_format": {"type": "json_object"}, "guided_regex": "a")", "guided_regex"},
    {R"("structured_outputs": {})", "structured_outputs"},
    {R"("structured_outputs": {"regex": "a", "json": {}})", "structured_outputs.regex"},
    {R"("structured_outputs": {"structural_tag": "a"})", "structured_outputs.structural_tag"},
    {R"("structured_outputs": {"structural_tag": "{}"})", "structured_outputs.structural_tag"},
    {R"("structured_outputs": {"structural_tag": {"type": "json"}})",
     "structured_outputs.structural_tag"},
    {R"("response_format": {"type": "structural_tag"}, "guided_regex": "a")", "guided_regex"},
    {R"("structural_tag": "{}")", "structural_tag"},
    {R"("structured_outputs": {"json": {}, "regexp": "a"})", "structured_outputs.regexp"},
    {R"("structured_outputs": {"json": {}, "disable_fallback": 1})",
     "structured_outputs.disable_fallback"},
    {R"("response_format": {"type": "json_object", "shema": {}})", "response_format.shema"},
    {R"("response_format": {"type": "text", "schema": {}})", "response_format.schema"},
    {R"("response_format": {"type": "json_schema", "schema": {}, "json_schema": {"schema": {}}})",
     "response_format.schema"},
    {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}, "stricct": true}})",
     "response_format.json_schema.stricct"},
    {R"("stream": true, "stream_options": {"include_usages": true})",
     "stream_options.include_usages"},
    {R"("stream": true, "stream_options": {"a\nb": true})", R"(stream_options.a\nb)"},
    {R"("structured_outputs": {"json": {}, "disable_any_whitespace": true})",
     "structured_outputs.disable_any_whitespace"},
    {R"("structured_outputs": {"json": {}, "disable_additional_properties": true})",
     "structured_outputs.disable_additional_properties"},
    {R"("request_id": "two words")", "request_id"},
    // Known, not supported: never ignored.
    {R"("use_beam_search": true)", "use_beam_search"},
    {R"("length_penalty": 0.5)", "length_penalty"},
    {R"("json_schema": {})", "json_schema"},
    {R"("prompt_embeds": "x")", "prompt_embeds"},
    {R"("mirostat": 2)", "mirostat"},
};

TEST(Parse, RefusesBadSharedFields) {
  for (const BadCase& bad : kBadShared) {
    const std::string fields = bad.body;
    const std::string completion = R"({"prompt": "x", )" + fields + "}";
    expect_refused({completion.c_str(), bad.param}, false);
    const std::string chat = R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}";
    expect_refused({chat.c_str(), bad.param}, true);
  }
}

TEST(Parse, RefusesObjectsOfTooManyMembers) {
  std::string members = "\"a\": 0";
  for (int i = 1; i < 16'384; ++i) members += ", \"" + std::to_string(i) + "\": 0";
  const auto body = [](const std::string& object) {
    return R"({"prompt": "x", "z": {)" + object + "}}";
  };
  EXPECT_TRUE(parse_completion(body(members), context()).ok());
  const std::string many = body(members + ", \"b\": 0");
  expect_refused({many.c_str(), ""}, false);
}

// It would be parsed, in memory that is in no account.
TEST(Parse, RefusesLongTextsThatAreJson) {
  const std::string text = "\"{}" + std::string(256 << 10, ' ') + "\"";
  const auto refuse = [&](const std::string& before, const std::string& behind, const char* param) {
    const std::string body = R"({"prompt": "x", )" + before + text + behind + "}";
    expect_refused({body.c_str(), param}, false);
  };
  refuse(R"("guided_json": )", "", "guided_json");
  refuse(R"("structured_outputs": {"json": )", "}", "structured_outputs.json");
  refuse(R"("structured_outputs": {"structural_tag": )", "}", "structured_outputs.structural_tag");
  refuse(R"("response_format": {"type": "json_object", "schema": )", "}", "response_format.schema");
}

TEST(Parse, RefusesBadCompletions) {
  const BadCase cases[] = {
      {"{}", "prompt"},
      {R"({"prompt": null})", "prompt"},
      {R"({"prompt": 5})", "prompt"},
      {R"({"prompt": {}})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [1, "a"]})", "prompt"},
      {R"({"prompt": ["a", 1]})", "prompt"},
      {R"({"prompt": [[1], ["a"]]})", "prompt"},
      {R"({"prompt": [1, -1]})", "prompt"},
      {R"({"prompt": [320]})", "prompt"},
      {R"({"prompt": [1.5]})", "prompt"},
      {R"({"prompt": [99999999999999999999]})", "prompt"},
      {R"({"prompt": [null]})", "prompt"},
      {R"({"prompt": "x", "logprobs": 21})", "logprobs"},
      {R"({"prompt": "x", "logprobs": -1})", "logprobs"},
      {R"({"prompt": "x", "logprobs": true})", "logprobs"},
      {R"({"prompt": "x", "suffix": "y"})", "suffix"},
      {"[]", ""},
      {"5", ""},
      {"", ""},
      {"{", ""},
      {R"({"prompt": "x"} x)", ""},
      {R"({"prompt": "x", "temperature": NaN})", ""},
      {R"({"prompt": "x", "temperature": 1e400})", ""},
      {"{\"prompt\": \"\xff\"}", ""},
  };
  for (const BadCase& bad : cases) expect_refused(bad, false);
}

TEST(Parse, RefusesBadChats) {
  const BadCase cases[] = {
      {"{}", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": ["hi"]})", "messages"},
      {R"({"messages": [{}]})", "messages[0].role"},
      {R"({"messages": [{"role": 5}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [5]}]})", "messages[0].content[0]"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
       "messages[0].content[0].text"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant",
          "reasoning": 5}]})",
       "messages[1].reasoning"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [5]}]})", "messages[0].tool_calls"},
      {R"({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]})",
       "messages[0].function_call"},
      {R"({"messages": [{"role": "assistant", "audio": {"id": "1"}}]})", "messages[0].audio"},
  };
  for (const BadCase& bad : cases) expect_refused(bad, true);
  const BadCase fields[] = {
      {R"("top_logprobs": 2)", "top_logprobs"},
      {R"("logprobs": 2)", "logprobs"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
      {R"("max_completion_tokens": 0)", "max_completion_tokens"},
      {R"("max_completion_tokens": 2, "max_tokens": 3)", "max_tokens"},
      {R"("tools": 5)", "tools"},
      {R"("tools": [5])", "tools"},
      {R"("tools": [{"type": "function"}])", "tools[0].function"},
      {R"("tools": [{"type": "function", "function": {}}])", "tools[0].function.name"},
      {R"("tools": [{"type": "retrieval", "function": {"name": "f"}}])", "tools[0].type"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("tool_choice": "always")", "tool_choice"},
      {R"("tool_choice": {"type": "function", "function": {"name": "f"}})", "tool_choice.function"},
      {R"("tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}})",
       "tool_choice.allowed_tools.tools"},
      {R"("parallel_tool_calls": 1)", "parallel_tool_calls"},
      {R"("thinking_token_budget": 3, "thinking_budget": 4)", "thinking_budget"},
      {R"("reasoning_format": "odd")", "reasoning_format"},
      {R"("functions": [])", "functions"},
      {R"("chat_template": "{{ 1 }}")", "chat_template"},
      {R"("chat_template_kwargs": 5)", "chat_template_kwargs"},
      {R"("chat_template_kwargs": {"chat_template": "x"})", "chat_template_kwargs"},
      {R"("chat_template_kwargs": {"messages": []})", "chat_template_kwargs"},
      {R"("continue_final_message": true, "add_generation_prompt": true)",
       "continue_final_message"},
      {R"("modalities": ["text", "audio"])", "modalities"},
      {R"("store": true)", "store"},
      {R"("documents": [5])", "documents"},
  };
  for (const BadCase& bad : fields) {
    const std::string body =
        R"({"messages": [{"role": "user", "content": "x"}], )" + std::string(bad.body) + "}";
    expect_refused({body.c_str(), bad.param}, true);
  }
}

TEST(Parse, ReadsAllSamplingFields) {
  ParseContext with_priorities = context();
  with_priorities.honours_priority = true;
  const auto parsed = parse_completion(R"({
      "prompt": "x", "temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.25,
      "presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 1.5,
      "logit_bias": {"7": -100, "319": 100}, "seed": -9223372036854775808, "stop": ["a", "b"],
      "stop_token_ids": [0, 319], "allowed_token_ids": [0, 33, 319],
      "bad_words": ["no", " \n nor this "], "include_stop_str_in_output": true, "max_tokens": 5,
      "min_tokens": 5, "ignore_eos": true, "logprobs": 3, "n": 2, "best_of": 2, "echo": true,
      "skip_special_tokens": false, "add_special_tokens": false, "cache_salt": "s",
      "priority": -3, "return_token_ids": true, "request_id": "r", "user": "u", "unknown": {}})",
                                       with_priorities);
  ASSERT_TRUE(parsed) << parsed.error().message;
  const engine::SamplingParams& sampling = parsed->sampling;
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_p, 0.5f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.25f);
  EXPECT_EQ(sampling.presence_penalty, -2);
  EXPECT_EQ(sampling.frequency_penalty, 2);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.logit_bias,
            (std::vector<std::pair<int32_t, float>>{{7, -100.0f}, {319, 100.0f}}));
  EXPECT_EQ(sampling.seed, uint64_t{1} << 63);
  EXPECT_EQ(sampling.stop_token_ids, (std::vector<int32_t>{0, 319}));
  const auto bit = [](int i) { return uint32_t{1} << i; };
  ASSERT_TRUE(sampling.allowed_tokens);
  EXPECT_EQ(*sampling.allowed_tokens,
            (std::vector<uint32_t>{bit(0), bit(1), 0, 0, 0, 0, 0, 0, 0, bit(31)}));
  EXPECT_EQ(parsed->bad_words, (std::vector<std::string>{"no", "nor this "}));
  EXPECT_EQ(sampling.min_tokens, 5);
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_EQ(sampling.logprobs, 3);
  EXPECT_EQ(sampling.prompt_logprobs, 3);  // because of echo
  EXPECT_EQ(parsed->stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(parsed->include_stop_str_in_output);
  EXPECT_EQ(parsed->max_tokens, 5);
  EXPECT_EQ(parsed->n, 2);
  EXPECT_FALSE(parsed->skip_special_tokens);
  EXPECT_FALSE(parsed->add_special_tokens);
  EXPECT_EQ(parsed->cache_salt, "s");
  EXPECT_EQ(parsed->priority, -3);
  EXPECT_TRUE(parsed->return_token_ids);
  EXPECT_EQ(parsed->request_id, "r");
}

TEST(Parse, TakesDefaultsFromTheModel) {
  const auto parsed = parse_completion(R"({"prompt": "x", "top_p": null, "seed": -1})", context());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->sampling.temperature, 0.6f);
  EXPECT_EQ(parsed->sampling.top_k, 20);
  EXPECT_EQ(parsed->sampling.top_p, 1.0f);
  EXPECT_EQ(parsed->sampling.logprobs, -1);
  EXPECT_FALSE(parsed->sampling.seed.has_value());
  EXPECT_FALSE(parsed->max_tokens.has_value());
  EXPECT_FALSE(parsed->constraint.has_value());
}

TEST(Parse, TakesAllFormsOfPrompts) {
  using Ids = std::vector<int32_t>;
  const auto prompts = [](const char* body) {
    auto parsed = parse_completion(body, context());
    return parsed ? std::move(parsed->prompts) : std::vector<Prompt>();
  };
  EXPECT_EQ(prompts(R"({"prompt": "a"})"), (std::vector<Prompt>{"a"}));
  EXPECT_EQ(prompts(R"({"prompt": ["a", "b"]})"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts(R"({"prompt": [1, 2.0]})"), (std::vector<Prompt>{Ids{1, 2}}));
  EXPECT_EQ(prompts(R"({"prompt": [[1, 2], [3]]})"), (std::vector<Prompt>{Ids{1, 2}, Ids{3}}));
  EXPECT_EQ(prompts(R"({"prompt": "a\u0000b"})"), (std::vector<Prompt>{std::string("a\0b", 3)}));
}

TEST(Parse, BoundsBadWords) {
  const auto with = [](int count, size_t bytes) {
    std::string words;
    for (int i = 0; i < count; ++i) words += (i ? ",\"" : "\"") + std::string(bytes, 'x') + "\"";
    auto parsed = parse_completion(R"({"prompt": "x", "bad_words": [)" + words + "]}", context());
    return parsed ? std::string("ok") : parsed.error().message;
  };
  EXPECT_EQ(with(1024, 1), "ok");
  EXPECT_NE(with(1025, 1).find("at most 1024"), std::string::npos);
  EXPECT_EQ(with(1, 256), "ok");
  EXPECT_NE(with(1, 257).find("more than 256 bytes"), std::string::npos);
}

TEST(Parse, BoundsPromptsTimesN) {
  std::string prompts = "\"a\"";
  for (int i = 1; i < 65; ++i) prompts += ",\"a\"";
  const auto with_n = [&](const char* n) {
    return parse_completion("{\"prompt\":[" + prompts + "],\"n\":" + n + "}", context()).ok();
  };
  EXPECT_TRUE(with_n("15"));
  EXPECT_FALSE(with_n("16"));  // 65 * 16 > 1024
}

TEST(Parse, FlattensContentAndUnpacksToolCalls) {
  const auto parsed = parse_chat(R"({"messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "tool_calls":
        [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "3"}],
      "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto",
      "reasoning_effort": "low", "max_tokens": 9, "max_completion_tokens": 9})",
                                 context());
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(dump_json(parsed->chat.messages[0]), R"({"role":"user","content":"a\nb"})");
  const std::string assistant = dump_json(parsed->chat.messages[1]);
  EXPECT_NE(assistant.find(R"("content":"")"), std::string::npos) << assistant;
  EXPECT_NE(assistant.find(R"("arguments":{"x":1})"), std::string::npos) << assistant;
  EXPECT_EQ(parsed->chat.tools->size(), 1u);
  EXPECT_EQ(parsed->chat.reasoning.effort, "low");
  EXPECT_EQ(parsed->max_tokens, 9);
  EXPECT_TRUE(parsed->chat.add_generation_prompt);
}

TEST(Parse, KeysOfToolChoiceThatNobodyReadsAreNamed) {
  const auto unknown = [](const std::string& choice) {
    const auto chat = parse_chat(R"({"messages": [{"role": "user", "content": "x"}], "tools":
        [{"type": "function", "function": {"name": "f"}}], "tool_choice": )" +
                                     choice + "}",
                                 context());
    return chat ? chat->unknown_fields.text() : chat.error().message;
  };
  EXPECT_EQ(unknown(R"({"type": "function", "function": {"name": "f", "a": 1}, "b": 2})"),
            R"("tool_choice.b", "tool_choice.function.a")");
  EXPECT_EQ(unknown(R"({"type": "allowed_tools", "c": 3, "allowed_tools": {"mode": "auto", "d": 4,
                        "tools": [{"type": "function", "function": {"name": "f"}}]}})"),
            R"("tool_choice.c", "tool_choice.allowed_tools.d")");
  EXPECT_EQ(unknown(R"({"type": "function", "function": {"name": "f"}})"), "");
}

TEST(Parse, ToolChoiceNoneOffersNoTools) {
  const auto tools = [](const std::string& fields) {
    const std::string body = R"({"messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "f"}}])" +
                             fields + "}";
    const auto chat = parse_chat(body, context());
    const auto tokenize = parse_tokenize(body, context());
    EXPECT_EQ(chat->chat.tools, std::get<ChatInput>(tokenize->input).tools);
    return chat->chat.tools ? chat->chat.tools->size() : 0;
  };
  EXPECT_EQ(tools(""), 1u);
  EXPECT_EQ(tools(R"(, "tool_choice": "auto")"), 1u);
  EXPECT_EQ(tools(R"(, "tool_choice": "none")"), 0u);
}

TEST(Parse, ReadsConstraints) {
  using Kind = text::GrammarSpec::Kind;
  const auto constraint = [](const std::string& field) {
    auto parsed = parse_completion(R"({"prompt": "x", )" + field + "}", context());
    return parsed && parsed->constraint ? *parsed->constraint : Constraint{Kind::kLark, "none", ""};
  };
  const auto expect = [&](const char* field, Kind kind, const char* source) {
    SCOPED_TRACE(field);
    EXPECT_EQ(constraint(field).kind, kind);
    EXPECT_EQ(constraint(field).source, source);
  };
  expect(R"("grammar": "root ::= x")", Kind::kGbnf, "root ::= x");
  expect(R"("grammar": "")", Kind::kLark, "none");
  expect(R"("guided_grammar": " # a::=b\n\nroot ::= x")", Kind::kGbnf, " # a::=b\n\nroot ::= x");
  expect(R"("structured_outputs": {"grammar": "start: \"::=\""})", Kind::kLark, "start: \"::=\"");
  expect(R"("response_format": {"type": "json_object"})", Kind::kJsonObject, "");
  expect(R"("response_format": {"type": "json_object", "schema": {"type": "null"}})",
         Kind::kJsonSchema, R"({"type":"null"})");
  expect(R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": true,
             "schema": {"type": "null"}}})",
         Kind::kJsonSchema, R"({"type":"null"})");
  expect(R"("guided_json": "{}")", Kind::kJsonSchema, "{}");
  expect(R"("guided_regex": "[ab]+")", Kind::kRegex, "[ab]+");
  expect(R"("guided_grammar": "start: \"a\"")", Kind::kLark, "start: \"a\"");
  expect(R"("guided_choice": ["a", "b"])", Kind::kChoice, R"(["a","b"])");
  expect(R"("structured_outputs": {"json": {"type": "null"}})", Kind::kJsonSchema,
         R"({"type":"null"})");
  expect(R"("structured_outputs": {"json_object": true})", Kind::kJsonObject, "");
  expect(R"("response_format": {"type": "text"})", Kind::kLark, "none");
  const char* const tag = R"({"type":"structural_tag","format":{"type":"any_text"}})";
  expect((R"("response_format": )" + std::string(tag)).c_str(), Kind::kStructuralTag, tag);
  expect((R"("structured_outputs": {"structural_tag": )" + std::string(tag) + "}").c_str(),
         Kind::kStructuralTag, tag);
  expect(R"("structured_outputs": {"structural_tag": "{\"type\":\"structural_tag\"}"})",
         Kind::kStructuralTag, R"({"type":"structural_tag"})");
}

TEST(Parse, RefusesDeepNesting) {
  const auto nested = [](size_t depth) {
    return R"({"prompt": "x", "unknown": )" + std::string(depth, '[') + std::string(depth, ']') +
           "}";
  };
  EXPECT_TRUE(parse_completion(nested(100), context()).ok());
  EXPECT_FALSE(parse_completion(nested(1000), context()).ok());
  EXPECT_FALSE(parse_completion(nested(1'000'000), context()).ok());
}

TEST(Parse, ReadsTokenizeRequests) {
  const auto prompt = parse_tokenize(R"({"prompt": "x", "return_token_strs": true})", context());
  ASSERT_TRUE(prompt);
  EXPECT_EQ(std::get<std::string>(prompt->input), "x");
  EXPECT_TRUE(prompt->add_special_tokens);
  EXPECT_TRUE(prompt->return_token_strs);
  const auto chat =
      parse_tokenize(R"({"messages": [{"role": "user", "content": "x"}]})", context());
  ASSERT_TRUE(chat);
  EXPECT_FALSE(chat->add_special_tokens);  // the template has them
  EXPECT_FALSE(parse_tokenize("{}", context()).ok());
  for (const char* dropped :
       {R"({"prompt": "x", "truncate_prompt_tokens": 1})", R"({"prompt": "x", "tools": []})",
        R"({"prompt": "x", "messages": [{"role": "user"}]})"})
    EXPECT_FALSE(parse_tokenize(dropped, context()).ok()) << dropped;
  EXPECT_FALSE(parse_detokenize(R"({"tokens": [1], "skip_special_tokens": true})", context()).ok());
  EXPECT_TRUE(parse_detokenize(R"({"tokens": [1, 2]})", context()).ok());
  EXPECT_FALSE(parse_detokenize(R"({"tokens": [1, 320]})", context()).ok());
  EXPECT_FALSE(parse_detokenize("{}", context()).ok());
}

}  // namespace
}  // namespace quire::server::openai
