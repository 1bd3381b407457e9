#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace quire::bench {

// One request of a benchmark. `ids` is the text as the tokenizer reads it, without special tokens.
struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
  int64_t output_len = 0;
};

// What vLLM's --dataset-name and its flags say, with vLLM's defaults.
struct DatasetOptions {
  std::string name = "random";  // random, prefix_repetition or sharegpt
  std::string path = {};        // sharegpt: the JSON file
  int64_t num_prompts = 1000;
  uint64_t seed = 0;

  int64_t random_input_len = 1024, random_output_len = 128;
  int64_t random_prefix_len = 0;  // tokens in front of the input, the same in all prompts
  double random_range_ratio = 0;  // lengths vary by this share, up and down

  int64_t prefix_len = 256, suffix_len = 256;  // of prefix_repetition
  int64_t num_prefixes = 10;
  int64_t prefix_output_len = 128;

  int64_t sharegpt_output_len = 0;  // 0: as long as the recorded answer
};

// Prompts of exactly the length asked for, the same for the same seed whatever the machine:
//   random             words that no other prompt has, after a common prefix if one is asked for
//   prefix_repetition  num_prefixes different prefixes, each followed by many suffixes, shuffled
//   sharegpt           first questions of conversations in the file, shuffled; those of fewer than
//   4
//                      or more than 1,024 tokens, or 2,048 with the answer, are left out, as vLLM
//                      does
// Throws LoadError naming the flag or the file.
std::vector<Prompt> make_dataset(const text::Tokenizer& tokenizer, const DatasetOptions& options);

}  // namespace quire::bench
