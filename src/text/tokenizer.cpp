#include "text/tokenizer.h"

#include "base/error.h"
#include "text/tokenizer_impl.h"

namespace quire::text {
namespace {

StringTable make_table(const rust::Vec<uint8_t>& bytes, const rust::Vec<uint64_t>& ends) {
  return {to_string(bytes), {ends.begin(), ends.end()}};
}

std::unique_ptr<const Tokenizer::Impl> load_impl(const formats::ModelFiles& files) {
  auto tokenizer = rs::load_tokenizer(bridge_files(files));
  const auto decoded = bridged([&] { return rs::tables(*tokenizer); });
  // A decoder that panics does so when its tokens are decoded for the first time: here.
  if (!decoded)
    throw LoadError(files.origin + (files.are_made ? ": " : "/") +
                    "tokenizer.json: " + decoded.error());
  const rs::VocabTables& tables = *decoded;
  auto impl = std::make_unique<Tokenizer::Impl>(Tokenizer::Impl{
      .rust = std::move(tokenizer),
      .rule = static_cast<JoinRule>(tables.rule),
      .strip_left = tables.strip_left,
      .strip_char = std::string(tables.strip_char),
      .tokens = make_table(tables.tokens, tables.token_ends),
      .pieces = make_table(tables.pieces, tables.piece_ends),
      .flags = {tables.flags.begin(), tables.flags.end()},
      .first_pieces = {},
  });
  const StringTable first = make_table(tables.first_pieces, tables.first_ends);
  for (size_t i = 0; i < tables.first_ids.size(); ++i) {
    impl->first_pieces.emplace(tables.first_ids[i], first.at(i));
  }
  return impl;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& model_dir) {
  return load(formats::ModelFiles{.origin = model_dir.string()});
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const formats::ModelFiles& files) {
  try {
    return std::shared_ptr<const Tokenizer>(new Tokenizer(load_impl(files)));
  } catch (const rust::Error& e) {
    throw LoadError(e.what());
  }
}

Result<std::vector<int32_t>, std::string> Tokenizer::encode(std::string_view text,
                                                            const EncodeOptions& options) const {
  const rs::EncodeOptions bridge_options{
      .add_special = options.add_special_tokens,
      .keep_first = options.keep_first.value_or(UINT64_MAX),
      .keep_last = options.keep_last.value_or(UINT64_MAX),
      .piece_bytes = options.piece_bytes,
      .budget = reinterpret_cast<size_t>(options.budget),
      .memory = reinterpret_cast<size_t>(options.memory),
  };
  return bridged([&] {
    const rust::Vec<int32_t> ids = rs::encode(*impl_->rust, as_bytes(text), bridge_options);
    return std::vector<int32_t>(ids.begin(), ids.end());
  });
}

Result<std::string, std::string> Tokenizer::decode(std::span<const int32_t> ids,
                                                   bool skip_special_tokens) const {
  return bridged([&] {
    const rust::Slice<const int32_t> slice(ids.data(), ids.size());
    return std::string(rs::decode(*impl_->rust, slice, skip_special_tokens));
  });
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->flags.size()); }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int32_t id = rs::token_to_id(*impl_->rust, as_bytes(token));
  return id < 0 ? std::nullopt : std::optional(id);
}

std::string_view Tokenizer::id_to_token(int32_t id) const {
  return impl_->has(id, Impl::kPresent) ? impl_->tokens.at(id) : std::string_view();
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return impl_->has(id, Impl::kPresent) ? impl_->pieces.at(id) : std::string_view();
}

bool Tokenizer::is_special(int32_t id) const { return impl_->has(id, Impl::kSpecial); }

std::optional<std::string> Tokenizer::special_token(std::string_view name) const {
  auto text = bridged([&] { return std::string(rs::special_token(*impl_->rust, as_bytes(name))); });
  return text.ok() ? std::optional(*std::move(text)) : std::nullopt;
}

std::optional<int32_t> Tokenizer::special_token_id(std::string_view name) const {
  const auto text = special_token(name);
  return text ? token_to_id(*text) : std::nullopt;
}

}  // namespace quire::text
