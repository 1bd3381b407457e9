#pragma once
#include "golden.h"
#include "runner.h"

namespace quire::parity {

// Fails the test unless the answer has the golden tokens and log-probabilities, in float32. `worst`
// becomes the greatest difference, if it is one.
void expect_case(const GoldenCase& golden, const Answer& answer, double& worst);

}  // namespace quire::parity
