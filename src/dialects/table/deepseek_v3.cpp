#include "dialects/named_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const Dialect& deepseek_v3() {
  static const Dialect dialect{
      .name = "deepseek_v3",
      .signs = {71, {{"<｜tool▁calls▁begin｜>", "```json"}}},
      // V3 and R1-0528: a fence with JSON after the name.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<｜tool▁calls▁begin｜>", deepseek_calls},
                 {"<｜tool▁call▁begin｜>", deepseek_call}},
      .strays = {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
      .ends = {"<｜end▁of▁sentence｜>"},
      .inner = {"<｜tool▁sep｜>"},
      .forced = {{.open = "<｜tool▁calls▁begin｜>",
                  .close = "<｜tool▁calls▁end｜>",
                  .before_name = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                  .before_arguments = "\n```json\n",
                  .after_call = "\n```<｜tool▁call▁end｜>",
                  .between = "\n"}},
  };
  return dialect;
}

}  // namespace quire::dialects
