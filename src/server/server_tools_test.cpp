// Tool calls and reasoning, from the engine's tokens to what clients read.
#include <algorithm>

#include "server/test_server.h"

namespace quire::server {
namespace {

// As Qwen3's: shows tools, and opens the reasoning if that is wanted.
constexpr const char* kTemplate =
    "{% if tools %}<tools>{{ tools | tojson }}</tools> in <tool_call></tool_call>\n{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments }}{% endfor %}\n"
    "{% endfor %}<assistant>{% if enable_thinking %}<think>\n{% endif %}";
const std::string kTools =
    R"("tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object",
       "properties": {"a": {"type": "integer"}}}}}])";
const std::string kCall =
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 7}}\n</tool_call>";

// What a choice holds, whole or from its chunks.
struct Read {
  std::string content, reasoning, finish;
  bool content_is_null = false;
  std::vector<std::string> calls;  // "add {..}"
  std::string usage;

  std::string text() const {
    std::string out = content + "|" + reasoning + "|" + finish;
    for (const std::string& call : calls) out += "|" + call;
    return out + "|" + usage;
  }
};

std::string text_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string().c_str()) : "";
}

void read_message(const json::object& message, Read& out) {
  out.content += text_at(message, "content");
  if (const auto* content = message.if_contains("content"))
    out.content_is_null = content->is_null();
  EXPECT_EQ(text_at(message, "reasoning"), text_at(message, "reasoning_content"));
  out.reasoning += text_at(message, "reasoning");
  const json::value* calls = message.if_contains("tool_calls");
  if (calls == nullptr) return;
  for (const json::value& call : calls->as_array()) {
    const json::object& function = call.at("function").as_object();
    if (const json::value* id = call.as_object().if_contains("id")) {
      EXPECT_FALSE(id->as_string().empty());
      EXPECT_EQ(call.at("type"), "function");
      out.calls.push_back(text_at(function, "name") + " ");
    }
    out.calls.back() += text_at(function, "arguments");
    const json::value* index = call.as_object().if_contains("index");
    if (index == nullptr) continue;
    EXPECT_EQ(index->as_int64() + 1, static_cast<int64_t>(out.calls.size()));
  }
}

Read read(const ClientResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  Read out;
  const auto take = [&out](const json::value& event, const char* key) {
    for (const auto& choice : event.at("choices").as_array()) {
      read_message(choice.at(key).as_object(), out);
      out.finish += text_at(choice.as_object(), "finish_reason");
    }
    const json::value* usage = event.as_object().if_contains("usage");
    if (usage == nullptr || !usage->is_object()) return;
    const json::value* details = usage->as_object().if_contains("completion_tokens_details");
    if (details != nullptr) out.usage = dump_json(*details);
  };
  if (response.body.starts_with("data:")) {
    for (const auto& event : response.events()) take(event, "delta");
  } else {
    take(response.json(), "message");
  }
  return out;
}

class ServerTools : public ServerTest {
 protected:
  void start_with(const std::string& says, ParserChoice parsers = {}) {
    ModelText text = model_text();
    text.chat_template = *text::ChatTemplate::parse(kTemplate, {});
    text.parsers = parsers;
    start(
        [&](FakeEngine::Script& script, ServerOptions&) {
          script.tokens = encode(says);
          script.tokens.push_back(315);
          // Long texts come in larger pieces.
          script.tokens_per_event += script.tokens.size() / 1000;
          script.max_model_len = std::max(script.max_model_len, 2 * std::ssize(script.tokens));
        },
        text);
  }
  // Whole; streamed it must be the same.
  Read ask(const std::string& fields) {
    const Read whole = read(chat(fields));
    const Read streamed =
        read(chat(fields + R"(, "stream": true, "stream_options": {"include_usage": true})"));
    EXPECT_EQ(whole.text(), streamed.text());
    return whole;
  }
};

TEST_F(ServerTools, CallsComeAsToolCalls) {
  start_with("Sure.\n" + kCall + "\n" + kCall);
  const Read read = ask(kTools);
  EXPECT_EQ(read.content, "Sure.");
  EXPECT_EQ(read.calls, (std::vector<std::string>{"add {\"a\": 7}", "add {\"a\": 7}"}));
  EXPECT_EQ(read.finish, "tool_calls");
  EXPECT_EQ(ask(kTools + R"(, "parallel_tool_calls": false)").calls.size(), 1u);
}

