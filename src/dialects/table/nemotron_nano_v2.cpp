#include "dialects/json_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr JsonCalls kJson{.closer = "</TOOLCALL>"};
Task<> calls(Reader& in) { return json_calls(in, kJson); }

}  // namespace

const Dialect& nemotron_nano_v2() {
  static const Dialect dialect{
      .name = "nemotron_nano_v2",
      .signs = {120, {{"<TOOLCALL>"}}},
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<TOOLCALL>", calls}},
      .strays = {"</TOOLCALL>"},
      .ends = {"<SPECIAL_12>"},
      .forced = {{.open = "<TOOLCALL>[",
                  .close = "]</TOOLCALL>",
                  .before_name = "{\"name\": \"",
                  .before_arguments = "\", \"arguments\": ",
                  .after_call = "}",
                  .between = ", "}},
  };
  return dialect;
}

}  // namespace quire::dialects
