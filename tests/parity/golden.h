#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace quire::parity {

// What transformers answered to one prompt (golden.json; schema in tools/parity/README.md).
struct GoldenCase {
  std::vector<int32_t> prompt, tokens;                      // tokens: greedy
  std::vector<float> logprobs;                              // of each token
  std::vector<std::vector<std::pair<int32_t, float>>> top;  // per token, best first
  std::vector<float> prompt_logprobs;                       // empty if not stored
  std::vector<float> rounded_logprobs;  // of each token, activations rounded; empty if not stored
  std::string longrope;                 // "short" or "long"; else empty
};

struct Golden {
  std::string family;          // transformers' model_type
  bool is_bfloat16 = false;    // the checkpoint's weights
  double bfloat16_loss = 0.0;  // the most that transformers in bfloat16 differs from these
  std::vector<GoldenCase> cases;
};

// What transformers makes of one prompt's states (pooling.json).
struct PooledCase {
  std::string checkpoint;
  std::vector<int32_t> prompt;
  std::vector<float> last, mean;
};

// What transformers generates where some tokens are never to be produced (suppressed.json).
struct SuppressedCase {
  std::string checkpoint;
  std::vector<int64_t> suppressed;  // ids, of which some are no token's
  std::vector<int32_t> prompt, tokens;
  std::vector<float> logprobs;  // of each token, with what is suppressed left out
};

// Folders of the tiny checkpoints, by name; an absolute path stays as it is.
std::string checkpoint_dir(const std::string& name);
std::vector<std::string> checkpoint_names();

// Throws std::runtime_error if the file is not as its schema says.
Golden read_golden(const std::string& checkpoint);
std::vector<PooledCase> read_pooled_cases();
std::vector<SuppressedCase> read_suppressed_cases();

}  // namespace quire::parity
