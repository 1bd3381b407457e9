#include "dialects/named_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {

const Dialect& deepseek_v31() {
  static const Dialect dialect{
      .name = "deepseek_v31",
      .signs = {72, {{"<｜tool▁calls▁begin｜>"}}},
      // V3.1: JSON alone. Distilled models write V3's calls under this template: both are taken.
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<｜tool▁calls▁begin｜>", deepseek_calls},
                 {"<｜tool▁call▁begin｜>", deepseek_call}},
      .strays = {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
      .ends = {"<｜end▁of▁sentence｜>"},
      .inner = {"<｜tool▁sep｜>"},
      .forced = {{.open = "<｜tool▁calls▁begin｜>",
                  .close = "<｜tool▁calls▁end｜>",
                  .before_name = "<｜tool▁call▁begin｜>",
                  .before_arguments = "<｜tool▁sep｜>",
                  .after_call = "<｜tool▁call▁end｜>"}},
  };
  return dialect;
}

}  // namespace quire::dialects
