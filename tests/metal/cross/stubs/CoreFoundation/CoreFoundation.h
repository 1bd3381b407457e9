#pragma once
#include <cstdint>
extern "C" {
typedef const void* CFTypeRef;
typedef const struct __CFString* CFStringRef;
typedef double CFTimeInterval;
typedef double CGFloat;
}
#define CFSTR(text) ((CFStringRef)(text))
