#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hub/model_id.h"

namespace quire::hub {

// The commit that a file in refs/ names; nothing if there is none or it names no commit.
std::optional<std::string> read_ref(const std::string& path);

// A model's folder in the cache that huggingface_hub keeps, too:
//   CACHE/models--ORG--NAME/blobs/ETAG          a file's bytes
//                          /blobs/ETAG.incomplete  what has come of them
//                          /refs/REVISION       the commit that it was last
//                          /snapshots/COMMIT/FILE  a relative link to the blob
//   CACHE/.locks/models--ORG--NAME/ETAG.lock    held by who writes that blob
class ModelCache {
 public:
  ModelCache(std::string cache, ModelId id);

  const std::string& root() const { return root_; }
  std::string snapshot(const std::string& commit) const { return root_ + "/snapshots/" + commit; }
  std::string blob(const std::string& etag) const { return root_ + "/blobs/" + etag; }
  std::string partial(const std::string& etag) const { return blob(etag) + ".incomplete"; }
  std::string lock(const std::string& etag) const;

  // The commit that the id's revision was when it was last fetched; nothing if it never was.
  std::optional<std::string> cached_commit() const;
  // The folders for a commit, and the tag by which backups know a cache. Throws LoadError.
  void make_folders(const std::string& commit) const;
  bool has_file(const std::string& commit, const std::string& file) const;
  // Whether the blob is there as a whole; one of another size is removed.
  bool has_blob(const std::string& etag, uint64_t size) const;
  // Makes snapshots/COMMIT/FILE a link to the blob, in one step. Throws LoadError.
  void link(const std::string& commit, const std::string& file, const std::string& etag) const;
  // Notes in refs/ what commit the revision is now. Throws LoadError.
  void set_commit(const std::string& commit) const;

 private:
  std::string cache_, root_;
  ModelId id_;
};

// A lock on a file that stays, as huggingface_hub's: an flock that ends with the process.
class BlobLock {
 public:
  // Throws LoadError if the file cannot be made.
  explicit BlobLock(const std::string& path);
  ~BlobLock();
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;

  // False while another process has it.
  bool try_take();

 private:
  std::string path_;
  int fd_ = -1;
};

// Bytes that may still be written below `folder`, or where it would be.
uint64_t free_bytes(const std::string& folder);

}  // namespace quire::hub
