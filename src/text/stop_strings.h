#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::text {

// The stop strings of a request as one automaton (Aho and Corasick, 1975): a tree of all their
// beginnings, each node with a link to its longest proper end that is a node too. Immutable; all
// answers to the request share it.
class StopSet {
 public:
  // Empty stop strings are ignored. Takes time in proportion to their bytes.
  explicit StopSet(std::vector<std::string> stops);

  const std::vector<std::string>& strings() const { return strings_; }
  // At most how many bytes a set of these takes, while it is made too.
  static size_t bytes(const std::vector<std::string>& stops);

 private:
  friend class StopStrings;

  struct Node {
    uint32_t link = 0;                           // the root's is itself
    uint32_t first_child = 0, next_sibling = 0;  // 0: none
    uint32_t depth = 0;                          // bytes from the root
    uint32_t string = 0;                         // begins with those bytes
    int32_t match = -1;                          // the longest string that they end in; -1: none
    char byte = 0;                               // the last of them
  };

  void add(uint32_t string);
  void link_nodes();
  uint32_t child(uint32_t node, char byte) const;
  // The node of the longest end of the text that is one, when `byte` comes behind a text that had
  // `node`. Over a whole text O(1) links a byte.
  uint32_t step(uint32_t node, char byte) const;
  // From the root.
  std::string_view bytes_to(uint32_t node) const;

  std::vector<std::string> strings_;
  std::vector<Node> nodes_;  // the root first
};

// Watches one sequence's text for its stop strings. Text that may be the beginning of a stop
// string is held back until it is certain, so a client never sees any part of one.
class StopStrings {
 public:
  struct Output {
    std::string text;               // certain now
    std::optional<size_t> matched;  // index of the stop string that ended the sequence
  };

  // Null: there are none. With `include` the matched string itself is emitted too.
  explicit StopStrings(std::shared_ptr<const StopSet> stops, bool include = false);

  // The stop string that is complete first wins, however the text was cut into deltas; of those
  // that end at the same place, the one that begins first; of equal ones the first. After a match
  // everything is dropped. Takes time in proportion to the text.
  Output push(std::string_view delta);
  // What was held back, when no text will follow.
  std::string flush();

 private:
  std::shared_ptr<const StopSet> stops_;
  bool include_;
  bool done_ = false;
  uint32_t node_ = 0;  // what is held back are the bytes to it
};

}  // namespace quire::text
