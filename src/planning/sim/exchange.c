/* Positions that can begin a step wait in a heap by time; the earliest sends, reserves the wires,
 * and goes on when its own message has left and the awaited one is there. */
#include "sim/exchange.h"

#include <math.h>

typedef struct message {
    int    from;
    double there_s;
} message;

typedef struct position {
    int      rank, node, step, n_step;
    int      n_port;
    bool     waits;        /* for a message, since */
    double   sent_s;       /* its own message of this step has left */
    bool     behind, held; /* an earlier step still waits; the next one does for it */
    int      behind_from;
    double   behind_s; /* its message has left; then, when it was done */
    double   done_s;   /* the step before */
    message *box;      /* what has come and was not awaited yet */
    int      n_box, cap_box;
    double   out_free_s, in_free_s; /* its own link */
    int      n_sent, n_far;
    double   bytes;
} position;

typedef struct event {
    double s;
    int    who;
} event;

typedef struct run {
    const weft_exchange *x;
    const weft_cluster  *c;
    weft_arena          *a;
    double               share_bytes;
    position            *p;
    double             **out_port, **in_port; /* [node][port]: free from */
    event               *heap;
    int                  n_heap;
    double               last_s;
} run;

/* ---- the heap ---- */

static bool before(event a, event b)
{
    return a.s < b.s || (a.s == b.s && a.who < b.who); /* same input, same bits */
}

static void push(run *r, double s, int who)
{
    int i = r->n_heap++;
    for (event e = {s, who}; i; i = (i - 1) / 2) {
        if (!before(e, r->heap[(i - 1) / 2])) break;
        r->heap[i] = r->heap[(i - 1) / 2];
    }
    r->heap[i] = (event){s, who};
}

static event pop(run *r)
{
    event top = r->heap[0], e = r->heap[--r->n_heap];
    int   i = 0;
    for (int k; (k = 2 * i + 1) < r->n_heap; i = k) {
        if (k + 1 < r->n_heap && before(r->heap[k + 1], r->heap[k])) k++;
        if (!before(r->heap[k], e)) break;
        r->heap[i] = r->heap[k];
    }
    r->heap[i] = e;
    return top;
}

/* ---- wires ---- */

static double *first_free(double *port, int n)
{
    double *best = port;
    for (int i = 1; i < n; i++)
        if (port[i] < *best) best = port + i;
    return best;
}

/* When a message from a to b leaves entirely, and when it is there. */
static weft_status carry(run *r, position *a, position *b, double now, double bytes,
                         double *left, double *there)
{
    weft_path w;
    WEFT_TRY(weft_cluster_path(r->c, a->rank, b->rank, &w));
    bool    ports = a->node != b->node && w.link->scope == WEFT_LINK_NET;
    double *out   = ports ? first_free(r->out_port[a->node], a->n_port) : &a->out_free_s;
    double *in    = ports ? first_free(r->in_port[b->node], b->n_port) : &b->in_free_s;
    *left         = fmax(now, fmax(*out, *in)) + bytes / w.Bps;
    *out = *in = *left;
    *there     = *left + w.alpha_s;
    return WEFT_OK;
}

/* ---- steps ---- */

/* Takes the message that `from` sent first, if it has come. */
static bool take(position *p, int from, double *there)
{
    for (int i = 0; i < p->n_box; i++) {
        if (p->box[i].from != from) continue;
        *there = p->box[i].there_s;
        p->n_box--;
        for (; i < p->n_box; i++) p->box[i] = p->box[i + 1];
        return true;
    }
    return false;
}

/* To the next step, when the one left behind allows it. */
static void go_on(run *r, int who)
{
    position *p = &r->p[who];
    double    s = p->done_s;
    p->held     = false;
    if (p->step == p->n_step) return;
    if (weft_exchange_at(r->x, who, p->step).joins) {
        p->held = p->behind;
        s       = fmax(s, p->behind_s);
    }
    if (!p->held) push(r, s, who);
}

/* The step is over when its message has left and the awaited one is there. */
static void end_step(run *r, int who, double there)
{
    position *p = &r->p[who];
    p->done_s   = fmax(p->sent_s, there);
    p->waits    = false;
    p->step++;
    if (p->done_s > r->last_s) r->last_s = p->done_s;
    go_on(r, who);
}

static void end_behind(run *r, int who, double there)
{
    position *p = &r->p[who];
    p->behind   = false;
    p->behind_s = fmax(p->behind_s, there);
    if (p->behind_s > r->last_s) r->last_s = p->behind_s;
    if (p->held) go_on(r, who);
}

