/* Operators on whole vectors of any reals: item by item, as `values/_each.py` does.

   Each number that carries a derivative goes through the operator's own rule, so that
   nothing is said here of derivatives. */

#ifndef VLAD_EACH_H
#define VLAD_EACH_H

#include "vector_products.h"

/* The most operands of an operator, and the most words of what it does. */
enum { EACH_OPERANDS = 16, EACH_WORDS = 64 };

/* An operand: a vector's elements, or a number. */
typedef struct Column {
  const Val *element;
  Val number;
} Column;

static const Val *of_elements(Val v, uint32_t *length, int32_t site) {
  Object *array = array_of_reals(v, "each", site);
  uint32_t own = length_of(array);
  if (*length != NO_NODE && own != *length)
    fail(NOT_ALIKE, "each", site, box(own < *length ? own : *length),
         box(own < *length ? *length : own));
  *length = own;
  return elements(array);
}

/* The operands: so many, or a list of them. */
static uint32_t each_columns(const Each *e, const Val *args, int count, int32_t site,
                             Column *column) {
  uint32_t length = NO_NODE;
  Val rest = args[0];
  for (int i = 0; e->kinds[i]; i++) {
    Val v = count > 1 ? args[i] : rest;
    if (count == 1 && e->kinds[i + 1]) {
      v = object(rest)->field[0];
      rest = object(rest)->field[1];
    }
    column[i] = (Column){NULL, v};
    if (e->kinds[i] == 'v')
      refresh(vector_of(v, "each", site));
    else
      strip(v, "each", site);
  }
  for (int i = 0; e->kinds[i]; i++)
    if (e->kinds[i] == 'v')
      column[i].element = of_elements(column[i].number, &length, site);
  return length;
}

/* Operators on items only, some of which are faults; b is the last operand. */
static Val on_items(unsigned char word, Val a, Val b, int32_t site) {
  Val y;
  switch (word) { ON_ITEMS }
  return NOTHING;
}

static Val each_item(const Each *e, const Column *column, uint32_t i, int32_t site) {
  Val stack[EACH_WORDS], *top = stack;
  for (const unsigned char *word = e->code; *word != EACH_END; word++) {
    if (*word < EACH_NUMBER) {
      const Column *c = &column[*word];
      *top++ = c->element ? c->element[i] : c->number;
      continue;
    }
    if (*word < EACH_OF_TWO) {
      *top++ = box(e->number[*word - EACH_NUMBER]);
      continue;
    }
    Val last = top[-1];
    if ((*word < EACH_OF_ONE || IS_ITEM_OF_TWO(*word))) top--;
    Val *to = top - 1;
    if (*word >= EACH_OF_ITEMS)
      *to = on_items(*word, *to, last, site);
    else if (*word >= EACH_OF_ONE)
      *to = unary((enum Unary)(*word - EACH_OF_ONE), last);
    else
      *to = binary((enum Binary)(*word - EACH_OF_TWO), *to, last);
  }
  return stack[0];
}

Val each(const Each *e, const Val *args, int count, int32_t site) {
  Column column[EACH_OPERANDS];
  uint32_t length = each_columns(e, args, count, site, column);
  Object *result = e->is_sum ? NULL : new_array(length);
  Val sum = box(0.0);
  for (uint32_t i = 0; i < length; i++) {
    Val item = each_item(e, column, i, site);
    if (result)
      elements(result)[i] = item;
    else
      sum = real_add(sum, item);
  }
  G.work += (int64_t)length * WORK_OF_REAL;
  return result ? version(small_object(0, VECTOR_WORDS), result) : sum;
}

#endif
