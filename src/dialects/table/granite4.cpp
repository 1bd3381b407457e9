#include "dialects/json_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kJson{.closer = "</tool_call>"};
Task<> calls(Reader& in) { return json_calls(in, kJson); }

}  // namespace

const Dialect& granite4() {
  static const Dialect dialect{
      .name = "granite4",
      .signs = {180, {{"<|start_of_role|>", "</tool_call>"}}},
      // Granite 4.0 and 4.1.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<tool_call>", calls}},
      .strays = {"</tool_call>"},
      .ends = {"<|end_of_text|>", "<|im_end|>"},
      .forced = {{.before_name = "<tool_call>\n{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}\n</tool_call>",
                  .between = "\n"}},
  };
  return dialect;
}

}  // namespace quire::dialects
