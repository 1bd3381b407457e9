#pragma once
#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

namespace quire::cli {

// For flags whose empty value would count as none: that of a variable that is not set would open a
// port that was to be guarded.
inline CLI::Validator not_empty() {
  return {[](const std::string& text) {
            return text.empty() ? std::string("is empty; is a variable not set?") : std::string();
          },
          ""};
}

// Beside CLI::Range, which every comparison with a NaN passes.
inline CLI::Validator not_nan() {
  return {[](const std::string& text) {
            double value = 0;
            const bool is_nan = CLI::detail::lexical_cast(text, value) && std::isnan(value);
            return is_nan ? std::string("must be a number") : std::string();
          },
          ""};
}

// "/health".
inline CLI::Validator path_of_url() {
  return {[](const std::string& text) {
            return text.starts_with('/') ? std::string() : text + " must begin with /";
          },
          ""};
}

// "/quire": what may stand in front of a path. Nothing: no prefix.
inline CLI::Validator path_prefix() {
  return {[](const std::string& text) {
            const bool good = text.empty() || (text.front() == '/' && text.back() != '/');
            return good ? std::string() : std::string("must begin with / and not end with it");
          },
          ""};
}

}  // namespace quire::cli
