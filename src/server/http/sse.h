#pragma once
#include <string>
#include <string_view>

namespace quire::server::http {

inline constexpr const char* kEventStream = "text/event-stream; charset=utf-8";

// One server-sent event. `data` has no line ends (serialised JSON has none).
inline std::string sse_event(std::string_view data) {
  std::string out = "data: ";
  out += data;
  out += "\n\n";
  return out;
}

}  // namespace quire::server::http
