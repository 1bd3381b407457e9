#include "hub/cache_list.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "base/error.h"
#include "hub/cache.h"
#include "hub/needed_files.h"

namespace quire::hub {
namespace {

namespace fs = std::filesystem;

// Everything in a folder, or nothing if there is none.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator it(folder, ignored), end; it != end; it.increment(ignored))
    entries.push_back(*it);
  std::ranges::sort(entries, {}, [](const auto& entry) { return entry.path(); });
  return entries;
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(folder, ignored), end; it != end; it.increment(ignored))
    if (!it->is_directory(ignored) || it->is_symlink(ignored)) files.push_back(it->path());
  return files;
}

uint64_t file_bytes(const fs::path& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

std::time_t changed_at(const fs::path& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mtime : 0;
}

// The name of the blob that a snapshot's file is; empty if it is none.
std::string blob_of(const fs::path& file) {
  std::error_code error;
  const fs::path target = fs::read_symlink(file, error);
  return error ? "" : target.filename().string();
}

std::string missing_of(const std::string& folder) {
  try {
    return missing_file(folder);
  } catch (const LoadError&) {
    return kIndexFile;  // it cannot be read
  }
}

CachedModel describe(const fs::path& root, ModelId id) {
  CachedModel model;
  model.id = std::move(id);
  for (const auto& entry : entries_of(root / "blobs")) model.bytes += file_bytes(entry.path());
  for (const auto& entry : entries_of(root / "snapshots")) {
    const std::string commit = entry.path().filename().string();
    if (!is_commit(commit)) continue;
    CachedRevision revision{.commit = commit,
                            .refs = {},
                            .folder = entry.path().string(),
                            .missing = missing_of(entry.path().string()),
                            .fetched = changed_at(entry.path())};
    for (const fs::path& ref : files_below(root / "refs"))
      if (read_ref(ref) == commit)
        revision.refs.push_back(ref.lexically_relative(root / "refs").string());
    model.revisions.push_back(std::move(revision));
  }
  return model;
}

// Holds the locks of all blobs that anybody ever fetched, so that nobody fetches one meanwhile.
std::vector<std::unique_ptr<BlobLock>> lock_all(const std::string& cache, const ModelId& id) {
  std::vector<std::unique_ptr<BlobLock>> locks;
  for (const auto& entry : entries_of(cache + "/.locks/" + id.folder())) {
    locks.push_back(std::make_unique<BlobLock>(entry.path().string()));
    if (!locks.back()->try_take())
      throw LoadError(id.repo() + ": another process is fetching it; stop that one first");
  }
  return locks;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw LoadError(path.string() + ": cannot remove: " + error.message());
}

void remove_blob(const fs::path& path, Removed& removed) {
  std::error_code ignored;
  (fs::is_symlink(path, ignored) ? removed.shared : removed.bytes) += file_bytes(path);
  remove_file(path);
}

// From the names to the bytes, so that what a killed process leaves is an incomplete model.
Removed remove_all_of(const std::string& root) {
  Removed removed;
  remove_file(root + "/refs");
  remove_file(root + "/snapshots");
  for (const auto& entry : entries_of(root + "/blobs")) remove_blob(entry.path(), removed);
  remove_file(root);
  return removed;
}

Removed remove_snapshot(const std::string& root, const std::string& commit) {
  Removed removed;
  std::set<std::string> own, others;
  for (const auto& entry : entries_of(root + "/snapshots"))
    for (const fs::path& file : files_below(entry.path()))
      (entry.path().filename() == commit ? own : others).insert(blob_of(file));
  for (const fs::path& ref : files_below(root + "/refs"))
    if (read_ref(ref) == commit) remove_file(ref);
  remove_file(root + "/snapshots/" + commit);
  for (const std::string& blob : own)
    if (!blob.empty() && !others.contains(blob)) remove_blob(root + "/blobs/" + blob, removed);
  return removed;
}

}  // namespace

std::vector<CachedModel> list_cache(const std::string& cache) {
  std::vector<CachedModel> models;
  for (const auto& entry : entries_of(cache))
    if (auto id = parse_cache_folder(entry.path().filename().string()))
      models.push_back(describe(entry.path(), std::move(*id)));
  return models;
}

Removed remove_model(const std::string& cache, const ModelId& id, bool only_revision) {
  const std::string root = cache + "/" + id.folder();
  std::error_code ignored;
  if (!fs::is_directory(root, ignored))
    throw LoadError(id.repo() + " is not in " + cache + "; `quire list` shows what is");
  const auto locks = lock_all(cache, id);
  if (!only_revision) {
    const Removed removed = remove_all_of(root);
    remove_file(cache + "/.locks/" + id.folder());
    return removed;
  }
  const auto commit = ModelCache(cache, id).cached_commit();
  if (!commit || !fs::is_directory(root + "/snapshots/" + *commit, ignored))
    throw LoadError(id.repo() + "@" + id.revision + " is not in " + cache +
                    "; `quire list` shows what is");
  Removed removed = remove_snapshot(root, *commit);
  if (entries_of(root + "/snapshots").empty()) {
    const Removed rest = remove_all_of(root);
    removed.bytes += rest.bytes;
    removed.shared += rest.shared;
  }
  return removed;
}

}  // namespace quire::hub
