#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "hub/http.h"
#include "hub/model_id.h"
#include "hub/progress.h"
#include "hub/settings.h"

namespace quire::hub {

// A repository at one commit.
struct Revision {
  std::string commit;
  std::vector<std::string> names;  // of all files
};

// What a hub says about a file.
struct RemoteFile {
  std::string name, url;
  std::string etag;  // of a kind that BlobHash knows
  uint64_t size = 0;
};

// Waits before a request is sent again, and gives up in the end. A server that says how long it
// wants to be left alone is left alone so long.
class Patience {
 public:
  // `failures`: so many in a row are one too many.
  Patience(const Settings& settings, const ModelId& id, std::string file, Progress& progress,
           const std::atomic<bool>& stop, int failures = 5);

  void made_progress() { failed_ = 0; }
  // Throws what the answer means if asking again is of no use, or was often enough.
  void wait(const Response& response);

 private:
  void sleep(double seconds);

  const Settings& settings_;
  const ModelId& id_;
  const std::string file_;
  Progress& progress_;
  const std::atomic<bool>& stop_;
  const int most_;
  int failed_ = 0, waited_ = 0;
};

// Asks the hub what the id's revision is. Throws HubUnreachable or LoadError.
Revision find_revision(HttpClient& client, const Settings& settings, const ModelId& id,
                       Patience patience);
// Asks for a file's hash and size. Throws the same.
RemoteFile find_file(HttpClient& client, const Settings& settings, const ModelId& id,
                     const std::string& commit, const std::string& name, Patience patience);

}  // namespace quire::hub