TEST_F(ServerTools, ContentIsNullWhenThereIsNone) {
  start_with(kCall);
  const Read read = ask(kTools);
  EXPECT_TRUE(read.content_is_null);
  EXPECT_EQ(read.calls.size(), 1u);
}

TEST_F(ServerTools, WithoutToolsOrWithNoneCallsAreText) {
  start_with(kCall);
  for (const std::string& fields :
       {std::string(R"("n": 1)"), kTools + R"(, "tool_choice": "none")",
        std::string(R"("tools": [{"type": "function", "function": {"name": "other"}}])")}) {
    const Read read = ask(fields);
    EXPECT_EQ(read.content, kCall) << fields;
    EXPECT_EQ(read.finish, "stop");
    EXPECT_TRUE(read.calls.empty());
  }
}

TEST_F(ServerTools, CallsThatAreCutOffSayLength) {
  start_with(kCall + std::string(64, ' '));
  const auto tokens =
      static_cast<int64_t>(encode("<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\"").size());
  const Read read = ask(kTools + R"(, "max_tokens": )" + std::to_string(tokens));
  EXPECT_EQ(read.finish, "length");
  ASSERT_EQ(read.calls.size(), 1u);
  EXPECT_TRUE(read.calls[0].starts_with("add {\"a\"")) << read.calls[0];
}

// What models write that other servers lost whole turns over: each is content or a call.
TEST_F(ServerTools, NoTurnIsLostToWhatAModelWrote) {
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "line " + std::to_string(i) + "\\n";
  const std::string write_file =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"" + lines + "\"}}\n</tool_call>";
  const struct {
    std::string said, content;
    size_t calls;
  } cases[] = {
      {kCall + "\n</tool_call>", "", 1},
      {"I add.\n\n" + kCall, "I add.", 1},
      {"<tool_call>\n{\"name\": \"add\", \"arguments\": {a: 7}}\n</tool_call>", "{a: 7}", 0},
      {"<tool_call>\nadd 7\n</tool_call>", "add 7", 0},
      {"<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>", "sub", 0},
      {"<tool_call>", "<tool_call>", 0},
      {"</tool_call>", "</tool_call>", 0},
      {write_file, "", 1},
  };
  for (const auto& one : cases) {
    start_with(one.said);
    const Read read = ask(kTools);
    EXPECT_NE(read.content.find(one.content), std::string::npos) << one.said << ": " << read.text();
    ASSERT_EQ(read.calls.size(), one.calls) << one.said;
    EXPECT_EQ(read.finish, one.calls > 0 ? "tool_calls" : "stop") << one.said;
  }
  const Read read = ask(kTools);
  EXPECT_NE(read.calls[0].find("line 1999\\n"), std::string::npos);
}

TEST_F(ServerTools, NoTurnIsLostWhereverItIsCut) {
  const std::string said = "So:\n" + kCall;
  start_with(said);
  const size_t all = encode(said).size();
  for (size_t tokens = 1; tokens < all; ++tokens) {
    const Read read = ask(kTools + R"(, "max_tokens": )" + std::to_string(tokens));
    EXPECT_EQ(read.finish, "length");
    EXPECT_FALSE(read.content.empty()) << tokens;
    EXPECT_LE(read.calls.size(), 1u);
    if (read.calls.empty()) {
      EXPECT_TRUE(said.starts_with(read.content)) << read.content;
    } else {
      EXPECT_EQ(read.content, "So:") << tokens;
    }
  }
}

TEST_F(ServerTools, ReasoningHasItsOwnFields) {
  start_with("<think>\nhm\n</think>\n\nYes");
  Read read = ask(R"("n": 1)");
  EXPECT_EQ(read.content, "Yes");
  EXPECT_EQ(read.reasoning, "hm");
  EXPECT_NE(read.usage.find("reasoning_tokens"), std::string::npos);
  read = ask(R"("include_reasoning": false)");
  EXPECT_EQ(read.content + "|" + read.reasoning, "Yes|");
  EXPECT_EQ(ask(R"("reasoning": {"exclude": true})").reasoning, "");
  EXPECT_EQ(ask(R"("separate_reasoning": false)").content, "<think>\nhm\n</think>\n\nYes");
  EXPECT_EQ(ask(R"("reasoning_format": "none")").content, "<think>\nhm\n</think>\n\nYes");
  EXPECT_EQ(chat(R"("reasoning_format": "odd")").status, 400);
}

