#include "dialects/table/table.h"
#include "dialects/xml_calls.h"

namespace quire::dialects {
namespace {

constexpr std::string_view kFollowers[] = {"<parameter=", "</function>", "</seed:tool_call>"};
constexpr std::string_view kInstead[] = {"<parameter=", "</function>"};
constexpr XmlCalls kXml{
    .function_open = "<function=",
    .function_close = "</function>",
    .argument_open = "<parameter=",
    .value = {"</parameter>", kFollowers, kInstead, true},
    .outer_open = "<seed:tool_call>",
    .outer_close = "</seed:tool_call>",
};
Task<> calls(Reader& in) { return xml_calls(in, kXml); }
Task<> bare_call(Reader& in) { return xml_function(in, kXml); }

}  // namespace

const Dialect& seed_oss() {
  static const Dialect dialect{
      .name = "seed_oss",
      .signs = {90, {{"<seed:tool_call>"}}},
      // Seed-OSS.
      .reasoning = {{"<seed:think>", "</seed:think>"}},
      .blocks = {{"<seed:tool_call>", calls}, {"<function=", bare_call}},
      .strays = {"</function>", "</seed:tool_call>"},
      .ends = {"<seed:eos>"},
      .forced = {{.before_name = "<seed:tool_call>\n<function=",
                  .before_arguments = ">\n",
                  .after_call = "</function>\n</seed:tool_call>",
                  .between = "\n",
                  .before_key = "<parameter=",
                  .before_value = ">",
                  .after_value = "</parameter>\n"}},
  };
  return dialect;
}

}  // namespace quire::dialects
