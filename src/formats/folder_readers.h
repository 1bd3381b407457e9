#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "formats/config_reader.h"
#include "formats/folder_keys.h"
#include "formats/folder_quantization.h"

// One reader for each method that quantization_config may name, and what they share. All throw
// LoadError naming the file and the key.
namespace quire::formats {

// In folder_integers.cpp.
void read_awq(const ConfigReader& config, FolderQuantization& out);
void read_gptq(const ConfigReader& config, FolderQuantization& out);
void read_auto_round(const ConfigReader& config, FolderQuantization& out);
// In folder_compressed.cpp.
void read_compressed(const ConfigReader& config, FolderQuantization& out);
// In folder_floats.cpp.
void read_fp8(const ConfigReader& config, FolderQuantization& out);
void read_bitsandbytes(const ConfigReader& config, FolderQuantization& out);
// In folder_modelopt.cpp.
void read_modelopt(const ConfigReader& top, FolderQuantization& out);

// How a name begins that is a pattern.
inline constexpr std::string_view kPattern = "re:";

[[noreturn]] void fail_value(const ConfigReader& config, std::string_view key,
                             const std::string& value, const std::string& supported);
// A key that would change values and is not understood must ask for nothing.
void expect_nothing(const ConfigReader& config, std::string_view key);
void expect_string(const ConfigReader& config, std::string_view key, std::string_view only);
void read_bits(const ConfigReader& config, std::string_view key, std::initializer_list<int64_t> of,
               FolderScheme& scheme);
// Groups that the kernels have, or are made of such.
void set_group(const ConfigReader& config, std::string_view key, int64_t size,
               FolderScheme& scheme);
// Outputs and columns that share a scale.
void set_block(const ConfigReader& config, std::string_view key, FolderScheme& scheme);
// Throws LoadError naming `key` if the pattern is not understood.
void expect_pattern(const ConfigReader& config, std::string_view key, std::string_view pattern);
std::vector<std::string> read_names(const ConfigReader& config, std::string_view key);
// Calls use(name, reader) for each object in the object `key`, which the config has.
template <class Use>
void for_each_object(const ConfigReader& config, std::string_view key, const json::object& objects,
                     const Use& use) {
  const ConfigReader all = config.inside(key, objects);
  for (const auto& entry : objects) {
    const std::string name(entry.key().data(), entry.key().size());
    const json::object* object = all.find_object(name);
    if (!object) all.fail(name, "is null");
    use(name, all.inside(name, *object));
  }
}

// That weights have no zero points, and scales that are stored.
void expect_fixed_and_symmetric(const ConfigReader& weights);
// What is said of 8-bit floats beside what shares a scale.
void read_float8_arguments(const ConfigReader& weights, FolderScheme& scheme);
// NVFP4, with a number for the whole matrix.
FolderScheme read_nvfp4(const ConfigReader& weights, FolderFormat format);

// That activations are to be rounded to floats: leaving that out is more exact, and is said.
// `stored`: with scales that the file has, not such as are found where they are used.
void note_float_activations(int64_t bits, bool stored, FolderQuantization& out);
// The same of a group. (What NVFP4 stores is a number for the whole tensor that only says how
// scales that are found later are rounded.)
void read_float_activations(const ConfigReader& group, int64_t only_bits, FolderQuantization& out);
// Keys and values as 8-bit floats: leaving that out is more exact, and a flag does it with scales
// of its own. Those that are stored say how to round, not what keys and values are.
void read_kv_cache(const ConfigReader& config, FolderQuantization& out);

}  // namespace quire::formats
