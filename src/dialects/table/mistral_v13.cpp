#include "dialects/named_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const Dialect& mistral_v13() {
  static const Dialect dialect{
      .name = "mistral_v13",
      .aliases = {"mistral"},
      .signs = {111, {{"[TOOL_CALLS]", "[ARGS]"}}},
      .ids = CallIds::kNineCharacters,
      // [TOOL_CALLS]f[ARGS]{..} for each call. Each Mistral dialect takes the others' calls, too.
      .reasoning = {{"[THINK]", "[/THINK]"}, {"<think>", "</think>"}},
      .blocks = {{"[TOOL_CALLS]", mistral_calls}},
      .ends = {"</s>"},
      .inner = {"[CALL_ID]", "[ARGS]"},
      .forced = {{.before_name = "[TOOL_CALLS]", .before_arguments = "[ARGS]"}},
  };
  return dialect;
}

}  // namespace quire::dialects
