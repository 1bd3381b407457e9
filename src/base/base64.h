#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace quire {

// RFC 4648, section 4, with padding.
std::string base64(std::span<const std::byte> bytes);

}  // namespace quire
