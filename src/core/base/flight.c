#include "base/flight.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

static weft_flight_ring *_Atomic shared;
/* Of the ring's table of groups. */
static pthread_mutex_t groups = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void weft_flight_share(weft_flight_ring *ring, int rank)
{
    if (ring) {
        memset(ring, 0, sizeof *ring);
        ring->now.rank = rank;
    }
    atomic_store(&shared, ring);
}

bool weft_flight_is_on(void)
{
    return atomic_load_explicit(&shared, memory_order_relaxed) != NULL;
}

void weft_flight_begin_view(uint32_t epoch, int rank, int world)
{
    weft_flight_ring *r = atomic_load(&shared);
    if (!r) return;
    pthread_mutex_lock(&groups);
    r->before      = r->now;
    r->now.epoch   = epoch;
    r->now.rank    = rank;
    r->now.world   = world;
    r->now.n_group = 0;
    pthread_mutex_unlock(&groups);
}

weft_status weft_flight_map(int fd, int local_rank, weft_flight_ring **out)
{
    struct stat s;
    size_t      bytes = ((size_t)local_rank + 1) * sizeof **out;
    if (local_rank < 0 || fstat(fd, &s) || (size_t)s.st_size < bytes)
        return WEFT_FAIL(WEFT_ERR_ARG, "descriptor %d is no flight recorder", fd);
    weft_flight_ring *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (all == MAP_FAILED)
        return WEFT_FAIL(WEFT_ERR_MEM, "shared memory: %s", strerror(errno));
    *out = all + local_rank;
    return WEFT_OK;
}

/* ---- what happens ---- */

static bool is_same_group(const weft_flight_group *g, const weft_flight_event *e,
                          int kind)
{
    int n = e->n_rank < WEFT_FLIGHT_RANKS ? e->n_rank : WEFT_FLIGHT_RANKS;
    return g->kind == kind && g->tag == e->tag && g->n_rank == e->n_rank &&
           !memcmp(g->rank, e->rank, (size_t)n * sizeof *e->rank);
}

/* The group of an event, and its number in it. */
static int find_group(weft_flight_ring *r, const weft_flight_event *e, int64_t *seq)
{
    int kind = (int)(e->kind == WEFT_FLIGHT_RECV ? WEFT_FLIGHT_SEND : e->kind), k = 0;
    *seq = 0;
    if (e->kind == WEFT_FLIGHT_TASK || !e->rank || e->n_rank < 1) return -1;
    pthread_mutex_lock(&groups);
    weft_flight_view *v = &r->now;
    while (k < v->n_group && !is_same_group(&v->group[k], e, kind)) k++;
    weft_flight_group *g = &v->group[k];
    if (k == v->n_group && k < WEFT_FLIGHT_GROUPS) {
        int n = e->n_rank < WEFT_FLIGHT_RANKS ? e->n_rank : WEFT_FLIGHT_RANKS;
        *g    = (weft_flight_group){.kind = kind, .tag = e->tag, .n_rank = e->n_rank};
        memcpy(g->rank, e->rank, (size_t)n * sizeof *e->rank);
        v->n_group++;
    }
    if (k < WEFT_FLIGHT_GROUPS)
        *seq = e->kind == WEFT_FLIGHT_RECV ? g->n_recv++ : g->n_send++;
    pthread_mutex_unlock(&groups);
    return k < WEFT_FLIGHT_GROUPS ? k : -1;
}

static void copy_text(char *to, size_t size, const char *from)
{
    size_t n = from ? strnlen(from, size - 1) : 0;
    if (n) memcpy(to, from, n);
    to[n] = 0;
}

int64_t weft_flight_begin(const weft_flight_event *e)
{
    weft_flight_ring *r = atomic_load_explicit(&shared, memory_order_relaxed);
    int64_t           seq;
    if (!r) return -1;
    int                group = find_group(r, e, &seq);
    uint64_t           k     = atomic_fetch_add_explicit(&r->n, 1, memory_order_relaxed);
    weft_flight_entry *x     = &r->entry[k % WEFT_FLIGHT_ENTRIES];
    atomic_store_explicit(&x->ended_ns, 0, memory_order_relaxed);
    x->step   = e->step;
    x->bytes  = e->bytes;
    x->seq    = e->seq ? e->seq : seq;
    x->epoch  = r->now.epoch;
    x->group  = group;
    x->kind   = (uint8_t)e->kind;
    x->stream = (uint8_t)e->stream;
    copy_text(x->op, sizeof x->op, e->op);
    copy_text(x->name, sizeof x->name, e->name);
    atomic_store_explicit(&x->begun_ns, now_ns() - (uint64_t)(1e9 * e->ago_s),
                          memory_order_release);
    return (int64_t)k;
}

