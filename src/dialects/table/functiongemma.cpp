#include "dialects/gemma_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr GemmaCalls kGemma{.string = {R"(<escape>)", {}, {}, false},
                            .closer = "<end_function_call>"};
constexpr Dialect::ValueSyntax kValues{
    .string_mark = R"(<escape>)", .sorts_names = true, .not_in_names = kNotInGemmaNames};
Task<> call(Reader& in) { return gemma_call(in, kGemma); }

}  // namespace

const Dialect& functiongemma() {
  static const Dialect dialect{
      .name = "functiongemma",
      .signs = {30, {{"<start_function_call>"}}},
      .blocks = {{"<start_function_call>", call}},
      .strays = {"<end_function_call>"},
      .ends = {"<start_function_response>", "<end_of_turn>"},
      .inner = {"<escape>"},
      .forced = {{.before_name = "<start_function_call>call:",
                  .before_arguments = "{",
                  .after_call = "}<end_function_call>",
                  .values = &kValues}},
  };
  return dialect;
}

}  // namespace quire::dialects
