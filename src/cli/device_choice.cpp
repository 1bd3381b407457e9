#include "cli/device_choice.h"

#include "base/error.h"

namespace quire::cli {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

DeviceChoice choose_device(const std::string& asked, const std::vector<std::string>& cpu_only,
                           const std::function<ops::CudaSupport()>& find_support) {
  if (asked == "cpu") return {};
  if (asked != "auto" && !cpu_only.empty())
    throw LoadError("--device " + asked + ": only the CPU has " + joined(cpu_only) +
                    "; leave that out, or take --device cpu");
  if (asked == "metal") return {.is_metal = true, .notice = ""};
  const ops::CudaSupport support = find_support();
  if (asked == "cuda" && !support.is_usable) throw LoadError("--device cuda: " + support.reason);
  if (!support.is_usable)
    return {.notice = support.is_there ? "the GPU is not used: " + support.reason : ""};
  if (!cpu_only.empty())
    return {.notice = "the GPU is not used: only the CPU has " + joined(cpu_only)};
  return {.is_cuda = true, .notice = ""};
}

}  // namespace quire::cli
