#include "dialects/named_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const Dialect& mistral_v11() {
  static const Dialect dialect{
      .name = "mistral_v11",
      .signs = {110, {{"[TOOL_CALLS]", "[CALL_ID]"}}},
      .ids = CallIds::kNineCharacters,
      // [TOOL_CALLS]f[CALL_ID]x[ARGS]{..} for each call. Each Mistral dialect takes the others'
      // calls, too.
      .reasoning = {{"[THINK]", "[/THINK]"}, {"<think>", "</think>"}},
      .blocks = {{"[TOOL_CALLS]", mistral_calls}},
      .ends = {"</s>"},
      .inner = {"[CALL_ID]", "[ARGS]"},
      .forced = {{.before_name = "[TOOL_CALLS]", .before_arguments = "[CALL_ID][ID][ARGS]"}},
  };
  return dialect;
}

}  // namespace quire::dialects
