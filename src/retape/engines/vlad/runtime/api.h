/* What the host calls. Every call takes one record and returns 0, or 1 for a fault that
   is described by vlad_fault. Values live in handles, which the host frees. */

#ifndef VLAD_API_H
#define VLAD_API_H

#include "second_order.h"
#include "typed_advance.h"

typedef struct Request {
  int64_t a, b, c, d, e, f;          /* in */
  int64_t r, s, t, u;                /* out */
  double *reals;                     /* in or out: reals of a value */
  int32_t *tokens;                   /* in or out: its shape, from the root */
  void *words;                       /* in: of an image; out: tokens, if there is room */
} Request;

#define EXPORT __attribute__((visibility("default")))

/* Words of the nursery that are left to the runtime between two safe points. */
#ifndef RESERVE
#define RESERVE ((size_t)8 * 1024)
#endif

/* Run a body; on a fault, leave the levels and shadows as they were. */
static int guarded(void (*body)(Request *), Request *q) {
  jmp_buf here;
  void *outer = G.handler;
  int level = G.level, shadows = G.shadows, planned = G.planned, pauses = G.pauses;
  int64_t saved = G.saved;
  G.k = G.result = NOTHING;
  G.handler = &here;
  if (setjmp(here) == 0) {
    body(q);
    G.handler = outer;
    G.k = G.result = NOTHING;
    G.shadows = shadows;
    return 0;
  }
  G.handler = outer;
  while (G.level > level) leave_level();
  G.shadows = shadows;
  G.planned = planned + 1;
  end_planned();
  G.counts = NULL;
  G.saved = saved;
  G.pauses = pauses;
  return 1;
}

/* What lets signals in, in the order of `python`. */
EXPORT void vlad_signals(void **function) { memcpy(&python, function, sizeof python); }

/* Raise what a signal's handler raised; called with Python's lock. */
EXPORT int vlad_reraise(void) {
  if (!paused.type) return 0;
  python.restore(paused.type, paused.value, paused.traceback);
  paused.type = paused.value = paused.traceback = NULL;
  return 1;
}

static void begin(Request *q) {
  size_t words = (size_t)q->a;
  if (words < 4 * RESERVE + 4 * max_block_words)
    words = 4 * RESERVE + 4 * max_block_words;
  G.nursery_words = words;
  G.nursery = take((words + max_block_words) * sizeof(Val));
  G.hp = G.nursery;
  G.hard_limit = G.nursery + words;
  G.nursery_end = G.hard_limit + max_block_words;
  G.limit = G.hard_limit - RESERVE;
  G.old_first = G.old_last = G.scan_chunk = new_chunk(0);
  G.major_at = 4 * CHUNK_WORDS;
  make_static();
}

EXPORT int vlad_begin(Request *q, int (*read)(double *), int (*write)(double),
                      Host host, int (*call)(int32_t, const double *, double *)) {
  G.host_read = read;
  G.host_write = write;
  G.host_checkpoint = host;
  G.host_external = call;
  G.single_stage = q->b;
  G.asymmetric = (int)q->c;
  return guarded(begin, q);
}

EXPORT void vlad_plan(int64_t steps, int64_t typed, int waypoints, int64_t budget) {
  G.budget = (size_t)budget;
  G.single_stage = steps;
  G.typed_stage = typed;
  G.waypoints = waypoints;
}

/* Apply function f to a value. */
static Val applied(int64_t f, Val argument) {
  Val value, first = application(closure[f], argument);
  int at = shadow(first);
  if (!typed_value(first, &value)) {
    run(G.shadow[at], NO_LIMIT);
    value = G.result;
  }
  G.shadows = at;
  return value;
}

/* The run goes on by typed code no more: `checkpoint_from` begins it again. */
static void give_up_typed(void) { fail(GAVE_UP_TYPED, "", -1, NOTHING, NOTHING); }

static void set_marks(const Request *q) {
  rewind_to((Marks){(size_t)q->e, (size_t)q->f});
}
static void get_marks(Request *q) {
  q->t = (int64_t)G.input_at;
  q->u = (int64_t)G.writes;
}

/* Typed code has no safe points: collect, after what it left in the old space. */
static void tidy(void) {
  if (G.old_words + G.log_words <= G.major_at) return;
  G.k = G.result = NOTHING;
  collect();
}

