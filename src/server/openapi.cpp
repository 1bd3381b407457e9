#include "server/openapi.h"

#include <map>
#include <string>
#include <vector>

#include "base/check.h"

namespace quire::server {
namespace {

using openai::EndpointBit;

struct EndpointDoc {
  EndpointBit bit;
  std::vector<std::string_view> required;  // fields of a body
  std::string_view answer;                 // the schema of the one with status 200
};

constexpr std::string_view kAnswerWithId =
    R"({"type":"object","required":["id","object","created","model","choices","usage"]})";
constexpr std::string_view kList =
    R"({"type":"object","required":["id","object","data","model","usage"]})";

const std::vector<EndpointDoc>& endpoint_docs() {
  static const std::vector<EndpointDoc> docs = {
      {openai::kCompletion, {"prompt"}, kAnswerWithId},
      {openai::kChat, {"messages"}, kAnswerWithId},
      {openai::kTokenize, {}, R"({"type":"object","required":["count","max_model_len","tokens"]})"},
      {openai::kDetokenize, {"tokens"}, R"({"type":"object","required":["prompt"]})"},
      {openai::kMessages,
       {"messages"},
       R"({"type":"object","anyOf":[{"required":["id","type","role","content","usage"]},
           {"required":["input_tokens"]}]})"},
      {openai::kResponses,
       {"input"},
       R"({"type":"object","required":["id","object","status","output","usage"]})"},
      {openai::kEmbedding, {"input"}, kList},
      {openai::kRerank,
       {"query", "documents"},
       R"({"type":"object","required":["id","model","results","usage"]})"},
      {openai::kScore, {}, kList},
  };
  return docs;
}

const EndpointDoc& doc_of(unsigned fields) {
  for (const EndpointDoc& doc : endpoint_docs())
    if (doc.bit == fields) return doc;
  QUIRE_CHECK(false) << "endpoint " << fields << " has no description";
  return endpoint_docs().front();
}

json::value parsed(std::string_view text) { return parse_json(text).value(); }
json::string_view view(std::string_view text) { return {text.data(), text.size()}; }

json::value body_schema(const EndpointDoc& doc) {
  json::object properties;
  for (const openai::KnownField& field : openai::known_fields()) {
    if ((field.endpoints & doc.bit) == 0 || field.use == openai::FieldUse::kUnsupported) continue;
    const std::string_view schema =
        field.use == openai::FieldUse::kRead ? field_schema(field.name) : "{}";
    // Null counts as absent.
    json::value value = parsed(schema.empty() ? "{}" : schema);
    if (!value.get_object().empty())
      value = json::object{{"anyOf", json::array{std::move(value), parsed(R"({"type":"null"})")}}};
    properties[view(field.name)] = std::move(value);
  }
  json::array required;
  for (const std::string_view name : doc.required) required.push_back(json::value(view(name)));
  return json::object{
      {"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

json::object answer(const char* description, const char* type, json::value schema) {
  return {{"description", description},
          {"content", json::object{{type, json::object{{"schema", std::move(schema)}}}}}};
}

json::object json_answer(const char* description, json::value schema) {
  return answer(description, "application/json", std::move(schema));
}

// Whether the answer may be a stream.
bool streams(const DescribedRoute& route) {
  constexpr unsigned kStreaming =
      openai::kCompletion | openai::kChat | openai::kMessages | openai::kResponses;
  return (route.fields & kStreaming) != 0 && !route.path.ends_with("/count_tokens");
}

json::object operation(const DescribedRoute& route) {
  const bool is_anthropic = route.fields == openai::kMessages;
  const json::object error{{"$ref", is_anthropic ? "#/components/schemas/AnthropicError"
                                                 : "#/components/schemas/Error"}};
  json::object responses{{"default", json_answer("Why there is no answer", error)}};
  json::object out{
      {"operationId", json::string(std::string(route.method) + std::string(route.path))}};
  if (route.fields == 0) {
    const bool is_text = route.path == "/metrics";
    responses["200"] = is_text ? answer("Prometheus's text format", "text/plain", json::object())
                               : json_answer("The answer", json::object());
  } else {
    const EndpointDoc& doc = doc_of(route.fields);
    responses["200"] = json_answer("The answer", parsed(doc.answer));
    if (streams(route))
      responses["200"].get_object()["content"].get_object()["text/event-stream"] = json::object();
    out["requestBody"] = json::object{
        {"required", true},
        {"content",
         json::object{{"application/json", json::object{{"schema", body_schema(doc)}}}}}};
  }
  out["responses"] = std::move(responses);
  return out;
}

}  // namespace

json::value openapi_document(std::span<const DescribedRoute> routes, std::string_view version) {
  json::object paths;
  for (const DescribedRoute& route : routes) {
    // What follows a path that ends with a slash is a model's name.
    const bool has_name = route.path.ends_with('/');
    const std::string path = std::string(route.path) + (has_name ? "{name}" : "");
    const std::string method = route.method == "GET" ? "get" : "post";
    json::object described = operation(route);
    if (has_name)
      described["parameters"] =
          parsed(R"([{"name":"name","in":"path","required":true,"schema":{"type":"string"}}])");
    json::value& entry = paths[path];
    if (!entry.is_object()) entry.emplace_object();
    entry.get_object()[method] = std::move(described);
  }
  return json::object{{"openapi", "3.1.0"},
                      {"info", json::object{{"title", "Quire"}, {"version", view(version)}}},
                      {"paths", std::move(paths)},
                      {"components", json::object{{"schemas", parsed(R"({
          "Error": {"type": "object", "required": ["error"], "properties": {"error":
            {"type": "object", "required": ["message", "type", "param", "code"]}}},
          "AnthropicError": {"type": "object", "required": ["type", "error"], "properties": {"error":
            {"type": "object", "required": ["type", "message"]}}}})")}}}};
}

}  // namespace quire::server
