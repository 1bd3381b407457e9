#include "dialects/json_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kFenced{.closer = "```", .pseudo_tool = "directly-answer"};
constexpr JsonCalls kJson{.closer = "<|END_ACTION|>"};
Task<> action(Reader& in) {
  co_await accept_spaced(in, "```");
  co_await accept(in, "json");
  co_await json_calls(in, kFenced);
}
Task<> calls(Reader& in) { return json_calls(in, kJson); }

}  // namespace

const Dialect& command_r() {
  static const Dialect dialect{
      .name = "command_r",
      .signs = {131, {{"Action:", "directly-answer"}, {"Action:", "directly_answer"}}},
      // Command R and R+: a plan, then a list of actions in a fence. `directly-answer` is none.
      .reasoning = {{"<|START_THINKING|>", "<|END_THINKING|>"}},
      .blocks = {{"Action:", action}, {"<|START_ACTION|>", calls}},
      .frames = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
      .strays = {"<|END_ACTION|>"},
      .ends = {"<|END_OF_TURN_TOKEN|>"},
      .forced = {{.open = "Action: ```json\n[",
                  .close = "]\n```",
                  .before_name = "{\"tool_name\": \"",
                  .before_arguments = "\", \"parameters\": ",
                  .after_call = "}",
                  .between = ", "}},
  };
  return dialect;
}

}  // namespace quire::dialects