/* Advance state a, at step c, by b steps: the new state's handle in r (-1 at the end), the steps
   that are left over in s. */
static void advance(Request *q) {
  int stopped;
  Val state;
  set_marks(q);
  if (G.is_boxed) {
    stopped = run(thawed(G.handle[q->a]), q->b);
    state = G.k;
  } else {
    int64_t steps = q->b;
    Val from = thawed(nearest(q->a, q->c, &steps));
    if (!typed_advance(from, steps, &state, &stopped)) give_up_typed();
  }
  q->s = G.fuel;
  q->r = stopped ? new_handle(state) : -1;
  tidy();
  get_marks(q);
}
EXPORT int vlad_advance(Request *q) { return guarded(advance, q); }

/* Reverse a stage of b steps from state a, with cotangents c; with d, the last stage,
   with the value's cotangent c: its handle in s. The cotangents' in r. */
static void reverse_stage(Request *q) {
  Val v = NOTHING, value = NOTHING;
  set_marks(q);
  int64_t steps = q->d ? NO_LIMIT : q->b;
  Val first = thawed(G.handle[q->a]), given = G.handle[q->c];
  if (G.is_boxed)
    v = boxed_stage(first, steps, given, (int)q->d, &value, G.swept_by, G.site);
  else if (typed_stage(first, steps, given, (int)q->d, 0, &value, &v) != DONE)
    give_up_typed();
  q->r = new_handle(v);
  q->s = q->d ? new_handle(value) : -1;
  tidy();
  get_marks(q);
}
EXPORT int vlad_stage(Request *q) { return guarded(reverse_stage, q); }

/* The pair of value a and the cotangents, from b, of first state c. */
static void finish(Request *q) {
  q->r = new_handle(swept(G.handle[q->a], G.handle[q->c], G.handle[q->b], G.whole));
}
EXPORT int vlad_finish(Request *q) { return guarded(finish, q); }

/* Another handle of value a. */
static void same(Request *q) { q->r = new_handle(G.handle[q->a]); }
EXPORT int vlad_same(Request *q) { return guarded(same, q); }

EXPORT void vlad_marks(Request *q) { get_marks(q); }

EXPORT void vlad_free(int64_t handle) { free_handle(handle); }

static void bytes(Request *q) {
  Val v = G.handle[q->a];
  q->r = (int64_t)(is_frozen(v) ? frozen_bytes(v) : graph_bytes(v));
}
EXPORT int vlad_bytes(Request *q) { return guarded(bytes, q); }

/* State a in memory of its own: its handle in r. */
static void freeze(Request *q) { q->r = new_handle(frozen(G.handle[q->a])); }
EXPORT int vlad_freeze(Request *q) { return guarded(freeze, q); }

/* The words of value a, which stay until the next image: their number in r. */
static void pack(Request *q) {
  const Val v = G.handle[q->a];
  image.count = 0;
  if (!is_frozen(v)) write_image(v);
  for (size_t i = 0; is_frozen(v) && i < object(v)->field[0]; i++)
    push(&image, object(v)->field[1 + i]);
  q->r = (int64_t)image.count;
}
EXPORT int vlad_pack(Request *q) { return guarded(pack, q); }

EXPORT void vlad_packed(uint64_t *words) {
  memcpy(words, image.at, image.count * sizeof(uint64_t));
}

/* A value from a words. */
static void unpack(Request *q) {
  size_t count = (size_t)q->a;
  q->r = new_handle(is_capsule(q->words) ? frozen_of(q->words, count)
                                         : read_image(q->words, count));
}
EXPORT int vlad_unpack(Request *q) { return guarded(unpack, q); }

/* The number of derivatives that are being taken, in r; which one is outermost. */
EXPORT const char *vlad_outermost(Request *q) {
  q->r = G.level;
  return G.outermost;
}

/* Tokens of a shape: what an element is, -(1 + c) for a closure of code c, A_VECTOR + n
   for a vector of n, REALS + n for one whose elements are n of the reals. */
enum Token { A_REAL, A_PAIR, AN_EMPTY, A_FALSE, A_TRUE, A_VECTOR, REALS = 1 << 30 };

static Words export_tokens, export_reals;

/* The reals of a vector without derivatives and without anything else in it. */
static int export_row(Val v) {
  uint32_t size;
  const Val *element = contents(v, &size);
  for (uint32_t i = 0; i < size; i++)
    if (!is_double(element[i])) return 0;
  for (uint32_t i = 0; i < size; i++) push(&export_reals, element[i]);
  return 1;
}

