/* A tile of a product of matrices, in registers: for one instruction set.

   Included once for each, with LANES doubles in a register, NAMED(x) the name of x, and
   TARGET what the C compiler is to be told. Each item is the sum from left to right of
   products that are rounded: no fused operations, no other order, so that the bits do
   not depend on the processor. Registers hold items that are beside each other: the
   loops of a tile are all written out by the C compiler, so that its sums are some. */

typedef double NAMED(Lanes) __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

#define LOAD(p) (*(const NAMED(Lanes) *)(const void *)(p))
#define STORE(p) (*(NAMED(Lanes) *)(void *)(p))

/* c += a b, of a tile: `inner` products for each item. */
#define TILE(rows, registers)                                                         \
  TARGET static void NAMED(tile_##rows##_##registers)(                                \
      size_t inner, const Item *a, size_t a_row, size_t a_column, const Item *b,      \
      size_t b_row, Item *c, size_t c_row) {                                          \
    NAMED(Lanes) sum[rows][registers];                                                \
    FOR(r, rows) FOR(j, registers) sum[r][j] = LOAD(c + r * c_row + j * LANES);       \
    for (size_t k = 0; k < inner; k++, a += a_column, b += b_row) {                   \
      NAMED(Lanes) right[registers];                                                  \
      FOR(j, registers) right[j] = LOAD(b + j * LANES);                               \
      FOR(r, rows) FOR(j, registers) sum[r][j] += right[j] * a[r * a_row];            \
    }                                                                                 \
    FOR(r, rows) FOR(j, registers) STORE(c + r * c_row + j * LANES) = sum[r][j];      \
  }

TILE(1, 1) TILE(1, 2) TILE(1, 3) TILE(4, 1) TILE(4, 2) TILE(4, 3)

/* y += g x, of rows. */
TARGET static void NAMED(add_multiple)(size_t n, double g, const Item *x, Item *y) {
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) STORE(y + i) = LOAD(y + i) + LOAD(x + i) * g;
  for (; i < n; i++) y[i] += x[i] * g;
}

/* Eight sums of products for some rows of a and all of x: see `products.h`. */
#define DOTS(rows)                                                                    \
  TARGET static void NAMED(dots_##rows)(size_t n, const Item *a, size_t row,          \
                                        const Item *x, Item *y) {                     \
    NAMED(Lanes) sum[rows][8 / LANES] = {{{0.0}}};                                    \
    double sums[8 * rows];                                                            \
    size_t k = 0;                                                                     \
    for (; k + 8 <= n; k += 8) {                                                      \
      NAMED(Lanes) right[8 / LANES];                                                  \
      FOR(j, 8 / LANES) right[j] = LOAD(x + k + j * LANES);                           \
      FOR(r, rows) FOR(j, 8 / LANES)                                                  \
        sum[r][j] += LOAD(a + r * row + k + j * LANES) * right[j];                    \
    }                                                                                 \
    FOR(r, rows) FOR(j, 8 / LANES) STORE(sums + 8 * r + j * LANES) = sum[r][j];       \
    for (size_t l = 0; k < n; k++, l++)                                               \
      for (size_t r = 0; r < rows; r++) sums[8 * r + l] += a[r * row + k] * x[k];     \
    for (size_t r = 0; r < rows; r++) y[r] = in_pairs(sums + 8 * r);                  \
  }

DOTS(1) DOTS(4)

static const Tiles NAMED(tiles) = {
    LANES,
    {{NAMED(tile_1_1), NAMED(tile_1_2), NAMED(tile_1_3)},
     {NAMED(tile_4_1), NAMED(tile_4_2), NAMED(tile_4_3)}},
    {NAMED(dots_1), NAMED(dots_4)},
    NAMED(add_multiple)};

#undef LOAD
#undef STORE
#undef TILE
#undef DOTS
#undef LANES
#undef NAMED
#undef TARGET
