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

// Of runs of white space only so many as a power of two are a piece.
constexpr const char* kJais2 = QUIRE_WORDS
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|)"
    R"(\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr const char* kRunsOfDigits = QUIRE_WORDS R"(\p{N}+)" QUIRE_REST;
constexpr const char* kNoContractions = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" QUIRE_REST;
constexpr const char* kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";

#define QUIRE_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define QUIRE_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define QUIRE_FIRST R"([^\r\n\p{L}\p{N}]?)"
#define QUIRE_CASES(ending)                                                                      \
  QUIRE_FIRST QUIRE_UPPER "*" QUIRE_LOWER "+" ending "|" QUIRE_FIRST QUIRE_UPPER "+" QUIRE_LOWER \
                          "*" ending "|"
#define QUIRE_CASES_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr const char* kO200k =
    QUIRE_CASES("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") R"(\p{N}{1,3})" QUIRE_CASES_REST;
constexpr const char* kO200kDigitsAlone =
    QUIRE_CASES("(?i:'s|'t|'re|'ve|'m|'ll|'d)?") R"(\p{N})" QUIRE_CASES_REST;
constexpr const char* kTekken = QUIRE_CASES("") R"(\p{N})" QUIRE_CASES_REST;

// Chinese characters are pieces of their own (tokenization_kimi.py).
#define QUIRE_NOT_HAN(letters) "[" letters R"(&&[^\p{Han}]])"
#define QUIRE_KIMI_UPPER QUIRE_NOT_HAN(R"(\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})")
#define QUIRE_KIMI_LOWER QUIRE_NOT_HAN(R"(\p{Ll}\p{Lm}\p{Lo}\p{M})")
#define QUIRE_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
constexpr const char* kKimi = R"([\p{Han}]+|)" QUIRE_FIRST QUIRE_KIMI_UPPER "*" QUIRE_KIMI_LOWER
                              "+" QUIRE_CONTRACTION QUIRE_FIRST QUIRE_KIMI_UPPER
                              "+" QUIRE_KIMI_LOWER "*" QUIRE_CONTRACTION R"(\p{N}{1,3})" QUIRE_REST;

constexpr const char* kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSpark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kYoutuScripts =
    R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)";
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

constexpr const char* kThousands = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// "digits" and "digits-alone" stand for the step Digits, with digits in runs or each alone.
constexpr std::string_view kDigitsAlone = "digits-alone";

struct Row {
  const char* name;
  std::array<const char*, 6> patterns = {};
  bool byte_level_splits = false, normalises = false, ignores_merges = false, adds_bos = false;
};

constexpr Row kGpt2 = {.name = "", .byte_level_splits = true};
constexpr Row kDigits = {.name = "", .patterns = {kDigitsAlone.data()}, .byte_level_splits = true};

constexpr Row kDeepseekV3 = {.name = "",
                             .patterns = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseek3}};

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
    {.name = "falcon-h1", .patterns = {kLlama3}, .ignores_merges = true, .adds_bos = true},
    {.name = "midm-2.0", .patterns = {kLlama3}, .ignores_merges = true, .adds_bos = true},
    {.name = "jina-v5-nano", .patterns = {kLlama3}, .ignores_merges = true, .adds_bos = true},
    {.name = "minicpm5", .patterns = {R"(\p{N}{1,3})", kRunsOfDigits}, .ignores_merges = true},
    {.name = "jais-2", .patterns = {kJais2}},
    {.name = "dbrx", .patterns = {kLlama3}},
    {.name = "smaug-bpe", .patterns = {kLlama3}},
    {.name = "chatglm-bpe", .patterns = {kLlama3}},
    {.name = "glm4", .patterns = {kLlama3}, .ignores_merges = true},
    {.name = "glm5", .patterns = {kLlama3}, .ignores_merges = true},
    {.name = "qwen2", .patterns = {kQwen2}, .normalises = true},
    {.name = "deepseek-r1-qwen", .patterns = {kQwen2}, .normalises = true},
    {.name = "megrez", .patterns = {kQwen2}, .normalises = true},
    {.name = "hunyuan", .patterns = {kQwen2}},
    {.name = "kormo", .patterns = {kQwen2}},
    {.name = "f2llmv2", .patterns = {kQwen2}},
    {.name = "stablelm2", .patterns = {kQwen2}},
    {.name = "solar-open", .patterns = {kQwen2}},
    {.name = "grok-2", .patterns = {kQwen2}},
    {.name = "laguna", .patterns = {R"([^\n]+|[\n]+)", kQwen2}},
    {.name = "ufakzeka", .patterns = {kNoContractions}},
    {.name = "exaone-moe", .patterns = {kExaoneMoe}},
    {.name = "qwen35", .patterns = {kQwen35}, .normalises = true},
    {.name = "gpt-4o", .patterns = {kO200k}},
    {.name = "llama4", .patterns = {kO200k}},
    {.name = "minimax-m2", .patterns = {kO200k}},
    {.name = "kanana2", .patterns = {kO200k}},
    {.name = "talkie", .patterns = {kO200k}},
    {.name = "granite-embed-multi-97m", .patterns = {kO200k}, .ignores_merges = true},
    {.name = "tiny_aya", .patterns = {kThousands, kO200k}},
    {.name = "cohere2moe", .patterns = {kThousands, kO200k}},
    {.name = "kimi-k2", .patterns = {kKimi}},
    {.name = "youtu", .patterns = {kYoutuScripts, kO200kDigitsAlone}, .ignores_merges = true},
    {.name = "tekken", .patterns = {kTekken}, .ignores_merges = true, .adds_bos = true},
    named("deepseek-v3", kDeepseekV3),
    named("hunyuan-dense", kDeepseekV3),
    named("joyai-llm", kDeepseekV3),
    named("hy_v4", kDeepseekV3),
    {.name = "spark2_5",
     .patterns = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kSpark, kDigitsAlone.data()}},
    {.name = "deepseek-llm",
     .patterns = {R"([\r\n])", kDeepseekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
                  "[一-龥ࠀ-一가-퟿]+", kDigitsAlone.data()}},
    {.name = "deepseek-coder",
     .patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+",
                  kDigitsAlone.data()}},
    {.name = "bailingmoe", .patterns = {kBailing}},
    {.name = "bailingmoe2", .patterns = {kBailing}},
    {.name = "llada-moe", .patterns = {kBailing}},
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
    named("minerva-7b", kDigits),
    named("mellum2", kDigits),
    named("gpt-2", kGpt2),
    named("phi-2", kGpt2),
    named("mpt", kGpt2),
    named("jais", kGpt2),
    named("exaone4", kGpt2),
    named("gigachat", kGpt2),
    named("a.x-4.0", kGpt2),
    named("mellum", kGpt2),
    named("trillion", kGpt2),
    named("granite-docling", kGpt2),
    named("modern-bert", kGpt2),
    {.name = "falcon", .patterns = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Words, "[0-9][0-9][0-9]"}},
    {.name = "superbpe", .patterns = {R"(\p{N}+)", R"(\d{1,3}(?=(?:\d{3})*(?!\d)))"}},
    {.name = "poro-chat", .patterns = {kBloom}},
    {.name = "bloom", .patterns = {kBloom}},
    {.name = "gpt3-finnish", .patterns = {kBloom}},
    {.name = "viking", .patterns = {kBloom, kDigitsAlone.data()}},
    {.name = "chameleon",
     .patterns = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", R"([\t\n]|    |  )",
                  kDigitsAlone.data(), R"([\p{P}!-/:-@\[-`{-~])"},
     .byte_level_splits = true,
     .adds_bos = true},
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
