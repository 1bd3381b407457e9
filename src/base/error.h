#pragma once
#include <stdexcept>
#include <string>

namespace quire {

// A bad model file or flag, found while loading. The message names the file, the tensor or flag,
// and the remedy. Requests never cause one: what a client can get wrong is returned as a Result.
class LoadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace quire
