#include "dialects/json_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kJson{.closer = "</tool_call>"};
Task<> calls(Reader& in) { return json_calls(in, kJson); }

}  // namespace

const Dialect& exaone4() {
  static const Dialect dialect{
      .name = "exaone4",
      .signs = {211, {{"[|assistant|]", "<tool_call>"}}},
      // EXAONE 4, which writes no line ends around the JSON.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<tool_call>", calls}},
      .strays = {"</tool_call>"},
      .ends = {"[|endofturn|]"},
      .forced = {{.before_name = "<tool_call>{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}</tool_call>",
                  .between = "\n"}},
  };
  return dialect;
}

}  // namespace quire::dialects
