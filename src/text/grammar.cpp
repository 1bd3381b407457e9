#include "text/grammar.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "text/rust_bridge.h"
#include "text/tokenizer_impl.h"

namespace quire::text {
namespace {

constexpr size_t kGrantStep = 64u << 10;
// What compilation takes for a time, measured with the sources of grammar_limits_test.
constexpr size_t kCompileBytes = 128u << 10;
constexpr size_t kCompileBytesOfRules = 100, kCompileBytesOfText = 20;  // for each byte of source

}  // namespace

struct GrammarFactory::Impl {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<int32_t> eos_ids;
  JsonWhitespace whitespace = JsonWhitespace::kBounded;
  mutable std::once_flag made;
  mutable std::optional<rust::Box<rs::Factory>> rust;

  // Made when the first grammar comes: its tries of a large vocabulary take some 60 MB, and many
  // servers never see one.
  const rs::Factory& factory() const {
    std::call_once(made, [this] {
      rust = rs::new_grammar_factory(*tokenizer->impl().rust, {eos_ids.data(), eos_ids.size()},
                                     whitespace == JsonWhitespace::kFlexible);
    });
    return **rust;
  }
};

namespace {

// What a family has been granted.
struct Grant {
  std::unique_ptr<GrammarMemory> memory;  // null: whatever it needs
  std::mutex mutex;
  size_t bytes = 0;
  std::atomic<bool> refused{false};

  bool cover(size_t needed) {
    const std::scoped_lock lock(mutex);
    if (!memory || needed <= bytes) return true;
    // With room for what comes next: asking costs a lock that all requests share.
    const size_t more = needed - bytes + std::max(kGrantStep, needed / 8);
    if (!memory->try_add(more)) return refused = true, false;
    bytes += more;
    return true;
  }
};

}  // namespace

struct GrammarMatcher::Impl {
  std::shared_ptr<const GrammarFactory::Impl> factory;
  std::shared_ptr<Grant> grant;  // goes after the state
  rust::Box<rs::GrammarState> state;
};

namespace {

const char* kind_name(GrammarSpec::Kind kind) {
  switch (kind) {
    case GrammarSpec::Kind::kJsonSchema:
      return "json_schema";
    case GrammarSpec::Kind::kJsonObject:
      return "json_object";
    case GrammarSpec::Kind::kRegex:
      return "regex";
    case GrammarSpec::Kind::kLark:
      return "lark";
    case GrammarSpec::Kind::kGbnf:
      return "gbnf";
    case GrammarSpec::Kind::kStructuralTag:
      return "structural_tag";
    case GrammarSpec::Kind::kChoice:
      return "choice";
    case GrammarSpec::Kind::kCalls:
      return "calls";
  }
  return "";
}

// bridged() for calls without a value.
template <class F>
Result<void, std::string> bridged_action(F&& call) {
  auto result = bridged([&] { return call(), true; });
  if (!result.ok()) return Err{std::move(result).error()};
  return {};
}

}  // namespace

GrammarMatcher::GrammarMatcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrammarMatcher::~GrammarMatcher() = default;
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;

Result<void, std::string> GrammarMatcher::take_memory() {
  const size_t needed = bytes();
  if (needed > kMaxGrammarBytes) {
    return Err{"the grammar takes more than " + std::to_string(kMaxGrammarBytes >> 20) +
               " MiB of memory"};
  }
  if (!impl_->grant->cover(needed)) return Err{std::string(kNoGrammarMemory)};
  return {};
}

Result<void, std::string> GrammarMatcher::fill_mask(std::span<uint32_t> words) {
  auto filled = bridged_action([&] {
    rs::fill_mask(impl_->factory->factory(), *impl_->state, {words.data(), words.size()});
  });
  return filled.ok() ? take_memory() : std::move(filled);
}

Result<bool, std::string> GrammarMatcher::accept(int32_t token) {
  auto accepted =
      bridged([&] { return rs::accept(impl_->factory->factory(), *impl_->state, token); });
  if (!accepted.ok()) return accepted;
  if (auto taken = take_memory(); !taken) return Err{std::move(taken).error()};
  return accepted;
}

bool GrammarMatcher::lacks_memory() const { return impl_->grant->refused; }

size_t GrammarMatcher::bytes() const { return rs::bytes_held(*impl_->state); }

bool GrammarMatcher::is_stopped() const {
  const auto stopped = bridged([&] { return rs::is_stopped(*impl_->state); });
  return !stopped.ok() || *stopped;  // a broken matcher can go nowhere
}

bool GrammarMatcher::is_accepting() {
  const auto accepting = bridged([&] { return rs::is_accepting(*impl_->state); });
  return accepting.ok() && *accepting;
}

GrammarMatcher GrammarMatcher::clone() const {
  return GrammarMatcher(std::make_unique<Impl>(
      Impl{.factory = impl_->factory, .grant = impl_->grant, .state = rs::fork(*impl_->state)}));
}

size_t GrammarMatcher::family() const { return rs::family(*impl_->state); }

std::chrono::nanoseconds GrammarMatcher::cpu_time() const {
  return std::chrono::nanoseconds(rs::nanoseconds_spent(*impl_->state));
}

GrammarFactory::GrammarFactory(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
GrammarFactory::~GrammarFactory() = default;

std::shared_ptr<const GrammarFactory> GrammarFactory::create(
    std::shared_ptr<const Tokenizer> tokenizer, std::span<const int32_t> eos_ids,
    JsonWhitespace whitespace) {
  const auto in_vocab = [&](int32_t id) { return id >= 0 && id < tokenizer->vocab_size(); };
  if (std::ranges::none_of(eos_ids, in_vocab))
    throw LoadError("grammars need an end-of-sequence token that is in the vocabulary");
  auto impl = std::make_shared<Impl>();
  impl->tokenizer = std::move(tokenizer);
  impl->eos_ids.assign(eos_ids.begin(), eos_ids.end());
  impl->whitespace = whitespace;
  return std::shared_ptr<const GrammarFactory>(new GrammarFactory(std::move(impl)));
}

size_t GrammarFactory::bytes_to_compile(const GrammarSpec& spec) {
  using Kind = GrammarSpec::Kind;
  const bool has_rules = spec.kind == Kind::kJsonSchema || spec.kind == Kind::kLark ||
                         spec.kind == Kind::kGbnf || spec.kind == Kind::kStructuralTag ||
                         spec.kind == Kind::kCalls;
  return kCompileBytes +
         (has_rules ? kCompileBytesOfRules : kCompileBytesOfText) * spec.source.size();
}

Result<GrammarMatcher, std::string> GrammarFactory::compile(
    const GrammarSpec& spec, std::unique_ptr<GrammarMemory> memory) const {
  const auto grant = std::make_shared<Grant>();
  grant->memory = std::move(memory);
  if (!grant->cover(bytes_to_compile(spec))) return Err{std::string(kNoGrammarMemory)};
  auto matcher = bridged([&] {
    auto state = rs::compile(impl_->factory(), kind_name(spec.kind), as_bytes(spec.source),
                             as_bytes(spec.name), as_bytes(spec.prelude),
                             reinterpret_cast<size_t>(spec.budget));
    return GrammarMatcher(std::make_unique<GrammarMatcher::Impl>(
        GrammarMatcher::Impl{.factory = impl_, .grant = grant, .state = std::move(state)}));
  });
  if (!matcher.ok()) return matcher;
  if (auto taken = matcher->take_memory(); !taken) return Err{std::move(taken).error()};
  return matcher;
}

}  // namespace quire::text
