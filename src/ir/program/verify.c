/* Is a program what it promises to be?  Tables here, instructions in verify_instr.c, memory in
 * verify_memory.c, deadlock by a walk of one step and its wrap into the next. */
#include <stdlib.h>
#include <string.h>

#include "program/verify_priv.h"
#include "program/walk.h"

enum {
    MAX_FIRING = 1 << 23 /* that one check runs */
};

/* ---- names ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names are what the text form points with: each only once. */
static weft_status unique(const weft_program *p, const char *what, int n,
                          const void *first, size_t stride, size_t at)
{
    const char **name = malloc(sizeof *name * (size_t)(n + 1));
    weft_status  st   = WEFT_OK;
    if (!name) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int i = 0; i < n; i++)
        memcpy(&name[i], (const char *)first + stride * (size_t)i + at, sizeof *name);
    for (int i = 0; i < n; i++)
        if (!name[i])
            WEFT_GO(
                WEFT_FAIL(WEFT_ERR_ARG, "program %s: a %s has no name", p->name, what));
    qsort(name, (size_t)n, sizeof *name, compare_names);
    for (int i = 1; i < n; i++)
        if (!strcmp(name[i - 1], name[i]))
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "program %s: two %ss are called %s", p->name,
                              what, name[i]));
out:
    free(name);
    return st;
}

static weft_status check_names(const weft_program *p)
{
    WEFT_TRY(unique(p, "slab", p->n_slab, p->slab, sizeof *p->slab,
                    offsetof(weft_slab, name)));
    WEFT_TRY(unique(p, "buffer", p->n_buffer, p->buffer, sizeof *p->buffer,
                    offsetof(weft_buffer, name)));
    WEFT_TRY(unique(p, "actor", p->n_actor, p->actor, sizeof *p->actor,
                    offsetof(weft_actor, name)));
    return unique(p, "binding", p->n_binding, p->binding, sizeof *p->binding,
                  offsetof(weft_binding, name));
}

/* ---- tables ---- */

static weft_status check_head(const weft_program *p)
{
    if (p->world < 1 || p->rank < 0 || p->rank >= p->world || p->n_micro < 1 ||
        p->n_lane < 1)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "program %s: rank %d of %d, %d micro-batches, %d lanes cannot be", p->name,
            p->rank, p->world, p->n_micro, p->n_lane);
    for (int i = 0; i < p->n_slab; i++)
        if (p->slab[i].bytes < 0)
            return WEFT_FAIL(WEFT_ERR_ARG, "program %s: slab %s has %lld bytes", p->name,
                             p->slab[i].name, (long long)p->slab[i].bytes);
    return WEFT_OK;
}

static weft_status check_buffer(const weft_program *p, const weft_buffer *b)
{
    int64_t all, end;
    if (b->slab < 0 || b->slab >= p->n_slab)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: buffer %s is in no slab", p->name,
                         b->name);
    if (b->n_slot < 1 || (b->slot_by == WEFT_SLOT_ONE && b->n_slot != 1))
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: buffer %s has %d slots", p->name,
                         b->name, b->n_slot);
    if (b->offset < 0 || b->bytes < 0 || b->offset % 64 || b->bytes % 64)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "program %s: buffer %s: %lld bytes at %lld; both are multiples of 64",
            p->name, b->name, (long long)b->bytes, (long long)b->offset);
    if (__builtin_mul_overflow(b->bytes, (int64_t)b->n_slot, &all) ||
        __builtin_add_overflow(b->offset, all, &end) || end > p->slab[b->slab].bytes)
        return WEFT_FAIL(
            WEFT_ERR_ARG, "program %s: buffer %s reaches outside slab %s of %lld bytes",
            p->name, b->name, p->slab[b->slab].name, (long long)p->slab[b->slab].bytes);
    return WEFT_OK;
}

static int compare_rank(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static weft_status check_group(const weft_program *p, int g)
{
    int         n    = p->group[g].n_rank;
    int32_t    *rank = malloc(sizeof *rank * (size_t)(n + 1));
    weft_status st   = WEFT_OK;
    if (!rank) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (n < 1)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "program %s: group %d is empty", p->name, g));
    memcpy(rank, p->group[g].rank, sizeof *rank * (size_t)n);
    qsort(rank, (size_t)n, sizeof *rank, compare_rank);
    for (int i = 0; i < n; i++)
        if (rank[i] < 0 || rank[i] >= p->world || (i && rank[i] == rank[i - 1]))
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                              "program %s: group %d: rank %d of %d, or it is there twice",
                              p->name, g, rank[i], p->world));