/* Messages of one sender are taken in the order sent, so the step left behind comes first. */
static weft_status deliver(run *r, int from, int to, double there)
{
    position *p = &r->p[to];
    void     *v = p->box;
    if (p->behind && p->behind_from == from) {
        end_behind(r, to, there);
        return WEFT_OK;
    }
    if (p->waits && weft_exchange_at(r->x, to, p->step).from == from) {
        end_step(r, to, there);
        return WEFT_OK;
    }
    WEFT_TRY(weft_arena_grow(r->a, &v, &p->cap_box, p->n_box + 1, sizeof *p->box));
    p->box             = v;
    p->box[p->n_box++] = (message){from, there};
    return WEFT_OK;
}

static weft_status send(run *r, int who, const weft_exchange_step *s, double now)
{
    position *p = &r->p[who], *q = &r->p[s->to];
    double    there, bytes       = weft_exchange_sent(s) * r->share_bytes;
    WEFT_TRY(carry(r, p, q, now, bytes, &p->sent_s, &there));
    p->n_sent++;
    p->n_far += p->node != q->node;
    p->bytes += bytes;
    return deliver(r, who, s->to, there);
}

static weft_status begin_step(run *r, int who, double now)
{
    position          *p     = &r->p[who];
    weft_exchange_step s     = weft_exchange_at(r->x, who, p->step);
    double             there = now;
    p->sent_s                = now;
    if (s.to >= 0) WEFT_TRY(send(r, who, &s, now));
    bool came = s.from < 0 || take(p, s.from, &there);
    if (s.behind) {
        p->behind      = true;
        p->behind_from = s.from;
        p->behind_s    = p->sent_s;
        p->sent_s      = now;
        if (came) end_behind(r, who, there);
        end_step(r, who, now);
    } else if (came) {
        end_step(r, who, there);
    } else {
        p->waits = true;
    }
    return WEFT_OK;
}

/* ---- the call ---- */

static int ports_of(const weft_cluster *c, int node)
{
    for (int k = 0; k < c->n_node; k++)
        if (node < c->node[k].first_node + c->node[k].count) return c->node[k].n_port;
    return 0;
}

static weft_status place(run *r, const int32_t *rank)
{
    int n_node  = weft_cluster_n_node(r->c);
    r->p        = WEFT_ARENA_ARRAY(r->a, position, r->x->n);
    r->heap     = WEFT_ARENA_ARRAY(r->a, event, r->x->n);
    r->out_port = WEFT_ARENA_ARRAY(r->a, double *, n_node);
    r->in_port  = WEFT_ARENA_ARRAY(r->a, double *, n_node);
    WEFT_TRY(weft_arena_status(r->a));
    for (int k = 0; k < n_node; k++) {
        r->out_port[k] = WEFT_ARENA_ARRAY(r->a, double, ports_of(r->c, k) + 1);
        r->in_port[k]  = WEFT_ARENA_ARRAY(r->a, double, ports_of(r->c, k) + 1);
    }
    for (int i = 0; i < r->x->n; i++) {
        position *p = &r->p[i];
        p->rank     = rank ? rank[i] : i;
        p->node     = weft_cluster_node(r->c, p->rank, NULL);
        if (p->node < 0)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "cluster %s has %d devices, there is none for rank %d",
                             r->c->name, weft_cluster_count(r->c), p->rank);
        p->n_port = ports_of(r->c, p->node);
        p->n_step = weft_exchange_count(r->x, i);
        if (p->n_step) push(r, 0, i);
    }
    return weft_arena_status(r->a);
}

weft_status weft_sim_exchange(const weft_exchange *x, const int32_t *rank,
                              const weft_cluster *c, double bytes,
                              weft_sim_exchange_result *out)
{
    weft_status st = WEFT_OK;
    run         r  = {.x = x, .c = c};
    if (!weft_exchange_can(x))
        return WEFT_FAIL(WEFT_ERR_ARG, "no %s for this collective of %d",
                         weft_exchange_algorithm_name(x->algorithm), x->n);
    r.share_bytes = bytes / x->n;
    WEFT_TRY(weft_arena_create(&r.a));
    WEFT_GO(place(&r, rank));
    while (r.n_heap) {
        event e = pop(&r);
        WEFT_GO(begin_step(&r, e.who, e.s));
    }
    *out = (weft_sim_exchange_result){.seconds = r.last_s};
    for (int i = 0; i < x->n; i++) {
        const position *p = &r.p[i];
        if (p->step < p->n_step ||
            p->behind) /* our own mistake: nobody sends what it awaits */
            WEFT_GO(WEFT_FAIL(WEFT_ERR_INTERNAL,
                              "position %d of %d waits for ever in step %d", i, x->n,
                              p->step));
        if (p->n_sent > out->most_sent) out->most_sent = p->n_sent;
        if (p->n_far > out->most_far) out->most_far = p->n_far;
        if (p->bytes > out->most_bytes) out->most_bytes = p->bytes;
    }
out:
    weft_arena_destroy(r.a);
    return st;
}
