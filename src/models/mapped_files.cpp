#include "models/mapped_files.h"

namespace quire::models {

std::shared_ptr<const formats::FileSnapshot> MappedFiles::of(const formats::DataFile& file) {
  const auto [entry, is_new] = snapshots_.emplace(&file, nullptr);
  if (!is_new) return entry->second;
  formats::FileSnapshot::Taken taken = take_(file);
  if (taken) {
    entry->second = std::move(*taken);
  } else if (reason_.empty()) {
    reason_ = taken.error();
  }
  return entry->second;
}

}  // namespace quire::models
