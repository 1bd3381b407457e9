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

// The same with a name.
inline std::string sse_event(std::string_view name, std::string_view data) {
  return "event: " + std::string(name) + "\n" + sse_event(data);
}

}  // namespace quire::server::http
