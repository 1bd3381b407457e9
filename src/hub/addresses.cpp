#include "hub/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace quire::hub {
namespace {

struct Range4 {
  uint32_t first;
  int bits;
};

constexpr uint32_t ip4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

constexpr Range4 kClosed4[] = {
    {ip4(0, 0, 0, 0), 8},       // this network
    {ip4(10, 0, 0, 0), 8},      // private
    {ip4(100, 64, 0, 0), 10},   // shared
    {ip4(127, 0, 0, 0), 8},     // loopback
    {ip4(169, 254, 0, 0), 16},  // link-local, clouds' metadata
    {ip4(172, 16, 0, 0), 12},   // private
    {ip4(192, 0, 0, 0), 24},    // protocol assignments
    {ip4(192, 0, 2, 0), 24},    // documentation
    {ip4(192, 168, 0, 0), 16},  // private
    {ip4(198, 18, 0, 0), 15},   // benchmarks
    {ip4(198, 51, 100, 0), 24}, {ip4(203, 0, 113, 0), 24},
    {ip4(224, 0, 0, 0), 3},  // multicast and reserved
};

bool is_public4(uint32_t address) {
  return std::ranges::none_of(kClosed4, [&](const Range4& range) {
    return (address ^ range.first) >> (32 - range.bits) == 0;
  });
}

uint32_t read4(const uint8_t* bytes) { return ip4(bytes[0], bytes[1], bytes[2], bytes[3]); }

bool is_public6(const uint8_t* a) {
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  constexpr std::array<uint8_t, 12> kNat64 = {0, 0x64, 0xff, 0x9b};
  if (std::equal(kMapped.begin(), kMapped.end(), a) || std::equal(kNat64.begin(), kNat64.end(), a))
    return is_public4(read4(a + 12));
  if (a[0] == 0x20 && a[1] == 0x02) return is_public4(read4(a + 2));  // 6to4
  const bool documentation = a[0] == 0x20 && a[1] == 0x01 && a[2] == 0x0d && a[3] == 0xb8;
  const bool teredo = a[0] == 0x20 && a[1] == 0x01 && a[2] == 0 && a[3] == 0;
  return (a[0] & 0xe0) == 0x20 && !documentation && !teredo;  // global unicast is 2000::/3
}

}  // namespace

bool is_public(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return is_public4(ntohl(in.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    return is_public6(in.sin6_addr.s6_addr);
  }
  return false;
}

bool is_public_host(std::string_view host) {
  std::string name(host);
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  if (const size_t zone = name.find('%'); zone != std::string::npos) name.resize(zone);
  while (name.ends_with('.')) name.pop_back();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  sockaddr_in in4{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  // inet_aton also knows what resolvers take for addresses: 127.1, 0x7f000001, 2130706433.
  if (inet_aton(name.c_str(), &in4.sin_addr) != 0) return is_public4(ntohl(in4.sin_addr.s_addr));
  if (inet_pton(AF_INET6, name.c_str(), &in6.sin6_addr) == 1)
    return is_public6(in6.sin6_addr.s6_addr);
  const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  return !name.empty() && name != "localhost" && !ends(".localhost") && !ends(".local") &&
         !ends(".internal");
}

}  // namespace quire::hub
