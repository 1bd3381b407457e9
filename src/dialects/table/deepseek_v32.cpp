#include "dialects/table/table.h"
#include "dialects/xml_calls.h"

namespace quire::dialects {
namespace {

constexpr std::string_view kFollowers[] = {"<｜DSML｜parameter name=", "</｜DSML｜invoke>"};
constexpr std::string_view kInstead[] = {"<｜DSML｜parameter name=", "</｜DSML｜invoke>"};
constexpr XmlCalls kXml{
    .function_open = "<｜DSML｜invoke name=",
    .function_close = "</｜DSML｜invoke>",
    .argument_open = "<｜DSML｜parameter name=",
    .value = {"</｜DSML｜parameter>", kFollowers, kInstead, false},
    .outer_open = "<｜DSML｜function_calls>",
    .outer_close = "</｜DSML｜function_calls>",
    .other_outer_close = "</｜DSML｜tool_calls>",
    .has_string_attribute = true,
};
constexpr Dialect::Forced in_section(std::string_view open, std::string_view close) {
  return {.open = open,
          .close = close,
          .before_name = "<｜DSML｜invoke name=\"",
          .before_arguments = "\">\n",
          .after_call = "</｜DSML｜invoke>\n",
          .before_key = "<｜DSML｜parameter name=\"",
          .before_value = "\" string=\"true\">",
          .after_value = "</｜DSML｜parameter>\n",
          .before_json_value = "\" string=\"false\">"};
}

Task<> calls(Reader& in) { return xml_calls(in, kXml); }
Task<> bare_call(Reader& in) { return xml_function(in, kXml); }

}  // namespace

const Dialect& deepseek_v32() {
  static const Dialect dialect{
      .name = "deepseek_v32",
      .aliases = {"deepseek_v4"},
      .signs = {50, {{"DSML", "function_calls"}, {"DSML", "tool_calls"}}},
      // DeepSeek V3.2, and V4 with another name of the outer tag.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<｜DSML｜function_calls>", calls},
                 {"<｜DSML｜tool_calls>", calls},
                 {"<｜DSML｜toolcalls>", calls},
                 {"<｜DSML｜invoke name=", bare_call}},
      .strays = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>", "</｜DSML｜toolcalls>"},
      .ends = {"<｜end▁of▁sentence｜>"},
      .inner = {"｜DSML｜"},
      .forced = {in_section("<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>"),
                 in_section("<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>")},
  };
  return dialect;
}

}  // namespace quire::dialects
