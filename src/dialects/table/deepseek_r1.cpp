#include "dialects/table/table.h"

namespace quire::dialects {

// V3's calls and reasoning; its template names the thinking, too.
const Dialect& deepseek_r1() {
  static const Dialect dialect = [] {
    Dialect r1 = deepseek_v3();
    r1.name = "deepseek_r1";
    r1.signs = {70, {{"<｜tool▁calls▁begin｜>", "```json", "<think>"}}};
    return r1;
  }();
  return dialect;
}

}  // namespace quire::dialects
