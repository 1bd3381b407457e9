#include "dialects/json_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kJson{.closer = "</tool_call>"};
Task<> calls(Reader& in) { return json_calls(in, kJson); }

}  // namespace

const Dialect& hermes() {
  static const Dialect dialect{
      .name = "hermes",
      .aliases = {"qwen3"},
      .signs = {220, {{"<tool_call>"}}},
      // Hermes 2 and 3, Qwen2.5, QwQ, Qwen3.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<tool_call>", calls}},
      .strays = {"</tool_call>"},
      .ends = {"<|im_end|>", "<|endoftext|>"},
      .forced = {{.before_name = "<tool_call>\n{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}\n</tool_call>",
                  .between = "\n"}},
  };
  return dialect;
}

}  // namespace quire::dialects
