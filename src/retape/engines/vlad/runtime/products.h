/* Products of matrices and vectors of doubles, row by row in memory.

   What is promised of the bits: an item of a product is the sum from left to right of
   rounded products, and where the right factor has one column (as has that of a matrix
   and a vector, and a dot product) it is eight such sums, of each eighth product, which
   are then added in pairs. The interpreters do the same. Neither the processor nor the
   number of threads changes them, as they do in a BLAS. */

#ifndef VLAD_PRODUCTS_H
#define VLAD_PRODUCTS_H

#include "program.h"

/* A double that may lie where values lie. */
typedef double Item __attribute__((may_alias));

typedef void Tile(size_t inner, const Item *a, size_t a_row, size_t a_column,
                  const Item *b, size_t b_row, Item *c, size_t c_row);

/* The tiles of an instruction set: of one row or four, of one to three registers. */
typedef struct Tiles {
  size_t lanes;
  Tile *tile[2][3];
  void (*dots[2])(size_t n, const Item *a, size_t row, const Item *x, Item *y);
  void (*add_multiple)(size_t n, double g, const Item *x, Item *y);
} Tiles;

/* Eight sums in pairs. */
static inline double in_pairs(const double *s) {
  double a = s[0] + s[4], b = s[1] + s[5], c = s[2] + s[6], d = s[3] + s[7];
  return (a + c) + (b + d);
}

/* A loop of a tile, which the C compiler writes out. */
#ifdef __clang__
#define FOR(i, count) _Pragma("unroll") for (size_t i = 0; i < count; i++)
#else
#define FOR(i, count) _Pragma("GCC unroll 8") for (size_t i = 0; i < count; i++)
#endif

#define LANES 2
#define NAMED(x) plain_##x
#define TARGET
#include "product_tile.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define LANES 4
#define NAMED(x) avx2_##x
#define TARGET __attribute__((target("avx2")))
#include "product_tile.h"
#define LANES 8
#define NAMED(x) avx512_##x
#define TARGET __attribute__((target("avx512f")))
#include "product_tile.h"

#include <cpuid.h>

/* Whether the processor has them, and the system saves their registers. */
static const Tiles *found_tiles(void) {
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return &plain_tiles;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return &plain_tiles;
  if ((b & bit_AVX512F) && (low & 0xE6) == 0xE6) return &avx512_tiles;
  return b & bit_AVX2 ? &avx2_tiles : &plain_tiles;
}
#else
static const Tiles *found_tiles(void) { return &plain_tiles; }
#endif

static const Tiles *tiles(void) {
  static const Tiles *found;
  if (!found) found = found_tiles();
  return found;
}

#define MOST_LANES 8
#define PANEL (3 * MOST_LANES)
#define DEEP ((size_t)256)

/* A matrix in memory: item (i, j) is at[i * row + j * column]. */
typedef struct Matrix {
  const Item *at;
  size_t row, column;
} Matrix;

/* Some rows of a panel of a matrix, beside one another; what is missing is zero. */
static void gather(Matrix b, size_t rows, size_t columns, size_t width, Item *panel) {
  for (size_t k = 0; k < rows; k++)
    for (size_t j = 0; j < width; j++)
      panel[k * width + j] = j < columns ? b.at[k * b.row + j * b.column] : 0.0;
}

/* c += a b of some columns of c, no more than a panel, which have their right factor in
   rows of `b_row` doubles. */
static void add_panel(const Tiles *t, size_t rows, size_t inner, size_t columns, Matrix a,
                      const Item *b, size_t b_row, Item *c, size_t c_row) {
  size_t registers = (columns + t->lanes - 1) / t->lanes, width = registers * t->lanes;
  double edge[4 * PANEL];
  for (size_t i = 0; i < rows;) {
    size_t some = rows - i >= 4 ? 4 : 1;
    Tile *tile = t->tile[some == 4][registers - 1];
    const Item *left = a.at + i * a.row;
    Item *to = c + i * c_row;
    if (columns == width) {
      tile(inner, left, a.row, a.column, b, b_row, to, c_row);
    } else {
      for (size_t r = 0; r < some; r++)
        for (size_t j = 0; j < width; j++)
          edge[r * width + j] = j < columns ? to[r * c_row + j] : 0.0;
      tile(inner, left, a.row, a.column, b, b_row, edge, width);
      for (size_t r = 0; r < some; r++)
        for (size_t j = 0; j < columns; j++) to[r * c_row + j] = edge[r * width + j];
    }
    i += some;
  }
}

/* c += a b; c lies row by row. */
static void add_product(size_t rows, size_t inner, size_t columns, Matrix a, Matrix b,
                        Item *c) {
  const Tiles *t = tiles();
  double panel[DEEP * PANEL];
  for (size_t k = 0; k < inner; k += DEEP) {
    size_t deep = inner - k < DEEP ? inner - k : DEEP;
    Matrix left = {a.at + k * a.column, a.row, a.column};
    for (size_t j = 0; j < columns;) {
      size_t most = 3 * t->lanes, some = columns - j < most ? columns - j : most;
      size_t width = (some + t->lanes - 1) / t->lanes * t->lanes;
      Matrix right = {b.at + k * b.row + j * b.column, b.row, b.column};
      if (b.column == 1 && some == width && rows < 8) {
        add_panel(t, rows, deep, some, left, right.at, b.row, c + j, columns);
      } else {
        gather(right, deep, some, width, panel);
        add_panel(t, rows, deep, some, left, panel, width, c + j, columns);
      }
      j += some;
    }
  }
}

/* y = a x, whose rows are `row` doubles apart. */
static void dots(size_t rows, size_t n, const Item *a, size_t row, const Item *x,
                 Item *y) {
  const Tiles *t = tiles();
  for (size_t i = 0; i < rows;) {
    size_t some = rows - i >= 4 ? 4 : 1;
    t->dots[some == 4](n, a + i * row, row, x, y + i);
    i += some;
  }
}

/* c = a b, which lie row by row. */
static void product(size_t rows, size_t inner, size_t columns, const Item *a,
                           const Item *b, Item *c) {
  if (columns == 1) {
    dots(rows, inner, a, inner, b, c);
    return;
  }
  memset(c, 0, rows * columns * sizeof(double));
  add_product(rows, inner, columns, (Matrix){a, inner, 1}, (Matrix){b, columns, 1}, c);
}

/* The adjoints of the factors: da += dc b^T, db += a^T dc. */
static void product_adjoints(size_t rows, size_t inner, size_t columns, const Item *a,
                             const Item *b, const Item *dc, Item *da, Item *db) {
  const Tiles *t = tiles();
  if (columns == 1) {
    for (size_t i = 0; i < rows; i++) {
      t->add_multiple(inner, dc[i], b, da + i * inner);
      t->add_multiple(inner, dc[i], a + i * inner, db);
    }
    return;
  }
  if (rows == 1) {
    for (size_t k = 0; k < inner;) {
      double sum[4];
      size_t some = inner - k >= 4 ? 4 : 1;
      dots(some, columns, b + k * columns, columns, dc, sum);
      for (size_t i = 0; i < some; i++, k++) {
        da[k] += sum[i];
        t->add_multiple(columns, a[k], dc, db + k * columns);
      }
    }
    return;
  }
  add_product(rows, columns, inner, (Matrix){dc, columns, 1}, (Matrix){b, 1, columns}, da);
  add_product(inner, rows, columns, (Matrix){a, 1, inner}, (Matrix){dc, columns, 1}, db);
}

#endif