out:
    free(rank);
    return st;
}

static weft_status check_binding(const weft_program *p, const weft_binding *b)
{
    weft_status st = weft_program__verify_operand(p, &b->at);
    if (st != WEFT_OK)
        return weft_fail_in(st, "program %s, binding %s: ", p->name, b->name);
    if (b->at.buffer < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: %s is bound to no buffer", p->name,
                         b->name);
    if (b->kind == WEFT_BIND_STANDBY &&
        !weft_slab_kind_is_state(p->slab[p->buffer[b->at.buffer].slab].kind))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "program %s: %s is held for a rank, in no state slab", p->name,
                         b->name);
    return WEFT_OK;
}

static weft_status check_edge(const weft_program *p, int i)
{
    const weft_edge *e = &p->edge[i];
    if (e->from < 0 || e->from >= p->n_actor || e->to < 0 || e->to >= p->n_actor)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: edge %d joins no actors", p->name, i);
    if (e->credits < 1 || e->delay < 0)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "program %s: edge %s -> %s: %d credits, delay %d; at least 1, and at least 0",
            p->name, p->actor[e->from].name, p->actor[e->to].name, e->credits, e->delay);
    return WEFT_OK;
}

/* Checking takes memory for each firing of each step that it runs. */
static weft_status check_delays(const weft_program *p)
{
    int64_t n = 1;
    for (int s = 0; s < p->n_stream; s++) n += p->stream[s].n_firing;
    if (weft_program__verify_steps(p) <= MAX_FIRING / n) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "program %s: %d steps of %lld firings, as the longest delay asks for, are "
        "more than can be checked",
        p->name, weft_program__verify_steps(p), (long long)n);
}

/* ---- firings ---- */

static weft_status check_slot(const weft_program *p, const weft_actor *a,
                              const weft_instr *i, bool is_out, int32_t buffer,
                              const weft_firing *f)
{
    if (buffer < 0) return WEFT_OK;
    const weft_buffer *b = &p->buffer[buffer];
    if (b->slot_by == WEFT_SLOT_MICRO && f->micro < 0 && b->n_slot > 1)
        return WEFT_PROGRAM__BAD(
            p, a, i, "a once-a-step firing cannot choose among the %d slots of %s",
            b->n_slot, b->name);
    int32_t slot = weft_program_slot(p, i, is_out, buffer, f);
    if (slot < 0 || slot >= b->n_slot)
        return WEFT_PROGRAM__BAD(p, a, i, "slot %d of buffer %s, which has %d", slot,
                                 b->name, b->n_slot);
    return WEFT_OK;
}

static weft_status check_streams(const weft_program *p)
{
    if (p->n_stream > WEFT_MAX_STREAM)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: %d streams, at most %d", p->name,
                         p->n_stream, WEFT_MAX_STREAM);
    for (int s = 0; s < p->n_stream; s++) {
        const weft_stream_spec *x = &p->stream[s];
        for (int k = 0; k < s; k++)
            if (!strcmp(x->name, p->stream[k].name))
                return WEFT_FAIL(WEFT_ERR_ARG, "program %s: two streams %s", p->name,
                                 x->name);
        if (x->device < 0 || x->threads < 0 || x->threads > 1)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "program %s: stream %s on device %d with %d threads: devices "
                "count from 0, threads are 1, or 0 for the executor's pool",
                p->name, x->name, x->device, x->threads);
    }
    for (int a = 0; a < p->n_actor; a++)
        if (p->actor[a].stream < 0 || p->actor[a].stream >= p->n_stream)
            return WEFT_FAIL(WEFT_ERR_ARG, "program %s: actor %s is on stream %d of %d",
                             p->name, p->actor[a].name, p->actor[a].stream, p->n_stream);
    return WEFT_OK;
}

static weft_status check_firing(const weft_program *p, int s, const weft_firing *f)
{
    if (f->actor < 0 || f->actor >= p->n_actor)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: a firing names actor %d of %d",
                         p->name, f->actor, p->n_actor);
    const weft_actor *a = &p->actor[f->actor];
    if ((int)a->stream != s)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "program %s: actor %s is on stream %s but fires on %s", p->name,
                         a->name, p->stream[a->stream].name, p->stream[s].name);
    if (f->micro < -1 || f->micro >= p->n_micro || f->lane_slot < 0)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "program %s: actor %s fires for micro-batch %d of %d in lane slot %d",
            p->name, a->name, f->micro, p->n_micro, f->lane_slot);
    for (int n = 0; n < a->n_instr; n++) {
        const weft_instr *i = &a->instr[n];
        for (int k = 0; k < i->n_in; k++)
            WEFT_TRY(check_slot(p, a, i, false, i->in[k].buffer, f));
        for (int k = 0; k < i->n_out; k++)
            WEFT_TRY(check_slot(p, a, i, true, i->out[k].buffer, f));
    }
    return WEFT_OK;
}

