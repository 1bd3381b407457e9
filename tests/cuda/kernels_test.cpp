// Kernels against float64, and their speed: cuda_kernels_test [few] [I/N] [PART ...], of the parts
// in main(); without any, all checks. few: small cases alone. I/N: the I-th of N programs that
// share the cases of `linear` and `blocks`, I from 0 on.
#include <algorithm>

#include "harness.h"

namespace quire::ops::cuda_test {

double time_us(CudaStream stream, const std::function<void(CudaStream)>& run, int count) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  for (int i = 0; i < count; ++i) run(stream);
  check_cuda(cudaStreamEndCapture(stream, &graph), "end of capture");
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<double> times;
  for (int i = 0; i < 7; ++i) {
    cudaEventRecord(begin, stream);
    check_cuda(cudaGraphLaunch(executable, stream), "launch");
    cudaEventRecord(end, stream);
    check_cuda(cudaEventSynchronize(end), "run");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms * 1e3 / count);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace quire::ops::cuda_test

int main(int argc, char** argv) {
  using namespace quire::ops::cuda_test;
  {
    cudaStream_t stream;
    check_cuda(cudaStreamCreate(&stream), "no device");
    std::vector<std::string> asked(argv + 1, argv + argc);
    few = std::erase(asked, "few") > 0;
    std::erase_if(asked, [](const std::string& word) {
      return std::sscanf(word.c_str(), "%d/%d", &shard, &shards) == 2;
    });
    const auto wants = [&](const std::string& what) {
      if (asked.empty()) return !what.starts_with("bench") && !what.starts_with("plant");
      return std::find(asked.begin(), asked.end(), what) != asked.end();
    };
    const std::pair<const char*, void (*)(quire::ops::CudaStream)> parts[] = {
        {"kernel_choice", check_kernel_choice},
        {"elementwise", check_elementwise},
        {"linear", check_linear},
        {"blocks", check_blocks},
        {"long_rows", check_long_rows},
        {"attention", check_attention},
        {"new_keys", check_new_keys},
        {"bench_linear", bench_linear},
        {"bench_long_rows", bench_long_rows},
        {"bench_attention", bench_attention},
        {"bench_designs", bench_designs},
        {"bench_step", bench_step},
        {"state", check_state},
        {"sample", check_sample},
        {"experts", check_experts},
        {"large_pools", check_large_pools},
        {"plant_overrun", plant_overrun},
        {"plant_race", plant_race},
        {"plant_divergence", plant_divergence},
    };
    for (const std::string& word : asked) {
      if (std::ranges::any_of(parts, [&](const auto& part) { return part.first == word; }))
        continue;
      std::printf("there is no part %s\n", word.c_str());
      return 2;
    }
    for (const auto& [what, run] : parts)
      if (wants(what)) run(stream);
    cudaStreamDestroy(stream);
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
