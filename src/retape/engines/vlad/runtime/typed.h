/* Typed code: what the C of `compiler/typed` and of its reverse runs on.

   The compiler knows of some functions that all their variables are reals, booleans,
   vectors of reals, and tuples of those. It makes two C functions of them: `typed_record`
   runs them on plain doubles and puts on a tape, for each way through a block, the
   operands that its derivative needs, and the number of the way; `typed_reverse` reads
   the tape backwards. A frame is then a few words of a stack, and beside each word that
   is a real stands its adjoint.

   A run that is reversed is of typed code from its beginning to its end, or of boxed code.
   Whatever is out of the ordinary (a fault, a value of another type, a NaN) makes typed
   code give up, so that boxed code does the run again, once, and says what there is to
   say. */

#ifndef VLAD_TYPED_H
#define VLAD_TYPED_H

#include "program.h"

/* A vector of reals. It is another's memory soon after nothing holds it any more. */
typedef struct Row {
  struct Row *next;
  uint32_t length, is_kept; /* for an adjoint: an assignment makes another row */
  uint64_t version, seen, trace;
  double value[];
} Row;

/* An item of a list of reals. Its adjoint is the negative zero, to which anything can be
   added, until a cotangent has been put there. Where nothing is to be reversed, the place
   has the cell's number for a while, or where it is now (see `typed_cells.h`). */
typedef struct Cell {
  double value;
  struct Cell *next;
  double adjoint;
} Cell;

#ifndef BLOCK_CELLS
#define BLOCK_CELLS ((size_t)1024)
#endif

typedef struct CellBlock {
  struct CellBlock *next;
  Cell cell[BLOCK_CELLS];
} CellBlock;

/* What a reverse has of a row: adjoints, from when one of them is not zero to when what
   made it has been reversed; and the row, if an adjoint needs its values. */
typedef struct Trace {
  Row *adjoint, *row;
  size_t length;
} Trace;

typedef union Word {
  double d;
  uint64_t u;
  Row *row;
  Cell *cell;
} Word;

#define PIECE_WORDS ((size_t)16 * 1024)

/* Pieces that are kept for the next stage: pages of new ones cost more than the code. */
#define KEPT_PIECES 32

/* Steps after which a run lets signals in and looks for dead rows, and bytes that they
   may have. */
#ifndef SLICE
#define SLICE ((int64_t)100000)
#endif
#ifndef ROW_SLACK
#define ROW_SLACK ((size_t)256 * 1024)
#endif
#ifndef BLOCK_SLACK
#define BLOCK_SLACK ((size_t)8)
#endif

/* Memory that rows have given back: see `typed_blocks.h`. */
#define SPARE_LENGTHS 64
#define SPARE_BYTES ((size_t)1024 * 1024)

/* Blocks of cells that are kept for the next stage. */
#define SPARE_BLOCKS 64

/* A part of the tape; its first word leads back to the one before. */
typedef struct Piece {
  struct Piece *before, *after;
  Word *filled; /* where the tape went on in the next piece */
  Word word[PIECE_WORDS];
} Piece;

/* The numbers on the tape that are no way through a block; those of code come after. */
enum { TAPE_BEGIN, TAPE_PIECE, TAPE_END, FIRST_MARK };

enum { GAVE_UP, STOPPED, ENDED, FILLED };

typedef struct {
  Word *stack, *at, *top;
  double *adjoint;
  size_t adjoint_room;
  Piece *first, *piece;
  Word *tape;
  Row *rows;
  Trace *trace; /* of rows that are or may have been on the tape */
  size_t traces, trace_room;
  Words loaded_rows, cells; /* of a state, in the order of a walk */
  uint64_t walk;
  int64_t fuel;   /* what a run has left */
  int forgetful;  /* the tape is not kept: nothing is to be reversed */
  int gives; /* the number of the type of the value, whose words are at `at` */
  const Word *reversed; /* where a part of the reverse has come to */
  double *adjoint_at;
  size_t bytes, peak_bytes;
  size_t row_bytes, peak_row_bytes; /* of all rows */
  size_t made_bytes; /* of all that were made, as if they and adjoints were kept */
  size_t forgotten;  /* bytes that were on a tape which is not kept */
  Counted counted;   /* of a run whose tape is not kept */
  size_t sweep_at;   /* bytes of rows after which a slice ends */
  size_t enough_blocks; /* of cells, after which the dead are looked for */
  size_t most_bytes; /* of rows, after which a run is FILLED; 0 if there is no bound */
  size_t peak_live; /* of those that a sweep left, at most */
  Cell *cell, *cell_end;
  CellBlock *blocks, *block, *spare_blocks;
  size_t block_count, spare_block_count;
  size_t peak_cells; /* bytes of those that a collection left, at most */
  Row *spare[2 * SPARE_LENGTHS];
  size_t spare_bytes;
} Typed;

extern Typed T;

/* What the bodies of typed functions are made of. */