/* A value as tokens and reals, from left to right; tokens in r, reals in s. */
static void export_to(Request *q, Val value) {
  export_tokens.count = export_reals.count = walk_a.count = 0;
  push(&walk_a, value);
  while (walk_a.count) {
    Val v = walk_a.at[--walk_a.count];
    int32_t token = A_REAL;
    if (is_real(v))
      push(&export_reals, box(strip(v, "", -1)));
    else if (tag_of(v) == TAG_PAIR)
      token = A_PAIR;
    else if (tag_of(v) == TAG_CLOSURE)
      token = -1 - (int32_t)code_of(object(v));
    else if (tag_of(v) == TAG_VECTOR)
      token = (export_row(v) ? REALS : A_VECTOR) + (int32_t)length_of(array_of(object(v)));
    else
      token = v == FALSE ? A_FALSE : v == TRUE ? A_TRUE : AN_EMPTY;
    push(&export_tokens, (uint64_t)(uint32_t)token);
    if (token < REALS && (tag_of(v) == TAG_PAIR || tag_of(v) == TAG_VECTOR))
      push_fields(&walk_a, v);
  }
  q->r = (int64_t)export_tokens.count;
  q->s = (int64_t)export_reals.count;
}
EXPORT void vlad_exported(int32_t *tokens, double *reals) {
  for (size_t i = 0; i < export_tokens.count; i++)
    tokens[i] = (int32_t)(uint32_t)export_tokens.at[i];
  memcpy(reals, export_reals.at, export_reals.count * sizeof(double));
}

/* A value from a tokens and b reals. */
static Val imported(const Request *q) {
  const double *real = q->reals + q->b;
  walk_a.count = 0;
  for (int64_t i = q->a; i-- > 0;) {
    if (q->tokens[i] >= REALS) {
      uint32_t length = (uint32_t)(q->tokens[i] - REALS);
      Object *a = new_array(length);
      real -= length;
      for (uint32_t j = 0; j < length; j++)
        a->field[ARRAY_HEAD + j] = box(isnan(real[j]) ? NAN : real[j]);
      push(&walk_a, version(old_object(0, VECTOR_WORDS), a));
      continue;
    }
    switch (q->tokens[i]) {
      case A_REAL: {
        double d = *--real;
        push(&walk_a, box(d == d ? d : NAN));
        break;
      }
      case A_PAIR: {
        Val car = walk_a.at[--walk_a.count];
        Val cdr = walk_a.at[--walk_a.count];
        push(&walk_a, make_pair(car, cdr));
        break;
      }
      case AN_EMPTY: push(&walk_a, EMPTY); break;
      case A_FALSE: push(&walk_a, FALSE); break;
      case A_TRUE: push(&walk_a, TRUE); break;
      default: {
        uint32_t length = (uint32_t)(q->tokens[i] - A_VECTOR);
        Object *a = new_array(length);
        for (uint32_t j = 0; j < length; j++)
          a->field[ARRAY_HEAD + j] = walk_a.at[--walk_a.count];
        push(&walk_a, version(old_object(0, VECTOR_WORDS), a));
        break;
      }
    }
  }
  return walk_a.at[0];
}
/* Apply function c to a tokens and b reals: what the value is exported as, tokens in r
   and reals in s. If there is room, for d reals where the argument's are and for e tokens
   in words, it is there, and t is 1. */
static void call_program(Request *q) {
  export_to(q, applied(q->c, imported(q)));
  tidy();
  q->t = q->r <= q->e && q->s <= q->d;
  if (q->t) vlad_exported(q->words, q->reals);
}

/* -1 for a fault; 0 for a number, and one more than the items of an array, where there was
   room for it; -2 for any other value. */
EXPORT int64_t vlad_call(Request *q) {
  if (guarded(call_program, q)) return -1;
  if (!q->t || q->r != 1) return -2;
  int32_t token = *(const int32_t *)q->words;
  return token >= REALS ? 1 + token - REALS : token == A_REAL ? 0 : -2;
}

/* The value of function a, which takes nothing, exported; the steps in t. */
static void evaluate(Request *q) {
  Val value = applied(q->a, EMPTY);
  q->t = NO_LIMIT - G.fuel;
  export_to(q, value);
}
EXPORT int vlad_evaluate(Request *q) { return guarded(evaluate, q); }

