#include "dialects/named_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const Dialect& mistral_v3() {
  static const Dialect dialect{
      .name = "mistral_v3",
      .signs = {112, {{"[TOOL_CALLS]"}}},
      .ids = CallIds::kNineCharacters,
      // [TOOL_CALLS] and a list of JSON objects. Each Mistral dialect takes the others' calls, too.
      .reasoning = {{"[THINK]", "[/THINK]"}, {"<think>", "</think>"}},
      .blocks = {{"[TOOL_CALLS]", mistral_calls}},
      .ends = {"</s>"},
      .inner = {"[CALL_ID]", "[ARGS]"},
      .forced = {{.open = "[TOOL_CALLS][",
                  .close = "]",
                  .before_name = "{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}",
                  .between = ", "}},
  };
  return dialect;
}

}  // namespace quire::dialects
