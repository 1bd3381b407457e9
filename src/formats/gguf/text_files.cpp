#include "formats/gguf/text_files.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "formats/gguf/vocabulary.h"

namespace quire::formats {
namespace {

const std::string kPrefix = kTokenizerPrefix;

// A place that no token has, filled up by the converter: "[PAD151936]".
bool is_filler(const GgufVocabulary& vocabulary, size_t id) {
  return vocabulary.type(id) == TokenType::kUnused &&
         (*vocabulary.tokens)[id] == "[PAD" + std::to_string(id) + "]";
}

// A text has one id, so of two equal tokens none could be told to be meant. Empty tokens are never
// made of texts.
void refuse_equal_tokens(const GgufMetadata& metadata, const GgufVocabulary& vocabulary) {
  const std::vector<std::string>& tokens = *vocabulary.tokens;
  std::unordered_map<std::string_view, size_t> ids;
  ids.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty() || is_filler(vocabulary, id)) continue;
    const auto [first, is_new] = ids.emplace(tokens[id], id);
    if (!is_new)
      metadata.fail(kPrefix + "tokens",
                    "has " + quote_name(tokens[id]) + " twice, as tokens " +
                        std::to_string(first->second) + " and " + std::to_string(id) +
                        ", so the ids of texts are not known; take another file, or the model's "
                        "folder in Hugging Face's format");
  }
}

// The parts of a tokenizer.json that differ.
struct Parts {
  json::value normalizer, pre_tokenizer, decoder;
  bool byte_fallback = false, ignores_merges = false, adds_bos = false;
  bool always_adds_bos = false;  // whatever the file says
};

