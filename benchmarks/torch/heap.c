/* Counts the bytes that malloc has given out: their sum now, and the most at once.
   Preloaded, it sees what PyTorch's allocator, its graph, C++ and (under
   PYTHONMALLOC=malloc) Python's objects take, whoever asks for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static _Atomic long live, peak;

static void *more(void *made) {
  if (made == NULL) return NULL;
  const long size = (long)malloc_usable_size(made);
  const long now = atomic_fetch_add(&live, size) + size;
  long most = atomic_load(&peak);
  while (now > most && !atomic_compare_exchange_weak(&peak, &most, now)) {
  }
  return made;
}

static void less(void *gone) {
  if (gone != NULL) atomic_fetch_sub(&live, (long)malloc_usable_size(gone));
}

void *malloc(size_t size) { return more(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return more(__libc_calloc(count, size)); }
void *memalign(size_t align, size_t size) { return more(__libc_memalign(align, size)); }
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }

int posix_memalign(void **made, size_t align, size_t size) {
  *made = memalign(align, size);
  return *made == NULL ? ENOMEM : 0;
}

void *realloc(void *old, size_t size) {
  const long before = old == NULL ? 0 : (long)malloc_usable_size(old);
  void *made = __libc_realloc(old, size);
  if (made != NULL || size == 0) atomic_fetch_sub(&live, before);
  return more(made);
}

void free(void *gone) {
  less(gone);
  __libc_free(gone);
}

long heap_live(void) { return live; }
long heap_peak(void) { return peak; }
void heap_begin(void) { peak = live; }
