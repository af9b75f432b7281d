/* Runs of typed code that are not to be reversed, from a state to a state. */

#ifndef VLAD_TYPED_ADVANCE_H
#define VLAD_TYPED_ADVANCE_H

#include "typed_stage.h"

/* The vector of a row, one for each row; 0 if the row has changed since. */
static int unload_row(const Word *word, Val *place) {
  int is_new;
  const Row *row = word[0].row;
  if (row->version != word[1].u) return 0;
  size_t i = met_place((const void *)row);
  if (met.key[i]) {
    *place = met.copy[i];
    return 1;
  }
  Object *array = new_array(row->length);
  memcpy(array->field + ARRAY_HEAD, row->value, row->length * sizeof(double));
  *place = version(old_object(0, VECTOR_WORDS), array);
  numbered(row, (size_t)*place, &is_new);
  return 1;
}

/* The value of words of a type, at a place that is about to be filled. */
static int unload_typed(const char **type, const Word **word, Val *place) {
  int is_new;
  switch (*(*type)++) {
    case 'W':
    case 'w':
    case 'd':
    case 'i': *place = box((*word)++->d); return 1;
    case 'b': *place = boolean((int)(*word)++->u); return 1;
    case 'u': *place = EMPTY; return 1;
    case 'l': unload_list((*word)++->cell, place); return 1;
    case 'v':
      *word += 2;
      return unload_row(*word - 2, place);
    default: {
      const void *mark = (const void *)(uintptr_t)((*word)++->u << 4 | 1);
      size_t i = met_place(mark);
      Val unused[2], *field = unused;
      if (met.key[i]) {
        *place = met.copy[i];
      } else {
        *place = make_pair(NOTHING, NOTHING);
        field = object(*place)->field;
        numbered(mark, (size_t)*place, &is_new);
      }
      return unload_typed(type, word, &field[0]) && unload_typed(type, word, &field[1]);
    }
  }
}

/* The value that a run has given; 0 if a vector of it has changed since. */
static int unload_value(Val *value) {
  const char *type = typed_values[T.gives];
  const Word *word = T.at;
  met_clear();
  return unload_typed(&type, &word, value);
}

static uint32_t fields_of_type(const char *type) {
  uint32_t fields = 0;
  for (size_t open = 0; *type; type++) {
    if (open)
      open--;
    else
      fields++;
    if (*type == 'p') open += 2;
  }
  return fields;
}

/* The typed frames on the stack as a state. */
static int unload_state(Val *state) {
  met_clear();
  walk_a.count = 0;
  for (const Word *at = T.at; at[-1].u != HALT;) {
    push(&walk_a, (uint64_t)(at - T.stack - 1));
    at -= words_of_type(type_of_code(at[-1].u)) + 1;
  }
  *state = tagged(TAG_FRAME, &halt_frame);
  while (walk_a.count) {
    size_t end = walk_a.at[--walk_a.count];
    uint64_t code = T.stack[end].u;
    const char *type = type_of_code(code);
    const Word *word = T.stack + end - words_of_type(type);
    if (code & ENTER_BY) return 0; /* no function was entered */
    uint32_t fields = fields_of_type(type);
    Object *o = old_object(code & RETURN_TO ? RETURN : (uint32_t)code, fields + 1);
    o->field[0] = *state;
    for (uint32_t i = 1; i <= fields; i++)
      if (!unload_typed(&type, &word, &o->field[i])) return 0;
    *state = tagged(TAG_FRAME, o);
  }
  return 1;
}

/* Words of the stack above which a state without vectors is left to the general way:
   its states share the frames that they have in common. */
#define SHALLOW 4096
#define WORDS_PER_CELL 4

static int is_shallow(void) {
  size_t cells = cell_bytes() / sizeof(Cell);
  return T.rows || (size_t)(T.at - T.stack) <= SHALLOW + WORDS_PER_CELL * cells;
}

/* A list is loaded if there are so many steps for each of its items: that takes 10 ns, a
   step 0.2 ns. */
#define STEPS_PER_CELL 32

/* Run so many steps, as `run`: vectors are then assigned in place, without logs. The new
   state, or the value at the end; the steps that are left in G.fuel. */
static int typed_advance(Val frame, int64_t fuel, Val *state, int *stopped) {
  int done = 0;
  if (!is_typed) return 0;
  typed_begin();
  T.forgetful = 1;
  T.most_loaded = fuel / STEPS_PER_CELL;
  if (load_state(frame) && is_shallow()) {
    all_loaded();
    int how = typed_run(fuel);
    *stopped = how == STOPPED;
    if (how == STOPPED && is_shallow()) done = unload_state(state);
    if (how == ENDED) done = unload_value(state);
    G.fuel = T.fuel;
  }
  typed_clear();
  T.forgetful = 0;
  return done;
}

static int typed_was_large(void) { return T.most_loaded < 0; }

static void add_counted(Counted *sum) {
  const Counted *more = &T.counted;
  sum->tape += more->tape, sum->made += more->made, sum->steps += more->steps;
  if (more->dearest > sum->dearest) sum->dearest = more->dearest;
  count_state(sum, more->state);
}

/* Under a budget rows that are dead count, too: states are as large as those that live. */
static size_t typed_grown(void) {
  size_t rows = G.most_mapped ? T.peak_row_bytes : T.peak_live;
  return 2 * ((size_t)(T.top - T.stack) - FIRST_WORDS) + (rows + T.peak_cells) / sizeof(Word);
}

/* The value of a function that is applied, if typed code has it. */
static int typed_value(Val frame, Val *value) {
  int stopped;
  return typed_advance(frame, NO_LIMIT, value, &stopped);
}

#endif
