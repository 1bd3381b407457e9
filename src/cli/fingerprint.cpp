#include "cli/fingerprint.h"

#include "base/json.h"
#include "engine/kv_storage_names.h"
#include "formats/content_digest.h"
#include "ops/cpu/bits_class.h"

namespace quire::cli {

// Of all that computes; cmake/source_digest.cmake writes it.
extern const char* const kSourceDigest;

namespace {

// Which of the orders of sums is in force.
std::string order_of_sums(const ops::Context& context) {
  if (context.use_reference) return "reference";
  const ops::Device& device = *context.device;
  return context.device->host_memory() ? ops::cpu_bits_class()
                                       : device.name() + (" " + device.description());
}

bool uses_long_factors(const formats::HfConfig& config, int64_t max_positions) {
  const int64_t positions = max_positions > 0 ? max_positions : config.max_position_embeddings;
  return config.rope.type == "longrope" && positions > config.rope.original_max_position_embeddings;
}

std::string named(const std::string& text) {
  return "fp_" + formats::hex_digest(text).substr(0, 16);
}

}  // namespace

std::string fingerprint(const BitsOrigin& origin) {
  const formats::HfConfig& config = origin.checkpoint.config();
  const std::string weights = origin.checkpoint.contents_digest();
  origin.checkpoint.check_unchanged();
  std::string all;
  const auto add = [&all](const char* name, const std::string& value) {
    all += std::string(name) + "=" + value + "\n";
  };
  add("weights", weights);
  add("config", dump_json(config.raw));
  std::string suppressed;
  for (const int64_t id : origin.checkpoint.generation_config().suppress_tokens)
    suppressed += std::to_string(id) + " ";
  add("suppressed", suppressed);
  add("sources", kSourceDigest);
  add("order", order_of_sums(origin.context));
  add("dtype", origin.dtype);
  add("activations", origin.activations);
  add("kv", engine::kv_storage_name(origin.kv_storage));
  add("longrope", uses_long_factors(config, origin.max_positions) ? "long" : "short");
  return named(all);
}

std::string fingerprint(const std::string& model, const formats::LoraAdapter& adapter) {
  return named("model=" + model + "\nadapter=" + adapter.digest() + "\n");
}

}  // namespace quire::cli
