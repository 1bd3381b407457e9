#include "base/numa.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/cores.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire {
namespace {

constexpr int kMostNodes = 1024;  // what Linux is built for at most
#if defined(__linux__)
constexpr int kDefaultPolicy = 0, kInterleave = 3;  // MPOL_DEFAULT, MPOL_INTERLEAVE
constexpr size_t kWordBits = 8 * sizeof(unsigned long);
constexpr size_t kMaskWords = kMostNodes / kWordBits;
#endif

// Whether a list as "0-3,8,10-11" has one of these numbers. What is no list has none.
bool has_one_of(std::string_view list, std::span<const int> numbers) {
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), range.size() + 1));
    int first = 0;
    const char* const end = range.data() + range.size();
    auto [at, error] = std::from_chars(range.data(), end, first);
    if (error != std::errc()) return false;
    int last = first;
    if (at != end && (*at != '-' || std::from_chars(at + 1, end, last).ec != std::errc()))
      return false;
    if (std::ranges::any_of(numbers, [&](int n) { return n >= first && n <= last; })) return true;
  }
  return false;
}

}  // namespace

std::vector<int> numa_nodes(std::span<const int> processors, const std::string& folder) {
  std::vector<int> nodes;
  std::error_code error;  // there is no such folder in some containers
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node")) continue;
    int node = 0;
    const char* const end = name.data() + name.size();
    const auto [at, wrong] = std::from_chars(name.data() + 4, end, node);
    if (wrong != std::errc() || at != end || node < 0 || node >= kMostNodes) continue;
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    if (std::getline(file, list) && has_one_of(list, processors)) nodes.push_back(node);
  }
  std::ranges::sort(nodes);
  return nodes;
}

std::vector<int> usable_numa_nodes() {
  std::vector<int> nodes = numa_nodes(usable_processor_numbers(), "/sys/devices/system/node");
#if defined(__linux__)
  unsigned long mask[kMaskWords] = {};
  constexpr unsigned long kAllowed = 4;  // MPOL_F_MEMS_ALLOWED
  // The kernel takes one bit less than it is told of.
  if (nodes.size() > 1 &&
      ::syscall(SYS_get_mempolicy, nullptr, mask, kMostNodes + 1ul, nullptr, kAllowed) == 0)
    std::erase_if(nodes, [&](int node) {
      const auto bit = static_cast<size_t>(node);
      return (mask[bit / kWordBits] >> bit % kWordBits & 1) == 0;
    });
#endif
  return nodes;
}

bool has_memory_policy() {
#if defined(__linux__)
  int mode = kDefaultPolicy;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0 && mode != kDefaultPolicy;
#else
  return false;
#endif
}

int try_to_spread(std::span<const int> nodes) {
#if defined(__linux__)
  const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return errno;
  const int error = spread_pages(page, bytes, nodes);
  ::munmap(page, bytes);
  return error;
#else
  return spread_pages(nullptr, 0, nodes);
#endif
}

int spread_pages(void* memory, size_t bytes, std::span<const int> nodes) {
#if defined(__linux__)
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + bytes) / page * page;
  if (begin >= end) return 0;
  unsigned long mask[kMaskWords] = {};
  for (const int node : nodes)
    mask[static_cast<size_t>(node) / kWordBits] |= 1ul << static_cast<size_t>(node) % kWordBits;
  // The kernel takes one bit less than it is told of.
  if (::syscall(SYS_mbind, begin, end - begin, kInterleave, mask, kMostNodes + 1, 0) != 0)
    return errno;
  return 0;
#else
  (void)memory, (void)bytes, (void)nodes;
  return ENOSYS;
#endif
}

}  // namespace quire
