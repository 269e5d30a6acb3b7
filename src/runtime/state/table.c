/* A table is words of 64 bits: magic, their number, lists (1, or 2 with what is held for another
 * rank), then of each list tensors, and for each its name, type, shape, offset and runs; then a
 * checksum.  After these words a byte for each tensor of the first list, and zeros up to a word. */
#include "state/table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define MAGIC INT64_C(0x3362617465747377) /* "wstetab3" */

enum {
    MAX_NAME  = 4096,
    MAX_WORDS = 1 << 26,
    MAX_LISTS = 64,      /* of its own state, and for other ranks */
    MAX_RUNS  = 1 << 20, /* of a dimension */
    AT_TENSOR = 3,       /* the word with the number of tensors of the first list */
    HERE      = 0xa5,    /* marks: no bit of one that flips makes it the other */
    NOT_HERE  = 0x5a
};

/* ---- writing ---- */

/* With word NULL words are only counted. */
typedef struct table_writer {
    int64_t *word;
    int64_t  n;
} table_writer;

static void put_word(table_writer *w, int64_t x)
{
    if (w->word) w->word[w->n] = x;
    w->n++;
}

static void put_name(table_writer *w, const char *name)
{
    size_t n = strlen(name);
    put_word(w, (int64_t)n);
    if (w->word) {
        memset(w->word + w->n, 0, (n + 7) / 8 * 8);
        memcpy(w->word + w->n, name, n);
    }
    w->n += (int64_t)(n + 7) / 8;
}

static void put_part(table_writer *w, const weft_part *p)
{
    for (int d = 0; d < p->shape.n; d++) {
        put_word(w, p->n[d]);
        for (int k = 0; k < p->n[d]; k++) {
            put_word(w, p->run[d][k].lo);
            put_word(w, p->run[d][k].hi);
        }
    }
}

static void put_tensors(const weft_state *s, table_writer *w)
{
    put_word(w, weft_state_count(s));
    for (int i = 0; i < weft_state_count(s); i++) {
        const weft_state_tensor *t    = weft_state_at(s, i);
        bool                     held = t->part && !t->on_host;
        put_name(w, t->name);
        put_word(w, t->dtype);
        put_word(w, t->shape.n);
        for (int d = 0; d < t->shape.n; d++) put_word(w, t->shape.d[d]);
        put_word(w, held ? t->offset : -1);
        if (held) put_part(w, t->part);
    }
}

static void put_table(const weft_state *s, table_writer *w, int64_t n_word)
{
    put_word(w, MAGIC);
    put_word(w, n_word);
    put_word(w, 1 + weft_state_n_standby(s));
    put_tensors(s, w);
    for (int k = 0; k < weft_state_n_standby(s); k++)
        put_tensors(weft_state_standby(s, k), w);
    uint32_t crc = w->word ? weft_hash_crc32c(0, w->word, (size_t)w->n * 8) : 0;
    put_word(w, crc);
}

/* Of n marks. */
static int64_t count_mark_words(int64_t n)
{
    return (n + 7) / 8;
}

int64_t weft_state_table_bytes(const weft_state *s)
{
    table_writer w = {0};
    put_table(s, &w, 0);
    return (w.n + count_mark_words(weft_state_count(s))) * 8;
}

void weft_state_table_write(const weft_state *s, int64_t n, void *out)
{
    table_writer w      = {.word = out};
    int64_t      n_mark = count_mark_words(weft_state_count(s));
    put_table(s, &w, n / 8 - n_mark);
    memset(w.word + w.n, 0, (size_t)n_mark * 8);
    memset(w.word + w.n, HERE, (size_t)weft_state_count(s));
}

/* ---- marks ---- */

