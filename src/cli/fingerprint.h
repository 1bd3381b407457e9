#pragma once
#include <cstdint>
#include <string>

#include "formats/checkpoint.h"
#include "formats/lora_adapter.h"
#include "ops/layout/kv_type.h"
#include "ops/runtime/context.h"

namespace quire::cli {

// What decides the bits of an answer, apart from the request.
struct BitsOrigin {
  const formats::Checkpoint& checkpoint;  // loaded, with its contents recorded
  const ops::Context& context;
  std::string dtype;        // of weights and activations
  std::string activations;  // of quantised weights: "int8", "none", or "auto": as the config asks
  ops::KvStorage kv_storage;
  int64_t max_positions;  // longrope chooses its factors by it
};

// The `system_fingerprint` of answers, "fp_" and 16 hexadecimal digits: a digest of all this and of
// the sources of what computes. Equal fingerprints mean equal bits, for the same tokens, seed and
// parameters; different ones need not mean different bits. Reads what is missing for the digest of
// the weights, and throws LoadError if their files have changed.
std::string fingerprint(const BitsOrigin& origin);
// The same of answers with an adapter, of a model with that fingerprint. Reads the adapter's file.
std::string fingerprint(const std::string& model, const formats::LoraAdapter& adapter);

}  // namespace quire::cli
