#include <algorithm>
#include <charconv>

#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

using engine::SamplingParams;

constexpr double kMaxTemperature = 100;
constexpr double kMaxRepetitionPenalty = 100;

std::string out_of_vocabulary(int64_t id, const ParseContext& context) {
  return "has the token id " + std::to_string(id) + ", which is outside the vocabulary of " +
         std::to_string(context.vocab_size);
}

void parse_logit_bias(Fields& fields, const ParseContext& context, SamplingParams& out) {
  const json::object* bias = fields.object("logit_bias");
  if (bias == nullptr) return;
  if (static_cast<int64_t>(bias->size()) > context.limits.max_logit_bias) {
    return fields.fail("logit_bias", "has " + std::to_string(bias->size()) + " entries; at most " +
                                         std::to_string(context.limits.max_logit_bias) +
                                         " are allowed");
  }
  for (const auto& entry : *bias) {
    const std::string_view key(entry.key().data(), entry.key().size());
    int64_t id = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size())
      return fields.fail("logit_bias", "must have token ids as keys");
    if (id < 0 || id >= context.vocab_size)
      return fields.fail("logit_bias", out_of_vocabulary(id, context));
    if (!entry.value().is_number())
      return fields.mistyped("logit_bias", "must have numbers as values");
    const double value = entry.value().to_number<double>();
    if (!(value >= -100 && value <= 100))
      return fields.fail("logit_bias", "must have values between -100 and 100");
    out.logit_bias.emplace_back(static_cast<int32_t>(id), static_cast<float>(value));
  }
}

void parse_allowed(Fields& fields, const ParseContext& context, SamplingParams& out) {
  const json::array* list = fields.array("allowed_token_ids", context.vocab_size);
  if (list == nullptr) return;
  const auto ids = parse_token_ids(fields, "allowed_token_ids", *list, context);
  if (!ids) return;
  if (ids->empty()) return fields.empty_list("allowed_token_ids");
  auto allowed = std::make_shared<std::vector<uint32_t>>((context.vocab_size + 31) / 32);
  for (const int32_t id : *ids) (*allowed)[id / 32] |= uint32_t{1} << id % 32;
  out.allowed_tokens = std::move(allowed);
}

// As in vLLM white space at their beginning does not count.
void parse_bad_words(Fields& fields, const ParseContext& context, GenerationRequest& out) {
  const json::array* list = fields.array("bad_words", context.limits.max_bad_words);
  if (list == nullptr) return;
  const auto max_bytes = static_cast<size_t>(context.limits.max_bad_word_bytes);
  for (const auto& value : *list) {
    if (!value.is_string()) return fields.mistyped("bad_words", "must be a list of strings");
    std::string_view word = as_view(value.get_string());
    word.remove_prefix(std::min(word.size(), word.find_first_not_of(" \t\n\v\f\r")));
    if (word.empty()) return fields.fail("bad_words", "must not contain an empty string");
    if (word.size() > max_bytes)
      return fields.fail("bad_words",
                         "has a string of more than " + std::to_string(max_bytes) + " bytes");
    out.bad_words.emplace_back(word);
  }
}

void parse_penalties(Fields& fields, const SamplingDefaults& defaults, SamplingParams& out) {
  out.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0.0f);
  out.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0.0f);
  out.repetition_penalty = fields.number("repetition_penalty", 0, kMaxRepetitionPenalty)
                               .value_or(defaults.repetition_penalty);
  if (!(out.repetition_penalty > 0))
    fields.fail("repetition_penalty", "must be above 0", "decimal_below_min_value");
}

}  // namespace

void parse_stops(Fields& fields, std::string_view key, const ParseContext& context,
                 GenerationRequest& out) {
  const json::value* stop = fields.find(key);
  if (stop == nullptr) return;
  const auto max_bytes = static_cast<size_t>(context.limits.max_stop_bytes);
  const auto add = [&](const json::value& value) {
    if (!value.is_string()) return fields.mistyped(key, "must be a string or a list of strings");
    const std::string_view text = as_view(value.get_string());
    if (text.empty()) return fields.fail(key, "must not contain an empty string");
    if (text.size() > max_bytes)
      return fields.fail(key, "has a string of more than " + std::to_string(max_bytes) + " bytes");
    out.stop.emplace_back(text);
  };
  if (!stop->is_array()) return add(*stop);
  const json::array* list = fields.array(key, context.limits.max_stops);
  if (list == nullptr) return;
  for (const auto& value : *list) add(value);
}

std::optional<std::vector<int32_t>> parse_token_ids(Fields& fields, std::string_view key,
                                                    const json::array& ids,
                                                    const ParseContext& context) {
  std::vector<int32_t> out;
  out.reserve(ids.size());
  for (const auto& value : ids) {
    const auto id = as_integer(value);
    if (!id) {
      fields.mistyped(key, "must contain token ids (integers)");
      return std::nullopt;
    }
    if (*id < 0 || *id >= context.vocab_size) {
      fields.fail(key, out_of_vocabulary(*id, context));
      return std::nullopt;
    }
    out.push_back(static_cast<int32_t>(*id));
  }
  return out;
}

void parse_sampling(Fields& fields, const ParseContext& context, GenerationRequest& out) {
  const SamplingDefaults& defaults = context.defaults;
  SamplingParams& sampling = out.sampling;
  sampling.temperature =
      fields.number("temperature", 0, kMaxTemperature).value_or(defaults.temperature);
  sampling.top_p = fields.number("top_p", 0, 1).value_or(defaults.top_p);
  if (!(sampling.top_p > 0)) fields.fail("top_p", "must be above 0", "decimal_below_min_value");
  sampling.min_p = fields.number("min_p", 0, 1).value_or(defaults.min_p);
  const auto top_k = fields.integer("top_k", -1, std::numeric_limits<int32_t>::max());
  sampling.top_k = std::max(0, static_cast<int32_t>(top_k.value_or(defaults.top_k)));
  parse_penalties(fields, defaults, sampling);
  parse_logit_bias(fields, context, sampling);
  parse_allowed(fields, context, sampling);
  // -1 asks for a random seed, as in vLLM and llama.cpp.
  const auto seed = fields.integer("seed");
  if (seed && *seed != -1) sampling.seed = static_cast<uint64_t>(*seed);

  parse_stops(fields, "stop", context, out);
  parse_bad_words(fields, context, out);
  out.include_stop_str_in_output = fields.flag("include_stop_str_in_output", false);
  sampling.ignore_eos = fields.flag("ignore_eos", false);
  sampling.min_tokens = fields.integer("min_tokens", 0).value_or(0);
  if (const auto* ids = fields.array("stop_token_ids", context.limits.max_stop_token_ids)) {
    if (auto parsed = parse_token_ids(fields, "stop_token_ids", *ids, context))
      sampling.stop_token_ids = std::move(*parsed);
  }
  const auto prompt_logprobs = fields.integer("prompt_logprobs", 0, context.limits.max_logprobs);
  sampling.prompt_logprobs = static_cast<int32_t>(prompt_logprobs.value_or(-1));
}

}  // namespace quire::server::openai
