#pragma once
// Headers that Metal's compiler reads, too, have plain numbers alone, and this in place of
// <cstdint>, which Metal's language has as part of itself.
#ifndef __METAL_VERSION__
#include <cstdint>
#endif
