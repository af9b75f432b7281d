/* Around parts that are compiled later: the program's data are there. */

#ifndef VLAD_APART_H
#define VLAD_APART_H

#include "there.h"

extern There there;
extern const Part parts[];

#define G (*there.state)
#define X (*there.exchange)
#define passed there.passed
#define closure there.closure

#endif
