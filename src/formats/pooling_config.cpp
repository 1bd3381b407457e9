#include "formats/pooling_config.h"

#include <filesystem>

#include "formats/config_reader.h"
#include "formats/hf_config.h"

namespace quire::formats {

PoolingMode read_pooling_mode(const std::string& dir) {
  const std::string file = dir + "/1_Pooling/config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return PoolingMode::kLast;
  const json::value raw = read_json_object(file);
  const ConfigReader config(file, raw.get_object());
  const auto is_set = [&](const char* key) { return config.find_bool(key).value_or(false); };
  const bool is_last = is_set("pooling_mode_lasttoken"),
             is_mean = is_set("pooling_mode_mean_tokens");
  for (const auto& entry : raw.get_object()) {
    const std::string_view key(entry.key().data(), entry.key().size());
    if (!key.starts_with("pooling_mode_") || key == "pooling_mode_lasttoken" ||
        key == "pooling_mode_mean_tokens")
      continue;
    if (entry.value() == true)
      config.fail(key, "is a way to pool that is not supported; --pooling chooses last or mean");
  }
  if (is_last == is_mean)
    config.fail("pooling_mode_lasttoken",
                "and pooling_mode_mean_tokens: one of them must be true; --pooling chooses");
  return is_mean ? PoolingMode::kMean : PoolingMode::kLast;
}

}  // namespace quire::formats
