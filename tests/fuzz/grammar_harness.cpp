#include "grammar_harness.h"

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/source_dir.h"
#include "cpu_timer.h"

namespace quire::fuzz {
namespace {

using text::GrammarMatcher;
using text::GrammarSpec;

// CPU time of one call, for a mask or a token. What takes longer than the limit must have ended in
// an error; the rest is for the instrumented code around it and the resolution of its watch.
constexpr double kCallMilliseconds = 50 + 50;
constexpr double kCompileMilliseconds = 5'000;

struct Vocabulary {
  std::shared_ptr<const text::Tokenizer> tokenizer =
      text::Tokenizer::load(source_dir() + "/tests/parity/text/qwen");
  int32_t eos = *tokenizer->special_token_id("eos_token");
  std::shared_ptr<const text::GrammarFactory> grammars =
      text::GrammarFactory::create(tokenizer, std::vector<int32_t>{eos});
};

const Vocabulary& vocabulary() {
  static const Vocabulary shared;
  return shared;
}

// A call that must keep its time.
template <class Call>
auto timed(Call&& call) {
  const CpuTimer timer;
  auto result = call();
  QUIRE_CHECK(timer.milliseconds() < kCallMilliseconds) << timer.milliseconds() << " ms";
  return result;
}

// One sequence in its grammar.
class Walk {
 public:
  explicit Walk(GrammarMatcher matcher)
      : matcher_(std::move(matcher)), mask_((vocabulary().tokenizer->vocab_size() + 31) / 32) {}

  // Takes one allowed token. false: the answer has ended, or the grammar has become too complex.
  bool step(uint8_t choice) {
    if (!timed([&] { return matcher_.fill_mask(mask_); })) return false;
    const std::vector<int32_t> allowed = ids(true), others = ids(false);
    const bool may_end = allows(vocabulary().eos);
    QUIRE_CHECK(matcher_.is_accepting() == may_end);
    QUIRE_CHECK(!matcher_.is_stopped() || allowed == std::vector<int32_t>{vocabulary().eos});
    if (!others.empty()) {
      const int32_t other = others[choice % others.size()];
      const auto refused = timed([&] { return matcher_.accept(other); });
      if (!refused) return false;
      QUIRE_CHECK(!*refused) << "took a token that the mask forbids, after " << text_;
    }
    if (allowed.empty()) return false;
    const int32_t token = allowed[choice % allowed.size()];
    const auto taken = timed([&] { return matcher_.accept(token); });
    if (!taken) return false;
    QUIRE_CHECK(*taken) << "refused a token that the mask allows, after " << text_;
    if (token == vocabulary().eos) return ended_ = true, false;
    QUIRE_CHECK(!vocabulary().tokenizer->is_special(token)) << token;
    text_ += vocabulary().tokenizer->token_bytes(token);
    return true;
  }

  bool ended() const { return ended_; }
  const std::string& text() const { return text_; }

 private:
  bool allows(int32_t id) const { return mask_[id / 32] >> (id % 32) & 1; }
  std::vector<int32_t> ids(bool allowed) const {
    std::vector<int32_t> found;
    for (int32_t id = 0; id < vocabulary().tokenizer->vocab_size(); ++id) {
      if (allows(id) == allowed) found.push_back(id);
    }
    return found;
  }

  GrammarMatcher matcher_;
  std::vector<uint32_t> mask_;
  std::string text_;
  bool ended_ = false;
};

}  // namespace

void walk_grammar(const GrammarSpec& spec, std::span<const uint8_t> choices) {
  const auto& grammars = *vocabulary().grammars;
  const CpuTimer timer;
  auto matcher = grammars.compile(spec);
  QUIRE_CHECK(timer.milliseconds() < kCompileMilliseconds) << timer.milliseconds() << " ms";
  if (!matcher) {
    QUIRE_CHECK(!matcher.error().empty());
    return;
  }
  Walk walk(std::move(*matcher));
  for (const uint8_t choice : choices) {
    if (!walk.step(choice)) break;
  }
  const bool is_json =
      spec.kind == GrammarSpec::Kind::kJsonSchema || spec.kind == GrammarSpec::Kind::kJsonObject;
  if (walk.ended() && is_json) {
    // The depth of an answer is the model's affair, numbers beyond a double the schema's.
    const auto value = parse_json(walk.text(), {.max_depth = 1'000});
    QUIRE_CHECK(value || value.error().find("number") != std::string::npos ||
                value.error().find("exponent") != std::string::npos)
        << walk.text() << ": " << value.error();
  }
}

}  // namespace quire::fuzz
