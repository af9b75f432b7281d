/* States as words that another process of the same program can read.

   An image is a list of objects in the order in which a walk from the first meets them:
   tag and size, code, contents. A pointer is a tag with the number of its object; one to
   a static object, which every process has, with what it is. */

#ifndef VLAD_IMAGE_H
#define VLAD_IMAGE_H

#include "trees.h"

#define IN_PROGRAM (1ull << 47)
#define PAYLOAD (IN_PROGRAM - 1)

static Words image, queue;

static uint64_t image_word(Val v, const char *op) {
  if (tag_of(v) == TAG_TAPED || tag_of(v) == TAG_DUAL)
    fail(NO_FAULT, op, -1, NOTHING, NOTHING);
  if (!is_pointer(v)) return v;
  const Object *o = object(v);
  if (o->header & IS_STATIC) return (v & ~(PAYLOAD | IN_PROGRAM)) | IN_PROGRAM | code_of(o);
  size_t i = met_place(o);
  if (!met.key[i]) {
    met.key[i] = o;
    met.copy[i] = queue.count;
    push(&queue, v);
    if (2 * ++met.count > met.room) {
      met_grow();
      i = met_place(o);
    }
  }
  return (v & ~(PAYLOAD | IN_PROGRAM)) | met.copy[i];
}

/* The image of a state or of a list of cotangents, in `image`; of what is no object a word. */
static void write_image(Val root) {
  met_clear();
  image.count = queue.count = 0;
  uint64_t word = image_word(root, "checkpoint-*j");
  if (!queue.count) push(&image, word);
  for (size_t i = 0; i < queue.count; i++) {
    uint32_t size;
    Val v = queue.at[i];
    const Val *field = contents(v, &size);
    push(&image, (tag_of(v) << 48) | size);
    push(&image, code_of(object(v)));
    for (uint32_t j = 0; j < size; j++)
      push(&image, image_word(field[j], "checkpoint-*j"));
  }
}

static Val static_value(uint64_t word) {
  uint32_t code = (uint32_t)(word & 0xFFFFFFFFu);
  switch (tag_of(word)) {
    case TAG_CLOSURE: return closure[code];
    case TAG_PAIR: return tagged(TAG_PAIR, static_cells[code]);
    default: return tagged(TAG_FRAME, &halt_frame);
  }
}

static Val image_value(uint64_t word) {
  if (!is_pointer(word)) return word;
  return word & IN_PROGRAM ? static_value(word) : queue.at[word & PAYLOAD];
}

/* The value of an image: all objects first, then what is in them. */
static Val read_image(const uint64_t *word, size_t count) {
  Val *field;
  queue.count = walk_a.count = 0;
  for (size_t at = 0; at < count;) {
    uint32_t size = (uint32_t)word[at], code = (uint32_t)word[at + 1];
    Val v;
    if (tag_of(word[at]) == TAG_VECTOR) {
      Object *array = new_array(size);
      field = array->field + ARRAY_HEAD;
      v = version(old_object(0, VECTOR_WORDS), array);
    } else {
      Object *o = old_object(code, size);
      field = o->field;
      v = tagged(tag_of(word[at]), o);
    }
    push(&queue, v);
    push(&walk_a, (uint64_t)(uintptr_t)field);
    at += 2 + size;
  }
  for (size_t at = 0, i = 0; at < count; i++) {
    uint32_t size = (uint32_t)word[at];
    field = (Val *)(uintptr_t)walk_a.at[i];
    for (uint32_t j = 0; j < size; j++) field[j] = image_value(word[at + 2 + j]);
    at += 2 + size;
  }
  return queue.at[0];
}

/* The words of a capsule, see `typed_capsules.h`, of which the first is a number; an image's
   has a tag. */
enum { CAPSULE_WORDS, CAPSULE_ROWS, CAPSULE_CELLS, CAPSULE_HEAD };

static int is_capsule(const Val *word) { return !(word[0] >> 48); }

static Val frozen_of(const Val *word, size_t count) {
  Object *o = new_frozen(count);
  memcpy(o->field + 1, word, count * sizeof(Val));
  return tagged(TAG_FRAME, o);
}

/* A state in memory of its own: a snapshot then takes the bytes that a budget was divided
   by, where the heap takes three times those of what lives in it. */
static Val frozen(Val state) {
  const Object *o = object(state);
  if (is_frozen(state)) return frozen_of(o->field + 1, (size_t)o->field[0]);
  write_image(state);
  return frozen_of(image.at, image.count);
}

/* A capsule as it is, and what an image is of. */
static Val thawed(Val v) {
  if (!is_frozen(v) || is_capsule(object(v)->field + 1)) return v;
  return read_image(object(v)->field + 1, (size_t)object(v)->field[0]);
}

#endif
