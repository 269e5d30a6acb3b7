#include "session/lesson.h"

#include <errno.h>
#include <math.h>
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

static void hash_part(weft_hash_state *h, const weft_part *part)
{
    for (int d = 0; d < part->shape.n; d++) {
        weft_hash_add(h, &part->shape.d[d], sizeof part->shape.d[d]);
        weft_hash_add(h, &part->n[d], sizeof part->n[d]);
        weft_hash_add(h, part->run[d], sizeof *part->run[d] * (size_t)part->n[d]);
    }
}

weft_status weft_lesson_spans_of_state(const weft_state *s, weft_arena *a,
                                       weft_spans *out, uint64_t *hash)
{
    weft_hash_state h;
    weft_hash_init(&h, WEFT_LESSON_VERSION);
    WEFT_TRY(weft_spans_create(a, weft_state_count(s), out));
    if (weft_state_n_standby(s))
        return WEFT_FAIL(WEFT_ERR_ARG, "ranks hold standby replicas of each other");
    for (int i = 0; i < weft_state_count(s); i++) {
        const weft_state_tensor *t     = weft_state_at(s, i);
        int64_t                  of[2] = {t->dtype, t->part != NULL};
        weft_hash_add(&h, t->name, strlen(t->name) + 1);
        weft_hash_add(&h, of, sizeof of);
        if (!t->part) continue;
        hash_part(&h, t->part);
        if (t->on_host || !weft_state_memory(s)->device->host_access)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s is not in memory of the host alone",
                             t->name);
        weft_spans_add(out, (char *)weft_state_memory(s)->address + t->offset,
                       weft_part_count(t->part) * weft_dtype_bytes(t->dtype));
    }
    *hash = weft_hash_value(&h);
    return WEFT_OK;
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

int weft_lesson_n_teacher(int first)
{
    return first < WEFT_LESSON_TEACHERS ? first : WEFT_LESSON_TEACHERS;
}

int weft_lesson_teacher(int first, int k)
{
    return (int)((int64_t)first * k / weft_lesson_n_teacher(first));
}

int64_t weft_lesson_begin(const weft_lesson_hello *of, int n)
{
    const double answer_s = 0.5; /* for the PICK to come back, on a busy host */
    int64_t      step     = 0;
    double       step_s   = INFINITY;
    for (int k = 0; k < n; k++) {
        if (of[k].step > step) step = of[k].step;
        if (of[k].step_s > 0 && of[k].step_s < step_s) step_s = of[k].step_s;
    }
    double more = answer_s / step_s; /* 0 where no step was timed */
    return step + 2 + (more < 1e6 ? (int64_t)more : 1000000);
}

bool weft_lesson_keeps_up(int64_t input_bytes, int64_t sent, double sent_s, double step_s,
                          char *text, size_t n)
{
    const int64_t enough = 4 << 20; /* bytes by which the speed is known */
    const double  share  = 0.9;     /* of a step, for its inputs; the rest is for pieces */
    if (sent < enough || sent_s <= 0 || step_s <= 0) return true;
    double need_s = (double)input_bytes * sent_s / (double)sent;
    if (need_s <= share * step_s) return true;
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
    return 0.2 + 0.05 * lesson_s;
}
