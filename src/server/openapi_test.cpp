#include "server/openapi.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

using openai::FieldUse;

TEST(OpenApi, EveryFieldThatIsReadHasASchema) {
  for (const openai::KnownField& field : openai::known_fields()) {
    if (field.use != FieldUse::kRead) continue;
    const auto schema = field_schema(field.name);
    EXPECT_FALSE(schema.empty()) << field.name;
    EXPECT_TRUE(parse_json(schema).ok()) << field.name;
  }
}

TEST(OpenApi, BodiesHaveTheFieldsOfTheirEndpoint) {
  const DescribedRoute routes[] = {{"GET", "/health"},
                                   {"GET", "/v1/models/"},
                                   {"POST", "/v1/completions", openai::kCompletion},
                                   {"POST", "/v1/embeddings", openai::kEmbedding},
                                   {"POST", "/v1/messages", openai::kMessages},
                                   {"POST", "/v1/messages/count_tokens", openai::kMessages}};
  const json::value document = openapi_document(routes, "1.2.3");
  EXPECT_EQ(document.at("info").at("version").as_string(), "1.2.3");
  const json::object& paths = document.at("paths").as_object();
  EXPECT_EQ(paths.size(), 6u);
  EXPECT_TRUE(paths.contains("/v1/models/{name}"));
  EXPECT_FALSE(paths.at("/health").at("get").as_object().contains("requestBody"));
  const auto streams = [&](const char* path) {
    const json::value& answers = paths.at(path).at("post").at("responses");
    return answers.at("200").at("content").as_object().contains("text/event-stream");
  };
  EXPECT_TRUE(streams("/v1/completions") && streams("/v1/messages"));
  EXPECT_FALSE(streams("/v1/embeddings") || streams("/v1/messages/count_tokens"));
  const json::object& fields = paths.at("/v1/completions")
                                   .at("post")
                                   .at("requestBody")
                                   .at("content")
                                   .at("application/json")
                                   .at("schema")
                                   .at("properties")
                                   .as_object();
  EXPECT_TRUE(fields.contains("temperature"));
  EXPECT_TRUE(fields.contains("user")) << "accepted, without effect";
  EXPECT_FALSE(fields.contains("input")) << "a field of others";
  EXPECT_FALSE(fields.contains("use_beam_search")) << "it is refused";
}

}  // namespace
}  // namespace quire::server
