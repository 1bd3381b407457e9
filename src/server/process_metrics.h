#pragma once
#include <string>

namespace quire::server {

// What this process takes of its machine, as Prometheus's own clients tell it.
struct ProcessState {
  double cpu_seconds = 0;
  double start_seconds = 0;  // since 1970
  double virtual_bytes = 0, resident_bytes = 0;
  double open_files = 0, max_files = 0;
};

// Zeros for what the system does not tell.
ProcessState read_process_state();
// Of the text of /proc/self/stat and of the boot time in /proc/stat (seconds since 1970).
ProcessState parse_process_stat(const std::string& stat, double boot_seconds);

}  // namespace quire::server
