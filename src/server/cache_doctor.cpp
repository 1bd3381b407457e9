#include "server/cache_doctor.h"

#include <algorithm>

namespace quire::server {
namespace {

// Tokens: shorter prompts cost little to compute again.
constexpr size_t kShortest = 400;
// What is kept of a prompt: its first percent may be as long, and what is looked at behind it.
constexpr size_t kHead = 2048;
// The longest text that may change, and how much behind it must be the same.
constexpr size_t kLongestChange = 64, kSameAgain = 48;
// A main agent and its sub-agents.
constexpr size_t kPromptsOfClient = 6;
constexpr size_t kClients = 64;

using Ids = std::span<const int32_t>;

// Whether both go on alike from these places.
bool meet(Ids first, Ids second) {
  return first.size() >= kSameAgain && second.size() >= kSameAgain &&
         std::equal(first.begin(), first.begin() + kSameAgain, second.begin());
}

}  // namespace

std::optional<EarlyChange> find_early_change(Ids first, Ids second, size_t length) {
  const auto parted = std::ranges::mismatch(first, second);
  const auto begin = static_cast<size_t>(parted.in1 - first.begin());
  if (begin * 100 >= length || begin == std::max(first.size(), second.size())) return std::nullopt;
  // The shortest change first.
  for (size_t sum = 0; sum <= 2 * kLongestChange; ++sum) {
    for (size_t i = sum > kLongestChange ? sum - kLongestChange : 0;
         i <= std::min(sum, kLongestChange); ++i) {
      const size_t first_end = begin + i, second_end = begin + sum - i;
      if (first_end > first.size() || second_end > second.size()) continue;
      if (meet(first.subspan(first_end), second.subspan(second_end)))
        return EarlyChange{begin, first_end, second_end};
    }
  }
  return std::nullopt;
}

void CacheDoctor::make_room() {
  if (clients_.size() < kClients) return;
  const auto oldest = std::ranges::min_element(
      clients_, {}, [](const auto& entry) { return entry.second.last_seen; });
  clients_.erase(oldest);
}

std::optional<CacheDoctor::Finding> CacheDoctor::look_at(uint64_t client, Ids prompt) {
  if (prompt.size() < kShortest) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  if (!clients_.contains(client)) make_room();
  Client& known = clients_[client];
  known.last_seen = ++count_;
  if (known.told) return std::nullopt;
  const Ids head = prompt.first(std::min(prompt.size(), kHead));
  for (const Head& earlier : known.heads) {
    const size_t length = std::max(earlier.length, prompt.size());
    const auto change = find_early_change(earlier.tokens, head, length);
    if (!change) continue;
    const auto part = [&](Ids ids, size_t end) {
      return std::vector<int32_t>(ids.begin() + change->begin, ids.begin() + end);
    };
    Finding finding{part(earlier.tokens, change->first_end), part(head, change->second_end),
                    change->begin};
    known.told = true;
    known.heads.clear();
    return finding;
  }
  known.heads.push_front({{head.begin(), head.end()}, prompt.size()});
  if (known.heads.size() > kPromptsOfClient) known.heads.pop_back();
  return std::nullopt;
}

}  // namespace quire::server
