#include "dialects/gemma_calls.h"
#include "dialects/table/table.h"

namespace quire::dialects {
namespace {

constexpr GemmaCalls kGemma{.string = {R"(<escape>)", {}, {}, false},
                            .closer = "<end_function_call>"};
Task<> call(Reader& in) { return gemma_call(in, kGemma); }

}  // namespace

const Dialect& functiongemma() {
  static const Dialect dialect{
      .name = "functiongemma",
      .signs = {30, {{"<start_function_call>"}}},
      .blocks = {{"<start_function_call>", call}},
      .strays = {"<end_function_call>"},
      .ends = {"<start_function_response>", "<end_of_turn>"},
      .inner = {"<escape>"},
  };
  return dialect;
}

}  // namespace quire::dialects
