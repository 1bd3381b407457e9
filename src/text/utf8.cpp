#include "text/utf8.h"

#include <cstdint>

namespace quire::text {
namespace {

struct Lead {
  int length;                       // of the whole character; 0: not a lead byte
  uint8_t low = 0x80, high = 0xBF;  // range of the second byte
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};  // continuation bytes and overlong two-byte leads
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // surrogates are no characters
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

}  // namespace

Utf8Scan scan_utf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Lead lead = lead_of(static_cast<uint8_t>(bytes[at]));
    if (lead.length == 0) return {at, 1, false};
    for (int i = 1; i < lead.length; ++i) {
      if (at + i == bytes.size()) return {at, 0, true};
      const auto byte = static_cast<uint8_t>(bytes[at + i]);
      const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
      if (!fits) return {at, static_cast<size_t>(i), false};
    }
    at += lead.length;
  }
  return {at, 0, false};
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  pending_.append(bytes);
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Scan scan = scan_utf8(rest);
    out.append(rest.substr(0, scan.valid));
    rest.remove_prefix(scan.valid + scan.bad);
    if (scan.cut) break;
    if (scan.bad > 0) out.append(kReplacement);
  }
  pending_.erase(0, pending_.size() - rest.size());
}

void Utf8Stream::flush(std::string& out) {
  if (!pending_.empty()) out.append(kReplacement);
  pending_.clear();
}

}  // namespace quire::text
