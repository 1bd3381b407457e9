// Hostile tokenizer.json files. The input is tokenizer.json, then (each behind a byte 0)
// tokenizer_config.json and a text. A file is refused by its name within seconds, or it gives a
// tokenizer whose ids lie inside the vocabulary and whose texts can be streamed.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "cpu_timer.h"
#include "temporary_dir.h"
#include "text/detokenizer.h"
#include "text/tokenizer_impl.h"

namespace {

using namespace quire::text;

constexpr double kLoadMilliseconds = 10'000;
constexpr int32_t kMaxVocabulary = 50'000;  // larger ones are legal, but every id is visited here
constexpr std::string_view kText = "Hello  wörld\n<s> 12<0x0A>\t\u2581a</s>";

std::string_view take_part(std::string_view& input) {
  const std::string_view part = input.substr(0, input.find('\0'));
  input.remove_prefix(std::min(input.size(), part.size() + 1));
  return part;
}

void check_vocabulary(const Tokenizer& tokenizer) {
  for (int32_t id = -1; id <= tokenizer.vocab_size(); ++id) {
    const std::string_view token = tokenizer.id_to_token(id);
    const bool inside = id >= 0 && id < tokenizer.vocab_size();
    QUIRE_CHECK(inside || (token.empty() && tokenizer.token_bytes(id).empty()));
    // A hostile decoder may fail for an id of the vocabulary: an error, never a crash.
    QUIRE_CHECK(inside || !tokenizer.decode(std::vector<int32_t>{id}, false).ok()) << id;
  }
}

// All deltas together are the text of all ids.
void check_stream(const std::shared_ptr<const Tokenizer>& tokenizer,
                  const std::vector<int32_t>& ids, bool skip_special) {
  const auto whole = tokenizer->decode(ids, skip_special);
  if (!whole) return;
  QUIRE_CHECK(is_valid_utf8(*whole));
  Detokenizer stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string delta = stream.push(id);
    QUIRE_CHECK(is_valid_utf8(delta));
    text += delta;
  }
  text += stream.flush();
  if (tokenizer->impl().rule == JoinRule::kOpaque) return;
  // A hostile decoder may fail for a part of what it decodes as a whole: that part has no text.
  for (size_t i = 0; i < ids.size(); ++i)
    if (!tokenizer->decode(std::span(ids).subspan(i, 1), false)) return;
  QUIRE_CHECK(text == *whole) << "'" << text << "' for '" << *whole << "'";
}

void use(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer->encode(text, special);
    if (!ids) continue;
    for (const int32_t id : *ids) QUIRE_CHECK(id >= 0 && id < tokenizer->vocab_size()) << id;
    check_stream(tokenizer, *ids, special);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const quire::fuzz::TemporaryDir dir;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  dir.write("tokenizer.json", take_part(input));
  const std::string_view config = take_part(input);
  dir.write("tokenizer_config.json", config.empty() ? "{}" : config);
  const quire::fuzz::CpuTimer timer;
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::load(dir.path());
  } catch (const quire::LoadError& error) {
    QUIRE_CHECK(std::string_view(error.what()).find(dir.path().string()) == 0) << error.what();
  }
  QUIRE_CHECK(timer.milliseconds() < kLoadMilliseconds) << timer.milliseconds() << " ms";
  if (!tokenizer || tokenizer->vocab_size() > kMaxVocabulary) return 0;
  check_vocabulary(*tokenizer);
  use(tokenizer, kText);
  if (is_valid_utf8(input) && input.size() < 1'000) use(tokenizer, input);
  return 0;
}
