#include "dialects/json_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kJson{.closer = "<|END_ACTION|>"};
Task<> calls(Reader& in) { return json_calls(in, kJson); }

}  // namespace

const Dialect& command_a() {
  static const Dialect dialect{
      .name = "command_a",
      .signs = {130, {{"<|START_ACTION|>"}}},
      // Command R7B, Command A.
      .reasoning = {{"<|START_THINKING|>", "<|END_THINKING|>"}},
      .blocks = {{"<|START_ACTION|>", calls}},
      .frames = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
      .strays = {"<|END_ACTION|>"},
      .ends = {"<|END_OF_TURN_TOKEN|>"},
      .forced = {{.open = "<|START_ACTION|>[",
                  .close = "]<|END_ACTION|>",
                  .before_name = "{\"tool_call_id\": \"[N]\", \"tool_name\": \"",
                  .before_arguments = "\", \"parameters\": ",
                  .after_call = "}",
                  .between = ", "}},
  };
  return dialect;
}

}  // namespace quire::dialects
