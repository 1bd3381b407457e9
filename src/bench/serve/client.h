#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/serve/stream.h"

namespace quire::bench {

// Where a server is. `prefix` comes before every path.
struct ServerAddress {
  std::string host, port, prefix;
};

// Of http://HOST[:PORT][/PREFIX]. Throws LoadError for anything else; https is not spoken.
ServerAddress parse_base_url(const std::string& url);

struct LoadRequest {
  std::string body;        // JSON, with "stream": true
  double arrival = 0;      // seconds after the start
  int64_t prompt_len = 0;  // what the client counts
  std::string path = {};   // empty: LoadOptions::path
};

// How one request went. Times in seconds.
struct LoadRecord {
  bool ok = false;
  std::string error = {};
  double start = 0;    // when it was sent, from the start of the run
  double ttft = 0;     // from sending to the first token
  double latency = 0;  // from sending to the last token
  std::vector<double> itl =
      {};                  // between tokens that came apart; those that came together are 0 apart
  int64_t prompt_len = 0;  // as the server counts, if it does
  int64_t output_len = 0;  // likewise, else the number of chunks
  int64_t cached_len = 0;  // of the prompt, from the server's prefix cache, as it counts
  StreamedAnswer answer = {};
};

struct LoadOptions {
  ServerAddress server;
  std::string path;             // "/v1/completions"
  std::string authorization;    // header value; empty: none
  int64_t max_concurrency = 0;  // 0: any
  // An answer that ended without a token is one, with the time of its end; else it has failed.
  bool takes_empty_answers = false;
};

// Sends the requests at their times, on one thread, and reads the streamed answers to the end.
// Connections are kept and used again. Returns the records in the order of the requests.
std::vector<LoadRecord> run_load(const LoadOptions& options,
                                 const std::vector<LoadRequest>& requests);

// The body of a GET. Throws LoadError if there is no server or the status is not 200.
std::string http_get(const LoadOptions& options, const std::string& path);

// The first name that the server answers to. Throws LoadError.
std::string served_model(const LoadOptions& options);

}  // namespace quire::bench