TEST_F(ServerTools, ReasoningThatTheTemplateHasOpenedOnlyEnds) {
  start_with("hm\n</think>\n\nYes");
  EXPECT_EQ(ask(R"("enable_thinking": true)").reasoning, "hm");
  EXPECT_EQ(ask(R"("enable_thinking": true)").content, "Yes");
  EXPECT_EQ(ask(R"("enable_thinking": false)").content, "hm\n</think>\n\nYes");
}

// Stop strings are looked for in the text as the model wrote it.
TEST_F(ServerTools, StopStringsSeeTheRawText) {
  start_with("A" + kCall + "B");
  const Read read = ask(kTools + R"(, "stop": ["</tool_call>"])");
  EXPECT_EQ(read.content, "A");
  EXPECT_EQ(read.calls.size(), 1u);
  EXPECT_EQ(read.finish, "tool_calls");
}

TEST_F(ServerTools, ParsersCanBeNamedOrSwitchedOff) {
  start_with(kCall, {nullptr, nullptr});
  EXPECT_EQ(ask(kTools).content, kCall);
  TearDown();
  start_with("[TOOL_CALLS]add[ARGS]{\"a\": 1}", {dialects::find_dialect("mistral"), std::nullopt});
  EXPECT_EQ(ask(kTools).calls, (std::vector<std::string>{"add {\"a\": 1}"}));
}

// What a model wrote comes back with the next turn, and must not fail it.
TEST_F(ServerTools, HistoryWithArgumentsThatAreNoJsonIsRendered) {
  const auto ask_with = [this](const std::string& chat_template, const std::string& arguments) {
    TearDown();
    ModelText text = model_text();
    text.chat_template = *text::ChatTemplate::parse(chat_template, {});
    start({}, text);
    const auto response = post("/v1/chat/completions",
                               R"({"max_tokens": 1, "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
         "function": {"name": "add", "arguments": )" +
                                   arguments + "}}]}]}");
    EXPECT_EQ(response.status, 200) << response.body;
    return model_text().tokenizer->decode(engine_->last_prompt(), false).value();
  };
  const std::string walks =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{% for k, v in "
      "c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}!";
  EXPECT_EQ(ask_with(walks, R"("{\"a\": 1}")"), "a=1;!");
  EXPECT_EQ(ask_with(walks, R"("{\"a\": 1")"), "arguments={\"a\": 1;!");
  EXPECT_EQ(ask_with(walks, R"("[1]")"), "arguments=[1];!");
  EXPECT_EQ(ask_with(walks, R"("")"), "!");
  EXPECT_EQ(ask_with(walks, "null"), "!");
  EXPECT_NE(ask_with(kTemplate, R"("{\"a\": 1")").find("<tool_call>{\"a\": 1<assistant>"),
            std::string::npos);
}

TEST_F(ServerTools, ReasoningComesBackByAnyName) {
  start_with("Yes");
  for (const std::string& fields :
       {std::string(R"("content": "A", "reasoning": "hm")"),
        std::string(R"("content": "A", "reasoning_content": "hm")"),
        std::string(R"("content": "A", "thinking": "hm")"),
        std::string(R"("content": [{"type": "thinking", "thinking": "hm"},
                                   {"type": "text", "text": "A"}])"),
        std::string(R"("content": [{"type": "thinking", "thinking":
                          [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "A"}])")}) {
    const auto response = post("/v1/chat/completions",
                               R"({"max_tokens": 1, "messages": [{"role": "user", "content": "Hi"},
        {"role": "assistant", )" + fields +
                                   "}]}");
    EXPECT_EQ(response.status, 200) << response.body;
    const auto prompt = model_text().tokenizer->decode(engine_->last_prompt(), false).value();
    EXPECT_NE(prompt.find("<assistant>hmA<assistant>"), std::string::npos) << prompt;
  }
}

TEST_F(ServerTools, CompletionsStayRaw) {
  start_with("<think>hm</think>" + kCall);
  EXPECT_EQ(text_of(complete(R"("max_tokens": 300)")), "<think>hm</think>" + kCall);
}

}  // namespace
}  // namespace quire::server
