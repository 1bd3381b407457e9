#include "dialects/table/table.h"

namespace quire::dialects {

// Nemotron 3: Qwen3-Coder's calls.
const Dialect& nemotron3() {
  static const Dialect dialect = [] {
    Dialect same = qwen3_coder();
    same.name = "nemotron3";
    same.aliases = {"nemotron_v3"};
    same.signs = {100, {{"<function=", "<parameter=", "truncate_history_thinking"}}};
    return same;
  }();
  return dialect;
}

}  // namespace quire::dialects
