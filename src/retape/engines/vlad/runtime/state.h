/* The state of a loaded program: its memory, its registers, its last fault. */

#ifndef VLAD_STATE_H
#define VLAD_STATE_H

#include "value.h"

typedef struct Chunk {
  struct Chunk *next;
  size_t used, capacity; /* in words */
  uint64_t word[];
} Chunk;

/* One number of a tape: its value, its adjoint, the partials, and the operands. */
typedef struct Node {
  Val value, adjoint, by_left, by_right;
  uint32_t left, right;
} Node;

#define NO_NODE 0xFFFFFFFFu
#define CALL_NODE 0xFFFFFFFEu /* not an operand: see second_order.h */
#define TAPE_SHIFT 12
#define TAPE_CHUNK (1u << TAPE_SHIFT)

typedef struct Tape {
  Node **chunk;
  size_t chunks, table; /* chunks allocated, places in the table */
  uint32_t length;
  uint32_t young_from; /* numbers from here on may point into the nursery */
  int has_pointers;
} Tape;

#define MAX_LEVEL 100
#define SHADOWS (16 * (MAX_LEVEL + 2))

enum Fault {
  NO_FAULT,
  NOT_REAL,
  NOT_FUNCTION,
  NO_MATCH,
  END_OF_INPUT,
  WRONG_SHAPE,
  TOO_DEEP,
  NO_MEMORY,
  FROM_HOST,
  NOT_VECTOR,
  BAD_INDEX,
  BAD_LENGTH,
  NO_DERIVATIVE,
  PYTHON_FAULT,
  TOO_LARGE,
  NOT_ALIKE,
  NO_PRODUCT,
  OVER_BUDGET,
  GAVE_UP_TYPED
};

/* A stack or list of words, in memory of its own. */
typedef struct Words {
  uint64_t *at;
  size_t count, room;
} Words;

/* What an array held before each of its updates, the oldest first. */
typedef struct Entry {
  uint64_t index;
  Val old;
} Entry;

typedef struct Log {
  Entry *entry;
  size_t count, room;
  double first; /* the version before the first entry */
  int has_pointers;
} Log;

/* What a run that was made to count its steps would have put on the tape of typed code,
   and made of arrays, in so many steps; how many bytes of both a step is, of the dearest;
   a bound of the words that the run held at once; and where there is a budget, the bytes
   of its largest state. */
typedef struct Counted {
  size_t tape, made;
  int64_t steps;
  double dearest;
  size_t grown, state;
} Counted;

/* Handles of a first state, a cotangent and the value, and the number of steps, to the
   handle of a result; -1 for a fault of the host, -2 where typed code gave up. */
typedef int64_t (*Host)(int64_t, int64_t, int64_t, int64_t);

typedef struct {
  /* limit leaves room for the slow road, and that for the rest of a block */
  Val *nursery, *limit, *hard_limit, *nursery_end;
  size_t nursery_words;
  Chunk *old_first, *old_last;
  Chunk *scan_chunk; /* old objects from here on may point into the nursery */
  size_t scan_at;
  size_t old_words, major_at;
  Chunk *from_space; /* while a major collection moves what lives in it */
  Words written; /* old arrays that were given young elements */
  Log *log; /* of the arrays updated since the last major collection */
  size_t logs, log_room, log_base, log_words;
  uint64_t arrays, array_words; /* ever made */
  Val *handle;
  size_t handles, free_handle;
  Val shadow[SHADOWS];
  int shadows;
  Tape tape[MAX_LEVEL + 2];
  int level;
  size_t tape_nodes, peak_tape_nodes;
  size_t mapped, peak_mapped; /* bytes taken from the system */
  size_t budget, most_mapped; /* what a run may take; what may be mapped during it, or 0 */
  size_t peak_old;  /* words in the old space after a collection of the young */
  size_t peak_live; /* bytes in objects and tapes, as seen at collections */
  int exact; /* collect before the live bytes are noted */
  uint64_t minor_count, major_count, allocated;
  /* registers shared by compiled code and the runtime */
  Val *hp;
  Val k;
  int64_t fuel;
  int64_t work, saved; /* of a slice: see `end_slice` */
  int pauses;
  uint64_t made; /* elements of vectors */
  Counted counted;  /* of the run to be reversed */
  Counted *counts;  /* the next run counts, there */
  size_t room;      /* what the run to be reversed may take */
  int holds_others; /* runs that are reversed are in it */
  Val result;
  int32_t site;
  /* a fault, for the host to tell */
  void *handler; /* a jmp_buf */
  enum Fault fault;
  int32_t fault_site;
  Val fault_value, fault_other;
  const char *fault_operator;
  /* what the run under way has read and printed */
  double *inputs;
  size_t input_count, input_room, input_at;
  size_t printed, writes;
  /* the host */
  int (*host_read)(double *);
  int (*host_write)(double);
  Host host_checkpoint;
  int (*host_external)(int32_t, const double *, double *);
  const char *outermost; /* the derivative of level 1 */
  const char *swept_by; /* the derivative whose run the host reverses */
  int planned;          /* the number of `checkpoint-*j` that are under way */
  int deepest;          /* the most that were */
  int whole; /* the host's result of a sweep has cotangents of all the reals of a state */
  int is_boxed; /* the run that the host reverses is one of boxed code */
  int asymmetric; /* there are partials that the user gave */
  int64_t single_stage; /* runs no longer than this are one stage */
  int waypoints; /* the run that counts the steps may leave states on its way */
  int64_t typed_stage; /* runs of typed code that are tried as one stage */
} State;

extern State G;

/* Work after which a slice ends, though few steps may have been made: multiplications of
   a product on doubles, of which a processor makes one to ten in a nanosecond. An element
   that is made is more: its memory is looked at between slices, too. */
#define MOST_WORK ((int64_t)1 << 24)
/* What arrays a stage may make where the caller did not say how long it is. */
#define STAGE_BYTES ((size_t)16 * 1024 * 1024)
#define STAGE_ELEMENTS (STAGE_BYTES / sizeof(Node))
/* Steps of a slice where a plan goes by bytes: those of a slice say what the dearest steps
   take. A slice costs 0.1 us, a step of typed code 0.1 to 0.3 ns. */
#define COUNTED_SLICE ((int64_t)16384)
enum { WORK_OF_ELEMENT = 16, WORK_OF_REAL = 64 };

#endif
