#include "dialects/table/table.h"

namespace quire::dialects {

// Qwen3.5 and later: Qwen3-Coder's calls, and reasoning that the template opens.
const Dialect& qwen3_5() {
  static const Dialect dialect = [] {
    Dialect same = qwen3_coder();
    same.name = "qwen3_5";
    same.aliases = {};
    same.signs = {101, {{"<function=", "<parameter=", "<think>"}}};
    return same;
  }();
  return dialect;
}

}  // namespace quire::dialects
