#include "server/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

namespace quire::server {
namespace {

[[maybe_unused]] std::string read_all(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

#ifdef __APPLE__

constexpr const char* kOpenFiles = "/dev/fd";

// Times, sizes and the start, as Mach and the BSD half of the system tell them.
ProcessState read_usage() {
  ProcessState state;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    state.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  mach_task_basic_info task{};
  mach_msg_type_number_t words = MACH_TASK_BASIC_INFO_COUNT;
  if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&task),
                &words) == KERN_SUCCESS) {
    state.virtual_bytes = static_cast<double>(task.virtual_size);
    state.resident_bytes = static_cast<double>(task.resident_size);
  }
  int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, getpid()};
  kinfo_proc process{};
  size_t size = sizeof process;
  if (sysctl(name, 4, &process, &size, nullptr, 0) == 0)
    state.start_seconds = seconds(process.kp_proc.p_starttime);
  return state;
}

#else

constexpr const char* kOpenFiles = "/proc/self/fd";

double boot_seconds() {
  std::istringstream stat(read_all("/proc/stat"));
  for (std::string word; stat >> word;) {
    double value = 0;
    if (word == "btime" && stat >> value) return value;
  }
  return 0;
}

ProcessState read_usage() {
  return parse_process_stat(read_all("/proc/self/stat"), boot_seconds());
}

#endif

double count_open_files() {
  std::error_code error;
  std::filesystem::directory_iterator files(kOpenFiles, error);
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
  ProcessState state = read_usage();
  state.open_files = count_open_files();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) state.max_files = static_cast<double>(limit.rlim_cur);
  return state;
}

}  // namespace quire::server
