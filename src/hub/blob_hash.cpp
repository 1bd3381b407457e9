#include "hub/blob_hash.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace quire::hub {

struct BlobHash::Impl {
  bool is_sha256 = false;
  uint64_t size = 0;
  EVP_MD_CTX* context = EVP_MD_CTX_new();

  Impl() { QUIRE_CHECK(context != nullptr) << "out of memory"; }
  ~Impl() { EVP_MD_CTX_free(context); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
};

bool BlobHash::is_known(std::string_view etag) {
  return (etag.size() == 40 || etag.size() == 64) && std::ranges::all_of(etag, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

BlobHash::BlobHash(std::string_view etag, uint64_t size) : impl_(std::make_unique<Impl>()) {
  QUIRE_CHECK(is_known(etag)) << "an etag of no known kind";
  impl_->is_sha256 = etag.size() == 64;
  impl_->size = size;
  restart();
}

BlobHash::~BlobHash() = default;

void BlobHash::restart() {
  const EVP_MD* kind = impl_->is_sha256 ? EVP_sha256() : EVP_sha1();
  QUIRE_CHECK(EVP_DigestInit_ex(impl_->context, kind, nullptr) == 1) << "OpenSSL has no such hash";
  if (impl_->is_sha256) return;
  const std::string header = "blob " + std::to_string(impl_->size);
  add({header.c_str(), header.size() + 1});  // with its zero
}

void BlobHash::add(std::span<const char> bytes) {
  QUIRE_CHECK(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1);
}

std::string BlobHash::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  QUIRE_CHECK(EVP_DigestFinal_ex(impl_->context, digest.data(), &size) == 1);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

const char* BlobHash::kind() const { return impl_->is_sha256 ? "sha256" : "git's sha1"; }

}  // namespace quire::hub
