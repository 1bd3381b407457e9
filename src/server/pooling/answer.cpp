#include "server/pooling/answer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/base64.h"
#include "base/check.h"

namespace quire::server::pooling {
namespace {

using openai::JsonList;

// Numbers that take as long to write as one of AnswerBody's elements.
constexpr size_t kNumbersOfElement = 8;

void append_number(std::string& out, auto value) {
  char buffer[32];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

void append_named(std::string& out, const char* name, const std::string& value) {
  out += std::string("\"") + name + "\":";
  append_json_string(out, value);
}

// {"id", "object", "created", "model",
std::string opening(const AnswerInfo& info, bool is_list) {
  std::string out = "{";
  append_named(out, "id", info.id);
  if (is_list) out += ",\"object\":\"list\",\"created\":" + std::to_string(info.created);
  out += ',';
  append_named(out, "model", info.model);
  return out;
}

std::string closing(const Usage& usage) {
  const std::string tokens = std::to_string(usage.prompt_tokens);
  return "],\"usage\":{\"prompt_tokens\":" + tokens + ",\"total_tokens\":" + tokens +
         ",\"completion_tokens\":0,\"prompt_tokens_details\":{\"cached_tokens\":" +
         std::to_string(usage.cached_tokens) + "}}}";
}

void add_text(AnswerBody& body, std::string text) {
  body.add([text = std::move(text)](std::string& out, JsonList&) { out += text; });
}

void append_embedding(std::string& out, const std::vector<float>& values, bool as_base64) {
  if (as_base64) {  // little-endian, as every CPU that this runs on
    out += '"' + base64(std::as_bytes(std::span(values))) + '"';
    return;
  }
  JsonList list;
  list.open(out);
  for (const float value : values) {
    list.next(out);
    append_number(out, value);
  }
  out += ']';
}

}  // namespace

std::vector<float> finished_embedding(std::span<const float> state, size_t dimensions,
                                      bool normalises) {
  std::vector<float> out(state.begin(), state.begin() + std::min(dimensions, state.size()));
  if (!normalises) return out;
  double sum = 0;
  for (const float value : out) sum += double{value} * value;
  const double length = std::sqrt(sum);
  for (float& value : out)
    if (length > 0) value = static_cast<float>(value / length);
  return out;
}

double score_of(std::span<const float> logprobs) {
  QUIRE_CHECK(logprobs.size() == 2) << logprobs.size() << " scores";
  return 1 / (1 + std::exp(double{logprobs[0]} - double{logprobs[1]}));
}

std::string PooledFormat::events(int64_t, const Session&, const TextDelta&, const Usage&) {
  QUIRE_CHECK(false) << "no stream";
  return {};
}
std::string PooledFormat::last_events(const Usage&) { return {}; }
std::string PooledFormat::error_events(const ApiError&) { return {}; }

AnswerBody EmbeddingFormat::body(const std::vector<std::unique_ptr<Session>>& sessions,
                                 const std::vector<TextDelta>&, const Usage& usage) const {
  AnswerBody body;
  add_text(body, opening(info_, true) + ",\"data\":[");
  for (size_t i = 0; i < sessions.size(); ++i) {
    body.add([session = sessions[i].get(), i, shape = shape_](std::string& out, JsonList&) {
      out += std::string(i > 0 ? "," : "") +
             "{\"object\":\"embedding\",\"index\":" + std::to_string(i) + ",\"embedding\":";
      const auto values = finished_embedding(session->pooled(), shape.dimensions, shape.normalises);
      append_embedding(out, values, shape.as_base64);
      out += '}';
    });
    body.weigh(shape_.dimensions / kNumbersOfElement);
  }
  add_text(body, closing(usage));
  return body;
}

AnswerBody ScoreFormat::body(const std::vector<std::unique_ptr<Session>>& sessions,
                             const std::vector<TextDelta>&, const Usage& usage) const {
  std::string text = opening(info_, true) + ",\"data\":[";
  for (size_t i = 0; i < sessions.size(); ++i) {
    text += std::string(i > 0 ? "," : "") + "{\"object\":\"score\",\"index\":" + std::to_string(i) +
            ",\"score\":";
    append_number(text, score_of(sessions[i]->pooled()));
    text += '}';
  }
  AnswerBody body;
  add_text(body, text + closing(usage));
  return body;
}

AnswerBody RerankFormat::body(const std::vector<std::unique_ptr<Session>>& sessions,
                              const std::vector<TextDelta>&, const Usage& usage) const {
  std::vector<double> scores;
  for (const auto& session : sessions) scores.push_back(score_of(session->pooled()));
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return scores[i]; });
  if (top_n_ > 0 && top_n_ < order.size()) order.resize(top_n_);
  AnswerBody body;
  add_text(body, opening(info_, false) + ",\"results\":[");
  for (size_t place = 0; place < order.size(); ++place) {
    const size_t i = order[place];
    body.add([this, place, i, score = scores[i]](std::string& out, JsonList&) {
      out += std::string(place > 0 ? "," : "") + "{\"index\":" + std::to_string(i);
      if (!documents_.empty()) {
        out += ",\"document\":{";
        append_named(out, "text", documents_[i]);
        out += '}';
      }
      out += ",\"relevance_score\":";
      append_number(out, score);
      out += '}';
    });
    body.weigh(documents_.empty() ? 1 : 1 + documents_[i].size() / 64);
  }
  add_text(body, closing(usage));
  return body;
}

}  // namespace quire::server::pooling
