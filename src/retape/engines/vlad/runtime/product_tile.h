/* A tile of a product of matrices, in registers: for one instruction set.

   Included once for each, with LANES doubles in a register, NAMED(x) the name of x, and
   TARGET what the C compiler is to be told. Each item is the sum from left to right of
   products that are rounded: no fused operations, no other order, so that the bits do
   not depend on the processor. Registers hold items that are beside each other. */

typedef double NAMED(Lanes) __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

#define LOAD(p) (*(const NAMED(Lanes) *)(const void *)(p))
#define STORE(p) (*(NAMED(Lanes) *)(void *)(p))

/* What is done for each row of a tile: REGISTERS registers of sums. */
#define BEGIN_1(r) NAMED(Lanes) s##r##0 = LOAD(c + r * c_row);
#define BEGIN_2(r) BEGIN_1(r) NAMED(Lanes) s##r##1 = LOAD(c + r * c_row + LANES);
#define BEGIN_3(r) BEGIN_2(r) NAMED(Lanes) s##r##2 = LOAD(c + r * c_row + 2 * LANES);
#define RIGHT_1 const NAMED(Lanes) b0 = LOAD(b);
#define RIGHT_2 RIGHT_1 const NAMED(Lanes) b1 = LOAD(b + LANES);
#define RIGHT_3 RIGHT_2 const NAMED(Lanes) b2 = LOAD(b + 2 * LANES);
#define ADD_1(r) const double a##r = a[r * a_row]; s##r##0 += b0 * a##r;
#define ADD_2(r) ADD_1(r) s##r##1 += b1 * a##r;
#define ADD_3(r) ADD_2(r) s##r##2 += b2 * a##r;
#define END_1(r) STORE(c + r * c_row) = s##r##0;
#define END_2(r) END_1(r) STORE(c + r * c_row + LANES) = s##r##1;
#define END_3(r) END_2(r) STORE(c + r * c_row + 2 * LANES) = s##r##2;
#define ROWS_1(DO) DO(0)
#define ROWS_4(DO) DO(0) DO(1) DO(2) DO(3)

/* c += a b, of a tile: `inner` products for each item. */
#define TILE(rows, registers)                                                         \
  TARGET static void NAMED(tile_##rows##_##registers)(                                \
      size_t inner, const Item *a, size_t a_row, size_t a_column, const Item *b,  \
      size_t b_row, Item *c, size_t c_row) {                                        \
    (void)c_row, (void)a_row;                                                         \
    ROWS_##rows(BEGIN_##registers)                                                    \
    for (size_t k = 0; k < inner; k++, a += a_column, b += b_row) {                   \
      RIGHT_##registers ROWS_##rows(ADD_##registers)                                  \
    }                                                                                 \
    ROWS_##rows(END_##registers)                                                      \
  }

TILE(1, 1) TILE(1, 2) TILE(1, 3) TILE(4, 1) TILE(4, 2) TILE(4, 3)

/* y += g x, of rows. */
TARGET static void NAMED(add_multiple)(size_t n, double g, const Item *x, Item *y) {
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) STORE(y + i) = LOAD(y + i) + LOAD(x + i) * g;
  for (; i < n; i++) y[i] += x[i] * g;
}

/* Eight sums of products for some rows of a and all of x: see `products.h`. */
#if LANES == 8
#define EACH(DO, r) DO(r, 0)
#elif LANES == 4
#define EACH(DO, r) DO(r, 0) DO(r, 1)
#else
#define EACH(DO, r) DO(r, 0) DO(r, 1) DO(r, 2) DO(r, 3)
#endif
#define DOT_BEGIN(r, e) NAMED(Lanes) s##r##e = {0.0};
#define DOT_RIGHT(r, e) const NAMED(Lanes) x##e = LOAD(x + k + e * LANES);
#define DOT_ADD(r, e) s##r##e += LOAD(a + r * row + k + e * LANES) * x##e;
#define DOT_END(r, e) STORE(sums + 8 * r + e * LANES) = s##r##e;
#define BEGIN_ROW(r) EACH(DOT_BEGIN, r)
#define ADD_ROW(r) EACH(DOT_ADD, r)
#define END_ROW(r) EACH(DOT_END, r)
#define DOTS(rows)                                                                    \
  TARGET static void NAMED(dots_##rows)(size_t n, const Item *a, size_t row,        \
                                        const Item *x, Item *y) {                 \
    double sums[8 * rows];                                                            \
    size_t k = 0;                                                                     \
    ROWS_##rows(BEGIN_ROW)                                                            \
    for (; k + 8 <= n; k += 8) {                                                      \
      EACH(DOT_RIGHT, 0) ROWS_##rows(ADD_ROW)                                         \
    }                                                                                 \
    ROWS_##rows(END_ROW)                                                              \
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
#undef BEGIN_1
#undef BEGIN_2
#undef BEGIN_3
#undef RIGHT_1
#undef RIGHT_2
#undef RIGHT_3
#undef ADD_1
#undef ADD_2
#undef ADD_3
#undef END_1
#undef END_2
#undef END_3
#undef ROWS_1
#undef ROWS_4
#undef TILE
#undef EACH
#undef DOT_BEGIN
#undef DOT_RIGHT
#undef DOT_ADD
#undef DOT_END
#undef BEGIN_ROW
#undef ADD_ROW
#undef END_ROW
#undef DOTS
#undef LANES
#undef NAMED
#undef TARGET