/* NULL: there are none. */
static _Atomic uint8_t *find_marks(const void *table, int64_t n, int *count)
{
    const int64_t *word = table;
    if (n < 32 || word[0] != MAGIC || word[1] <= AT_TENSOR || word[1] > n / 8 ||
        word[AT_TENSOR] < 0 || word[AT_TENSOR] > MAX_WORDS ||
        count_mark_words(word[AT_TENSOR]) != n / 8 - word[1])
        return NULL;
    *count = (int)word[AT_TENSOR];
    return (_Atomic uint8_t *)(uintptr_t)(word + word[1]);
}

void weft_state_table_mark(void *table, int64_t n, int tensor, bool there)
{
    int              count;
    _Atomic uint8_t *mark = find_marks(table, n, &count);
    if (!mark || tensor >= count) return;
    for (int i = 0; i < count; i++)
        if (tensor < 0 || i == tensor) atomic_store(&mark[i], there ? HERE : NOT_HERE);
}

bool weft_state_table_has(const void *table, int64_t n, int tensor)
{
    int                    count;
    const _Atomic uint8_t *mark = find_marks(table, n, &count);
    return mark && tensor >= 0 && tensor < count && atomic_load(&mark[tensor]) == HERE;
}

int weft_state_table_count(const void *table, int64_t n, int *all)
{
    int                    there = 0;
    const _Atomic uint8_t *mark  = find_marks(table, n, all);
    if (!mark) return -1;
    for (int i = 0; i < *all; i++) there += atomic_load(&mark[i]) == HERE;
    return there;
}

/* ---- reading ---- */

typedef struct table_reader {
    const int64_t *word;
    int64_t        n, at;
    const uint8_t *mark;
    int64_t        n_mark;
    weft_arena    *arena;
} table_reader;

static bool take_word(table_reader *r, int64_t lo, int64_t hi, int64_t *out)
{
    if (r->at >= r->n || r->word[r->at] < lo || r->word[r->at] > hi) return false;
    *out = r->word[r->at++];
    return true;
}

static bool take_name(table_reader *r, const char **out)
{
    int64_t n;
    if (!take_word(r, 1, MAX_NAME, &n) || (n + 7) / 8 > r->n - r->at) return false;
    const char *text = (const char *)(r->word + r->at);
    r->at += (n + 7) / 8;
    *out =
        memchr(text, 0, (size_t)n) ? NULL : weft_arena_strndup(r->arena, text, (size_t)n);
    return *out != NULL;
}

static bool take_runs(table_reader *r, int64_t size, int *n, const weft_interval **out)
{
    int64_t n_run, hi = 0;
    if (!take_word(r, 0, MAX_RUNS, &n_run) || 2 * n_run > r->n - r->at) return false;
    weft_interval *run = WEFT_ARENA_ARRAY(r->arena, weft_interval, n_run + 1);
    for (int64_t k = 0; run && k < n_run; k++) {
        if (!take_word(r, hi, size, &run[k].lo) ||
            !take_word(r, run[k].lo, size, &run[k].hi))
            return false;
        hi = run[k].hi;
    }
    *n   = (int)n_run;
    *out = run;
    return run != NULL;
}

static bool take_tensor(table_reader *r, weft_state_tensor *t)
{
    int64_t dtype, n_dim;
    if (!take_name(r, &t->name) || !take_word(r, 0, WEFT_N_DTYPE - 1, &dtype) ||
        !take_word(r, 0, WEFT_MAX_DIM, &n_dim))
        return false;
    t->dtype   = (weft_dtype)dtype;
    t->shape.n = (int)n_dim;
    for (int d = 0; d < n_dim; d++)
        if (!take_word(r, 0, INT64_C(1) << 48, &t->shape.d[d])) return false;
    if (!take_word(r, -1, INT64_MAX, &t->offset)) return false;
    if (t->offset < 0) {
        t->offset = 0;
        return true;
    }
    weft_part *p = WEFT_ARENA_NEW(r->arena, weft_part);
    if (!p) return false;
    p->shape = t->shape;
    for (int d = 0; d < n_dim; d++)
        if (!take_runs(r, t->shape.d[d], &p->n[d], &p->run[d])) return false;
    t->part = p;
    return true;
}

