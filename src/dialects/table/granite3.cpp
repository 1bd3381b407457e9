#include "dialects/json_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kJson{.closer = "</tool_call>", .other_closer = "<|/tool_call|>"};
Task<> calls(Reader& in) { return json_calls(in, kJson); }

}  // namespace

const Dialect& granite3() {
  static const Dialect dialect{
      .name = "granite3",
      .aliases = {"granite"},
      .signs = {181, {{"<|tool_call|>"}, {"<|start_of_role|>"}}},
      // Granite 3.0 to 3.3. Reasoning in sentences (3.2) or tags (3.3).
      .reasoning = {{"<think>", "</think>"},
                    {"Here is my thought process:", "Here is my response:"}},
      .blocks = {{"<|tool_call|>", calls}, {"<tool_call>", calls}},
      .frames = {"<response>", "</response>"},
      .ends = {"<|end_of_text|>"},
      .forced = {{.open = "<|tool_call|>[",
                  .close = "]",
                  .before_name = "{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}",
                  .between = ", "}},
  };
  return dialect;
}

}  // namespace quire::dialects
