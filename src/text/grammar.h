#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

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
    kGbnf,        // source: a GBNF grammar with a rule "root"
    kChoice,      // source: a JSON list of strings, one of which is the answer
    // source: {"lark", "schemas": [{"name", "schema"}]}; in the Lark grammar a schema's number
    // between two characters \u0001 stands for it
    kCalls,
    kStructuralTag  // source: JSON; rust/quire-text/src/structural_tag.rs says which
  };
  Kind kind = Kind::kJsonObject;
  std::string_view source;
  std::string_view name = "schema";  // what errors about a schema's keywords begin with
  // What comes before the grammar's text; empty: nothing. A JSON object with any of
  //   "thinking": {"open", "close": token ids, "close_text", "starts_open", "budget": tokens}
  //   "triggers": texts, after the first of which the grammar begins
  //   "required": the answer may not end before one has come
  //   "repeats": after the grammar's text everything may come again, up to the next trigger
  //   "free": there is no grammar, only thinking and then anything
  std::string_view prelude = {};
  // Whose client may go while the grammar is compiled, which then ends with an error; its processor
  // time does not count here. Null: nobody's.
  const WorkBudget* budget = nullptr;
};

// Who is asked before a grammar holds more memory; it is given back when the object dies. Of one
// grammar, called by one thread at a time.
class GrammarMemory {
 public:
  virtual ~GrammarMemory() = default;
  virtual bool try_add(size_t bytes) = 0;  // false: not now
};

// What one grammar may hold at most. A Lark grammar of 20,000 alternatives is 32 MB when compiled,
// a schema of 50 properties 0.8 MB after 300 tokens.
inline constexpr size_t kMaxGrammarBytes = size_t{48} << 20;
inline constexpr const char* kNoGrammarMemory =
    "The server holds too many bytes of this and other requests' grammars";

// Where one sequence stands in its grammar. Any thread may use it, one at a time.
//
// A matcher and its clones are a family: they share the tables that their masks build up, so that
// many clones take the memory of one, and only one of them is at work at a time (another one's call
// waits). They also share a budget of CPU time: 50 ms for one call of fill_mask or accept, and 1 s
// and 1 ms for each accepted token altogether. What they hold is taken from their GrammarMemory
// (some bytes late: a call's growth is known at its end), which lives as long as they.
class GrammarMatcher {
 public:
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  // Sets bit i (of words[i / 32], counted from the low end) for every token i that may come next
  // and clears all others. words has ceil(V / 32) elements, V the model's vocabulary, which may
  // exceed the tokenizer's: padding tokens are never allowed. When is_stopped(), exactly the eos
  // tokens are. Error: the grammar became too complex or takes too long, which is the client's
  // fault; the sequence must end.
  Result<void, std::string> fill_mask(std::span<uint32_t> words);

  // Advances by one token. false: the grammar does not allow it and nothing has changed.
  // Error: as for fill_mask.
  Result<bool, std::string> accept(int32_t token);

  // The last error was that memory which was refused; a later try may succeed.
  bool lacks_memory() const;

  // The answer is complete and nothing but eos may follow.
  bool is_stopped() const;
  // The answer may end here: eos is among the allowed tokens.
  bool is_accepting();

  // A copy at the same place, of the same family.
  GrammarMatcher clone() const;

  // The same for a matcher and its clones, and for no other matcher.
  size_t family() const;
  // CPU time that the family has taken. Any thread may ask at any time.
  std::chrono::nanoseconds cpu_time() const;
  // An estimate of the heap that the family holds, not below it.
  size_t bytes() const;

 private:
  friend class GrammarFactory;
  struct Impl;
  explicit GrammarMatcher(std::unique_ptr<Impl> impl);
  Result<void, std::string> take_memory();
  std::unique_ptr<Impl> impl_;
};

// White space between the parts of JSON that a schema constrains.
enum class JsonWhitespace {
  kBounded,   // at each place at most a blank, or a line break and 20 blanks or tabs: with more, a
              // model may write blanks for the rest of its answer
  kFlexible,  // any amount
};

// Compiles grammars for one tokenizer. Thread-safe. The first compilation also makes what all
// share: for 150,000 tokens that takes some tenths of a second.
class GrammarFactory {
 public:
  // `eos_ids`: the tokens that end an answer; at least one must be in the vocabulary (LoadError).
  // `whitespace`: of schemas that do not say it themselves ("x-guidance"). Lark grammars have their
  // own.
  static std::shared_ptr<const GrammarFactory> create(
      std::shared_ptr<const Tokenizer> tokenizer, std::span<const int32_t> eos_ids,
      JsonWhitespace whitespace = JsonWhitespace::kBounded);
  ~GrammarFactory();

  // Error: the client's mistake in words, a keyword of a schema that is not supported (by its
  // path), or a limit: 256 KiB of schema or Lark, 1 MiB of others, nesting 256, 10,000 choices,
  // 4,000 properties, 498 optional ones in an object, 100 patternProperties, and bounded work for
  // compilation. `memory`: whom to ask; null: nobody.
  Result<GrammarMatcher, std::string> compile(const GrammarSpec& spec,
                                              std::unique_ptr<GrammarMemory> memory = {}) const;
  // The most that compilation may need.
  static size_t bytes_to_compile(const GrammarSpec& spec);

  struct Impl;

 private:
  explicit GrammarFactory(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace quire::text
