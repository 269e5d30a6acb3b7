#include "session/lesson.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"

/* ---- rows of bytes ---- */

weft_status weft_spans_create(weft_arena *a, int most, weft_spans *out)
{
    *out = (weft_spans){.span = WEFT_ARENA_ARRAY(a, weft_span, most + 1)};
    return weft_arena_status(a);
}

void weft_spans_add(weft_spans *s, void *p, int64_t bytes)
{
    if (bytes <= 0) return;
    s->span[s->n++] = (weft_span){p, s->bytes, bytes};
    s->bytes += bytes;
}

/* The span that has byte `at`. */
static int find_span(const weft_spans *s, int64_t at)
{
    int lo = 0, hi = s->n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if (s->span[mid].from <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

void weft_spans_read(const weft_spans *s, int64_t at, int64_t n, void *out)
{
    char *to = out;
    for (int k = n > 0 ? find_span(s, at) : 0; n > 0; k++) {
        const weft_span *x    = &s->span[k];
        int64_t          skip = at - x->from, part = x->bytes - skip;
        if (part > n) part = n;
        memcpy(to, x->p + skip, (size_t)part);
        to += part;
        at += part;
        n -= part;
    }
}

void weft_spans_write(const weft_spans *s, int64_t at, int64_t n, const void *in)
{
    const char *from = in;
    for (int k = n > 0 ? find_span(s, at) : 0; n > 0; k++) {
        const weft_span *x    = &s->span[k];
        int64_t          skip = at - x->from, part = x->bytes - skip;
        if (part > n) part = n;
        memcpy(x->p + skip, from, (size_t)part);
        from += part;
        at += part;
        n -= part;
    }
}

/* ---- blocks of the state ---- */

/* Tensors that are computed together: a list by number, in the order of the state. */
typedef struct tensor_group {
    int first, last; /* -1: it has none */
} tensor_group;

typedef struct row_pass {
    const weft_state   *s;
    const weft_program *p;
    const weft_tail    *t;
    tensor_group       *group; /* of each binding that stands for a unit */
    int            *next; /* of each tensor: the next of its group; -1: it is the last */
    weft_hash_state hash;
    weft_lesson_state *out;
} row_pass;

static int64_t element_bytes(const row_pass *x, int first)
{
    int64_t bytes = 0;
    for (int i = first; i >= 0; i = x->next[i])
        bytes += weft_dtype_bytes(weft_state_at(x->s, i)->dtype);
    return bytes;
}

static int64_t group_bytes(const row_pass *x, int first)
{
    int64_t bytes = 0;
    for (int i = first; i >= 0; i = x->next[i]) {
        const weft_state_tensor *t = weft_state_at(x->s, i);
        bytes += weft_part_count(t->part) * weft_dtype_bytes(t->dtype);
    }
    return bytes;
}

/* Elements of a block; all of them where they are few. */
static int64_t block_elements(const row_pass *x, int first)
{
    const int64_t unit  = 64;
    int64_t       count = weft_part_count(weft_state_at(x->s, first)->part);
    if (group_bytes(x, first) <= WEFT_LESSON_CHUNK) return count;
    return WEFT_LESSON_CHUNK / element_bytes(x, first) / unit * unit;
}

static weft_status group_tensors(row_pass *x, weft_arena *tmp)
{
    x->group = WEFT_ARENA_ARRAY(tmp, tensor_group, x->p->n_binding + 1);
    x->next  = WEFT_ARENA_ARRAY(tmp, int, weft_state_count(x->s) + 1);
    WEFT_TRY(weft_arena_status(tmp));
    for (int b = 0; b < x->p->n_binding; b++) x->group[b] = (tensor_group){-1, -1};
    for (int i = 0; i < weft_state_count(x->s); i++) {
        const weft_state_tensor *t = weft_state_at(x->s, i);
        x->next[i]                 = -1;
        if (!t->part || !weft_part_count(t->part)) continue;
        const weft_binding *b    = weft_program_find(x->p, t->name);
        int                 unit = b ? x->t->unit[b - x->p->binding].first : -1;
        if (unit < 0 || t->on_host)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s is not in memory of the host alone",
                             t->name);
        tensor_group *g = &x->group[unit];
        if (g->first < 0) g->first = i;
        if (g->last >= 0) x->next[g->last] = i;
        g->last = i;
    }
    return WEFT_OK;
}

/* May the group be cut? */
static weft_status check_group(const row_pass *x, int unit)
{
    int     first = x->group[unit].first;
    int64_t count = weft_part_count(weft_state_at(x->s, first)->part);
    bool    cut   = group_bytes(x, first) > WEFT_LESSON_CHUNK;
    for (int i = first; i >= 0 && cut; i = x->next[i])
        if (weft_part_count(weft_state_at(x->s, i)->part) != count ||
            !x->t->unit[unit].by_element)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s is not updated element by element",
                             weft_state_at(x->s, i)->name);
    return WEFT_OK;
}

