#include "dialects/json_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kJson{.closer = "</tool_calls>"};
Task<> calls(Reader& in) { return json_calls(in, kJson); }

}  // namespace

const Dialect& hunyuan_a13b() {
  static const Dialect dialect{
      .name = "hunyuan_a13b",
      .signs = {160, {{"<tool_calls>"}}},
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<tool_calls>", calls}},
      .frames = {"<answer>", "</answer>"},
      .strays = {"</tool_calls>"},
      .ends = {"<|eos|>"},
      .forced = {{.open = "<tool_calls>[",
                  .close = "]</tool_calls>",
                  .before_name = "{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}",
                  .between = ", "}},
  };
  return dialect;
}

}  // namespace quire::dialects
