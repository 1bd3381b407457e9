#include "dialects/json_calls.h"
#include "dialects/pythonic_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kJson{.closer = "</tool_call>"};
constexpr PythonicCalls kCode{.form = PythonicCalls::Form::kLines, .closer = "</code>"};
Task<> calls(Reader& in) { return json_calls(in, kJson); }
Task<> code(Reader& in) { return pythonic_calls(in, kCode); }

}  // namespace

const Dialect& smollm3() {
  static const Dialect dialect{
      .name = "smollm3",
      .signs = {210, {{"xml_tools", "<tool_call>"}}},
      // JSON in tags, or with its template's `python_tools` calls in <code>.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<tool_call>", calls}, {"<code>", code}},
      .strays = {"</tool_call>"},
      .ends = {"<|im_end|>"},
      .forced = {{.before_name = "<tool_call>\n{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}\n</tool_call>",
                  .between = "\n"}},
  };
  return dialect;
}

}  // namespace quire::dialects
