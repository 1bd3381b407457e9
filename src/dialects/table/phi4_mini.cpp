#include "dialects/json_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kJson{.closer = "<|/tool_call|>"};
Task<> calls(Reader& in) { return json_calls(in, kJson); }

}  // namespace

const Dialect& phi4_mini() {
  static const Dialect dialect{
      .name = "phi4_mini",
      .aliases = {"phi4_mini_json"},
      .signs = {170, {{"functools["}, {"<|tool|>", "<|/tool|>"}}},
      // functools[..] by vLLM's template, markers by the model's own; their closer is often
      // missing.
      .blocks = {{"<|tool_call|>", calls}, {"functools", calls}},
      .strays = {"<|/tool_call|>"},
      .ends = {"<|end|>", "<|endoftext|>"},
      .forced = {{.open = "<|tool_call|>[",
                  .close = "]<|/tool_call|>",
                  .before_name = "{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}",
                  .between = ", "}},
  };
  return dialect;
}

}  // namespace quire::dialects
