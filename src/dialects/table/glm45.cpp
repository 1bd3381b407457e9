#include "dialects/glm_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const Dialect& glm45() {
  static const Dialect dialect{
      .name = "glm45",
      .signs = {81, {{"<arg_key>"}}},
      // GLM-4.5 and 4.6.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<tool_call>", glm_call}},
      .strays = {"</tool_call>"},
      .ends = {"<|observation|>", "<|user|>", "<|endoftext|>"},
      .inner = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
      .forced = {{.before_name = "<tool_call>",
                  .before_arguments = "\n",
                  .after_call = "</tool_call>",
                  .between = "\n",
                  .before_key = "<arg_key>",
                  .before_value = "</arg_key>\n<arg_value>",
                  .after_value = "</arg_value>\n"}},
  };
  return dialect;
}

}  // namespace quire::dialects
