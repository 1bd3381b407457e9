#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "formats/data_file.h"

namespace quire::models {

// What of a model's weights a device uses where their files are mapped.
struct MappedWeights {
  size_t bytes = 0;         // of Model::weight_bytes()
  std::string reason = {};  // why a file is not mapped, for people; empty: all are
};

// Snapshots of a checkpoint's files, for a device that uses weights where they are mapped.
class MappedFiles {
 public:
  using Take = std::function<formats::FileSnapshot::Taken(const formats::DataFile&)>;
  // `take` makes the snapshot of a file.
  explicit MappedFiles(Take take) : take_(std::move(take)) {}

  // The snapshot of a file, made when it is first asked for; null: there can be none. Throws
  // LoadError as DataFile::snapshot.
  std::shared_ptr<const formats::FileSnapshot> of(const formats::DataFile& file);
  // Why the first file that has none has none; empty: all have one.
  const std::string& reason() const { return reason_; }

 private:
  Take take_;
  std::map<const formats::DataFile*, std::shared_ptr<const formats::FileSnapshot>> snapshots_;
  std::string reason_;
};

}  // namespace quire::models
