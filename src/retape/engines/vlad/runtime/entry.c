/* A compiled function of numbers as CPython calls it itself.

   A call through ctypes and Python's own code takes ten times as long as a short function.
   So what Python looks at before each call is looked at here: the arguments' types, what
   the function takes from outside, whether the program is at work already. If all is as
   it was when the entry was made, the program is called for a few steps; in every other
   case the call goes the ordinary way, which also says what there is to say.

   This object is loaded once and stays, while programs come and go: theirs is a table.
   Python's lock is held all the time, and so no table changes between a look and a call.
   No header of Python is needed: its functions are handed over, and of its objects only
   the type is read, at a place that was tried before. */

#include <stddef.h>
#include <stdint.h>

typedef struct Object {
  intptr_t references;
  void *type;
} Object;

/* In the order of `_entry.py`. */
static struct {
  double (*as_double)(Object *);
  Object *(*from_double)(double);
  int64_t (*as_integer)(Object *, int *);
  Object *(*to_integer)(double);
  Object *(*call)(Object *, Object *const *, size_t, Object *);
  Object *(*item)(Object *, Object *);
  Object *(*content)(Object *);
  void (*release)(Object *);
  Object *(*code)(Object *);
  Object *(*defaults)(Object *);
  Object *(*by_name)(Object *);
  Object *(*occurred)(void);
  void (*clear)(void);
  Object *(*part)(Object *, intptr_t);
  void *(*address)(Object *);
  Object *(*tuple)(intptr_t);
  int (*set)(Object *, intptr_t, Object *);
  void (*keep)(Object *);
  void *float_type, *int_type;
  Object *yes, *no;
} python;

/* Something outside of a function, and what it was. */
typedef struct Look {
  int64_t how;
  Object *in, *key, *value;
} Look;

enum { ITEM, NO_ITEM, CONTENT, CODE, DEFAULTS, BY_NAME };

/* As `Request` of `api.h`. */
typedef struct Request {
  int64_t a, b, c, d, e, f, r, s, t, u;
  double *reals;
  int32_t *tokens;
  const uint64_t *words;
} Request;

#define MOST 9

typedef struct Table {
  int (*run)(Request *); /* none once the program is gone */
  Object *otherwise;     /* what a call goes to that is not done here */
  const Look *look;
  const int64_t *busy;   /* calls that Python has under way */
  int64_t looks, definition, count, leaves, steps;
  int64_t skip, patience; /* calls that go the ordinary way at once: the last were long */
  int64_t booleans;       /* arguments that are, as bits */
  char kind[MOST];        /* of each argument: f(loat), i(nt), b(ool) */
  char gives[2 * MOST + 1];  /* of the value; a tuple is t, how many items, and they */
} Table;

__attribute__((visibility("default"))) void entry_begin(void **functions) {
  void **to = (void **)(void *)&python;
  for (size_t i = 0; i < sizeof python / sizeof *to; i++) to[i] = functions[i];
}

static int is_same(const Look *look) {
  Object *found;
  switch (look->how) {
    case ITEM: return python.item(look->in, look->key) == look->value;
    case NO_ITEM: return !python.item(look->in, look->key) && !python.occurred();
    case CONTENT:
      found = python.content(look->in);
      if (found) python.release(found); /* the cell has it */
      return found == look->value;
    case CODE: return python.code(look->in) == look->value;
    case DEFAULTS: return python.defaults(look->in) == look->value;
    default: return python.by_name(look->in) == look->value;
  }
}

/* A number of the type that the program was compiled for, and no larger than one that
   doubles tell apart. */
static int take(char kind, Object *object, double *place) {
  int beyond;
  switch (kind) {
    case 'f':
      if (object->type != python.float_type) return 0;
      *place = python.as_double(object);
      return 1;
    case 'i': {
      if (object->type != python.int_type) return 0;
      int64_t value = python.as_integer(object, &beyond), most = (int64_t)1 << 53;
      if (beyond || value < -most || value > most) return 0;
      *place = (double)value;
      return 1;
    }
    default:
      *place = object == python.yes;
      return object == python.yes || object == python.no;
  }
}

static int done(Table *t, Object *const *argument, double *real) {
  for (int64_t i = 0; i < t->count; i++)
    if (!take(t->kind[i], argument[i], &real[i])) return 0;
  for (int64_t i = 0; i < t->looks; i++)
    if (!is_same(&t->look[i])) {
      python.clear(); /* a comparison of keys may have failed */
      return 0;
    }
  if (*t->busy || !t->run) return 0;
  if (t->skip > 0) {
    t->skip--;
    return 0;
  }
  Request q = {.a = t->definition, .b = t->count, .c = t->steps, .d = t->booleans};
  q.e = MOST, q.reals = real;
  if (t->run(&q) || q.r != t->leaves) {
    t->patience = t->patience < 512 ? 2 * t->patience + 16 : 1024;
    t->skip = t->patience;
    return 0;
  }
  t->patience = 0;
  return 1;
}

/* A value of the kind that the text begins with, of numbers from *real on. */
static Object *value(const char **kind, const double **real) {
  Object *object;
  switch (*(*kind)++) {
    case 'f': return python.from_double(*(*real)++);
    case 'i': return python.to_integer(*(*real)++);
    case 'b':
      object = *(*real)++ != 0.0 ? python.yes : python.no;
      python.keep(object);
      return object;
    default: {
      intptr_t items = *(*kind)++ - '0';
      Object *made = python.tuple(items);
      for (intptr_t i = 0; made && i < items; i++) {
        object = value(kind, real);
        if (!object || python.set(made, i, object)) {
          python.release(made);
          return NULL;
        }
      }
      return made;
    }
  }
}

__attribute__((visibility("default"))) Object *entry_call(
    Object *self, Object *const *argument, intptr_t count, Object *names) {
  Table *t = python.address(python.part(self, 0));
  double real[MOST];
  if (names || count != t->count || !done(t, argument, real))
    return python.call(t->otherwise, argument, (size_t)count, names);
  const char *kind = t->gives;
  const double *next = real;
  return value(&kind, &next);
}
