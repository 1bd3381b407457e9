#include "dialects/table/table.h"
#include "dialects/xml_calls.h"

namespace quire::dialects {
namespace {

constexpr std::string_view kFollowers[] = {"<parameter name=", "</invoke>", "</minimax:tool_call>"};
constexpr std::string_view kInstead[] = {"<parameter name=", "</invoke>"};
constexpr XmlCalls kXml{
    .function_open = "<invoke name=",
    .function_close = "</invoke>",
    .argument_open = "<parameter name=",
    .value = {"</parameter>", kFollowers, kInstead, false},
    .outer_open = "<minimax:tool_call>",
    .outer_close = "</minimax:tool_call>",
};
Task<> calls(Reader& in) { return xml_calls(in, kXml); }
Task<> bare_call(Reader& in) { return xml_function(in, kXml); }

}  // namespace

const Dialect& minimax_m2() {
  static const Dialect dialect{
      .name = "minimax_m2",
      .signs = {40, {{"<minimax:tool_call>"}}, {"]<]minimax[>["}},
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<minimax:tool_call>", calls}, {"<invoke name=", bare_call}},
      .strays = {"</invoke>", "</minimax:tool_call>"},
      .ends = {"[e~["},
      .forced = {{.open = "<minimax:tool_call>\n",
                  .close = "</minimax:tool_call>",
                  .before_name = "<invoke name=\"",
                  .before_arguments = "\">\n",
                  .after_call = "</invoke>\n",
                  .before_key = "<parameter name=\"",
                  .before_value = "\">",
                  .after_value = "</parameter>\n"}},
  };
  return dialect;
}

}  // namespace quire::dialects
