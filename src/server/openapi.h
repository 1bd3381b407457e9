#pragma once
#include <span>
#include <string_view>

#include "base/json.h"
#include "server/openai/known_fields.h"

namespace quire::server {

// An endpoint as the route table has it.
struct DescribedRoute {
  std::string_view method, path;
  unsigned fields = 0;  // of openai::EndpointBit: whose fields its body has; 0: it has no body
};

// The OpenAPI 3.1 document of these endpoints. What a body may hold comes from the table that
// checks fields, so a field that is read is in it, and one that is refused is not.
json::value openapi_document(std::span<const DescribedRoute> routes, std::string_view version);

// The JSON schema of a field that a parser reads; empty if there is none.
std::string_view field_schema(std::string_view name);

}  // namespace quire::server