void weft_flight_end(int64_t k)
{
    weft_flight_ring *r = atomic_load_explicit(&shared, memory_order_relaxed);
    if (r && k >= 0)
        atomic_store_explicit(&r->entry[k % WEFT_FLIGHT_ENTRIES].ended_ns, now_ns(),
                              memory_order_release);
}

/* ---- as text ---- */

static const char *const kinds[WEFT_N_FLIGHT_KIND] = {[WEFT_FLIGHT_TASK] = "task",
                                                      [WEFT_FLIGHT_COLLECTIVE] =
                                                          "collective",
                                                      [WEFT_FLIGHT_SEND] = "send",
                                                      [WEFT_FLIGHT_RECV] = "recv"};

static void put_text(weft_text *t, const char *key, const char *s, size_t size)
{
    char copy[64] = "";
    memcpy(copy, s, size < sizeof copy ? size : sizeof copy - 1);
    copy[size < sizeof copy ? size - 1 : sizeof copy - 1] = 0;
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = '?';
    weft_text_add(t, ", \"%s\": ", key);
    weft_text_put_quoted(t, copy);
}

static void print_group(const weft_flight_group *g, weft_text *t)
{
    int n = g->n_rank < 0 ? 0 : g->n_rank;
    weft_text_add(t, "{\"tag\": %d, \"ranks\": [", g->tag);
    for (int k = 0; k < n && k < WEFT_FLIGHT_RANKS; k++)
        weft_text_add(t, "%s%d", k ? ", " : "", g->rank[k]);
    weft_text_add(t, "]}");
}

static void print_entry(const weft_flight_entry *x, int n_group, weft_text *t)
{
    uint64_t begun = atomic_load(&x->begun_ns), ended = atomic_load(&x->ended_ns);
    weft_text_add(t, "{\"kind\": \"%s\"",
                  x->kind < WEFT_N_FLIGHT_KIND ? kinds[x->kind] : "task");
    put_text(t, "op", x->op, sizeof x->op);
    put_text(t, "name", x->name, sizeof x->name);
    weft_text_add(t, ", \"epoch\": %u, \"step\": %lld, \"stream\": %d", x->epoch,
                  (long long)x->step, x->stream);
    if (x->group >= 0 && x->group < n_group)
        weft_text_add(t, ", \"group\": %d, \"seq\": %lld, \"bytes\": %lld", x->group,
                      (long long)x->seq, (long long)x->bytes);
    weft_text_add(t, ", \"begun_s\": %.6f", 1e-9 * (double)begun);
    if (ended) weft_text_add(t, ", \"ended_s\": %.6f", 1e-9 * (double)ended);
    weft_text_add(t, "}");
}

static int count_groups(const weft_flight_view *v)
{
    if (v->n_group < 0) return 0;
    return v->n_group > WEFT_FLIGHT_GROUPS ? WEFT_FLIGHT_GROUPS : v->n_group;
}

void weft_flight_print(const weft_flight_ring *ring, uint32_t epoch, weft_text *t)
{
    uint64_t                n    = atomic_load(&ring->n);
    uint64_t                from = n > WEFT_FLIGHT_ENTRIES ? n - WEFT_FLIGHT_ENTRIES : 0;
    const weft_flight_view *v    = ring->now.epoch <= epoch ? &ring->now : &ring->before;
    int                     n_group = count_groups(v);
    const char             *between = "\n ";
    weft_text_add(t, "{\"format\": 1, \"rank\": %d, \"world\": %d, \"epoch\": %u, ",
                  v->rank, v->world, v->epoch);
    weft_text_add(t, "\"printed_s\": %.6f, \"groups\": [", 1e-9 * (double)now_ns());
    for (int k = 0; k < n_group; k++) {
        if (k) weft_text_add(t, ", ");
        print_group(&v->group[k], t);
    }
    weft_text_add(t, "], \"entries\": [");
    for (uint64_t k = from; k < n; k++) {
        const weft_flight_entry *x = &ring->entry[k % WEFT_FLIGHT_ENTRIES];
        if (x->epoch > v->epoch) continue;
        weft_text_add(t, "%s", between);
        print_entry(x, x->epoch == v->epoch ? n_group : 0, t); /* whose groups they are */
        between = ",\n ";
    }
    weft_text_add(t, "]}\n");
}
