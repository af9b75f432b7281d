/* The runtime, compiled once for all programs. */

#define VLAD_RUNTIME
#include "api.h"
#include "run_parts.h"
#include "typed_record.h"

State G;
Typed T;