weft_status weft_program_verify(const weft_program *p)
{
    WEFT_TRY(check_head(p));
    WEFT_TRY(check_names(p));
    WEFT_TRY(check_streams(p));
    for (int i = 0; i < p->n_buffer; i++) WEFT_TRY(check_buffer(p, &p->buffer[i]));
    for (int i = 0; i < p->n_group; i++) WEFT_TRY(check_group(p, i));
    for (int i = 0; i < p->n_binding; i++) WEFT_TRY(check_binding(p, &p->binding[i]));
    for (int i = 0; i < p->n_edge; i++) WEFT_TRY(check_edge(p, i));
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++)
            WEFT_TRY(weft_program__verify_instr(p, &p->actor[a], &p->actor[a].instr[n]));
    for (int s = 0; s < p->n_stream; s++)
        for (int i = 0; i < p->stream[s].n_firing; i++)
            WEFT_TRY(check_firing(p, s, &p->stream[s].firing[i]));
    WEFT_TRY(check_delays(p));
    return weft_program__verify_memory(p);
}

/* A step is held back by all ranks of a job or by none: each has a commit point, or none has. */
static weft_status check_commits(const weft_program *const *p, int n)
{
    int  actor, instr;
    bool first = n && weft_program_find_commit(p[0], &actor, &instr);
    for (int i = 1; i < n; i++)
        if (weft_program_find_commit(p[i], &actor, &instr) != first)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "program %s: rank %d has a commit point, rank %d has none",
                             p[0]->name, p[first ? 0 : i]->rank, p[first ? i : 0]->rank);
    return WEFT_OK;
}

weft_status weft_program_verify_all(const weft_program *const *p, int n)
{
    int n_step = 0;
    for (int i = 0; i < n; i++) {
        WEFT_TRY(weft_program_verify(p[i]));
        int k  = weft_program__verify_steps(p[i]);
        n_step = k > n_step ? k : n_step;
    }
    WEFT_TRY(check_commits(p, n));
    return weft_program_walk(p, n, &(weft_walk_options){.n_step = n_step});
}

/* ---- calls alone ---- */

static bool is_member(const weft_program *p, int group)
{
    if (group < 0 || group >= p->n_group) return false;
    for (int k = 0; k < p->group[group].n_rank; k++)
        if (p->group[group].rank[k] == p->rank) return true;
    return false;
}

static weft_status check_call(const weft_program *p, const weft_actor *a,
                              const weft_instr *i)
{
    if (!weft_instr_is_comm(i) || i->n_in || i->n_out)
        return WEFT_PROGRAM__BAD(p, a, i, "it has %d operands, or is no call", i->n_in);
    if (i->kind != WEFT_INSTR_COLLECTIVE)
        return i->credits >= 0 ? WEFT_OK
                               : WEFT_PROGRAM__BAD(p, a, i, "%d credits", i->credits);
    if (i->coll != WEFT_BARRIER || !is_member(p, i->group))
        return WEFT_PROGRAM__BAD(p, a, i, "rank %d is not in group %d, or has data",
                                 p->rank, i->group);
    return WEFT_OK;
}

weft_status weft_program_verify_calls(const weft_program *p)
{
    if (p->n_slab || p->n_buffer || p->n_binding)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s has memory besides its calls",
                         p->name);
    WEFT_TRY(check_head(p));
    WEFT_TRY(check_names(p));
    WEFT_TRY(check_streams(p));
    for (int i = 0; i < p->n_group; i++) WEFT_TRY(check_group(p, i));
    for (int i = 0; i < p->n_edge; i++) WEFT_TRY(check_edge(p, i));
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++)
            WEFT_TRY(check_call(p, &p->actor[a], &p->actor[a].instr[n]));
    for (int s = 0; s < p->n_stream; s++)
        for (int i = 0; i < p->stream[s].n_firing; i++)
            WEFT_TRY(check_firing(p, s, &p->stream[s].firing[i]));
    return WEFT_OK;
}
