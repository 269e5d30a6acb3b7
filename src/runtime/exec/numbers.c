/* What a rank sends and receives in a step, by samples: two runs of one step compute the same
 * numbers, so where they do not, a rank that sends other numbers though it has received the same
 * ones has computed them wrongly in one of the runs.
 *
 * Four elements of each tensor of each call up to the commit point are hashed: a wrong number
 * early in a step is in nearly every element of a gradient at its end.  Calls are numbered by
 * stream, in the order of its list.  Only communication through the host is seen, and no rows of
 * experts, whose memory has more room than rows. */
#include <stdlib.h>
#include <string.h>

#include "exec/exec_priv.h"

enum {
    N_SAMPLE = 4
};

static uint64_t mix(uint64_t hash, uint64_t x)
{
    hash = (hash ^ x) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_view(uint64_t hash, const weft_view *v)
{
    int64_t n    = weft_shape_count(&v->shape);
    size_t  size = (size_t)weft_dtype_bytes(v->dtype);
    for (int k = 0; v->p && n > 0 && k < N_SAMPLE; k++) {
        uint64_t x = 0;
        memcpy(&x, (const char *)v->p + (size_t)(k * (n - 1) / (N_SAMPLE - 1)) * size,
               size);
        hash = mix(hash, x);
    }
    return hash;
}

/* Never 0: that is no call. */
static uint32_t hash_views(const weft_exec__instr *x, bool out)
{
    const weft_view *v    = out ? x->call.out : x->call.in;
    int              n    = out ? x->call.n_out : x->call.n_in;
    uint64_t         hash = 1;
    for (int k = 0; k < n; k++) hash = hash_view(hash, &v[k]);
    return (uint32_t)(hash >> 32) | 1;
}

static bool is_seen(const weft_exec__instr *x)
{
    return !(x->i->kind == WEFT_INSTR_COLLECTIVE &&
             (x->i->coll == WEFT_SEND_ROWS || x->i->coll == WEFT_RETURN_ROWS));
}

weft_status weft_exec__open_numbers(weft_exec *e)
{
    int n = 0;
    for (int k = 0; k < e->n_stream; k++) {
        const weft_stream_spec *spec = &e->p->stream[e->stream[k].number];
        e->stream[k].first_call      = n;
        for (int f = 0; f < spec->n_firing; f++) {
            const weft_actor *a = &e->p->actor[spec->firing[f].actor];
            for (int i = 0; i < a->n_instr; i++) n += weft_instr_is_comm(&a->instr[i]);
        }
    }
    e->n_number = n;
    e->number   = calloc(2 * (size_t)n + 1, sizeof *e->number);
    return e->number ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

void weft_exec__begin_numbers(weft_exec *e)
{
    memset(e->number, 0, (size_t)e->n_number * sizeof *e->number);
    for (int k = 0; k < e->n_stream; k++) e->stream[k].n_call = 0;
}

int weft_exec__note_sent(weft_exec__instr *x)
{
    weft_exec *e = x->s->e;
    if (e->arrived == x->s->job_step || !is_seen(x)) return -1;
    int                       k   = x->s->first_call + x->s->n_call++;
    const weft_exec__numbers *ref = &e->number[e->n_number + k];
    if (k >= e->n_number) return -1; /* steps of one run, which are not compared */
    e->number[k].sent = hash_views(x, false);
    if (e->compares && ref->sent && ref->sent != e->number[k].sent && !e->got_other)
        e->sent_other = true;
    return k;
}

void weft_exec__note_got(weft_exec__instr *x, int k)
{
    weft_exec                *e   = x->s->e;
    const weft_exec__numbers *ref = &e->number[e->n_number + k];
    if (k < 0) return;
    e->number[k].got = hash_views(x, true);
    if (e->compares && ref->got && ref->got != e->number[k].got) e->got_other = true;
}

void weft_exec_keep_numbers(weft_exec *e)
{
    memcpy(e->number + e->n_number, e->number, (size_t)e->n_number * sizeof *e->number);
    e->compares   = true;
    e->sent_other = e->got_other = false;
}

bool weft_exec_sent_other(weft_exec *e)
{
    bool other  = e->compares && e->sent_other;
    e->compares = false;
    return other;
}