static void add_group(row_pass *x, int unit)
{
    weft_lesson_state *out   = x->out;
    int                first = x->group[unit].first;
    int64_t            block = block_elements(x, first);
    int64_t            all   = weft_part_count(weft_state_at(x->s, first)->part);
    bool               whole = block == all; /* then counts may differ */
    for (int64_t at = 0; at < all; at += block) {
        for (int i = first; i >= 0; i = x->next[i]) {
            const weft_state_tensor *t    = weft_state_at(x->s, i);
            int64_t                  size = weft_dtype_bytes(t->dtype);
            int64_t                  n    = whole              ? weft_part_count(t->part)
                                            : all - at < block ? all - at
                                                               : block;
            weft_spans_add(&out->row,
                           (char *)weft_state_memory(x->s)->address + t->offset +
                               at * size,
                           n * size);
        }
        out->end[out->n_block++] = out->row.bytes;
    }
    weft_hash_add(&x->hash, &block, sizeof block);
    for (int i = first; i >= 0; i = x->next[i]) weft_hash_add(&x->hash, &i, sizeof i);
}

static void hash_tensor(weft_hash_state *h, const weft_state_tensor *t)
{
    int64_t of[2] = {t->dtype, t->part != NULL};
    weft_hash_add(h, t->name, strlen(t->name) + 1);
    weft_hash_add(h, of, sizeof of);
    for (int d = 0; t->part && d < t->part->shape.n; d++) {
        weft_hash_add(h, &t->part->shape.d[d], sizeof t->part->shape.d[d]);
        weft_hash_add(h, &t->part->n[d], sizeof t->part->n[d]);
        weft_hash_add(h, t->part->run[d],
                      sizeof *t->part->run[d] * (size_t)t->part->n[d]);
    }
}

static weft_status make_row(row_pass *x, weft_arena *a, weft_arena *tmp)
{
    int64_t n_span = 0, n_block = 0;
    WEFT_TRY(group_tensors(x, tmp));
    for (int u = 0; u < x->p->n_binding; u++) {
        if (x->group[u].first < 0) continue;
        WEFT_TRY(check_group(x, u));
        int64_t all = weft_part_count(weft_state_at(x->s, x->group[u].first)->part);
        int64_t one = block_elements(x, x->group[u].first), n = (all + one - 1) / one;
        n_block += n;
        for (int i = x->group[u].first; i >= 0; i = x->next[i]) n_span += n;
    }
    WEFT_TRY(weft_spans_create(a, (int)n_span, &x->out->row));
    x->out->end = WEFT_ARENA_ARRAY(a, int64_t, n_block + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < weft_state_count(x->s); i++)
        hash_tensor(&x->hash, weft_state_at(x->s, i));
    /* in the order of tensors, as bindings have another one in another program */
    for (int i = 0; i < weft_state_count(x->s); i++) {
        const weft_binding *b = weft_program_find(x->p, weft_state_at(x->s, i)->name);
        int                 u = b ? x->t->unit[b - x->p->binding].first : -1;
        if (u >= 0 && x->group[u].first == i) add_group(x, u);
    }
    x->out->hash = weft_hash_value(&x->hash);
    return WEFT_OK;
}

