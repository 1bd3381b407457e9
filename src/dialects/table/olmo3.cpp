#include "dialects/python_literal.h"
#include "dialects/pythonic_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr PythonicCalls kLines{.form = PythonicCalls::Form::kLines, .closer = "</function_calls>"};
// Its template writes values as JSON.
constexpr Dialect::ValueSyntax kValues{.argument_colon = "=",
                                       .colon = ": ",
                                       .comma = ", ",
                                       .quotes_names = true,
                                       .not_in_names = kNotInPythonNames};
Task<> calls(Reader& in) { return pythonic_calls(in, kLines); }

}  // namespace

const Dialect& olmo3() {
  static const Dialect dialect{
      .name = "olmo3",
      .signs = {150, {{"<function_calls>"}}},
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<function_calls>", calls}},
      .strays = {"</function_calls>"},
      .ends = {"<|im_end|>", "<|endoftext|>"},
      .forced = {{.open = "<function_calls>\n",
                  .close = "\n</function_calls>",
                  .before_arguments = "(",
                  .after_call = ")",
                  .between = "\n",
                  .values = &kValues}},
  };
  return dialect;
}

}  // namespace quire::dialects
