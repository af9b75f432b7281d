/* The runtime, compiled once for all programs. */

#include "api.h"

State G;
Typed T;
