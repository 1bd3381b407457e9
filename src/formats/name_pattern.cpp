#include "formats/name_pattern.h"

#include <algorithm>
#include <bitset>
#include <cctype>
#include <charconv>
#include <stdexcept>
#include <vector>

namespace quire::formats {

struct NamePattern::Node {
  enum class Kind { kChars, kBegin, kEnd, kAll, kAny, kRepeat, kAhead };
  Kind kind = Kind::kAll;
  std::bitset<256> chars = {};  // of kChars
  std::vector<Node> parts = {};
  size_t least = 0, most = 0;  // of kRepeat; `most` is kEndless for no bound
  bool negated = false;        // of kAhead
};

namespace {

using Node = NamePattern::Node;
using Kind = Node::Kind;

constexpr size_t kMostLength = 1000, kMostDepth = 16, kEndless = 1000, kMostSteps = 1'000'000;

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument(what); }

Node one_char(unsigned char c) {
  Node node{.kind = Kind::kChars};
  node.chars.set(c);
  return node;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Node parse() {
    Node node = any(0);
    if (at_ < text_.size()) fail("a ) without its (");
    return node;
  }

 private:
  bool more() const { return at_ < text_.size(); }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  char next() {
    if (!more()) fail("it ends too early");
    return text_[at_++];
  }

  Node any(size_t depth) {
    if (depth > kMostDepth) fail("groups are nested too deeply");
    Node node{.kind = Kind::kAny};
    do {
      node.parts.push_back(all(depth));
    } while (take("|"));
    return node;
  }
  Node all(size_t depth) {
    Node node{.kind = Kind::kAll};
    while (more() && text_[at_] != '|' && text_[at_] != ')')
      node.parts.push_back(repeated(atom(depth)));
    return node;
  }
  Node repeated(Node node) {
    Node out{.kind = Kind::kRepeat, .most = kEndless};
    if (take("+")) {
      out.least = 1;
    } else if (take("?")) {
      out.most = 1;
    } else if (take("{")) {
      out.least = number();
      out.most = take(",") ? (more() && text_[at_] != '}' ? number() : kEndless) : out.least;
      if (next() != '}' || out.least > out.most) fail("a { that is no count");
    } else if (!take("*")) {
      return node;
    }
    take("?");  // as few as possible: whether it matches is the same
    if (more() && std::string_view("*+?{").find(text_[at_]) != std::string_view::npos)
      fail("a repetition of a repetition");
    out.parts.push_back(std::move(node));
    return out;
  }
  size_t number() {
    size_t value = 0;
    const char* from = text_.data() + at_;
    const auto [end, error] = std::from_chars(from, text_.data() + text_.size(), value);
    if (error != std::errc() || value > 100) fail("a { that is no count");
    at_ += static_cast<size_t>(end - from);
    return value;
  }
  Node atom(size_t depth) {
    const char c = next();
    if (c == '^') return {.kind = Kind::kBegin};
    if (c == '$') return {.kind = Kind::kEnd};
    if (c == '(') return group(depth);
    if (c == '[') return char_class();
    if (c == '.') return {.kind = Kind::kChars, .chars = std::bitset<256>().set()};
    if (c == '\\') return escaped();
    if (std::string_view("*+?{").find(c) != std::string_view::npos) fail("a repetition of nothing");
    return one_char(static_cast<unsigned char>(c));
  }
  Node group(size_t depth) {
    Node node;
    if (take("?=") || take("?!")) {
      node = {.kind = Kind::kAhead, .negated = text_[at_ - 1] == '!'};
      node.parts.push_back(any(depth + 1));
    } else {
      if (!take("?:") && take("?")) fail("a group (?" + std::string(1, next()));
      node = any(depth + 1);
    }
    if (!take(")")) fail("a ( without its )");
    return node;
  }
  Node escaped() {
    const char c = next();
    Node node{.kind = Kind::kChars};
    for (int i = 0; i < 128; ++i) {
      if (c == 'd') node.chars.set(static_cast<size_t>(i), std::isdigit(i) != 0);
      if (c == 'w') node.chars.set(static_cast<size_t>(i), std::isalnum(i) != 0 || i == '_');
      if (c == 's') node.chars.set(static_cast<size_t>(i), std::isspace(i) != 0);
    }
    if (node.chars.any()) return node;
    if (std::isalnum(static_cast<unsigned char>(c))) fail(std::string("an escape \\") + c);
    return one_char(static_cast<unsigned char>(c));
  }
  Node char_class() {
    Node node{.kind = Kind::kChars};
    const bool negated = take("^");
    do {
      const char c = next();
      if (c == '\\') {
        node.chars |= escaped().chars;
      } else if (more() && text_[at_] == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const char last = next();
        if (last == '\\' || last < c) fail("a range in []");
        for (int i = static_cast<unsigned char>(c); i <= static_cast<unsigned char>(last); ++i)
          node.chars.set(static_cast<size_t>(i));
      } else {
        node.chars.set(static_cast<unsigned char>(c));
      }
    } while (!take("]"));
    if (negated) node.chars.flip();
    return node;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// Of the places before, between and behind the characters of a name, some.
using Places = std::vector<bool>;

class Matcher {
 public:
  explicit Matcher(std::string_view name) : name_(name) {}

  // Where a match may end that begins at one of `from`.
  Places ends(const Node& node, const Places& from) {
    if (++steps_ > kMostSteps / from.size()) fail("it takes too many steps");
    Places to(from.size());
    switch (node.kind) {
      case Kind::kChars:
        for (size_t i = 0; i < name_.size(); ++i)
          to[i + 1] = from[i] && node.chars[static_cast<unsigned char>(name_[i])];
        return to;
      case Kind::kBegin:
        to.front() = from.front();
        return to;
      case Kind::kEnd:
        to.back() = from.back();
        return to;
      case Kind::kAll:
        to = from;
        for (const Node& part : node.parts) to = ends(part, to);
        return to;
      case Kind::kAny:
        for (const Node& part : node.parts) add(ends(part, from), to);
        return to;
      case Kind::kRepeat:
        return repeated(node, from);
      case Kind::kAhead:
        return ahead(node, from);
    }
    return to;
  }
  static bool some(const Places& places) {
    return std::find(places.begin(), places.end(), true) != places.end();
  }

 private:
  static void add(const Places& more, Places& to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = to[i] || more[i];
  }
  // Of characters as often as there are some: most patterns of configs hold ".*", and folders may
  // have a hundred thousand layers.
  Places run(const Node& chars, Places at) const {
    for (size_t i = 0; i < name_.size(); ++i)
      if (at[i] && chars.chars[static_cast<unsigned char>(name_[i])]) at[i + 1] = true;
    return at;
  }
  Places repeated(const Node& node, Places at) {
    for (size_t i = 0; i < node.least; ++i) at = ends(node.parts[0], at);
    if (node.most == kEndless && node.parts[0].kind == Kind::kChars)
      return run(node.parts[0], std::move(at));
    Places to = at;
    for (size_t i = node.least; i < node.most && some(at); ++i) {
      Places next = ends(node.parts[0], at);
      for (size_t j = 0; j < next.size(); ++j) next[j] = next[j] && !to[j];
      add(next, to);
      at = std::move(next);
    }
    return to;
  }
  Places ahead(const Node& node, const Places& from) {
    Places to(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      if (!from[i]) continue;
      Places one(from.size());
      one[i] = true;
      to[i] = some(ends(node.parts[0], one)) != node.negated;
    }
    return to;
  }

  std::string_view name_;
  size_t steps_ = 0;
};

}  // namespace

NamePattern::NamePattern(std::string_view pattern) {
  if (pattern.size() > kMostLength) fail("it is too long");
  root_ = std::make_shared<const Node>(Parser(pattern).parse());
}

bool NamePattern::begins(std::string_view name) const {
  Places from(name.size() + 1);
  from[0] = true;
  return Matcher::some(Matcher(name).ends(*root_, from));
}

}  // namespace quire::formats