json::value replace(const char* from, const char* to) {
  return json::object{
      {"type", "Replace"}, {"pattern", json::object{{"String", from}}}, {"content", to}};
}
json::value byte_level(bool splits) {
  return json::object{{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", splits}};
}

Parts byte_level_parts(const GgufMetadata& metadata) {
  const std::string key = kPrefix + "pre";
  const std::string name = metadata.require_string(key);
  auto pre = find_pre_tokenizer(name);
  if (!pre) {
    std::string list;
    for (const std::string& known : pre_tokenizer_names())
      list += (list.empty() ? "" : ", ") + known;
    metadata.fail(key, "is " + quote_name(name) + "; supported are " + list);
  }
  Parts out{.normalizer = {},
            .pre_tokenizer = {},
            .decoder = byte_level(true),
            .ignores_merges = pre->ignores_merges,
            .adds_bos = pre->adds_bos};
  if (pre->normalises) out.normalizer = json::object{{"type", "NFC"}};
  json::array steps = std::move(pre->steps);
  steps.push_back(byte_level(pre->byte_level_splits));
  out.pre_tokenizer = json::object{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  return out;
}

// SentencePiece's BPE over the whole text, with visible spaces.
Parts sentencepiece_parts(bool adds_space) {
  const json::value visible = replace(" ", "▁");
  json::array decoders{replace("▁", " "), json::object{{"type", "ByteFallback"}},
                       json::object{{"type", "Fuse"}}};
  if (adds_space)
    decoders.push_back(
        json::object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  const json::array both{json::object{{"type", "Prepend"}, {"prepend", "▁"}}, visible};
  return {.normalizer =
              adds_space ? json::object{{"type", "Sequence"}, {"normalizers", both}} : visible,
          .pre_tokenizer = nullptr,
          .decoder = json::object{{"type", "Sequence"}, {"decoders", std::move(decoders)}},
          .byte_fallback = true,
          .adds_bos = true};
}

// SentencePiece knows no merges: two neighbours become the token that they spell if it has the
// highest score. The same follows from a list of all ways to make each token, in the order of
// scores. Ties as transformers has them (generate_merges in convert_slow_tokenizer.py): the longer
// left side first, then the longer right one, in characters; then ids.
struct Merge {
  double score;
  size_t id, left_id, right_id;
  std::string_view left, right;

  auto order() const {
    return std::tuple(-score, -utf8_length(left), -utf8_length(right), id, left_id, right_id);
  }
  static int64_t utf8_length(std::string_view text) {
    return std::ranges::count_if(text, [](char c) { return !is_inside_character(c); });
  }
  static bool is_inside_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }
};

std::vector<Merge> merges_of_scores(const GgufVocabulary& vocabulary,
                                    const std::vector<double>& scores) {
  const std::vector<std::string>& tokens = *vocabulary.tokens;
  std::unordered_map<std::string_view, size_t> ids;
  std::vector<bool> lengths;  // of tokens: a cut into others need not be looked up
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (is_filler(vocabulary, id)) continue;
    ids.emplace(tokens[id], id);
    lengths.resize(std::max(lengths.size(), tokens[id].size() + 1));
    lengths[tokens[id].size()] = true;
  }
  std::vector<Merge> out;
  for (const auto& [text, id] : ids) {
    // Others are never made of tokens.
    const TokenType type = vocabulary.type(id);
    if (type != TokenType::kNormal && type != TokenType::kUser) continue;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if (!lengths[cut] || !lengths[text.size() - cut]) continue;
      if (Merge::is_inside_character(text[cut])) continue;
      const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      out.push_back({.score = scores[id],
                     .id = id,
                     .left_id = left->second,
                     .right_id = right->second,
                     .left = left->first,
                     .right = right->first});
    }
  }
  std::ranges::sort(out, std::less(), &Merge::order);
  return out;
}

void append_pair(std::string& out, std::string_view left, std::string_view right) {
  if (out.back() != '[') out += ',';
  out += '[';
  append_json_string(out, left);
  out += ',';
  append_json_string(out, right);
  out += ']';
}

// Those that merges may name and make.
std::unordered_set<std::string_view> known_tokens(const GgufVocabulary& vocabulary) {
  std::unordered_set<std::string_view> out;
  for (size_t id = 0; id < vocabulary.tokens->size(); ++id)
    if (!is_filler(vocabulary, id)) out.insert((*vocabulary.tokens)[id]);
  return out;
}

void append_merges(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                   std::string& out) {
  if (const auto* merges = metadata.find_strings(kPrefix + "merges")) {
    const auto known = known_tokens(vocabulary);
    std::string both;
    for (const std::string& merge : *merges) {
      const size_t space = merge.find(' ', 1);  // a token may be a space, but does not end with it
      if (space == std::string::npos || space + 1 == merge.size())
        metadata.fail(kPrefix + "merges", "has " + quote_name(merge) + ", which is not two tokens");
      const std::string_view left(merge.data(), space), right(merge.data() + space + 1);
      both.assign(left).append(right);
      for (const std::string_view token : {left, right, std::string_view(both)})
        if (!known.contains(token))
          metadata.fail(kPrefix + "merges", "has " + quote_name(merge) +
                                                ", but there is no token " + quote_name(token));
      append_pair(out, left, right);
    }
    return;
  }
  const auto* scores = metadata.find_doubles(kPrefix + "scores");
  if (!scores) metadata.fail(kPrefix + "merges", "and tokenizer.ggml.scores are missing");
  if (scores->size() != vocabulary.tokens->size())
    metadata.fail(kPrefix + "scores", "has " + std::to_string(scores->size()) +
                                          " elements, but there are " +
                                          std::to_string(vocabulary.tokens->size()) + " tokens");
  for (const Merge& merge : merges_of_scores(vocabulary, *scores))
    append_pair(out, merge.left, merge.right);
}

// The model's part of a tokenizer.json, written out: a tree of so many values would be large.
std::string model_text(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                       const Parts& parts) {
  std::string out = R"({"type":"BPE","dropout":null,"continuing_subword_prefix":null,)"
                    R"("end_of_word_suffix":null,"fuse_unk":true,"unk_token":)";
  const auto unknown = find_token_id(metadata, vocabulary, "unknown_token_id");
  if (unknown && parts.byte_fallback)
    append_json_string(out, (*vocabulary.tokens)[static_cast<size_t>(*unknown)]);
  else
    out += "null";
  out += std::string(R"(,"byte_fallback":)") + (parts.byte_fallback ? "true" : "false");
  out += std::string(R"(,"ignore_merges":)") + (parts.ignores_merges ? "true" : "false");
  out += R"(,"vocab":{)";
  for (size_t id = 0; id < vocabulary.tokens->size(); ++id) {
    if (is_filler(vocabulary, id)) continue;
    if (out.back() != '{') out += ',';
    append_json_string(out, (*vocabulary.tokens)[id]);
    out += ':' + std::to_string(id);
  }
  out += R"(},"merges":[)";
  append_merges(metadata, vocabulary, out);
  return out + "]}";
}

// Tokens that a text's spelling alone makes.
json::array added_tokens(const GgufVocabulary& vocabulary, bool strips_right) {
  json::array out;
  for (size_t id = 0; id < vocabulary.tokens->size(); ++id) {
    const TokenType type = vocabulary.type(id);
    const std::string& text = (*vocabulary.tokens)[id];
    if (text.empty() ||
        (type != TokenType::kControl && type != TokenType::kUser && type != TokenType::kUnknown))
      continue;
    const bool strips =
        strips_right && text != "<|endoftext|>" && (text.starts_with("<|") || text == "</s>");
    out.push_back(json::object{{"id", id},
                               {"content", text},
                               {"single_word", false},
                               {"lstrip", false},
                               {"rstrip", strips},
                               {"normalized", false},
                               {"special", type != TokenType::kUser}});
  }
  return out;
}

// Puts bos before a text and eos behind it.
json::value post_processor(const GgufMetadata& metadata, const GgufVocabulary& vocabulary,
                           const Parts& parts) {
  json::array single, pair;
  json::object special;
  const auto add = [&](const char* name, const char* id_name, bool fallback, int64_t type_id) {
    const bool is_asked = metadata.find_bool(kPrefix + "add_" + name + "_token").value_or(fallback);
    if (!is_asked && !(fallback && parts.always_adds_bos)) return;
    const auto id = find_token_id(metadata, vocabulary, id_name);
    if (!id) metadata.fail(kPrefix + id_name, "is missing, but texts are to have that token");
    const std::string& text = (*vocabulary.tokens)[static_cast<size_t>(*id)];
    json::object token{{"SpecialToken", json::object{{"id", text}, {"type_id", type_id}}}};
    if (type_id == 0) single.push_back(token);
    pair.push_back(std::move(token));
    special[text] =
        json::object{{"id", text}, {"ids", json::array{*id}}, {"tokens", json::array{text}}};
  };
  const auto text = [](const char* name, int64_t type_id) {
    return json::object{{"Sequence", json::object{{"id", name}, {"type_id", type_id}}}};
  };
  for (const int64_t type_id : {0, 1}) {
    add("bos", "bos_token_id", parts.adds_bos, type_id);
    if (type_id == 0) single.push_back(text("A", 0));
    pair.push_back(text(type_id == 0 ? "A" : "B", type_id));
    add("eos", "eos_token_id", false, type_id);
  }
  return json::object{{"type", "TemplateProcessing"},
                      {"single", std::move(single)},
                      {"pair", std::move(pair)},
                      {"special_tokens", std::move(special)}};
}

// Which of the library's kinds of tokenizer it is.
Parts read_parts(const GgufMetadata& metadata) {
  const std::string model = metadata.require_string(kPrefix + "model");
  if (model == "gpt2") return byte_level_parts(metadata);
  if (metadata.find_bool(kPrefix + "remove_extra_whitespaces").value_or(false))
    metadata.fail(kPrefix + "remove_extra_whitespaces", "is true, which is not supported");
  if (model == "llama")
    return sentencepiece_parts(metadata.find_bool(kPrefix + "add_space_prefix").value_or(true));
  if (model == "gemma4") {
    // The first files of Gemma 4 say that there is none.
    Parts parts = sentencepiece_parts(/*adds_space=*/false);
    parts.always_adds_bos = true;
    return parts;
  }
  metadata.fail(kPrefix + "model",
                "is " + quote_name(model) + "; supported are gpt2, llama and gemma4");
}

std::string tokenizer_json(const GgufMetadata& metadata) {
  const GgufVocabulary vocabulary = read_gguf_vocabulary(metadata);
  refuse_equal_tokens(metadata, vocabulary);
  const Parts parts = read_parts(metadata);
  // Files do not say which tokens take the spaces behind them: those of Phi-3 do.
  const bool strips = metadata.find_string("general.architecture") == "phi3" &&
                      metadata.find_string(kPrefix + "model") == "llama";
  json::object rest{{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", added_tokens(vocabulary, strips)},
                    {"normalizer", parts.normalizer},
                    {"pre_tokenizer", parts.pre_tokenizer},
                    {"post_processor", post_processor(metadata, vocabulary, parts)},
                    {"decoder", parts.decoder}};
  std::string out = dump_json(rest);
  out.back() = ',';  // the object's bracket
  return out + "\"model\":" + model_text(metadata, vocabulary, parts) + "}";
}

// One template, or with others under names a list of all.
json::value chat_templates(const GgufMetadata& metadata) {
  const std::string key = "tokenizer.chat_template";
  const auto main = metadata.find_string(key);
  json::array all;
  if (main) all.push_back(json::object{{"name", "default"}, {"template", *main}});
  for (const std::string& other : metadata.keys(key + "."))
    all.push_back(json::object{{"name", other.substr(key.size() + 1)},
                               {"template", metadata.find_string(other).value_or("")}});
  if (all.size() <= 1 && main) return json::value(*main);
  return all.empty() ? json::value() : json::value(std::move(all));
}

std::string tokenizer_config_json(const GgufMetadata& metadata) {
  const GgufVocabulary vocabulary = read_gguf_vocabulary(metadata);
  json::object config;
  const std::pair<const char*, const char*> kNames[] = {{"bos_token", "bos_token_id"},
                                                        {"eos_token", "eos_token_id"},
                                                        {"unk_token", "unknown_token_id"},
                                                        {"pad_token", "padding_token_id"}};
  for (const auto& [name, key] : kNames)
    if (const auto id = find_token_id(metadata, vocabulary, key))
      config[name] = (*vocabulary.tokens)[static_cast<size_t>(*id)];
  if (json::value templates = chat_templates(metadata); !templates.is_null())
    config["chat_template"] = std::move(templates);
  return dump_json(config);
}

}  // namespace

ModelFiles make_text_files(const GgufMetadata& metadata) {
  ModelFiles out{.origin = metadata.file(),
                 .are_made = true,
                 .tokenizer_json = tokenizer_json(metadata),
                 .tokenizer_config_json = tokenizer_config_json(metadata)};
  refuse_unknown_tokenizer_keys(metadata);
  return out;
}

}  // namespace quire::formats
