#include <filesystem>

#include "formats/hf_config.h"

namespace quire::formats {

GenerationConfig read_generation_config(const std::string& file) {
  GenerationConfig out;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return out;
  const json::value raw = read_json_object(file);
  const ConfigReader config(file, raw.get_object());
  constexpr IntRange kTokenId{.min = 0, .max = INT32_MAX};
  constexpr RealRange kShare{.min = 0.0, .max = 1.0};
  out.bos_token_id = config.find_int("bos_token_id", kTokenId);
  out.eos_token_ids = config.get_ints("eos_token_id", kTokenId);
  out.pad_token_id = config.find_int("pad_token_id", {.min = -1, .max = kTokenId.max});
  if (out.pad_token_id == -1) out.pad_token_id.reset();
  out.do_sample = config.find_bool("do_sample");
  out.temperature = config.find_double("temperature", {.min = 0.0, .max = 1e6});
  out.top_k = config.find_int("top_k", {.min = -1, .max = INT32_MAX});
  out.top_p = config.find_double("top_p", kShare);
  out.min_p = config.find_double("min_p", kShare);
  out.repetition_penalty =
      config.find_double("repetition_penalty", {.min = 0.0, .max = 1e6, .min_inclusive = false});
  out.max_new_tokens = config.find_int("max_new_tokens", {.min = 1, .max = INT32_MAX});
  out.suppress_tokens = config.get_ints("suppress_tokens");
  return out;
}

}  // namespace quire::formats
