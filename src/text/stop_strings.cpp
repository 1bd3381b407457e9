#include "text/stop_strings.h"

#include <utility>

#include "base/check.h"

namespace quire::text {
namespace {

size_t total_bytes(const std::vector<std::string>& strings) {
  size_t total = 0;
  for (const std::string& string : strings) total += string.size();
  return total;
}

// The first `length` bytes of `a` with `b` behind it.
std::string beginning(std::string_view a, std::string_view b, size_t length) {
  std::string text(a.substr(0, length));
  text += b.substr(0, length - text.size());
  return text;
}

}  // namespace

StopSet::StopSet(std::vector<std::string> stops) : strings_(std::move(stops)) {
  const size_t most = total_bytes(strings_) + 1;
  QUIRE_CHECK(most < size_t{1} << 31) << "stop strings of " << most << " bytes";
  nodes_.reserve(most);
  nodes_.emplace_back();
  for (uint32_t i = 0; i < strings_.size(); ++i) add(i);
  link_nodes();
}

size_t StopSet::bytes(const std::vector<std::string>& stops) {
  const size_t total = total_bytes(stops);
  // link_nodes() has a list of all nodes.
  return sizeof(StopSet) + (total + 1) * (sizeof(Node) + sizeof(uint32_t)) + total +
         stops.size() * (sizeof(std::string) + 1);
}

void StopSet::add(uint32_t string) {
  uint32_t node = 0;
  for (const char byte : strings_[string]) {
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child,
                        .depth = nodes_[node].depth + 1,
                        .string = string,
                        .byte = byte});
      nodes_[node].first_child = next;
    }
    node = next;
  }
  if (node != 0 && nodes_[node].match < 0) nodes_[node].match = static_cast<int32_t>(string);
}

// Shorter beginnings first: what a link leads to is shorter.
void StopSet::link_nodes() {
  std::vector<uint32_t> order = {0};
  order.reserve(nodes_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t parent = order[i];
    for (uint32_t at = nodes_[parent].first_child; at != 0; at = nodes_[at].next_sibling) {
      Node& node = nodes_[at];
      node.link = parent == 0 ? 0 : step(nodes_[parent].link, node.byte);
      if (node.match < 0) node.match = nodes_[node.link].match;
      order.push_back(at);
    }
  }
}

uint32_t StopSet::child(uint32_t node, char byte) const {
  uint32_t at = nodes_[node].first_child;
  while (at != 0 && nodes_[at].byte != byte) at = nodes_[at].next_sibling;
  return at;
}

uint32_t StopSet::step(uint32_t node, char byte) const {
  for (;; node = nodes_[node].link) {
    const uint32_t next = child(node, byte);
    if (next != 0 || node == 0) return next;
  }
}

std::string_view StopSet::bytes_to(uint32_t node) const {
  if (node == 0) return {};
  return std::string_view(strings_[nodes_[node].string]).substr(0, nodes_[node].depth);
}

StopStrings::StopStrings(std::shared_ptr<const StopSet> stops, bool include)
    : stops_(std::move(stops)), include_(include) {}

StopStrings::Output StopStrings::push(std::string_view delta) {
  if (done_) return {};
  if (!stops_) return {.text = std::string(delta), .matched = std::nullopt};
  const std::string_view held = stops_->bytes_to(node_);
  for (size_t i = 0; i < delta.size(); ++i) {
    node_ = stops_->step(node_, delta[i]);
    const int32_t match = stops_->nodes_[node_].match;
    if (match < 0) continue;
    done_ = true;
    const auto index = static_cast<size_t>(match);
    const size_t end = held.size() + i + 1;
    const size_t cut = include_ ? end : end - stops_->strings_[index].size();
    return {.text = beginning(held, delta, cut), .matched = index};
  }
  const size_t certain = held.size() + delta.size() - stops_->nodes_[node_].depth;
  return {.text = beginning(held, delta, certain), .matched = std::nullopt};
}

std::string StopStrings::flush() {
  if (std::exchange(done_, true) || !stops_) return {};
  return std::string(stops_->bytes_to(node_));
}

}  // namespace quire::text
