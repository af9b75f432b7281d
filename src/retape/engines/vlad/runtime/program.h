/* What a program and the runtime, which are compiled apart, have of each other.

   The runtime is the same for all programs, so it is compiled once. A program's own C may
   be several files, which are compiled at the same time. */

#ifndef VLAD_PROGRAM_H
#define VLAD_PROGRAM_H

#include "state.h"
#include "elementary.h"
#include "vector_layout.h"

/* Codes of frames that belong to the runtime; compiled code begins after them. */
enum { HALT, RETURN, APPLY, FIRST_CODE };

enum Operator { FORWARD, REVERSE, CHECKPOINT };

/* A function of the host's, of one or two reals, with the numbers of its partials. */
typedef struct External {
  const char *name;
  int operands, partial[2];
} External;

/* An operator on whole vectors: what it does with an item of each operand, in postfix
   notation; a letter for each operand; the numbers that it mentions. */
typedef struct Each {
  const unsigned char *code;
  const char *kinds;
  const double *number;
  int is_sum;
} Each;

/* Below EACH_NUMBER are operands, then numbers, then operators. */
enum {
  EACH_NUMBER = 32,
  EACH_OF_TWO = 64,
  EACH_OF_ONE = 96,
  EACH_OF_ITEMS = 224,
  EACH_END = 255
};
#define X(name, text) EACH_##name,
enum { BEFORE_TWO = EACH_OF_TWO - 1, OPERATORS_OF_TWO(X) };
enum { BEFORE_ONE = EACH_OF_ONE - 1, OPERATORS_OF_ONE(X) };
enum { BEFORE_ITEMS = EACH_OF_ITEMS - 1, ITEM_OPERATORS(X) };
#undef X

/* Of the runtime. */

_Noreturn void fail(enum Fault fault, const char *op, int32_t site, Val value, Val other);
void *take(size_t bytes);
void collect(void);
Object *small_object(uint32_t code, uint32_t size);
/* The same for a run that stops, where calls are not counted. */
Object *paused_object(uint32_t code, uint32_t size);
Val apply_operator(enum Operator op, Val f, Val x, Val t, Val *k, int32_t site);

double strip(Val v, const char *op, int32_t site);
int is_constant(Val constant, Val v);
/* The steps that a slice has left after much work: none, so that it ends with its block.
   Those that it had are saved. */
int64_t end_slice(int64_t fuel);
/* After an operation that may have taken long. */
#define WORKED                                                    \
  if (UNLIKELY(G.work >= MOST_WORK)) fuel = end_slice(fuel);

Val read_real(int32_t site);
Val write_real(Val v, int32_t site);
Val external(int32_t number, Val a, Val b, int32_t site);
Val make_vector(Val n, Val x, int32_t site);
Val vector_length(Val v, int32_t site);
Val vector_ref(Val v, Val i, int32_t site);
Val vector_set(Val v, Val i, Val x, int32_t site);
Val vector_dot(Val a, Val b, int32_t site);
Val matrix_product(Val shape, Val a, Val b, int32_t site);
Val each(const Each *e, const Val *args, int count, int32_t site);

/* Operators where some operand is no double, and where that is not known. */
#define X(name, text)                          \
  Val slow_##name(Val a, Val b, int32_t site); \
  Val any_##name(Val a, Val b, int32_t site);
OPERATORS_OF_TWO(X)
#undef X
#define X(name, text)                   \
  Val slow_##name(Val a, int32_t site); \
  Val any_##name(Val a, int32_t site);
OPERATORS_OF_ONE(X)
#undef X
Val any_negation(Val a, int32_t site);

/* Of the program. */

/* Run from a frame with so many steps left: 1 if the run stopped at the limit (the
   state is in G.k), 0 if it ended (the value is in G.result). In compiled code. */
int run_slice(Val frame, int64_t fuel);

/* Make the objects that last as long as the program. */
void make_static(void);
extern Val closure[];
extern Object *static_cells[];
extern const size_t closures, cells;
const External *external_of(int32_t number);

/* Words that a block allocates at most. */
extern const size_t max_block_words;

/* Whether there is typed code; if not, the rest is there and not looked at. */
extern const int is_typed;
/* The types of frames, and of values on their way to them; of closures. */
extern const char *const typed_frames[], *const typed_results[], *const typed_entries[];
/* Of what functions give, by a number from 1. */
extern const char *const typed_values[];
/* Run so many steps, and put on the tape what the reverse takes. */
int typed_record(int64_t fuel);
void typed_reverse(void);

#endif
