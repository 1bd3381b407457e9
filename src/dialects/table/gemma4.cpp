#include "dialects/gemma_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr GemmaCalls kGemma{.string = {R"(<|"|>)", {}, {}, false}, .closer = "<tool_call|>"};
constexpr Dialect::ValueSyntax kValues{
    .string_mark = R"(<|"|>)", .sorts_names = true, .not_in_names = kNotInGemmaNames};
Task<> call(Reader& in) { return gemma_call(in, kGemma); }

}  // namespace

const Dialect& gemma4() {
  static const Dialect dialect{
      .name = "gemma4",
      .signs = {20, {{"<|tool_call>call:"}, {"<|tool_call>", "<tool_call|>"}}},
      .reasoning = {{"<|channel>thought", "<channel|>"}},
      .blocks = {{"<|tool_call>", call}},
      .strays = {"<tool_call|>"},
      .ends = {"<|tool_response>", "<turn|>"},
      .inner = {R"(<|"|>)", "<|channel>"},
      .forced = {{.before_name = "<|tool_call>call:",
                  .before_arguments = "{",
                  .after_call = "}<tool_call|>",
                  .values = &kValues}},
  };
  return dialect;
}

}  // namespace quire::dialects
