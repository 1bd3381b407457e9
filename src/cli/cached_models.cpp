#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "hub/cache_list.h"
#include "hub/explain.h"
#include "hub/settings.h"

namespace quire::cli {
namespace {

std::string age_text(std::time_t then) {
  const auto seconds =
      static_cast<int64_t>(std::max<double>(0, std::difftime(std::time(nullptr), then)));
  const auto ago = [](int64_t count, const char* unit) {
    return std::to_string(count) + " " + unit + (count == 1 ? " ago" : "s ago");
  };
  if (seconds < 3600) return ago(seconds / 60, "minute");
  if (seconds < 86400) return ago(seconds / 3600, "hour");
  return ago(seconds / 86400, "day");
}

std::string revision_text(const hub::CachedRevision& revision) {
  std::string text;
  for (const std::string& ref : revision.refs) text += (text.empty() ? "" : ",") + ref;
  return text.empty() ? revision.commit.substr(0, 12) : text;
}

int list_models() {
  const std::string cache = hub::read_settings("quire/" QUIRE_VERSION).cache;
  const auto models = hub::list_cache(cache);
  if (models.empty()) {
    std::fprintf(stderr, "quire: no models in %s; `quire pull ORG/NAME` fetches one\n",
                 printable(cache).c_str());
    return 0;
  }
  std::printf("%-48s %-14s %9s  %s\n", "NAME", "REVISION", "SIZE", "FETCHED");
  for (const hub::CachedModel& model : models) {
    std::string size = hub::bytes_text(static_cast<double>(model.bytes));
    for (const hub::CachedRevision& revision : model.revisions) {
      std::printf(
          "%-48s %-14s %9s  %s%s\n", model.id.repo().c_str(),
          printable(revision_text(revision)).c_str(), size.c_str(),
          age_text(revision.fetched).c_str(),
          revision.missing.empty() ? "" : (" (lacks " + printable(revision.missing) + ")").c_str());
      size.clear();  // it is that of all revisions
    }
    if (model.revisions.empty())
      std::printf("%-48s %-14s %9s  %s\n", model.id.repo().c_str(), "-", size.c_str(),
                  "(incomplete)");
  }
  return 0;
}

int remove_models(const std::vector<std::string>& names) {
  const std::string cache = hub::read_settings("quire/" QUIRE_VERSION).cache;
  for (const std::string& name : names) {
    const auto id = hub::parse_model_id(name);
    if (!id)
      throw LoadError("'" + printable(name) +
                      "' is no model's name: only what `quire list` shows is removed, ORG/NAME or "
                      "ORG/NAME@REV");
    const hub::Removed removed = hub::remove_model(cache, *id, name.find('@') != std::string::npos);
    std::printf("%s: removed, %s\n", name.c_str(),
                hub::bytes_text(static_cast<double>(removed.bytes)).c_str());
    if (removed.shared > 0)
      std::printf(
          "%s more stay in %s/blobs, which all models of huggingface_hub share; `hf cache "
          "prune` removes what nobody uses\n",
          hub::bytes_text(static_cast<double>(removed.shared)).c_str(), printable(cache).c_str());
  }
  return 0;
}

}  // namespace

void add_list(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("list", "Show the models in the cache");
  command->callback([&status] { status = list_models(); });
}

void add_rm(CLI::App& app, int& status) {
  auto names = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("rm", "Remove models from the cache");
  command->add_option("names", *names, "ORG/NAME, or ORG/NAME@REV: this revision alone")
      ->required()
      ->type_name("NAME");
  command->callback([names, &status] { status = remove_models(*names); });
}

}  // namespace quire::cli