weft_status weft_lesson_state_make(const weft_state *s, const weft_program *p,
                                   const weft_tail *t, weft_arena *a,
                                   weft_lesson_state *out)
{
    row_pass    x   = {.s = s, .p = p, .t = t, .out = out};
    weft_arena *tmp = NULL;
    *out            = (weft_lesson_state){0};
    weft_hash_init(&x.hash, WEFT_LESSON_VERSION);
    if (weft_state_n_standby(s))
        return WEFT_FAIL(WEFT_ERR_ARG, "ranks hold standby replicas of each other");
    if (!weft_state_memory(s)->device->host_access)
        return WEFT_FAIL(WEFT_ERR_ARG, "the state is on a GPU");
    WEFT_TRY(weft_arena_create(&tmp));
    weft_status st = make_row(&x, a, tmp);
    weft_arena_destroy(tmp);
    return st;
}

/* The first block that ends after `at`. */
static int find_block(const weft_lesson_state *s, int64_t at)
{
    int lo = 0, hi = s->n_block;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (s->end[mid] > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

int64_t weft_lesson_piece(const weft_lesson_state *s, int64_t at)
{
    int k = find_block(s, at + WEFT_LESSON_CHUNK);
    return k ? s->end[k - 1] - at : 0;
}

static int64_t share_begin(const weft_lesson_state *s, int n, int k)
{
    int at = find_block(s, s->row.bytes / n * k - 1);
    return k <= 0 ? 0 : k >= n || at == s->n_block ? s->row.bytes : s->end[at];
}

void weft_lesson_state_share(const weft_lesson_state *s, int n, int k, int64_t *lo,
                             int64_t *hi)
{
    *lo = share_begin(s, n, k);
    *hi = share_begin(s, n, k + 1);
}

weft_status weft_lesson_spans_of_tail(const weft_exec *e, const weft_tail *t,
                                      weft_arena *a, weft_spans *out)
{
    WEFT_TRY(weft_spans_create(a, t->n_input, out));
    for (int k = 0; k < t->n_input; k++)
        weft_spans_add(out, weft_exec_tail_input(e, &t->input[k]), t->input[k].bytes);
    return WEFT_OK;
}

/* ---- who sends what, from when on ---- */

void weft_lesson_share(int64_t bytes, int n, int k, int64_t *lo, int64_t *hi)
{
    const int64_t unit = 64;
    int64_t       all  = (bytes + unit - 1) / unit;
    *lo                = all * k / n * unit;
    *hi                = all * (k + 1) / n * unit;
    if (*lo > bytes) *lo = bytes;
    if (*hi > bytes) *hi = bytes;
}

bool weft_lesson_is_held(const weft_job *asked, int world, int first)
{
    return first > 0 && asked->learn && world - first <= WEFT_LESSON_LEARNERS &&
           !strncmp(asked->device, "cpu", 3);
}

int weft_lesson_n_teacher(int first)
{
    return first < WEFT_LESSON_TEACHERS ? first : WEFT_LESSON_TEACHERS;
}

int weft_lesson_teacher(int first, int k)
{
    return (int)((int64_t)first * k / weft_lesson_n_teacher(first));
}

bool weft_lesson_keeps_up(int64_t input_bytes, int64_t sent, double sent_s, double step_s,
                          char *text, size_t n)
{
    const int64_t enough  = 4 << 20; /* bytes by which the speed is known */
    const double  share   = 0.9;  /* of a step, for its inputs; the rest is for pieces */
    const double  short_s = 0.05; /* a moment of a busy host, which says nothing */
    if (sent < enough || sent_s <= 0 || step_s <= 0) return true;
    double need_s = (double)input_bytes * sent_s / (double)sent;
    if (need_s <= share * step_s || need_s <= short_s) return true;
    snprintf(text, n,
             "sending %.3g MB with each step would take %.3g s, and a step takes %.3g s",
             (double)input_bytes / 1e6, need_s, step_s);
    return false;
}

void weft_lesson_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
}

bool weft_lesson_wait(pthread_cond_t *c, pthread_mutex_t *lock, double until_s)
{
    struct timespec t = {.tv_sec = (time_t)until_s};
    if (until_s <= 0) return true;
    t.tv_nsec = (long)((until_s - (double)t.tv_sec) * 1e9);
    return pthread_cond_timedwait(c, lock, &t) == ETIMEDOUT;
}

double weft_lesson_patience_s(double lesson_s)
{
    return 0.5 + 0.05 * lesson_s;
}
