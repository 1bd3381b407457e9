#include "server/pooling/parse.h"

#include <algorithm>

namespace quire::server::pooling {
namespace {

using openai::as_view;
using openai::Fields;

constexpr size_t kMaxInstructionBytes = 64u << 10;

// What the three have in common.
void parse_common(Fields& fields, const openai::ParseContext& context,
                  openai::GenerationRequest& out) {
  openai::parse_model(fields, out);
  openai::parse_request_id(fields, out);
  openai::parse_scheduling(fields, context, out);
  fields.string("user");
  out.sampling.max_tokens = 0;
  out.max_tokens = 0;
  out.leaves_room = false;
}

void check_count(Fields& fields, std::string_view key, size_t count,
                 const openai::ParseContext& context) {
  if (static_cast<int64_t>(count) <= context.limits.max_pooled_texts) return;
  fields.too_many(key, "has " + std::to_string(count) + " entries; at most " +
                           std::to_string(context.limits.max_pooled_texts) + " are allowed");
}

void parse_kind(Fields& fields, EmbeddingRequest& out) {
  const auto given = fields.string("pooling");
  if (!given) return;
  if (*given == "last") {
    out.kind = engine::Pooling::Kind::kLast;
  } else if (*given == "mean") {
    out.kind = engine::Pooling::Kind::kMean;
  } else {
    fields.fail("pooling", "must be \"last\" or \"mean\"");
  }
}

// A text, or an object with one, as Cohere's and Jina's clients send documents.
std::string text_of(Fields& fields, std::string_view key, const json::value& value) {
  if (value.is_string()) return std::string(as_view(value.get_string()));
  const json::value* text = value.is_object() ? value.get_object().if_contains("text") : nullptr;
  if (text != nullptr && text->is_string() && value.get_object().size() == 1)
    return std::string(as_view(text->get_string()));
  fields.mistyped(key, "must be texts, or objects with a `text` and nothing else");
  return {};
}

std::vector<std::string> texts_at(Fields& fields, std::string_view key,
                                  const openai::ParseContext& context) {
  const json::value* value = fields.find(key);
  if (value == nullptr) {
    fields.missing(key);
    return {};
  }
  if (!value->is_array()) return {text_of(fields, key, *value)};
  const json::array& list = value->get_array();
  if (list.empty()) fields.empty_list(key);
  check_count(fields, key, list.size(), context);
  std::vector<std::string> texts;
  for (size_t i = 0; i < list.size() && fields.ok(); ++i)
    texts.push_back(text_of(fields, key, list[i]));
  return texts;
}

template <class T, class Fill>
Result<T, ApiError> parse_object(std::string_view body, const openai::ParseContext& context,
                                 openai::EndpointBit endpoint, Fill fill) {
  auto object = openai::parse_body(body, context);
  if (!object) return Err{std::move(object).error()};
  Fields fields(*object);
  T out;
  out.unknown_fields = openai::check_fields(fields, endpoint);
  parse_common(fields, context, out);
  if (fields.ok()) fill(fields, out);
  if (!fields.ok()) return Err{fields.error()};
  return out;
}

// By their name here or by the other one.
std::vector<std::string> texts_by(Fields& fields, std::string_view key, std::string_view other,
                                  const openai::ParseContext& context) {
  if (!fields.has(other)) return texts_at(fields, key, context);
  if (!fields.has(key)) return texts_at(fields, other, context);
  texts_at(fields, key, context);
  texts_at(fields, other, context);
  fields.fail(other, "and `" + std::string(key) + "` cannot both be given");
  return {};
}

void parse_instruction(Fields& fields, ScoreRequest& out) {
  out.instruction = fields.string("instruction", kMaxInstructionBytes).value_or("");
}

}  // namespace

Result<EmbeddingRequest, ApiError> parse_embeddings(std::string_view body,
                                                    const openai::ParseContext& context) {
  return parse_object<EmbeddingRequest>(
      body, context, openai::kEmbedding, [&](Fields& fields, EmbeddingRequest& out) {
        out.prompts =
            openai::parse_texts(fields, "input", context.limits.max_pooled_texts, context);
        parse_kind(fields, out);
        out.normalises = fields.flag("normalize", true);
        out.dimensions = fields.integer("dimensions", 1, context.hidden_size);
        const std::string format = fields.string("encoding_format").value_or("float");
        if (format != "float" && format != "base64")
          fields.fail("encoding_format", "must be \"float\" or \"base64\"");
        out.as_base64 = format == "base64";
        openai::parse_truncation(fields, out);
        out.add_special_tokens = fields.flag("add_special_tokens", true);
      });
}

Result<ScoreRequest, ApiError> parse_rerank(std::string_view body,
                                            const openai::ParseContext& context) {
  return parse_object<ScoreRequest>(
      body, context, openai::kRerank, [&](Fields& fields, ScoreRequest& out) {
        out.is_rerank = true;
        out.queries.push_back(fields.string("query").value_or(""));
        if (!fields.has("query")) fields.missing("query");
        out.documents = texts_at(fields, "documents", context);
        out.top_n = static_cast<size_t>(fields.integer("top_n", 0).value_or(0));
        out.returns_documents = fields.flag("return_documents", true);
        parse_instruction(fields, out);
      });
}

Result<ScoreRequest, ApiError> parse_score(std::string_view body,
                                           const openai::ParseContext& context) {
  return parse_object<ScoreRequest>(
      body, context, openai::kScore, [&](Fields& fields, ScoreRequest& out) {
        out.queries = texts_by(fields, "text_1", "queries", context);
        out.documents = texts_by(fields, "text_2", "documents", context);
        parse_instruction(fields, out);
        if (out.queries.size() != 1 && out.queries.size() != out.documents.size())
          fields.fail(fields.has("queries") ? "queries" : "text_1",
                      "must be one text, or as many as there are to compare it with");
      });
}

}  // namespace quire::server::pooling
