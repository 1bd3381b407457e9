#pragma once
#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "bench/serve/stream.h"

namespace quire::bench {

// A member of an object; an empty text, null or -1 if it is not there or of another type.
std::string_view text_at(const json::object& object, const char* key);
const json::object* object_at(const json::object* object, const char* key);
int64_t count_at(const json::object& object, const char* key);

// A call begins: what follows are its arguments. Nothing if there is no name.
void append_call_name(StreamedAnswer& answer, std::string_view name);

// Takes an event of /v1/responses or /v1/messages in; false if it is neither's.
bool read_event(const json::object& event, StreamChunk& chunk);

}  // namespace quire::bench
