#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "base/error.h"
#include "hub/http.h"
#include "hub/model_id.h"
#include "hub/settings.h"

namespace quire::hub {

// The hub could not be reached, or could not answer now: what is in the cache may do instead.
class HubUnreachable : public LoadError {
 public:
  using LoadError::LoadError;
};

// Throws what an answer that is none means for people, and what they can do: HubUnreachable, or
// LoadError. `file`: the repository's file that was asked for; empty: the repository itself.
[[noreturn]] void throw_failure(const Response& response, const Settings& settings,
                                const ModelId& id, const std::string& file);

// How long a server that is busy (429, 503) asks to be left alone: Retry-After in seconds or as a
// date, or the time that is left of a RateLimit header; nothing if it does not say.
std::optional<std::chrono::seconds> asked_wait(const Response& response);

// "1.4 GB", "312 MB", "3 kB", "17 bytes": powers of 1000, as disks and hubs count.
std::string bytes_text(double bytes);
// "2 h 10 min", "3 min 20 s", "12 s".
std::string duration_text(double seconds);

}  // namespace quire::hub
