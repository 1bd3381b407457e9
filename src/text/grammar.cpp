#include "text/grammar.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "text/rust_bridge.h"
#include "text/tokenizer_impl.h"

namespace quire::text {

struct GrammarFactory::Impl {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<int32_t> eos_ids;
  mutable std::once_flag made;
  mutable std::optional<rust::Box<rs::Factory>> rust;

  // Made when the first grammar comes: its tries of a large vocabulary take some 60 MB, and many
  // servers never see one.
  const rs::Factory& factory() const {
    std::call_once(made, [this] {
      rust = rs::new_grammar_factory(*tokenizer->impl().rust, {eos_ids.data(), eos_ids.size()});
    });
    return **rust;
  }
};

struct GrammarMatcher::Impl {
  std::shared_ptr<const GrammarFactory::Impl> factory;
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
    case GrammarSpec::Kind::kChoice:
      return "choice";
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

Result<void, std::string> GrammarMatcher::fill_mask(std::span<uint32_t> words) {
  return bridged_action([&] {
    rs::fill_mask(impl_->factory->factory(), *impl_->state, {words.data(), words.size()});
  });
}

Result<bool, std::string> GrammarMatcher::accept(int32_t token) {
  return bridged([&] { return rs::accept(impl_->factory->factory(), *impl_->state, token); });
}

bool GrammarMatcher::is_stopped() const {
  const auto stopped = bridged([&] { return rs::is_stopped(*impl_->state); });
  return !stopped.ok() || *stopped;  // a broken matcher can go nowhere
}

bool GrammarMatcher::is_accepting() {
  const auto accepting = bridged([&] { return rs::is_accepting(*impl_->state); });
  return accepting.ok() && *accepting;
}

Result<void, std::string> GrammarMatcher::rollback(size_t tokens) {
  return bridged_action([&] { rs::rollback(*impl_->state, tokens); });
}

GrammarMatcher GrammarMatcher::clone() const {
  return GrammarMatcher(
      std::make_unique<Impl>(Impl{.factory = impl_->factory, .state = rs::fork(*impl_->state)}));
}

GrammarFactory::GrammarFactory(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
GrammarFactory::~GrammarFactory() = default;

std::shared_ptr<const GrammarFactory> GrammarFactory::create(
    std::shared_ptr<const Tokenizer> tokenizer, std::span<const int32_t> eos_ids) {
  const auto in_vocab = [&](int32_t id) { return id >= 0 && id < tokenizer->vocab_size(); };
  if (std::ranges::none_of(eos_ids, in_vocab))
    throw LoadError("grammars need an end-of-sequence token that is in the vocabulary");
  auto impl = std::make_shared<Impl>();
  impl->tokenizer = std::move(tokenizer);
  impl->eos_ids.assign(eos_ids.begin(), eos_ids.end());
  return std::shared_ptr<const GrammarFactory>(new GrammarFactory(std::move(impl)));
}

Result<GrammarMatcher, std::string> GrammarFactory::compile(const GrammarSpec& spec) const {
  return bridged([&] {
    auto state = rs::compile(impl_->factory(), kind_name(spec.kind), as_bytes(spec.source));
    return GrammarMatcher(std::make_unique<GrammarMatcher::Impl>(
        GrammarMatcher::Impl{.factory = impl_, .state = std::move(state)}));
  });
}

}  // namespace quire::text
