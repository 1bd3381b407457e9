#include "dialects/glm_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const Dialect& glm47() {
  static const Dialect dialect{
      .name = "glm47",
      .signs = {80, {{"<arg_key>", "</arg_key><arg_value>"}}},
      // GLM-4.7 and 5, which write no line ends between the tags.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<tool_call>", glm_call}},
      .strays = {"</tool_call>"},
      .ends = {"<|observation|>", "<|user|>", "<|endoftext|>"},
      .inner = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
      .forced = {{.before_name = "<tool_call>",
                  .after_call = "</tool_call>",
                  .before_key = "<arg_key>",
                  .before_value = "</arg_key><arg_value>",
                  .after_value = "</arg_value>"}},
  };
  return dialect;
}

}  // namespace quire::dialects