/* An operator c applied to function d and the pair of a tokens and b reals. */
static void operate(Request *q) {
  Val k = NOTHING;
  const Object *given = object(imported(q));
  export_to(q, apply_operator((enum Operator)q->c, closure[q->d], given->field[0],
                              given->field[1], &k, -1));
}
EXPORT int vlad_operate(Request *q) { return guarded(operate, q); }

/* The fault: its kind in a, its site in b, the site of the last application in c; returns
   the operator's name. */
EXPORT const char *vlad_fault(Request *q) {
  q->a = G.fault;
  q->b = G.fault_site;
  q->c = G.site;
  return G.fault_operator;
}

/* The pair of the values in it. To be asked after the frames that wait, which it forgets. */
static void culprits(Request *q) { export_to(q, make_pair(G.fault_value, G.fault_other)); }
EXPORT int vlad_culprits(Request *q) { return guarded(culprits, q); }

/* The codes of the frames that wait, the innermost first. */
EXPORT int64_t vlad_chain(int32_t *code, int64_t room) {
  int64_t n = 0;
  for (Val k = G.k; n < room && tag_of(k) == TAG_FRAME; k = object(k)->field[0]) {
    if (code_of(object(k)) == HALT) break;
    code[n++] = (int32_t)code_of(object(k));
  }
  return n;
}

/* Collect everything, then tell what `Measured` in `load/_native.py` says, in its order. */
static void measured(Request *q) {
  collect_all();
  int64_t *to = q->words;
  *to++ = (int64_t)(G.peak_tape_nodes * sizeof(Node));
  *to++ = (int64_t)G.peak_live;
  *to++ = (int64_t)G.peak_mapped;
  *to++ = (int64_t)(G.array_words * sizeof(Val));
  *to++ = (int64_t)G.arrays;
  *to++ = (int64_t)G.allocated + (int64_t)(G.hp - G.nursery) * (int64_t)sizeof(Val);
  *to++ = (int64_t)(G.minor_count + G.major_count);
}
EXPORT int vlad_measured(Request *q) { return guarded(measured, q); }

/* Forget the peaks. From now on live bytes are exact, or not: everything is collected before
   they are noted, at the end of each tape. Else they count what the next collection will
   free. */
EXPORT void vlad_note_peaks(int32_t exact) {
  G.exact = exact;
  G.peak_live = G.peak_tape_nodes = 0;
  G.peak_mapped = G.mapped;
}

/* Of the run to be reversed: what it puts on a tape in r (0 if it is not of typed code),
   what it makes in s, in t steps; a bound of the words that it held at once in u, and the
   bytes of its dearest steps in *reals. Where there is a budget, the bytes of its largest
   state in a, those that it may take in b, in c whether others are reversed in it, and in
   d how many are being reversed. */
EXPORT void vlad_counted(Request *q) {
  q->r = (int64_t)G.counted.tape;
  q->s = (int64_t)G.counted.made;
  q->t = G.counted.steps;
  q->u = (int64_t)G.counted.grown;
  *q->reals = G.counted.dearest;
  q->a = (int64_t)G.counted.state;
  q->b = (int64_t)G.room;
  q->c = G.holds_others;
  q->d = G.planned;
}

EXPORT void vlad_end(void) {
  for (size_t i = 0; i < G.handles; i++) /* while what handles are of is in memory */
    if (is_frozen(G.handle[i])) free(object(G.handle[i]));
  for (Chunk *c = G.old_first; c;) {
    Chunk *next = c->next;
    free(c);
    c = next;
  }
  for (int level = 0; level < MAX_LEVEL + 2; level++) {
    Tape *t = &G.tape[level];
    while (t->chunks) free(t->chunk[--t->chunks]);
    free(t->chunk);
  }
  for (size_t i = 0; i < closures; i++) free(object(closure[i]));
  for (size_t i = 0; i < cells; i++)
    free(static_cells[i]);
  Words *lists[] = {&walk_a, &walk_b, &leaves_a, &leaves_b, &leaves_c, &leaves_d, &image,
                    &queue, &export_tokens, &export_reals, &G.written};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) free(lists[i]->at);
  free(met.key);
  free(met.copy);
  forget_logs();
  typed_end();
  free(G.log);
  free(G.nursery);
  free(G.handle);
  free(G.inputs);
}

#endif