#define ROOM                                                      \
  if (UNLIKELY(tp >= end)) {                                      \
    tp = next_piece(tp);                                          \
    end = T.piece->word + PIECE_WORDS - most;                     \
  }

#define STACK(count)                                              \
  if (UNLIKELY(sp + (count) > top)) {                             \
    sp = larger_stack(sp);                                        \
    top = T.top;                                                  \
  }

/* A place that the current version of a vector has. What is no integer, or below zero,
   is another double when it comes back, or a large place. */
#define ROW_PLACE(row, at, i)                                     \
  const uint64_t place = (uint64_t)(int64_t)(i);                  \
  if (UNLIKELY(!((at) == (row)->version && place < (row)->length && \
                 (double)(int64_t)place == (i))))                 \
    goto GIVE_UP;

/* The same of what is whole for sure. */
#define ROW_WHOLE_PLACE(row, at, i)                               \
  const uint64_t place = (uint64_t)(i);                           \
  if (UNLIKELY(!((at) == (row)->version && place < (row)->length))) goto GIVE_UP;

/* An integer as a double. Of `0.0 - (double)i` in one expression gcc 12 makes `-(double)i`,
   which is the other zero. */
static inline double real_of(int64_t i) { return (double)i; }

/* An integer that a double would be, too. */
#define MOST_WHOLE ((int64_t)1 << 53)
#define SMALL(i)                                                  \
  if (UNLIKELY((i) <= -MOST_WHOLE || (i) >= MOST_WHOLE)) goto GIVE_UP;
#define WHOLE(i, x)                                               \
  if (UNLIKELY(!(fabs(x) < (double)MOST_WHOLE))) goto GIVE_UP;    \
  (i) = (int64_t)(x);
#define PRODUCT(i, a, b)                                          \
  if (UNLIKELY(__builtin_mul_overflow(a, b, &(i)))) goto GIVE_UP;  \
  SMALL(i)

#define ROW_LENGTH(n)                                             \
  if (UNLIKELY(!((n) >= 0.0 && (n) <= MAX_LENGTH && (double)(uint32_t)(n) == (n)))) goto GIVE_UP;

/* Codes on the typed stack: those of frames; of a value on its way to a frame; of a
   function about to be entered by a closure. */
#define RETURN_TO ((uint64_t)1 << 30)
#define ENTER_BY ((uint64_t)1 << 29)

/* A new item before a list. */
#define CELL(made, x, rest)                                       \
  {                                                               \
    if (UNLIKELY(T.cell == T.cell_end)) next_block();             \
    Cell *const cell = T.cell++;                                  \
    cell->value = (x);                                            \
    cell->next = (rest);                                          \
    cell->adjoint = -0.0;                                         \
    (made) = cell;                                                \
  }

/* What an adjoint will need of a row. */
#define KEPT(row) (row)->is_kept = 1;

#define ROW_CURRENT(row, at)                                      \
  if (UNLIKELY((at) != (row)->version)) goto GIVE_UP;
#define ROWS_ALIKE(a, at_a, b, at_b)                              \
  ROW_CURRENT(a, at_a) ROW_CURRENT(b, at_b)                       \
  if (UNLIKELY((a)->length != (b)->length)) goto GIVE_UP;

/* Loops over rows are worth more of the C compiler's time than all else of a program,
   which has `-O1` as a rule. gcc's alone: without it clang vectorises what it is told. */
#if defined(__GNUC__) && !defined(__clang__)
#define VECTORISED __attribute__((optimize("O3"), noinline))
#else
#define VECTORISED
#endif

/* Of the runtime. */

/* A row whose values are to be filled in. */
Row *made_row(size_t length);
/* The adjoints of a row, which are zero at first. */
Row *new_adjoint(uint64_t trace);
static inline double *adjoint_of(uint64_t trace) {
  Row *r = T.trace[trace].adjoint;
  return (LIKELY(r != NULL) ? r : new_adjoint(trace))->value;
}
/* Its values, if it was kept. */
static inline const double *values_of(uint64_t trace) { return T.trace[trace].row->value; }
static inline size_t row_length(uint64_t trace) { return T.trace[trace].length; }
/* What made a row has been reversed, so nothing needs it any more. */
void row_ends(uint64_t trace);
/* Whether any adjoint of a row is not zero. */
int row_is_used(uint64_t trace);
double row_dot(const Row *a, const Row *b);
void row_dot_back(double g, uint64_t a, uint64_t b);
Row *row_product(double rows, double columns, const Row *a, const Row *b);
void row_product_back(uint64_t c, double columns, uint64_t a, uint64_t b);
Row *own_row(Row *r);
void row_back(uint64_t own, uint64_t row);
Row *full_row(size_t length, double value);
/* The adjoint of what a vector was full of when it was made. */
double row_adjoint(uint64_t trace);
/* Room for more cells. */
void next_block(void);
/* The next piece of the tape, after one that is filled up to `tape`. */
Word *next_piece(Word *tape);
/* A larger stack; its contents move. */
Word *larger_stack(Word *at);

#endif
