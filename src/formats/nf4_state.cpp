#include "formats/nf4_state.h"

#include <vector>

#include "base/error.h"
#include "formats/config_reader.h"

namespace quire::formats {
namespace {

constexpr IntRange kRows = {.min = 1, .max = int64_t{1} << 30};
constexpr RealRange kNestedOffset = {.min = -1e30, .max = 1e30};

}  // namespace

Nf4State read_nf4_state(const std::string& where, std::string_view text) {
  const auto parsed = parse_json(text, {.max_depth = 8});
  if (!parsed || !parsed.value().is_object()) throw LoadError(where + " is no JSON object");
  const ConfigReader state(where, parsed.value().get_object());
  const int64_t block = state.require_int("blocksize");
  if (block != 64) state.fail("blocksize", "is " + std::to_string(block) + "; supported: 64");
  if (const auto type = state.find_string("quant_type"); type && *type != "nf4")
    state.fail("quant_type", "is not \"nf4\"");
  const std::vector<int64_t> shape = state.get_ints("shape", kRows);
  if (shape.size() != 2) state.fail("shape", "is no pair of numbers, outputs and columns");
  Nf4State out = {.rows = shape[0], .columns = shape[1]};
  if (!state.find("nested_blocksize")) return out;
  out.nested_block = state.require_int("nested_blocksize", {.min = 1, .max = 1 << 30});
  out.nested_offset = static_cast<float>(state.require_double("nested_offset", kNestedOffset));
  if (const auto dtype = state.find_string("nested_dtype"); dtype && *dtype != "float32")
    state.fail("nested_dtype", "is not \"float32\"");
  return out;
}

}  // namespace quire::formats
