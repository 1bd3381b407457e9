#include "bench/dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "bench/random.h"
#include "formats/data_file.h"

namespace quire::bench {
namespace {

using Ids = std::vector<int32_t>;

constexpr size_t kMostFileBytes = size_t{4} << 30;

std::string random_words(Random& random, int64_t count) {
  static constexpr std::string_view kConsonants = "bcdfghklmnprst", kVowels = "aeiou";
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    text += ' ';
    for (uint64_t syllables = 1 + random.below(3); syllables > 0; --syllables) {
      text += kConsonants[random.below(kConsonants.size())];
      text += kVowels[random.below(kVowels.size())];
    }
  }
  return text;
}

class Writer {
 public:
  explicit Writer(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  Ids encode(const std::string& text) const {
    auto ids = tokenizer_.encode(text, /*add_special_tokens=*/false);
    if (!ids) throw LoadError("the dataset: " + ids.error());
    return std::move(*ids);
  }

  Ids random_ids(Random& random, int64_t count) const {
    Ids ids;
    while (static_cast<int64_t>(ids.size()) < count) {
      const Ids more = encode(random_words(random, count - static_cast<int64_t>(ids.size())));
      if (more.empty()) throw LoadError("the tokenizer makes no tokens of Latin letters");
      ids.insert(ids.end(), more.begin(), more.end());
    }
    ids.resize(static_cast<size_t>(count));
    return ids;
  }

  // A text of ids.size() tokens that begins like `ids`. Where ids are cut or joined their text may
  // be tokenised otherwise: then the end is cut again, or words are added.
  Prompt prompt(Ids ids, Random& random, int64_t output_len) const {
    constexpr int kTries = 64;
    const size_t length = ids.size();
    Prompt result{.text = decode(ids), .ids = {}, .output_len = output_len};
    for (int i = 0; i < kTries; ++i) {
      result.ids = encode(result.text);
      if (result.ids.size() == length) return result;
      if (result.ids.size() > length) {
        result.ids.resize(length);
        result.text = decode(result.ids);
      }
      // A word in pieces: one of them may be what is missing.
      if (encode(result.text).size() < length) result.text += random_words(random, 1);
    }
    throw LoadError("no text of exactly " + std::to_string(length) +
                    " tokens was found for this tokenizer");
  }

 private:
  std::string decode(const Ids& ids) const {
    auto text = tokenizer_.decode(ids, /*skip_special_tokens=*/false);
    if (!text) throw LoadError("the dataset: " + text.error());
    return std::move(*text);
  }

  const text::Tokenizer& tokenizer_;
};

int64_t varied(int64_t length, double ratio, Random& random) {
  const auto spread = static_cast<int64_t>(static_cast<double>(length) * ratio);
  const auto step = static_cast<int64_t>(random.below(static_cast<uint64_t>(2 * spread + 1)));
  return std::max<int64_t>(1, length - spread + step);
}

std::vector<Prompt> random_dataset(const Writer& writer, const DatasetOptions& options) {
  Random prefix_random(options.seed, 0);
  const Ids prefix = writer.random_ids(prefix_random, options.random_prefix_len);
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < options.num_prompts; ++i) {
    Random random(options.seed, static_cast<uint64_t>(i) + 1);
    const int64_t own = varied(options.random_input_len, options.random_range_ratio, random);
    const int64_t output = varied(options.random_output_len, options.random_range_ratio, random);
    Ids ids = prefix;
    const Ids more = writer.random_ids(random, own);
    ids.insert(ids.end(), more.begin(), more.end());
    prompts.push_back(writer.prompt(std::move(ids), random, output));
  }
  return prompts;
}

std::vector<Prompt> prefix_dataset(const Writer& writer, const DatasetOptions& options) {
  if (options.num_prefixes > options.num_prompts)
    throw LoadError("--prefix-repetition-num-prefixes is over --num-prompts");
  std::vector<Ids> prefixes;
  for (int64_t p = 0; p < options.num_prefixes; ++p) {
    Random random(options.seed ^ 0x70726566ull, static_cast<uint64_t>(p));
    prefixes.push_back(writer.random_ids(random, options.prefix_len));
  }
  std::vector<Prompt> prompts;
  for (int64_t i = 0; i < options.num_prompts; ++i) {
    Random random(options.seed, static_cast<uint64_t>(i) + 1);
    Ids ids = prefixes[static_cast<size_t>(i * options.num_prefixes / options.num_prompts)];
    const Ids suffix = writer.random_ids(random, options.suffix_len);
    ids.insert(ids.end(), suffix.begin(), suffix.end());
    prompts.push_back(writer.prompt(std::move(ids), random, options.prefix_output_len));
  }
  Random order(options.seed, 0);
  order.shuffle(prompts);
  return prompts;
}

// The text of turn `index`; null if the entry is not as expected.
const json::string* turn_text(const json::value& entry, size_t index) {
  const json::object* object = entry.if_object();
  const json::value* turns = object ? object->if_contains("conversations") : nullptr;
  if (!turns || !turns->is_array() || turns->get_array().size() < 2) return nullptr;
  const json::object* turn = turns->get_array()[index].if_object();
  const json::value* value = turn ? turn->if_contains("value") : nullptr;
  return value ? value->if_string() : nullptr;
}

std::vector<Prompt> sharegpt_dataset(const Writer& writer, const DatasetOptions& options) {
  if (options.path.empty()) throw LoadError("--dataset-name sharegpt needs --dataset-path FILE");
  auto parsed = parse_json(formats::read_text_file(options.path, kMostFileBytes),
                           {.max_bytes = kMostFileBytes});
  if (!parsed) throw LoadError(options.path + ": " + parsed.error());
  if (!parsed->is_array())
    throw LoadError(options.path + ": expected a JSON list of conversations");
  std::vector<const json::value*> entries;
  for (const json::value& entry : parsed->get_array())
    if (turn_text(entry, 0) && turn_text(entry, 1)) entries.push_back(&entry);
  Random order(options.seed, 0);
  order.shuffle(entries);
  std::vector<Prompt> prompts;
  for (const json::value* entry : entries) {
    if (static_cast<int64_t>(prompts.size()) == options.num_prompts) break;
    Prompt prompt{.text = std::string(*turn_text(*entry, 0)), .ids = {}};
    prompt.ids = writer.encode(prompt.text);
    const auto input = static_cast<int64_t>(prompt.ids.size());
    const auto answer =
        static_cast<int64_t>(writer.encode(std::string(*turn_text(*entry, 1))).size());
    prompt.output_len = options.sharegpt_output_len > 0 ? options.sharegpt_output_len : answer;
    const bool long_enough = input >= 4 && (options.sharegpt_output_len > 0 || answer >= 4);
    if (long_enough && input <= 1024 && input + prompt.output_len <= 2048)
      prompts.push_back(std::move(prompt));
  }
  if (static_cast<int64_t>(prompts.size()) < options.num_prompts)
    throw LoadError(options.path + " has only " + std::to_string(prompts.size()) +
                    " conversations of a fitting length; lower --num-prompts");
  return prompts;
}

}  // namespace

std::vector<Prompt> make_dataset(const text::Tokenizer& tokenizer, const DatasetOptions& options) {
  const Writer writer(tokenizer);
  if (options.name == "random") return random_dataset(writer, options);
  if (options.name == "prefix_repetition") return prefix_dataset(writer, options);
  if (options.name == "sharegpt") return sharegpt_dataset(writer, options);
  throw LoadError("--dataset-name " + options.name +
                  ": choose random, prefix_repetition or sharegpt");
}

}  // namespace quire::bench
