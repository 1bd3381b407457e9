#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quire::text {

// What constrains an answer, as the client wrote it.
struct GrammarSpec {
  enum class Kind {
    kJsonSchema,  // source: the schema's JSON text
    kJsonObject,  // any JSON object; no source
    kRegex,       // source: a regular expression for the whole answer
    kLark,        // source: a Lark grammar with a rule "start"
    kChoice,      // source: a JSON list of strings, one of which is the answer
  };
  Kind kind = Kind::kJsonObject;
  std::string_view source;
};

// Where one sequence stands in its grammar. Any thread may use it, one at a time.
class GrammarMatcher {
 public:
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  // Sets bit i (of words[i / 32], counted from the low end) for every token i that may come next
  // and clears all others. words has ceil(V / 32) elements, V the model's vocabulary, which may
  // exceed the tokenizer's: padding tokens are never allowed. When is_stopped(), exactly the eos
  // tokens are. Error: the grammar became too complex; the sequence must end.
  Result<void, std::string> fill_mask(std::span<uint32_t> words);

  // Advances by one token. false: the grammar does not allow it and nothing has changed.
  // Error: as for fill_mask.
  Result<bool, std::string> accept(int32_t token);

  // The answer is complete and nothing but eos may follow.
  bool is_stopped() const;
  // The answer may end here: eos is among the allowed tokens.
  bool is_accepting();

  // Takes back the last `tokens` accepted tokens. Error: there were not so many.
  Result<void, std::string> rollback(size_t tokens);

  // An independent copy at the same place.
  GrammarMatcher clone() const;

 private:
  friend class GrammarFactory;
  struct Impl;
  explicit GrammarMatcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Compiles grammars for one tokenizer. Thread-safe. The first compilation also makes what all
// share: for 150,000 tokens that takes some tenths of a second.
class GrammarFactory {
 public:
  // `eos_ids`: the tokens that end an answer; at least one must be in the vocabulary (LoadError).
  static std::shared_ptr<const GrammarFactory> create(std::shared_ptr<const Tokenizer> tokenizer,
                                                      std::span<const int32_t> eos_ids);
  ~GrammarFactory();

  // Error: the client's mistake in words, or a limit: 1 MiB of source, nesting 256, 10,000 choices,
  // and bounded work for compilation and for each later step.
  Result<GrammarMatcher, std::string> compile(const GrammarSpec& spec) const;

  struct Impl;

 private:
  explicit GrammarFactory(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace quire::text
