#pragma once
extern "C" typedef struct __IOSurface* IOSurfaceRef;
