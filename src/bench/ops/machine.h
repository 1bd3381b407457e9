#pragma once
#include <string>

namespace quire::bench {

// "AMD EPYC 9554 64-Core Processor", as the system names it.
std::string cpu_model();

// The same with what tells processors apart whose names are alike: "AMD EPYC, family 26 model 17".
std::string cpu_kind();

}  // namespace quire::bench
