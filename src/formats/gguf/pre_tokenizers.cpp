#include <array>
#include <string>

#include "formats/gguf/text_files.h"

// The patterns are those of the tokenizer.json files that the names stand for; llama.cpp's
// converter (conversion/base.py) says which name stands for which model.
namespace quire::formats {
namespace {

#define QUIRE_WORDS R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)"
#define QUIRE_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr const char* kLlama3 = QUIRE_WORDS R"(\p{N}{1,3})" QUIRE_REST;
constexpr const char* kQwen2 = QUIRE_WORDS R"(\p{N})" QUIRE_REST;
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

#define QUIRE_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define QUIRE_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define QUIRE_FIRST R"([^\r\n\p{L}\p{N}]?)"
#define QUIRE_CASES(ending)                                                                      \
  QUIRE_FIRST QUIRE_UPPER "*" QUIRE_LOWER "+" ending "|" QUIRE_FIRST QUIRE_UPPER "+" QUIRE_LOWER \
                          "*" ending "|"
#define QUIRE_CASES_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr const char* kO200k =
    QUIRE_CASES("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") R"(\p{N}{1,3})" QUIRE_CASES_REST;
constexpr const char* kTekken = QUIRE_CASES("") R"(\p{N})" QUIRE_CASES_REST;

constexpr const char* kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Numbers stand for letters that Unicode composes to others, as editors may do.
constexpr const char* kDeepseekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ)"
    R"(ὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎ)"
    R"(ꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr const char* kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kSeed =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// "digits" and "digits-alone" stand for the step Digits, with digits in runs or each alone.
constexpr std::string_view kDigitsAlone = "digits-alone";

struct Row {
  const char* name;
  std::array<const char*, 6> patterns = {};
  bool byte_level_splits = false, normalises = false, ignores_merges = false, adds_bos = false;
};

constexpr Row kGpt2 = {.name = "", .byte_level_splits = true};
constexpr Row kDigits = {.name = "", .patterns = {kDigitsAlone.data()}, .byte_level_splits = true};

constexpr Row named(const char* name, Row row) {
  row.name = name;
  return row;
}

constexpr Row kRows[] = {
    {.name = "llama-bpe", .patterns = {kLlama3}, .ignores_merges = true, .adds_bos = true},
    {.name = "llama3", .patterns = {kLlama3}, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-v3", .patterns = {kLlama3}, .ignores_merges = true, .adds_bos = true},
    {.name = "falcon3", .patterns = {kLlama3}, .ignores_merges = true, .adds_bos = true},
    {.name = "pixtral", .patterns = {kTekken}, .ignores_merges = true, .adds_bos = true},
    {.name = "lfm2", .patterns = {kLlama3}, .ignores_merges = true, .adds_bos = true},
    {.name = "dbrx", .patterns = {kLlama3}},
    {.name = "smaug-bpe", .patterns = {kLlama3}},
    {.name = "chatglm-bpe", .patterns = {kLlama3}},
    {.name = "glm4", .patterns = {kLlama3}, .ignores_merges = true},
    {.name = "qwen2", .patterns = {kQwen2}, .normalises = true},
    {.name = "deepseek-r1-qwen", .patterns = {kQwen2}, .normalises = true},
    {.name = "megrez", .patterns = {kQwen2}, .normalises = true},
    {.name = "hunyuan", .patterns = {kQwen2}},
    {.name = "qwen35", .patterns = {kQwen35}, .normalises = true},
    {.name = "gpt-4o", .patterns = {kO200k}},
    {.name = "llama4", .patterns = {kO200k}},
    {.name = "minimax-m2", .patterns = {kO200k}},
    {.name = "tekken", .patterns = {kTekken}, .ignores_merges = true, .adds_bos = true},
    {.name = "deepseek-v3", .patterns = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3}},
    {.name = "hunyuan-dense",
     .patterns = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3}},
    {.name = "deepseek-llm",
     .patterns = {R"([\r\n])", kDeepseekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
                  "[一-龥ࠀ-一가-퟿]+", kDigitsAlone.data()}},
    {.name = "deepseek-coder",
     .patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+",
                  kDigitsAlone.data()}},
    {.name = "bailingmoe", .patterns = {kBailing}},
    {.name = "seed-coder", .patterns = {kSeed}},
    {.name = "command-r",
     .patterns = {kDigitsAlone.data()},
     .byte_level_splits = true,
     .normalises = true},
    named("smollm", kDigits),
    named("starcoder", kDigits),
    named("refact", kDigits),
    named("codeshell", kDigits),
    named("exaone", kDigits),
    named("gpt-2", kGpt2),
    named("phi-2", kGpt2),
    named("mpt", kGpt2),
    named("jais", kGpt2),
    named("exaone4", kGpt2),
    {.name = "olmo", .byte_level_splits = true, .normalises = true},
};

json::value step_of(std::string_view pattern) {
  if (pattern == kDigitsAlone) return json::object{{"type", "Digits"}, {"individual_digits", true}};
  return json::object{{"type", "Split"},
                      {"pattern", json::object{{"Regex", pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
}

}  // namespace

std::optional<PreTokenizer> find_pre_tokenizer(std::string_view name) {
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    PreTokenizer out{.steps = {},
                     .byte_level_splits = row.byte_level_splits,
                     .normalises = row.normalises,
                     .ignores_merges = row.ignores_merges,
                     .adds_bos = row.adds_bos};
    for (const char* pattern : row.patterns)
      if (pattern) out.steps.push_back(step_of(pattern));
    return out;
  }
  return std::nullopt;
}

std::vector<std::string> pre_tokenizer_names() {
  std::vector<std::string> out;
  for (const Row& row : kRows) out.emplace_back(row.name);
  return out;
}

}  // namespace quire::formats
