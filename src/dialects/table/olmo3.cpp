#include "dialects/pythonic_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr PythonicCalls kLines{.form = PythonicCalls::Form::kLines, .closer = "</function_calls>"};
Task<> calls(Reader& in) { return pythonic_calls(in, kLines); }

}  // namespace

const Dialect& olmo3() {
  static const Dialect dialect{
      .name = "olmo3",
      .signs = {150, {{"<function_calls>"}}},
      .reasoning = {{"<think>", "</think>"}},
      .blocks = {{"<function_calls>", calls}},
      .strays = {"</function_calls>"},
      .ends = {"<|im_end|>", "<|endoftext|>"},
  };
  return dialect;
}

}  // namespace quire::dialects
