#pragma once
#include <memory>
#include <optional>
#include <string>

#include "bench/engine/offline.h"
#include "cli/flags.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "ops/runtime/profile.h"
#include "text/chat_template.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace quire::cli {

// An adapter that the engine has, by its index.
struct RunningAdapter {
  std::string name, path, fingerprint;  // as RunningModel's
};

// A model ready to answer, and the text tools that go with it.
struct RunningModel {
  formats::GenerationConfig generation_config;
  std::optional<formats::PoolingMode> pooling;  // Checkpoint::pooling()
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null if the model has none
  std::shared_ptr<const text::GrammarFactory> grammars;     // null if the model names no eos token
  std::vector<int32_t> eos_token_ids;
  bool has_head = true;     // see Model::has_head
  std::string name;         // the hub's ORG/NAME, or the model folder's own name, or the file's
  std::string fingerprint;  // see fingerprint.h
  std::vector<RunningAdapter> adapters;
  std::shared_ptr<ops::Profile> profile;  // null unless the flags ask for one
  std::unique_ptr<engine::Engine> engine;

  bench::BenchEngine measured() const { return {*engine, profile.get()}; }
};

// The template that a flag gives, as a file's name or as its text, with the model's special tokens
// in sight. Throws LoadError naming `flag`.
std::shared_ptr<const text::ChatTemplate> parse_template_flag(const std::string& flag,
                                                              const std::string& value,
                                                              const text::Tokenizer& tokenizer);

// Loads everything that the flags ask for and starts the engine. Prints one line each on model, CPU
// and memory to stderr, and progress while weights are packed if stderr is a terminal. Throws
// LoadError.
RunningModel start_engine(const ModelFlags& flags);

}  // namespace quire::cli