static weft_status refuse_table(void)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "the table of a state in shared memory is damaged");
}

static weft_status read_tensors(table_reader *r, weft_state *s)
{
    int64_t n;
    if (!take_word(r, 0, MAX_WORDS, &n) || n != r->n_mark) return refuse_table();
    for (int64_t i = 0; i < n; i++) {
        weft_state_tensor t = {0};
        if (!take_tensor(r, &t) || (r->mark[i] != HERE && r->mark[i] != NOT_HERE))
            return refuse_table();
        if (r->mark[i] == NOT_HERE) t.part = NULL;
        WEFT_TRY(weft_arena_status(r->arena));
        if (weft_state_add(s, &t) != WEFT_OK) return refuse_table();
    }
    return WEFT_OK;
}

static weft_status read_lists(table_reader *r, weft_state *s)
{
    weft_state *standby;
    int64_t     n;
    if (!take_word(r, 1, MAX_LISTS, &n)) return refuse_table();
    WEFT_TRY(read_tensors(r, s));
    for (int64_t k = 1; k < n; k++) {
        WEFT_TRY(weft_state_add_standby(s, &standby));
        WEFT_TRY(read_tensors(r, standby));
    }
    return r->at == r->n ? WEFT_OK : refuse_table();
}

static void keep_memory(void *arg, weft_memory *m)
{
    (void)arg, (void)m;
}

/* Are all lengths as they shall be, and all words but the marks those that were written? */
static bool check_words(const int64_t *word, int64_t n, table_reader *r)
{
    static const char zero[8];
    int               count;
    const void       *mark = find_marks(word, n, &count);
    if (!mark) return false;
    *r = (table_reader){
        .word = word, .n = word[1] - 1, .at = 2, .mark = mark, .n_mark = count};
    return !memcmp(r->mark + count, zero,
                   (size_t)(count_mark_words(count) * 8 - count)) &&
           word[r->n] == (int64_t)weft_hash_crc32c(0, word, (size_t)r->n * 8);
}

/* Out of the bytes of a table, which no other process changes. */
static weft_status read_table(const int64_t *word, int64_t n, const weft_memory *m,
                              weft_state **out)
{
    table_reader r  = {0};
    weft_state  *s  = NULL;
    weft_status  st = WEFT_OK;
    if (!check_words(word, n, &r)) return refuse_table();
    WEFT_GO(weft_arena_create(&r.arena));
    WEFT_GO(weft_state_create_over(m, keep_memory, NULL, &s));
    WEFT_GO(read_lists(&r, s));
    *out = s;
    s    = NULL;
out:
    weft_state_destroy(s);
    weft_arena_destroy(r.arena);
    return st;
}

weft_status weft_state_table_open_next(const void *table, int64_t n, const weft_memory *m,
                                       weft_state_table_last *last, weft_state **out)
{
    if (last->state && n == last->n &&
        m->bytes == weft_state_memory(last->state)->bytes &&
        !memcmp(last->word, table, (size_t)n))
        return weft_state_create_alias(last->state, m, out);
    if (n < 32 || n % 8 || n / 8 > MAX_WORDS) return refuse_table();
    int64_t *word = malloc((size_t)n); /* what is checked is what is used */
    if (!word) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memcpy(word, table, (size_t)n);
    weft_status st = read_table(word, n, m, out);
    if (st != WEFT_OK) {
        free(word);
        return st;
    }
    free(last->word);
    *last = (weft_state_table_last){word, n, *out};
    return WEFT_OK;
}

void weft_state_table_last_fini(weft_state_table_last *last)
{
    free(last->word);
    *last = (weft_state_table_last){0};
}

weft_status weft_state_table_open(const void *table, int64_t n, const weft_memory *m,
                                  weft_state **out)
{
    weft_state_table_last last = {0};
    weft_status           st   = weft_state_table_open_next(table, n, m, &last, out);
    weft_state_table_last_fini(&last);
    return st;
}
