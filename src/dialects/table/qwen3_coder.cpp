#include "dialects/table/table.h"
#include "dialects/xml_calls.h"

namespace quire::dialects {
namespace {

constexpr std::string_view kFollowers[] = {"<parameter=", "</function>", "</tool_call>"};
constexpr std::string_view kInstead[] = {"<parameter=", "</function>"};
constexpr XmlCalls kXml{
    .function_open = "<function=",
    .function_close = "</function>",
    .argument_open = "<parameter=",
    .value = {"</parameter>", kFollowers, kInstead, true},
    .outer_open = "<tool_call>",
    .outer_close = "</tool_call>",
};
Task<> calls(Reader& in) { return xml_calls(in, kXml); }
Task<> bare_call(Reader& in) { return xml_function(in, kXml); }

}  // namespace

const Dialect& qwen3_coder() {
  static const Dialect dialect{
      .name = "qwen3_coder",
      .aliases = {"qwen3_xml"},
      .signs = {102, {{"<function=", "<parameter="}}},
      // Qwen3-Coder, Granite 4.2, Step 3.5. The outer tag is often missing.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<tool_call>", calls}, {"<function=", bare_call}},
      .strays = {"</function>", "</tool_call>"},
      .ends = {"<|im_end|>", "<|endoftext|>"},
      .forced = {{.before_name = "<tool_call>\n<function=",
                  .before_arguments = ">\n",
                  .after_call = "</function>\n</tool_call>",
                  .between = "\n",
                  .before_key = "<parameter=",
                  .before_value = ">\n",
                  .after_value = "\n</parameter>\n"}},
  };
  return dialect;
}

}  // namespace quire::dialects
