#pragma once
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "hub/model_id.h"

namespace quire::hub {

struct CachedRevision {
  std::string commit;
  std::vector<std::string> refs;  // branches and tags that were this commit when it was fetched
  std::string folder;
  std::string missing;  // the first file that a model lacks; empty: it has all
  std::time_t fetched = 0;
};

struct CachedModel {
  ModelId id;          // without a revision
  uint64_t bytes = 0;  // of its files, each counted once
  std::vector<CachedRevision> revisions;
};

// The models in a cache, by name, whoever put them there.
std::vector<CachedModel> list_cache(const std::string& cache);

struct Removed {
  uint64_t bytes = 0;   // that are free now
  uint64_t shared = 0;  // left in the part of the cache that all models share
};

// Removes a model from a cache: all of it, or only the snapshot of `revision` (a branch, tag or
// commit) and what no other snapshot has. Throws LoadError if it is not there, or while another
// process fetches it.
Removed remove_model(const std::string& cache, const ModelId& id, bool only_revision);

}  // namespace quire::hub
