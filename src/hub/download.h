#pragma once
#include <atomic>

#include "hub/cache.h"
#include "hub/http.h"
#include "hub/progress.h"
#include "hub/repository.h"

namespace quire::hub {

// Where and for whom files are fetched.
struct Destination {
  const Settings& settings;
  const ModelId& id;
  const ModelCache& cache;
  const std::string& commit;
  Progress& progress;
  const std::atomic<bool>& stop;
};

// Bytes of a file that are still to come.
uint64_t bytes_to_fetch(const ModelCache& cache, const RemoteFile& file);

// Puts a file into the snapshot, from its blob or from the hub. Goes on with what has come before,
// waits while another process fetches the same blob, and checks the hash: a file that is not what
// the hub named is removed. Throws LoadError.
void fetch_file(HttpClient& client, const Destination& to, const RemoteFile& file);

}  // namespace quire::hub
