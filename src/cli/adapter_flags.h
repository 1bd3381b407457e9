#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace quire::cli {

// An adapter (LoRA) as the command line names it.
struct NamedAdapter {
  std::string name;  // what requests ask for
  std::string path;  // the folder
};

// --lora-modules, --max-loras and --max-lora-rank.
struct AdapterFlags {
  std::vector<std::string> modules;  // as they were given
  int64_t max_loras = 0;             // 0: no limit
  int64_t max_rank = 0;              // 0: no limit
};

void add_adapter_flags(CLI::App& command, AdapterFlags& flags);

// Each is NAME=FOLDER, several of these with commas between them, or vLLM's {"name": .., "path":
// ..}, which a folder with a comma in its name needs. Throws LoadError for anything else, for a
// name that comes twice or is not printable, and for limits without adapters.
std::vector<NamedAdapter> parse_adapters(const AdapterFlags& flags);

}  // namespace quire::cli
