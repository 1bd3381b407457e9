#include "dialects/named_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const Dialect& harmony() {
  static const Dialect dialect{
      .name = "harmony",
      .aliases = {"openai", "gpt_oss", "openai_gptoss", "gptoss"},
      .signs = {10, {{"<|channel|>", "<|message|>"}}},
      // gpt-oss. A recipient stands in the role or in the channel.
      .blocks = {{"<|channel|>", harmony_message, true}, {"<|start|>", harmony_message, true}},
      .message = harmony_message,
      .message_ends = {"<|end|>", "<|return|>", "<|call|>"},
      .inner = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"},
      .forced = {{.before_name = "<|channel|>commentary to=functions.",
                  .before_arguments = " <|constrain|>json<|message|>",
                  .one_call = true}},
      .thoughts = {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant"},
      .before_content = "<|channel|>final<|message|>",
  };
  return dialect;
}

}  // namespace quire::dialects
