#include "dialects/named_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const Dialect& kimi_k2() {
  static const Dialect dialect{
      .name = "kimi_k2",
      .signs = {60, {{"<|tool_calls_section_begin|>"}}},
      .ids = CallIds::kFromModel,
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<|tool_calls_section_begin|>", kimi_calls},
                 {"<|tool_call_section_begin|>", kimi_calls},
                 {"<|tool_call_begin|>", kimi_call}},
      .strays = {"<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool_call_section_end|>"},
      .ends = {"<|im_end|>"},
      .inner = {"<|tool_call_argument_begin|>"},
      .forced = {{.open = "<|tool_calls_section_begin|>",
                  .close = "<|tool_calls_section_end|>",
                  .before_name = "<|tool_call_begin|>functions.",
                  .before_arguments = ":[N]<|tool_call_argument_begin|>",
                  .after_call = "<|tool_call_end|>"}},
  };
  return dialect;
}

}  // namespace quire::dialects
