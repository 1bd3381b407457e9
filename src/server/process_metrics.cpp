#include "server/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace quire::server {
namespace {

std::string read_all(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

double boot_seconds() {
  std::istringstream stat(read_all("/proc/stat"));
  for (std::string word; stat >> word;) {
    double value = 0;
    if (word == "btime" && stat >> value) return value;
  }
  return 0;
}

double count_open_files() {
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return 0;
  return static_cast<double>(std::distance(begin(files), end(files)));
}

}  // namespace

// proc(5): the name, in brackets, may hold anything; the fields behind it are numbers, the first of
// them the third.
ProcessState parse_process_stat(const std::string& stat, double boot_seconds) {
  ProcessState state;
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 1 >= stat.size()) return state;
  std::istringstream fields(stat.substr(name_end + 1));
  const std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
  const auto field = [&](size_t number) {
    const size_t index = number - 3;
    return index < words.size() ? std::strtod(words[index].c_str(), nullptr) : 0.0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  state.cpu_seconds = (field(14) + field(15)) / ticks;
  state.start_seconds = boot_seconds + field(22) / ticks;
  state.virtual_bytes = field(23);
  state.resident_bytes = field(24) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return state;
}

ProcessState read_process_state() {
  ProcessState state = parse_process_stat(read_all("/proc/self/stat"), boot_seconds());
  state.open_files = count_open_files();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) state.max_files = static_cast<double>(limit.rlim_cur);
  return state;
}

}  // namespace quire::server
