// Apple's <math.h> asks <float.h> for INFINITY and NAN alone; behind that, the guard of zig's
// libc++ leaves out all else.
#ifdef __need_infinity_nan
#include <__float_infinity_nan.h>
#undef __need_infinity_nan
#else
#include_next <float.h>
#endif
