#include "server/openai/known_fields.h"

#include <algorithm>
#include <map>

#include "base/printable.h"

namespace quire::server::openai {
namespace {

constexpr unsigned kBoth = kCompletion | kChat;
constexpr unsigned kGenerating = kBoth | kMessages | kResponses;
constexpr unsigned kPrompting = kChat | kTokenize;
constexpr unsigned kPooling = kEmbedding | kRerank | kScore;
// Without the endpoints that are no model for /tokenize.
constexpr unsigned kTokenized = ~(kMessages | kResponses | kPooling);
constexpr auto kRead = FieldUse::kRead;
constexpr auto kUnsupported = FieldUse::kUnsupported;
constexpr auto kNoEffect = FieldUse::kNoEffect;

constexpr std::string_view kWholeInput =
    "`input` with the whole conversation: no answer is stored here";

constexpr KnownField kFields[] = {
    // Read by the parsers.
    {"model", kGenerating | kTokenize | kDetokenize | kPooling, kRead},
    {"prompt", kCompletion | kTokenize, kRead},
    {"messages", kPrompting | kMessages, kRead},
    {"tokens", kDetokenize, kRead},
    {"return_token_strs", kTokenize, kRead},
    {"add_special_tokens", kBoth | kTokenize | kEmbedding, kRead},
    {"tools", kPrompting | kMessages | kResponses, kRead},
    {"tool_choice", kPrompting | kMessages | kResponses, kRead},
    {"documents", kPrompting, kRead},
    {"chat_template", kPrompting, kRead},
    {"chat_template_kwargs", kPrompting, kRead},
    {"add_generation_prompt", kPrompting, kRead},
    {"continue_final_message", kPrompting, kRead},
    {"reasoning_effort", kPrompting, kRead},
    {"reasoning", kPrompting | kResponses, kRead},
    {"enable_thinking", kPrompting, kRead},
    {"think", kPrompting, kRead},
    {"thinking", kPrompting | kMessages, kRead},
    {"max_completion_tokens", kChat, kRead},
    {"parallel_tool_calls", kChat | kResponses, kRead},
    {"parse_tool_calls", kChat, kRead},
    {"include_reasoning", kChat, kRead},
    {"separate_reasoning", kChat, kRead},
    {"reasoning_format", kChat, kRead},
    {"thinking_token_budget", kChat, kRead},
    {"thinking_budget", kChat, kRead},
    {"thinking_budget_tokens", kChat, kRead},
    {"reasoning_budget", kChat, kRead},
    {"top_logprobs", kChat, kRead},
    {"request_id", kBoth | kPooling, kRead},
    {"n", kBoth, kRead},
    {"best_of", kBoth, kRead},
    {"max_tokens", kBoth | kMessages, kRead},
    {"min_tokens", kGenerating, kRead},
    {"logprobs", kBoth, kRead},
    {"prompt_logprobs", kBoth, kRead},
    {"echo", kBoth, kRead},
    {"stream", kGenerating, kRead},
    {"stream_options", kBoth | kResponses, kRead},
    {"temperature", kGenerating, kRead},
    {"top_p", kGenerating, kRead},
    {"top_k", kGenerating, kRead},
    {"min_p", kGenerating, kRead},
    {"presence_penalty", kGenerating, kRead},
    {"frequency_penalty", kGenerating, kRead},
    {"repetition_penalty", kGenerating, kRead},
    {"logit_bias", kGenerating, kRead},
    {"seed", kGenerating, kRead},
    {"stop", kBoth | kResponses, kRead},
    {"stop_token_ids", kGenerating, kRead},
    {"allowed_token_ids", kGenerating, kRead},
    {"bad_words", kGenerating, kRead},
    {"include_stop_str_in_output", kBoth, kRead},
    {"ignore_eos", kGenerating, kRead},
    {"skip_special_tokens", kBoth, kRead},
    {"spaces_between_special_tokens", kBoth, kRead},
    {"response_format", kBoth, kRead},
    {"structured_outputs", kBoth, kRead},
    {"guided_json", kBoth, kRead},
    {"guided_regex", kBoth, kRead},
    {"guided_grammar", kBoth, kRead},
    {"guided_choice", kBoth, kRead},
    {"grammar", kBoth, kRead},
    {"truncate_prompt_tokens", kBoth | kEmbedding, kRead},
    {"truncation_side", kBoth | kEmbedding, kRead},
    {"return_token_ids", kBoth, kRead},
    {"return_tokens_as_token_ids", kBoth, kRead},
    {"priority", kGenerating | kPooling, kRead},
    {"cache_salt", kGenerating | kPooling, kRead},

    // Of embeddings and scores: OpenAI's, Jina's and Cohere's, vLLM's.
    {"encoding_format", kEmbedding, kRead},
    {"dimensions", kEmbedding, kRead},
    {"pooling", kEmbedding, kRead},
    {"normalize", kEmbedding, kRead},
    {"query", kRerank, kRead},
    {"documents", kRerank | kScore, kRead},
    {"top_n", kRerank, kRead},
    {"return_documents", kRerank, kRead},
    {"text_1", kScore, kRead},
    {"text_2", kScore, kRead},
    {"queries", kScore, kRead},
    {"instruction", kRerank | kScore, kRead},
    {"messages", kPooling, kUnsupported, "", "texts"},
    {"truncate_prompt_tokens", kRerank | kScore, kUnsupported},
    {"max_tokens_per_doc", kRerank | kScore, kUnsupported},
    {"max_chunks_per_doc", kRerank | kScore, kUnsupported},
    {"rank_fields", kRerank | kScore, kUnsupported, R"([["text"]])"},
    {"use_activation", kPooling, kUnsupported, "[true]", "`normalize`"},
    {"activation", kPooling, kUnsupported, "[true]"},
    {"softmax", kPooling, kUnsupported, "[true]"},
    {"embed_dtype", kEmbedding, kUnsupported, R"(["float32"])"},
    {"endianness", kEmbedding, kUnsupported, R"(["native","little"])"},
    {"mm_processor_kwargs", kPooling, kUnsupported, "[{}]"},
    {"stream", kPooling, kUnsupported, "[false]"},

    // Anthropic's.
    {"system", kMessages, kRead},
    {"stop_sequences", kMessages, kRead},
    {"output_config", kMessages, kRead},
    {"output_format", kMessages, kRead},
    {"cache_control", kGenerating, kNoEffect},  // whatever was sent before is in the cache
    {"service_tier", kMessages, kUnsupported, R"(["auto","standard_only"])"},
    {"container", kMessages, kUnsupported},
    {"mcp_servers", kMessages, kUnsupported, "[[]]"},
    {"speed", kMessages, kUnsupported, R"(["standard"])"},

    // OpenAI's, of /v1/responses.
    {"input", kResponses | kEmbedding, kRead},
    {"instructions", kResponses, kRead},
    {"max_output_tokens", kResponses, kRead},
    {"text", kResponses, kRead},
    {"include", kResponses, kRead},
    {"metadata", kResponses, kRead},
    {"store", kResponses, kRead},
    {"previous_response_id", kResponses, kUnsupported, "", kWholeInput},
    {"conversation", kResponses, kUnsupported, "", kWholeInput},
    {"background", kResponses, kUnsupported, "[false]", "`stream`: nothing is kept for later"},
    {"prompt", kResponses, kUnsupported, "", "`instructions` and `input`: nothing is stored here"},
    {"truncation", kResponses, kUnsupported, R"(["disabled"])"},
    {"top_logprobs", kResponses, kUnsupported, "[0]"},
    {"moderation", kResponses, kUnsupported},
    {"max_tool_calls", kGenerating, kNoEffect},  // of tools that a server runs
    {"client_metadata", kGenerating, kNoEffect},
    {"messages", kResponses, kUnsupported, "", "`input`"},
    {"max_tokens", kResponses, kUnsupported, "", "`max_output_tokens`"},
    {"max_completion_tokens", kResponses, kUnsupported, "", "`max_output_tokens`"},
    {"response_format", kResponses, kUnsupported, "", "`text.format`"},
    {"reasoning_effort", kResponses, kUnsupported, "", "`reasoning.effort`"},
    {"verbosity", kResponses, kUnsupported, R"(["medium"])", "`text.verbosity`"},

    // OpenAI's.
    {"user", kBoth | kResponses | kPooling, kNoEffect},
    {"metadata", kBoth | kMessages, kNoEffect},
    {"safety_identifier", kBoth | kResponses, kNoEffect},
    {"prompt_cache_key", kBoth | kResponses, kNoEffect},
    {"prompt_cache_retention", kBoth | kResponses, kNoEffect},
    {"service_tier", kBoth | kResponses, kUnsupported, R"(["auto","default"])"},
    {"store", kBoth, kUnsupported, "[false]"},
    {"verbosity", kBoth, kUnsupported, R"(["medium"])"},
    {"modalities", kBoth, kUnsupported, R"([["text"]])"},
    {"audio", kBoth, kUnsupported},
    {"prediction", kBoth, kUnsupported},
    {"web_search_options", kBoth, kUnsupported},
    {"parallel_tool_calls", kCompletion, kNoEffect},
    {"functions", kBoth, kUnsupported, "", "`tools`"},
    {"function_call", kBoth, kUnsupported, R"(["none","auto"])", "`tool_choice`"},
    {"suffix", kBoth, kUnsupported, R"([""])"},
    {"max_output_tokens", kBoth, kUnsupported, "", "`max_tokens`"},

    // vLLM's and SGLang's.
    {"session_id", kBoth, kNoEffect},
    {"use_beam_search", kBoth, kUnsupported, "[false]"},
    {"length_penalty", kBoth, kUnsupported, "[1]"},
    {"early_stopping", kBoth, kUnsupported, "[false]"},
    {"logprob_token_ids", kBoth, kUnsupported},
    {"logits_processors", kBoth, kUnsupported, "[[]]"},
    {"custom_logit_processor", kBoth, kUnsupported},
    {"thinking_token_budget", kCompletion, kUnsupported},
    {"thinking_budget", kCompletion, kUnsupported},
    {"include_reasoning", kCompletion, kUnsupported, "[true]"},
    {"separate_reasoning", kCompletion, kUnsupported, "[false]"},
    {"stream_reasoning", kBoth, kUnsupported, "[true]"},
    {"kv_transfer_params", kBoth, kUnsupported},
    {"vllm_xargs", kBoth, kUnsupported, "[{}]"},
    {"repetition_detection", kBoth, kUnsupported},
    {"prompt_embeds", kBoth, kUnsupported},
    {"media_io_kwargs", kBoth, kUnsupported, "[{}]"},
    {"mm_processor_kwargs", kBoth | kTokenize, kUnsupported, "[{}]"},
    {"guided_decoding_backend", kBoth, kUnsupported},
    {"guided_whitespace_pattern", kBoth, kUnsupported},
    {"structural_tag", kBoth, kUnsupported, "", "`response_format`"},
    {"regex", kBoth, kUnsupported, "", "`structured_outputs.regex`"},
    {"ebnf", kBoth, kUnsupported, "", "`structured_outputs.grammar` (Lark or GBNF)"},
    {"max_new_tokens", kBoth, kUnsupported, "", "`max_tokens`"},
    {"min_new_tokens", kBoth, kUnsupported, "[0]", "`min_tokens`"},
    {"lora_path", kBoth, kUnsupported, "", "`model`, with --lora-modules"},

    // llama-server's.
    {"n_predict", kBoth, kUnsupported, "[-1]", "`max_tokens`"},
    {"n_probs", kBoth, kUnsupported, "[0]", "`logprobs`"},
    {"n_cmpl", kBoth, kUnsupported, "[1]", "`n`"},
    {"n_indent", kBoth, kUnsupported, "[0]"},
    {"n_keep", kBoth, kUnsupported, "[0,-1]"},
    {"n_discard", kBoth, kUnsupported, "[0]"},
    {"n_cache_reuse", kBoth, kUnsupported, "[0]"},
    {"min_keep", kBoth, kUnsupported, "[0]"},
    {"dynatemp_range", kBoth, kUnsupported, "[0]"},
    {"dynatemp_exponent", kBoth, kNoEffect},  // of dynatemp_range
    {"typical_p", kBoth, kUnsupported, "[1]"},
    {"top_n_sigma", kBoth, kUnsupported, "[-1,0]"},
    {"tfs_z", kBoth, kUnsupported, "[1]"},
    {"xtc_probability", kBoth, kUnsupported, "[0]"},
    {"xtc_threshold", kBoth, kNoEffect},  // of xtc_probability
    {"repeat_penalty", kBoth, kUnsupported, "[1]", "`repetition_penalty`"},
    {"repeat_last_n", kBoth, kUnsupported, "[-1]"},
    {"penalize_nl", kBoth, kUnsupported, "[false]"},
    {"dry_multiplier", kBoth, kUnsupported, "[0]"},
    {"dry_base", kBoth, kNoEffect},  // these four: of dry_multiplier
    {"dry_allowed_length", kBoth, kNoEffect},
    {"dry_penalty_last_n", kBoth, kNoEffect},
    {"dry_sequence_breakers", kBoth, kNoEffect},
    {"mirostat", kBoth, kUnsupported, "[0]"},
    {"mirostat_tau", kBoth, kNoEffect},  // these two: of mirostat
    {"mirostat_eta", kBoth, kNoEffect},
    {"adaptive_target", kBoth, kUnsupported, "[-1]"},
    {"adaptive_decay", kBoth, kNoEffect},  // of adaptive_target
    {"samplers", kBoth, kUnsupported},
    {"json_schema", kBoth, kUnsupported, "", "`response_format`"},
    {"t_max_predict_ms", kBoth, kUnsupported, "[0,-1]"},
    {"t_max_prompt_ms", kBoth, kUnsupported, "[0,-1]"},
    {"post_sampling_probs", kBoth, kUnsupported, "[false]"},
    {"cache_prompt", kBoth, kUnsupported, "[true]", "`cache_salt`"},
    {"id_slot", kBoth, kUnsupported, "[-1]"},
    {"slot_id", kBoth, kUnsupported, "[-1]"},
    {"return_tokens", kBoth, kUnsupported, "[false]", "`return_token_ids`"},
    {"return_progress", kBoth, kUnsupported, "[false]"},
    {"timings_per_token", kBoth, kUnsupported, "[false]"},
    {"response_fields", kBoth, kUnsupported, "[[]]"},
    {"sse_ping_interval", kBoth, kUnsupported},
    {"lora", kBoth, kUnsupported, "[[]]", "`model`, with --lora-modules"},
    {"image_data", kBoth, kUnsupported, "[[]]"},
    {"system_prompt", kBoth, kUnsupported, "", "a message with the role `system`"},
    {"input_prefix", kBoth, kUnsupported, R"([""])"},
    {"input_suffix", kBoth, kUnsupported, R"([""])"},
    {"input_extra", kBoth, kUnsupported, "[[]]"},
    {"reasoning_format", kCompletion, kUnsupported, R"(["none"])"},
    {"reasoning_control", kBoth, kUnsupported, "[false]"},
    {"reasoning_budget", kCompletion, kUnsupported, "[-1]"},
    {"thinking_budget_tokens", kCompletion, kUnsupported, "[-1]"},
    {"thinking_forced_open", kBoth, kUnsupported, "[false]"},
    {"parse_tool_calls", kCompletion, kUnsupported, "[false]"},
    {"truncate_prompt_tokens", kTokenize, kUnsupported},
    {"skip_special_tokens", kDetokenize, kUnsupported, "[false]"},
    {"content", kTokenize, kUnsupported, "", "`prompt`"},
    {"add_special", kTokenize, kUnsupported, "", "`add_special_tokens`"},
    {"parse_special", kTokenize, kUnsupported, "[true]"},
    {"with_pieces", kTokenize, kUnsupported, "[false]", "`return_token_strs`"},

    // Ollama's.
    {"keep_alive", kBoth, kNoEffect},
    {"options", kBoth, kUnsupported, "[{}]", "its entries as fields of the request"},
    {"num_predict", kBoth, kUnsupported, "[-1]", "`max_tokens`"},
    {"num_ctx", kBoth, kUnsupported, "", "--max-model-len of the server"},
    {"format", kBoth, kUnsupported, R"([""])", "`response_format`"},
    {"raw", kBoth, kUnsupported, "[false]"},
    {"template", kBoth, kUnsupported, R"([""])", "`chat_template`"},
    {"system", kBoth, kUnsupported, R"([""])", "a message with the role `system`"},
    {"images", kBoth, kUnsupported, "[[]]"},
    {"context", kBoth, kUnsupported, "[[]]"},
};

// Whose unknown fields are accepted and named, and those of others refused.
constexpr unsigned kNamed = kGenerating | kPooling;
constexpr size_t kMaxShownNames = 8, kMaxNameBytes = 64;

// The field as this endpoint treats it, or as others do.
const KnownField* find_field(std::string_view name, EndpointBit endpoint) {
  static const auto by_name = [] {
    std::multimap<std::string_view, const KnownField*> map;
    for (const KnownField& field : kFields) map.emplace(field.name, &field);
    return map;
  }();
  const auto [begin, end] = by_name.equal_range(name);
  const auto here = std::find_if(begin, end, [endpoint](const auto& entry) {
    return (entry.second->endpoints & endpoint) != 0;
  });
  if (here != end) return here->second;
  return begin != end ? begin->second : nullptr;
}

json::array harmless_values(const KnownField& field) {
  return field.harmless.empty() ? json::array() : parse_json(field.harmless).value().get_array();
}

void refuse_unless_harmless(Fields& fields, const KnownField& field, const json::value& value) {
  const json::array harmless = harmless_values(field);
  const auto changes_nothing = [&](const json::value& other) { return same_value(value, other); };
  if (std::any_of(harmless.begin(), harmless.end(), changes_nothing)) return;
  std::string message = "is not supported by this server";
  for (size_t i = 0; i < harmless.size(); ++i)
    message += (i == 0 ? ", except as " : " or ") + dump_json(harmless[i]);
  if (!field.instead.empty()) message += "; use " + std::string(field.instead);
  fields.fail(field.name, message,
              harmless.empty() ? "unsupported_parameter" : "unsupported_value");
}

constexpr std::pair<unsigned, std::string_view> kPaths[] = {{kChat, "/v1/chat/completions"},
                                                            {kCompletion, "/v1/completions"},
                                                            {kMessages, "/v1/messages"},
                                                            {kResponses, "/v1/responses"},
                                                            {kEmbedding, "/v1/embeddings"},
                                                            {kRerank, "/v1/rerank"},
                                                            {kScore, "/v1/score"}};

// Of an endpoint that reads the field; empty if there is none.
std::string_view path_that_reads(std::string_view name) {
  for (const auto& [endpoint, path] : kPaths)
    for (const KnownField& field : kFields)
      if (field.name == name && field.use == kRead && (field.endpoints & endpoint) != 0)
        return path;
  return {};
}

// A field of other endpoints than this one.
void refuse_elsewhere(Fields& fields, const KnownField& field) {
  const std::string_view path = path_that_reads(field.name);
  const std::string place = path.empty() ? "" : "; it belongs to " + std::string(path);
  fields.fail(field.name, "is not a field of this endpoint" + place, "unsupported_parameter");
}

}  // namespace

std::span<const KnownField> known_fields() { return kFields; }

void UnknownFields::add(std::string_view name) {
  if (total++ < kMaxShownNames) names.emplace_back(name.substr(0, 2 * kMaxNameBytes));
}

void UnknownFields::add_others(const json::object& object,
                               std::initializer_list<std::string_view> known,
                               std::string_view path) {
  for (const auto& entry : object) {
    const std::string_view key(entry.key().data(), entry.key().size());
    if (entry.value().is_null() || std::ranges::find(known, key) != known.end()) continue;
    const std::string name = std::string(path).append(key.substr(0, kMaxNameBytes));
    if (std::ranges::find(names, name) == names.end()) add(name);
  }
}

std::string UnknownFields::text() const {
  std::string out;
  for (const std::string& name : names) {
    if (!out.empty()) out += ", ";
    out += '"' + printable(name, kMaxNameBytes) + '"';
  }
  if (total > names.size()) out += " and " + std::to_string(total - names.size()) + " more";
  return out;
}

UnknownFields check_fields(Fields& fields, EndpointBit endpoint) {
  UnknownFields unknown;
  for (const auto& entry : fields.all()) {
    const std::string_view name(entry.key().data(), entry.key().size());
    const KnownField* field = find_field(name, endpoint);
    if (field == nullptr && (endpoint & kNamed) == 0) {
      if (!entry.value().is_null()) fields.unknown(name);
    } else if (field == nullptr) {
      unknown.add(name);
    } else if (entry.value().is_null()) {
      continue;
    } else if ((field->endpoints & endpoint) == 0) {
      if ((endpoint & kNamed) != 0)
        refuse_elsewhere(fields, *field);
      else
        unknown.add(name);
    } else if (endpoint == kTokenize && (field->endpoints & kTokenized) == kPrompting &&
               !fields.has("messages")) {
      fields.fail(name, "needs `messages`");
    } else if (field->use == kUnsupported) {
      refuse_unless_harmless(fields, *field, entry.value());
    }
  }
  return unknown;
}

}  // namespace quire::server::openai
