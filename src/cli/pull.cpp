#include <cstdio>

#include "cli/commands.h"
#include "cli/model_name.h"

namespace quire::cli {

void add_pull(CLI::App& app, int& status) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "pull", "Fetch a model from a hub into the cache, and print the folder it is in");
  command->add_option("name", *name, "ORG/NAME, or ORG/NAME@REV: a branch, tag or commit")
      ->required()
      ->type_name("NAME");
  command->callback([name, &status] {
    std::printf("%s\n", pull_model(*name).c_str());
    status = 0;
  });
}

}  // namespace quire::cli
