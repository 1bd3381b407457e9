#pragma once
#include <random>

#include "dialects/call_grammar.h"
#include "server/test_server.h"

namespace quire::server {

inline std::optional<int32_t> no_special_token(std::string_view) { return std::nullopt; }

// A matcher for tokens of bytes: the test model's vocabulary has one for each.
class Walk {
 public:
  Walk(text::GrammarSpec::Kind kind, const std::string& source, const std::string& prelude)
      : matcher_([&] {
          text::GrammarSpec spec;
          spec.kind = kind;
          spec.source = source;
          spec.prelude = prelude;
          auto made = model_text().grammars->compile(spec);
          EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error()) << "\n" << source;
          return std::move(*made);
        }()) {}

  std::vector<int32_t> allowed() {
    const int32_t size = model_text().tokenizer->vocab_size();
    std::vector<uint32_t> words((static_cast<size_t>(size) + 31) / 32);
    EXPECT_TRUE(matcher_.fill_mask(words).ok());
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < size; ++id)
      if (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) ids.push_back(id);
    return ids;
  }
  bool may_end() {
    const auto ids = allowed();
    return std::ranges::find(ids, 315) != ids.end();
  }
  // How much of the text the grammar takes.
  size_t take(std::string_view text) {
    size_t taken = 0;
    for (const int32_t id : encode(text)) {
      const auto ids = allowed();
      const auto accepted = matcher_.accept(id);
      EXPECT_TRUE(accepted.ok());
      // The mask says the same as what is taken.
      EXPECT_EQ(std::ranges::find(ids, id) != ids.end(), accepted.ok() && *accepted) << text;
      if (!accepted.ok() || !*accepted) return taken;
      taken += model_text().tokenizer->token_bytes(id).size();
    }
    return taken;
  }
  bool take_token(int32_t id) {
    const auto accepted = matcher_.accept(id);
    return accepted.ok() && *accepted;
  }
  // Some text that the grammar allows as a whole.
  std::string any(std::mt19937& random) {
    std::string text;
    for (int i = 0; i < 3000 && !matcher_.is_stopped(); ++i) {
      const auto ids = allowed();
      if (may_end() && random() % 4 == 0) break;
      const int32_t id = ids.at(random() % ids.size());
      if (id == 315 || id == 318) continue;
      EXPECT_TRUE(*matcher_.accept(id));
      text += model_text().tokenizer->token_bytes(id);
    }
    return text;
  }

 private:
  text::GrammarMatcher matcher_;
};

// What waits for the grammar's triggers.
inline std::string prelude_of(const dialects::CallGrammar& grammar) {
  const auto list = [](const std::vector<std::string>& texts) {
    return json::array(texts.begin(), texts.end());
  };
  return dump_json(json::object{{"triggers", list(grammar.triggers)},
                                {"kept_triggers", list(grammar.kept_triggers)},
                                {"repeats", true}});
}

}  // namespace quire::server
