#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace quire::server {

// Where two prompts of one client part although they are the same before and behind: tokens
// [begin, first_end) of the one, [begin, second_end) of the other.
struct EarlyChange {
  size_t begin = 0, first_end = 0, second_end = 0;
};

// Of the beginnings of two prompts, the longer of which has `length` tokens. Absent unless they
// part within the first percent of that, and meet again soon.
std::optional<EarlyChange> find_early_change(std::span<const int32_t> first,
                                             std::span<const int32_t> second, size_t length);

// Looks for what keeps a client's prompts from being found in the prefix cache: a line near the
// beginning that differs with every request, such as the time. Other agents' prompts differ near
// the beginning, too, but do not go on the same. Thread-safe.
class CacheDoctor {
 public:
  struct Finding {
    std::vector<int32_t> before, after;  // the tokens that were replaced, and by which
    size_t position = 0;
  };

  // Compares a prompt with the client's last ones and keeps it for later ones. A client hears of
  // one finding.
  std::optional<Finding> look_at(uint64_t client, std::span<const int32_t> prompt);

 private:
  struct Head {
    std::vector<int32_t> tokens;  // the first ones
    size_t length = 0;            // of the whole prompt
  };
  struct Client {
    std::deque<Head> heads;  // of its last prompts
    bool told = false;
    uint64_t last_seen = 0;
  };

  void make_room();

  std::mutex mutex_;
  std::map<uint64_t, Client> clients_;
  uint64_t count_ = 0;
};

}  // namespace quire::server
