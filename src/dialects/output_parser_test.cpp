// Cases for every dialect (tests/dialects/cases), written after the formats' documentation, and
// what must hold for any text: the result does not depend on how it is cut, and the time is linear.
#include "dialects/output_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/source_dir.h"
#include "dialects/dialect.h"

namespace quire::dialects {
namespace {

const std::string kFolder = source_dir() + "/tests/dialects/";

json::value read_json(const std::string& name) {
  std::ifstream file(kFolder + name);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return *parse_json(text.str());
}

const ToolSet& offered() {
  static const ToolSet tools = *ToolSet::parse(read_json("tools.json"));
  return tools;
}

struct Parsed {
  ParsedOutput output;
  bool complete = false;

  std::string text() const {
    std::string out = "content: " + output.content + "\nreasoning: " + output.reasoning;
    for (const auto& call : output.calls)
      out += "\ncall: " + call.name + " " + call.arguments + (call.complete ? "" : " (cut)");
    return out + (complete ? "\ncomplete" : "\ncut");
  }
};

struct Input {
  const Dialect* dialect;
  std::string text;
  bool starts_in_reasoning = false, cut = false;
};

// In pieces that end at `cuts`.
Parsed parse(const Input& input, const ToolSet& tools, const std::vector<size_t>& cuts) {
  OutputParser parser({input.dialect, input.dialect, input.starts_in_reasoning}, tools);
  Parsed parsed;
  size_t at = 0;
  const auto feed = [&](size_t end) {
    Events events;
    parser.push(std::string_view(input.text).substr(at, end - at), events);
    parsed.output.add(events);
    at = end;
  };
  for (const size_t cut : cuts) feed(cut);
  feed(input.text.size());
  Events events;
  parser.finish(input.cut, events);
  parsed.output.add(events);
  parsed.complete = parser.complete();
  return parsed;
}

std::string member(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? std::string() : json::value_to<std::string>(*value);
}

Input input_of(const Dialect& dialect, const json::object& entry) {
  return {&dialect, member(entry, "text"), member(entry, "start") == "reasoning",
          member(entry, "finish") == "length"};
}

void expect_same_however_cut(const Input& input, const std::string& whole) {
  std::vector<size_t> every(input.text.size());
  for (size_t i = 0; i < every.size(); ++i) every[i] = i;
  EXPECT_EQ(parse(input, offered(), every).text(), whole) << "byte by byte";
  for (const size_t cut : every)
    EXPECT_EQ(parse(input, offered(), {cut}).text(), whole) << "cut at " << cut;
}

class Cases : public testing::TestWithParam<const Dialect*> {};

TEST_P(Cases, AreParsedAsDocumentedHoweverCut) {
  const Dialect& dialect = *GetParam();
  const json::value cases = read_json("cases/" + std::string(dialect.name) + ".json");
  ASSERT_GE(cases.as_array().size(), 3u);
  for (const json::value& value : cases.as_array()) {
    const json::object& entry = value.as_object();
    const Input input = input_of(dialect, entry);
    SCOPED_TRACE(input.text);
    const Parsed parsed = parse(input, offered(), {});
    EXPECT_EQ(parsed.output.content, member(entry, "content"));
    EXPECT_EQ(parsed.output.reasoning, member(entry, "reasoning"));
    EXPECT_EQ(parsed.complete, entry.at("complete").as_bool());
    const json::array& calls = entry.at("calls").as_array();
    ASSERT_EQ(parsed.output.calls.size(), calls.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      const json::value& arguments = calls[i].at("arguments");
      EXPECT_EQ(parsed.output.calls[i].name, member(calls[i].as_object(), "name"));
      if (arguments.is_string()) {  // cut: text, not JSON
        EXPECT_EQ(parsed.output.calls[i].arguments, json::value_to<std::string>(arguments));
      } else {
        EXPECT_EQ(*parse_json(parsed.output.calls[i].arguments), arguments);
      }
    }
    expect_same_however_cut(input, parsed.text());
  }
}

// Where a text is cut off, what came before it stays: nothing ends in an empty turn.
TEST_P(Cases, AnswersThatEndAnywhereKeepTheirText) {
  const Dialect& dialect = *GetParam();
  const json::value cases = read_json("cases/" + std::string(dialect.name) + ".json");
  for (const json::value& value : cases.as_array()) {
    Input input = input_of(dialect, value.as_object());
    const std::string whole = input.text;
    if (whole.size() > 300) continue;
    for (size_t size = 1; size < whole.size(); ++size) {
      input.text = whole.substr(0, size);
      for (const bool cut : {false, true}) {
        input.cut = cut;
        const Parsed parsed = parse(input, offered(), {});
        std::vector<size_t> every(size);
        for (size_t i = 0; i < size; ++i) every[i] = i;
        ASSERT_EQ(parse(input, offered(), every).text(), parsed.text()) << input.text;
        if (cut) continue;
        for (const auto& call : parsed.output.calls) {
          EXPECT_TRUE(call.complete) << input.text;
          EXPECT_TRUE(parse_json(call.arguments).ok()) << call.arguments;
        }
      }
    }
  }
}

// Where there was no room for the rest of what ends a call, its beginning is no text.
TEST_P(Cases, ACutInsideACloserLeavesNothingOfIt) {
  const Dialect& dialect = *GetParam();
  const json::value cases = read_json("cases/" + std::string(dialect.name) + ".json");
  size_t checked = 0;
  for (const json::value& value : cases.as_array()) {
    const json::object& entry = value.as_object();
    Input input = input_of(dialect, entry);
    const std::string whole = input.text;
    const auto closer = std::ranges::find_if(
        dialect.strays, [&](std::string_view stray) { return whole.ends_with(stray); });
    const size_t num_calls = entry.at("calls").as_array().size();
    if (closer == dialect.strays.end() || num_calls == 0) continue;
    input.cut = true;
    // Some calls are none before their closer has come (GLM's without arguments): those stay text.
    input.text = whole.substr(0, whole.size() - closer->size());
    if (parse(input, offered(), {}).output.calls.size() < num_calls) continue;
    for (size_t size = whole.size() - closer->size() + 1; size < whole.size(); ++size, ++checked) {
      input.text = whole.substr(0, size);
      const Parsed parsed = parse(input, offered(), {});
      EXPECT_EQ(parsed.output.content, member(entry, "content")) << input.text;
      EXPECT_EQ(parsed.output.calls.size(), num_calls) << input.text;
      expect_same_however_cut(input, parsed.text());
    }
  }
  EXPECT_EQ(checked > 0, !dialect.strays.empty());
}

// Nor is what there was no room for of a tag that begins a call, or that stands around thoughts.
TEST_P(Cases, ACutInsideATagLeavesNothingOfIt) {
  const Dialect& dialect = *GetParam();
  const auto is_tag = [](std::string_view text) {
    return text.starts_with('<') || text.starts_with('[');
  };
  const auto check = [&](const std::string& before, std::string_view tag, bool reasons) {
    if (!is_tag(tag)) return;
    for (size_t size = 2; size < tag.size(); ++size) {
      Input input{&dialect, before + std::string(tag.substr(0, size))};
      input.starts_in_reasoning = reasons;
      const Parsed stopped = parse(input, offered(), {});
      EXPECT_EQ(reasons ? stopped.output.reasoning : stopped.output.content, input.text);
      input.cut = true;
      const Parsed parsed = parse(input, offered(), {});
      const std::string rest(before.substr(0, before.find_last_not_of(' ') + 1));
      EXPECT_EQ(parsed.output.content, reasons ? "" : rest) << input.text;
      EXPECT_EQ(parsed.output.reasoning, reasons ? rest : "") << input.text;
      expect_same_however_cut(input, parsed.text());
    }
  };
  for (const Dialect::Block& block : dialect.blocks)
    if (!block.bare) check("Well. ", block.opening, false);
  for (const auto& [open, close] : dialect.reasoning) {
    check("", open, false);
    check("hm ", close, true);
  }
}

INSTANTIATE_TEST_SUITE_P(Dialects, Cases, testing::ValuesIn(all_dialects()),
                         [](const auto& param) { return std::string(param.param->name); });

TEST(Dialects, AreAllListedOnce) {
  EXPECT_EQ(all_dialects().size(), 34u);
  for (const Dialect* dialect : all_dialects()) EXPECT_EQ(find_dialect(dialect->name), dialect);
  EXPECT_EQ(find_dialect("none"), nullptr);
}

TEST(Dialects, AreFoundByVllmsNames) {
  const auto name = [](std::string_view alias) { return find_dialect(alias)->name; };
  EXPECT_EQ(name("openai"), "harmony");
  EXPECT_EQ(name("mistral"), "mistral_v13");
  EXPECT_EQ(name("qwen3_xml"), "qwen3_coder");
  EXPECT_EQ(name("phi4_mini_json"), "phi4_mini");
  EXPECT_EQ(name("granite"), "granite3");
  EXPECT_EQ(name("qwen3"), "hermes");
  std::vector<std::string_view> names;
  for (const Dialect* dialect : all_dialects()) {
    names.push_back(dialect->name);
    names.insert(names.end(), dialect->aliases.begin(), dialect->aliases.end());
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

// What templates of these families say, in the words that the choice is made by.
TEST(Dialects, AreChosenByTheChatTemplate) {
  const auto chosen = [](std::string_view text) {
    const DialectChoice choice = detect_dialect(text);
    const auto name = [](const Dialect* one) { return one ? std::string(one->name) : "none"; };
    return name(choice.calls) + " " + name(choice.reasoning);
  };
  EXPECT_EQ(chosen("{{ messages }}"), "none none");
  EXPECT_EQ(chosen("within <tool_call></tool_call> XML tags"), "hermes none");
  EXPECT_EQ(chosen("<tool_call> {% if '</think>' in content %}"), "hermes hermes");
  EXPECT_EQ(chosen("<think>"), "none hermes");
  EXPECT_EQ(chosen("<tool_call><function=f><parameter=p>"), "qwen3_coder none");
  EXPECT_EQ(chosen("<tool_call><function=f><parameter=p> <think>"), "qwen3_5 qwen3_5");
  EXPECT_EQ(chosen("<|start|>assistant<|channel|>final<|message|>"), "harmony harmony");
  EXPECT_EQ(chosen("[TOOL_CALLS] [/TOOL_CALLS]"), "mistral_v3 none");
  EXPECT_EQ(chosen("[TOOL_CALLS]f[CALL_ID]x[ARGS]"), "mistral_v11 none");
  EXPECT_EQ(chosen("[TOOL_CALLS]f[ARGS] [THINK]"), "mistral_v13 mistral_v13");
  EXPECT_EQ(chosen("Environment: ipython <|python_tag|>"), "llama3_json none");
  EXPECT_EQ(chosen("<tool_call>f<arg_key>k</arg_key><arg_value> <think>"), "glm47 glm47");
  EXPECT_EQ(chosen("<tool_call>f\n<arg_key>k</arg_key>\n<arg_value> <think>"), "glm45 glm45");
  EXPECT_EQ(chosen("<｜tool▁calls▁begin｜> ```json"), "deepseek_v3 none");
  EXPECT_EQ(chosen("<｜tool▁calls▁begin｜> <think>"), "deepseek_v31 deepseek_v31");
  EXPECT_EQ(chosen("'<|tool|>' + tools + '<|/tool|>'"), "phi4_mini none");
  EXPECT_EQ(chosen("<|start_of_role|> </tool_call>"), "granite4 none");
  EXPECT_EQ(chosen("<|tool_call|>"), "granite3 none");
  EXPECT_EQ(chosen("<minimax:tool_call> ]<]minimax[>["), "none none");
}

TEST(Dialects, SayWhichTokensMustStayInTheText) {
  const Dialect* mistral = find_dialect("mistral_v11");
  const auto texts = marker_texts({mistral, nullptr});
  for (const std::string_view text : {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"})
    EXPECT_NE(std::ranges::find(texts, text), texts.end()) << text;
  EXPECT_EQ(std::ranges::find(texts, "[THINK]"), texts.end());
  const auto reasoning = marker_texts({nullptr, mistral});
  EXPECT_NE(std::ranges::find(reasoning, "[THINK]"), reasoning.end());
  EXPECT_EQ(std::ranges::find(reasoning, "[TOOL_CALLS]"), reasoning.end());
}

TEST(Dialects, ReasoningStartsWhereThePromptHasOpenedIt) {
  const Dialect& qwen = *find_dialect("qwen3_5");
  const std::string turn = "<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_TRUE(starts_in_reasoning(qwen, turn + "<think>\n", 0));
  EXPECT_FALSE(starts_in_reasoning(qwen, turn + "<think>\n\n</think>\n\n", 0));
  // What a user writes opens nothing.
  EXPECT_FALSE(starts_in_reasoning(qwen, "what does <think>" + turn, 0));
  EXPECT_TRUE(starts_in_reasoning(qwen, turn + "<think>so far", 13));
  EXPECT_FALSE(starts_in_reasoning(qwen, turn + "<think>so</think>far", 20));
}

// A marker that begins another would be found before the longer one had a chance.
TEST(Dialects, HaveNoMarkerThatBeginsAnother) {
  for (const Dialect* dialect : all_dialects()) {
    std::vector<std::string_view> markers(dialect->frames);
    for (const auto& [open, close] : dialect->reasoning) {
      markers.push_back(open);
      markers.push_back(close);
    }
    for (const auto& block : dialect->blocks) markers.push_back(block.opening);
    for (const auto* list : {&dialect->ends, &dialect->message_ends})
      markers.insert(markers.end(), list->begin(), list->end());
    for (size_t i = 0; i < markers.size(); ++i)
      for (size_t j = 0; j < markers.size(); ++j)
        EXPECT_TRUE(i == j || !markers[i].starts_with(markers[j])) << dialect->name << markers[i];
  }
}

// Of CPU time: a machine that does other things, too, makes no difference.
double seconds_to_parse(const Input& input) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  std::vector<size_t> cuts;
  for (size_t i = 0; i < input.text.size(); i += 4) cuts.push_back(i);
  (void)parse(input, offered(), cuts);
  return now() - start;
}

TEST(OutputParser, TakesLinearTimeForAFileOf2000Lines) {
  std::string file;
  for (int i = 0; i < 2000; ++i) file += "  if (a < b && c > d) { return </parameter> x; }\n";
  const Input xml{find_dialect("qwen3_coder"), "<tool_call>\n<function=write>\n<parameter=text>\n" +
                                                   file +
                                                   "\n</parameter>\n</function>\n</tool_call>"};
  // 0.05 s; a second pass for each byte would take minutes.
  EXPECT_LT(seconds_to_parse(xml), 60.0);
  EXPECT_EQ(parse(xml, offered(), {}).output.calls.size(), 1u);
  const Input blanks{find_dialect("hermes"), std::string(1 << 20, '\n')};
  EXPECT_LT(seconds_to_parse(blanks), 60.0);
  const Input braces{find_dialect("llama3_json"), std::string(1 << 20, '{')};
  EXPECT_LT(seconds_to_parse(braces), 60.0);
}

}  // namespace
}  // namespace quire::dialects
