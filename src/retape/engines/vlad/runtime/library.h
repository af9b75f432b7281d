/* What is used of C's library. Its headers are sixty files, which gcc 12 reads in 26 ms: a
   program's own files do without them. They are read for the runtime, which is compiled
   once. */

#ifndef VLAD_LIBRARY_H
#define VLAD_LIBRARY_H

#ifdef VLAD_RUNTIME
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#else
typedef __SIZE_TYPE__ size_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
#define NULL ((void *)0)
#define NAN __builtin_nan("")
#define HUGE_VAL __builtin_huge_val()
#define isfinite __builtin_isfinite
#define isinf __builtin_isinf
#define isnan __builtin_isnan
#define memcpy __builtin_memcpy
double copysign(double, double), fmod(double, double), rint(double);
FUNCTIONS_OF_THE_LIBRARY
#endif

#endif
