#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/fields.h"

namespace quire::server::openai {

// Endpoints whose bodies have fields, as bits.
enum EndpointBit : unsigned {
  kCompletion = 1,
  kChat = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kMessages = 16,  // and its count_tokens
  kResponses = 32,
  kEmbedding = 64,
  kRerank = 128,
  kScore = 256,
};

enum class FieldUse {
  kRead,         // a parser reads and checks it
  kUnsupported,  // an error that names it, unless its value changes nothing here
  kNoEffect,     // accepted: what it asks for is done anyway, or cannot be seen in the answer
};

// A field that clients of OpenAI, vLLM, llama.cpp, Ollama and others send. Where endpoints treat it
// differently it has several.
struct KnownField {
  std::string_view name;
  unsigned endpoints;  // that use it so
  FieldUse use;
  // With kUnsupported: a JSON list of the values that change nothing, and what to send instead.
  std::string_view harmless = "";
  std::string_view instead = "";
};

std::span<const KnownField> known_fields();

// Names that a client has sent, such as those of fields that no row of the table has: few and
// short, for one line of the log.
struct UnknownFields {
  std::vector<std::string> names;
  size_t total = 0;

  void add(std::string_view name);
  // The members of `object` that are none of `known`, as `path` and their names, each once.
  void add_others(const json::object& object, std::initializer_list<std::string_view> known,
                  std::string_view path = {});
  // `"a", "b" and 7 more`: escaped, since they come from anywhere.
  std::string text() const;
};

// Refuses what the table says is not supported, and fields of chats in completions and the other
// way round: to ignore one would be to answer another question than was asked. Requests that only
// tokenise may bring the fields of a generation that do not change the tokens (they are returned),
// and no unknown ones.
UnknownFields check_fields(Fields& fields, EndpointBit endpoint);

}  // namespace quire::server::openai
