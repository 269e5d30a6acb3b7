/* Ranks of a job as threads of this process. */
#include "support/ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "exec/exec.h"
#include "graph/fp8.h"
#include "program/own.h"
#include "program/talk.h"
#include "shard/shard.h"
#include "strategy/strategy.h"
#include "support/exec.h"
#include "support/test.h"

typedef struct rank {
    const test_job *j;
    weft_program   *program;
    weft_comm      *comm;
    weft_exec      *exec;
    int             n_thread;
    test_result     r;
    weft_status     st;
    char            text[512];
    int             n_held;
    /* of test_job_run_lost */
    weft_comm_group   *group; /* of all ranks, for the vote */
    char              *state; /* after step 1 */
    weft_exec_progress progress;
    bool               finished;
} rank;

void test_job_open(test_job *j, const char *model, test_job_options o)
{
    if (!o.rows) o.rows = 1;
    weft_model_options mo = {.batch = o.rows, .seq = o.seq, .with_loss = true};
    weft_model        *m;
    *j = (test_job){.o = o};
    assert_ok(weft_model_load(model, &mo, &m));
    weft_train_param *param = calloc((size_t)m->n_param + 1, sizeof *param);
    weft_train_stat  *stat  = calloc((size_t)m->n_stat + 1, sizeof *stat);
    assert_non_null(param);
    assert_non_null(stat);
    for (int i = 0; i < m->n_param; i++)
        param[i] = (weft_train_param){m->param[i].value, m->param[i].decay};
    for (int i = 0; i < m->n_stat; i++)
        stat[i] =
            (weft_train_stat){m->stat[i].p.value, m->stat[i].stat, m->stat[i].momentum,
                              m->stat[i].unbias, m->stat[i].rate};
    weft_train_options to = {.loss         = m->loss_sum,
                             .optimizer    = o.optimizer ? o.optimizer : "adamw",
                             .beta         = {0.9, 0.95},
                             .eps          = 1e-8,
                             .weight_decay = 0.1,
                             .clip         = o.no_clip ? 0 : 1,
                             .dtype        = o.dtype,
                             .recompute    = o.recompute,
                             .n_param      = m->n_param,
                             .param        = param,
                             .n_stat       = m->n_stat,
                             .stat         = stat,
                             .n_micro      = o.n_micro};
    j->model              = m;
    if (o.fp8) assert_ok(weft_graph_mark_fp8(m->graph, o.fp8, m->logits));
    assert_ok(weft_graph_make_training(m->graph, &to, &j->training));
    free(param);
    free(stat);
}

void test_job_close(test_job *j)
{
    weft_graph_destroy(j->training.graph);
    weft_model_destroy(j->model);
}

/* Every input that the rank has; a function of name, step and micro-batch alone. */
static weft_status read_inputs(void *user, int64_t step, int micro, int n,
                               const weft_view *out)
{
    rank *k       = user;
    int64_t class = k->j->model->info.vocab ? k->j->model->info.vocab : 4;
    (void)n, (void)out;
    for (int b = 0; b < k->program->n_binding; b++) {
        const weft_binding *x = &k->program->binding[b];
        weft_view           v;
        if (x->kind != WEFT_BIND_INPUT) continue;
        WEFT_TRY(weft_exec_binding(k->exec, x->name, micro, &v));
        int64_t key = (int64_t)(weft_hash_xxh64(x->name, strlen(x->name), 0) >> 40);
        for (int64_t i = 0; i < weft_shape_count(&v.shape); i++) {
            int64_t y = step * 7919 + micro * 104729 + i * i * 31 + i * 7 + key;
            if (v.dtype == WEFT_DTYPE_I32)
                ((int32_t *)v.p)[i] = (int32_t)(y % class);
            else
                ((float *)v.p)[i] = (float)(y % 1000) / 1000.0f - 0.5f;
        }
    }
    return WEFT_OK;
}

static bool is_state(const weft_binding *b)
{
    return b->kind == WEFT_BIND_PARAM || b->kind == WEFT_BIND_STATE ||
           b->kind == WEFT_BIND_STANDBY;
}

static bool here(const rank *k, const char *name)
{
    return weft_program_find(k->program, name) != NULL;
}

/* What a rank has of a tensor. */
typedef struct part {
    const weft_binding *b;
    const weft_shape   *whole;
    weft_view           v;
    bool                all; /* and in its order */
    int64_t             size;
} part;

static weft_status part_of(const rank *k, const char *name, const weft_shape *whole,
                           part *out)
{
    int64_t stride = 1;
    *out           = (part){.b = weft_program_find(k->program, name), .whole = whole};
    WEFT_TRY(weft_exec_binding(k->exec, name, 0, &out->v));
    out->size = weft_dtype_bytes(out->v.dtype);
    out->all  = true;
    for (int d = whole->n - 1; d >= 0; d--) {
        out->all = out->all && out->b->origin[d] == 0 &&
                   out->v.shape.d[d] == whole->d[d] && out->v.stride[d] == stride;
        stride *= whole->d[d];
    }
    return WEFT_OK;
}

/* Element e of the whole tensor where the rank has it; NULL: it has not. */
static char *element(const part *x, int64_t e)
{
    int64_t at = 0;
    if (x->all) return (char *)x->v.p + e * x->size;
    for (int d = x->whole->n - 1; d >= 0; d--) {
        int64_t i = e % x->whole->d[d] - x->b->origin[d];
        e /= x->whole->d[d];
        if (i < 0 || i >= x->v.shape.d[d]) return NULL;
        at += i * x->v.stride[d];
    }
    return (char *)x->v.p + at * x->size;
}

static const weft_type *type_of(const rank *k, const char *name)
{
    const weft_graph *g = k->j->training.graph;
    return &g->value[weft_graph_find(g, name)].type;
}

/* Numbers [first, first + n) of a tensor, where the rank has them under this name. */
static weft_status fill_tensor(rank *k, const char *name, const weft_shape *whole,
                               int64_t first, int64_t n, const float *x)
{
    part    to;
    int64_t count = weft_shape_count(whole);
    if (!here(k, name)) return WEFT_OK;
    WEFT_TRY(part_of(k, name, whole, &to));
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        char    *y = element(&to, (first + i) % count);
        memcpy(&bits, &x[i], sizeof bits);
        uint16_t high = (uint16_t)(bits >> 16);
        if (y && to.size == 4) memcpy(y, &x[i], sizeof *x);
        if (y && to.size == 2) memcpy(y, &high, sizeof high);
    }
    return WEFT_OK;
}

/* Parameters and their copies in bf16, also those that are held for another rank. */
static weft_status fill(void *arg, const weft_model_param *p, const weft_model_tensor *t,
                        int64_t first, int64_t n, const float *x)
{
    static const char *const before[] = {"", "standby.1.", "standby.2.", "standby.3."};
    static const char *const after[]  = {"", ".bf16"};
    rank                    *k        = arg;
    const weft_shape        *whole    = &type_of(k, p->name)->shape;
    char                     name[256];
    if (k->j->o.zero && strstr(p->name, k->j->o.zero)) return WEFT_OK; /* as it is made */
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "%s%s%s", before[i / 2], p->name, after[i % 2]);
        /* pieces of one parameter one behind the other: any numbers will do, but the same
         * everywhere */
        WEFT_TRY(fill_tensor(k, name, whole, first + (t - p->tensor), n, x));
    }
    return WEFT_OK;
}

static weft_status scalar(rank *k, weft_vid v, float **at)
{
    weft_view x;
    WEFT_TRY(weft_exec_binding(k->exec, weft_graph_value_name(k->j->training.graph, v), 0,
                               &x));
    *at = x.p;
    return WEFT_OK;
}

static weft_status hold_bad(void *user, int64_t step, int n, const double *value,
                            bool *hold)
{
    rank *k = user;
    (void)step;
    if (n != 2) return WEFT_FAIL(WEFT_ERR_INTERNAL, "%d values at a commit point", n);
    *hold = !isfinite(value[0]) || !isfinite(value[1]);
    k->n_held += *hold;
    return WEFT_OK;
}

static weft_status hash_state(const rank *k, uint64_t *out)
{
    *out = 0;
    for (int b = 0; b < k->program->n_binding; b++) {
        const weft_binding *x = &k->program->binding[b];
        weft_view           v;
        if (!is_state(x)) continue;
        WEFT_TRY(weft_exec_binding(k->exec, x->name, 0, &v));
        *out = weft_hash_xxh64(
            v.p, (size_t)weft_shape_count(&v.shape) * (size_t)weft_dtype_bytes(v.dtype),
            *out);
    }
    return WEFT_OK;
}

/* The step with a gradient that is not finite: it is held back, and nothing is written. */
static weft_status try_bad_step(rank *k, int s)
{
    const weft_training_graph *t = &k->j->training;
    uint64_t                   before, after;
    float                     *x;
    WEFT_TRY(hash_state(k, &before));
    WEFT_TRY(scalar(k, t->step, &x));
    *x = (float)(s + 1);
    WEFT_TRY(scalar(k, t->inv_n, &x));
    *x = NAN;
    WEFT_TRY(weft_exec_run(k->exec, s, 1));
    WEFT_TRY(hash_state(k, &after));
    if (k->n_held != 1 || before != after)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "step %d: held %d times, state %s", s,
                         k->n_held, before == after ? "kept" : "changed");
    return WEFT_OK;
}

static weft_status step(rank *k, int s)
{
    const weft_training_graph *t       = &k->j->training;
    const weft_vid             in[]    = {t->lr, t->step, t->inv_n};
    int                        n_token = k->j->o.n_micro * k->j->o.rows * k->j->o.seq;
    const float                to[]    = {1e-3f, (float)(s + 1), 1.0f / (float)n_token};
    float                     *x;
    for (int i = 0; i < 3; i++) {
        WEFT_TRY(scalar(k, in[i], &x));
        *x = to[i];
    }
    WEFT_TRY(weft_exec_run(k->exec, s, 1));
    WEFT_TRY(scalar(k, t->loss, &x));
    k->r.loss[s] = *x;
    WEFT_TRY(scalar(k, t->grad_norm, &x));
    k->r.norm[s] = *x;
    return WEFT_OK;
}

static weft_status train(rank *k)
{
    weft_exec_options o = {.device      = {weft_device_cpu(), weft_device_cpu()},
                           .n_thread    = k->n_thread,
                           .comm        = k->comm,
                           .batch       = k->j->o.n_micro * k->j->o.rows,
                           .micro_batch = k->j->o.rows,
                           .seed        = 1,
                           .read        = read_inputs,
                           .commit      = k->j->o.bad_step ? hold_bad : NULL,
                           .user        = k};
    WEFT_TRY(test_exec_create(k->program, &o, &k->exec));
    WEFT_TRY(weft_model_init(k->j->model, 7, fill, k));
    for (int s = 0; s < TEST_STEPS; s++) {
        if (k->j->o.bad_step == s + 1) WEFT_TRY(try_bad_step(k, s));
        WEFT_TRY(step(k, s));
    }
    return WEFT_OK;
}

static void *train_thread(void *arg)
{
    rank *k = arg;
    k->st   = train(k);
    if (k->st != WEFT_OK) {
        snprintf(k->text, sizeof k->text, "%s", weft_error_text());
        weft_comm_abort(k->comm, k->text);
    }
    return NULL;
}

/* A tensor from ranks that have parts of it; those that have the same part have the same, their
 * own or held for another rank. */
static uint64_t whole_tensor(const rank *k, int n, weft_vid v)
{
    const weft_graph_value *x    = &k->j->training.graph->value[v];
    int64_t                 m    = weft_shape_count(&x->type.shape);
    size_t                  size = (size_t)weft_dtype_bytes(x->type.dtype);
    char                   *all  = calloc((size_t)m + 1, size);
    bool                   *seen = calloc((size_t)m + 1, 1);
    assert_non_null(all);
    assert_non_null(seen);
    for (int r = 0; r < (1 + WEFT_MAX_STANDBY) * n; r++) {
        part y;
        char name[256], before[16] = "";
        if (r >= n) snprintf(before, sizeof before, "standby.%d.", r / n);
        snprintf(name, sizeof name, "%s%s", before, x->name);
        if (!here(&k[r % n], name)) continue;
        assert_ok(part_of(&k[r % n], name, &x->type.shape, &y));
        for (int64_t e = 0; e < m; e++) {
            const char *p = element(&y, e);
            if (!p) continue;
            if (seen[e] && memcmp(all + (size_t)e * size, p, size) != 0)
                fail_msg("%s[%ld] of rank %d differs from others'", name, (long)e, r % n);
            memcpy(all + (size_t)e * size, p, size);
            seen[e] = true;
        }
    }
    for (int64_t e = 0; e < m; e++)
        if (!seen[e]) fail_msg("nobody has %s[%ld]", x->name, (long)e);
    uint64_t h = weft_hash_xxh64(all, size * (size_t)m, 1);
    free(all);
    free(seen);
    return h;
}

static uint64_t all_weights(const rank *k, int n)
{
    const weft_graph *g = k->j->training.graph;
    weft_hash_state   h;
    weft_hash_init(&h, 0);
    for (weft_vid v = 0; v < g->n_value; v++) {
        bool state =
            g->value[v].kind == WEFT_VALUE_PARAM || g->value[v].kind == WEFT_VALUE_STATE;
        uint64_t x = state ? whole_tensor(k, n, v) : 0;
        weft_hash_add(&h, &x, sizeof x);
    }
    return weft_hash_value(&h);
}

/* What weft run compares before the first step. */
static void must_balance(weft_program **p, int n)
{
    weft_arena *a;
    weft_talk   t;
    uint64_t    sum = 0;
    assert_ok(weft_arena_create(&a));
    for (int r = 0; r < n; r++) {
        assert_ok(weft_talk_make(p[r], a, &t));
        sum += weft_talk_balance(&t);
    }
    weft_arena_destroy(a);
    assert_int_equal(sum, 0);
}

weft_program *test_job_compile(const test_job *j, const char *words, bool by_lanes,
                               const weft_partition_options *o)
{
    weft_sharding *s = NULL;
    weft_arena    *a;
    weft_program  *p;
    assert_ok(weft_arena_create(&a));
    if (words) {
        weft_strategy      h;
        weft_shard_options so;
        assert_ok(weft_strategy_parse(words, &h));
        assert_ok(weft_shard_expand(&h, j->training.graph, NULL, 0, a, &so));
        so.n_mesh = 1;
        if (by_lanes) so.lanes = 1u << weft_strategy_axis_at(&h, WEFT_AXIS_DP);
        assert_ok(weft_shard_propagate(j->training.graph, &so, &s));
    }
    assert_ok(weft_partition_program(j->training.graph, s, o, &p));
    weft_sharding_destroy(s);
    weft_arena_destroy(a);
    return p;
}

test_result test_job_run(const test_job *j, weft_program **p, int n, int n_thread)
{
    rank             k[TEST_MAX_RANK];
    pthread_t        thread[TEST_MAX_RANK];
    weft_comm_local *hub;
    assert_ok(weft_program_verify_all((const weft_program *const *)p, n));
    must_balance(p, n);
    assert_ok(weft_comm_local_create(n, &hub));
    for (int r = 0; r < n; r++) {
        k[r] = (rank){.j = j, .program = p[r], .n_thread = n_thread};
        assert_ok(weft_comm_local_join(hub, r, 60.0, &k[r].comm));
    }
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, train_thread, &k[r]), 0);
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < n; r++) {
        if (k[r].st != WEFT_OK) fail_msg("rank %d: %s", r, k[r].text);
        assert_memory_equal(&k[r].r, &k[0].r, sizeof k[0].r);
        for (int i = 0; i < TEST_STEPS; i++)
            assert_true(isfinite(k[r].r.loss[i]) && isfinite(k[r].r.norm[i]));
    }
    k[0].r.weights = all_weights(k, n);
    for (int r = 0; r < n; r++) {
        test_exec_destroy(k[r].exec);
        weft_comm_destroy(k[r].comm);
        weft_program_destroy(p[r]);
    }
    weft_comm_local_destroy(hub);
    return k[0].r;
}

/* ---- a rank that is lost in the middle of a step ---- */

enum {
    LOST_STEP = 1,
    VOTE_TAG  = 1 << 22
};

/* The end of the rank that is lost. */
static struct {
    weft_comm_ops        op;
    const weft_comm_ops *real;
    _Atomic int64_t      n_call;
    _Atomic bool         counts;
    int64_t              at;    /* the call that it does not survive; -1 none */
    bool                 after; /* ... but the others have had their part of it */
} lost_end;

/* Is this the call? */
static bool is_lost_in(bool after)
{
    if (!lost_end.counts || after != lost_end.after) return false;
    return atomic_fetch_add(&lost_end.n_call, 1) == lost_end.at;
}

static weft_status lose(weft_comm *c)
{
    weft_comm_abort(c, "it is lost");
    return WEFT_FAIL(WEFT_ERR_PEER, "lost in call %lld", (long long)lost_end.at);
}

static weft_status lose_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                             int64_t bytes)
{
    if (is_lost_in(false)) return lose(c);
    WEFT_TRY(lost_end.real->send(c, ch, p, bytes));
    return is_lost_in(true) ? lose(c) : WEFT_OK;
}

static weft_status lose_recv(weft_comm *c, weft_comm_channel *ch, void *p, int64_t bytes)
{
    if (is_lost_in(false)) return lose(c);
    WEFT_TRY(lost_end.real->recv(c, ch, p, bytes));
    return is_lost_in(true) ? lose(c) : WEFT_OK;
}

static weft_status lose_run(weft_comm *c, const weft_comm_call *call)
{
    if (is_lost_in(false)) return lose(c);
    WEFT_TRY(lost_end.real->run(c, call));
    return is_lost_in(true) ? lose(c) : WEFT_OK;
}

static void use_lost_end(weft_comm *c, int64_t at, bool after)
{
    lost_end.real    = c->op;
    lost_end.op      = *c->op;
    lost_end.op.send = lose_send;
    lost_end.op.recv = lose_recv;
    lost_end.op.run  = lose_run;
    lost_end.n_call  = 0;
    lost_end.counts  = false;
    lost_end.at      = at;
    lost_end.after   = after;
    c->op            = &lost_end.op;
}

/* As the session does it: a sum over all ranks. */
static weft_status vote(void *user, int64_t step, int n, const double *value, bool *hold)
{
    rank *k   = user;
    float one = 1;
    (void)step, (void)n, (void)value;
    WEFT_TRY(weft_comm_collective(k->comm, k->group, WEFT_ALL_REDUCE, WEFT_DTYPE_F32,
                                  &one, &one, 1));
    *hold = one != (float)k->comm->world;
    return WEFT_OK;
}

static size_t state_bytes(const weft_program *p)
{
    size_t n = 0;
    for (int b = 0; b < p->n_binding; b++) {
        const weft_type *t = &p->binding[b].at.type;
        if (is_state(&p->binding[b]))
            n += (size_t)weft_shape_count(&t->shape) * (size_t)weft_dtype_bytes(t->dtype);
    }
    return n;
}

/* All states one after another; the caller's. */
static char *save_state(const rank *k)
{
    char *all = malloc(state_bytes(k->program) + 1);
    char *to  = all;
    for (int b = 0; all && b < k->program->n_binding; b++) {
        weft_view v;
        if (!is_state(&k->program->binding[b])) continue;
        if (weft_exec_binding(k->exec, k->program->binding[b].name, 0, &v) != WEFT_OK)
            return all;
        size_t bytes =
            (size_t)weft_shape_count(&v.shape) * (size_t)weft_dtype_bytes(v.dtype);
        memcpy(to, v.p, bytes);
        to += bytes;
    }
    return all;
}

static weft_status train_two(rank *k)
{
    weft_exec_options o = {.n_thread    = 1,
                           .comm        = k->comm,
                           .batch       = k->j->o.n_micro * k->j->o.rows,
                           .micro_batch = k->j->o.rows,
                           .seed        = 1,
                           .read        = read_inputs,
                           .commit      = vote,
                           .user        = k};
    int32_t           all[TEST_MAX_RANK];
    for (int r = 0; r < k->comm->world; r++) all[r] = r;
    WEFT_TRY(weft_comm_open_group(k->comm, k->comm->world, all, VOTE_TAG, &k->group));
    WEFT_TRY(test_exec_create(k->program, &o, &k->exec));
    WEFT_TRY(weft_model_init(k->j->model, 7, fill, k));
    WEFT_TRY(step(k, 0));
    k->state = save_state(k);
    if (k->comm->op == &lost_end.op) lost_end.counts = true;
    return step(k, LOST_STEP);
}

static void *train_two_thread(void *arg)
{
    rank *k = arg;
    k->st   = train_two(k);
    if (k->st != WEFT_OK) snprintf(k->text, sizeof k->text, "%s", weft_error_text());
    if (k->exec) k->progress = weft_exec_get_progress(k->exec);
    return NULL;
}

/* Gives the hub, for close_ranks(). */
static weft_comm_local *run_ranks(const test_job *j, weft_program **p, int n, int lost,
                                  int64_t at, bool after, rank *k)
{
    pthread_t        thread[TEST_MAX_RANK];
    weft_comm_local *hub;
    assert_ok(weft_comm_local_create(n, &hub));
    for (int r = 0; r < n; r++) {
        k[r] = (rank){.j = j, .program = p[r]};
        assert_ok(weft_comm_local_join(hub, r, 60.0, &k[r].comm));
    }
    use_lost_end(k[lost].comm, at, after);
    for (int r = 0; r < n; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, train_two_thread, &k[r]), 0);
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    return hub;
}

static void close_ranks(rank *k, int n, weft_comm_local *hub)
{
    for (int r = 0; r < n; r++) {
        free(k[r].state);
        test_exec_destroy(k[r].exec);
        weft_comm_destroy(k[r].comm);
    }
    weft_comm_local_destroy(hub);
}

/* What a rank computes by itself must be that of the undisturbed run; marks what that is. */
static void check_own(const rank *k, const char *want, int64_t at)
{
    weft_own_run *own;
    weft_arena   *a;
    char         *have = save_state(k);
    int64_t       from = 0;
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_program_find_own(k->program, a, &own));
    for (int b = 0; b < k->program->n_binding; b++) {
        const weft_type *t    = &k->program->binding[b].at.type;
        int64_t          size = weft_dtype_bytes(t->dtype);
        if (!is_state(&k->program->binding[b])) continue;
        if (memcmp(have + from + own[b].lo * size, want + from + own[b].lo * size,
                   (size_t)((own[b].hi - own[b].lo) * size)) != 0)
            fail_msg("call %lld, rank %d: other bits in %s[%lld..%lld)", (long long)at,
                     k->program->rank, k->program->binding[b].name, (long long)own[b].lo,
                     (long long)own[b].hi);
        from += weft_shape_count(&t->shape) * size;
    }
    free(have);
    weft_arena_destroy(a);
}

static void count_outcome(rank *k, int64_t committed, int64_t at, test_lost *out)
{
    weft_exec_outcome how = k->progress.outcome;
    if (how == WEFT_EXEC_TORN)
        fail_msg("call %lld: state is torn: %s", (long long)at, k->text);
    if (how == WEFT_EXEC_HELD && committed == LOST_STEP) {
        if (k->progress.arrived != LOST_STEP)
            fail_msg("call %lld: rank %d is not at the commit point that others passed",
                     (long long)at, k->program->rank);
        assert_ok(weft_exec_finish_alone(k->exec));
        k->progress = weft_exec_get_progress(k->exec);
        assert_int_equal(k->progress.outcome, WEFT_EXEC_ALONE);
        assert_int_equal(k->progress.passed, LOST_STEP);
        out->n_finished++;
        return;
    }
    if (how == WEFT_EXEC_HELD && k->progress.arrived == LOST_STEP) {
        assert_ok(weft_exec_finish_alone(k->exec));
        out->n_finished++;
    } else if (how != WEFT_EXEC_HELD || k->st != WEFT_OK) {
        assert_int_equal(weft_exec_finish_alone(k->exec), WEFT_ERR_ARG);
    }
    out->n_held += how == WEFT_EXEC_HELD;
    out->n_alone += how == WEFT_EXEC_ALONE;
    out->n_ran += how == WEFT_EXEC_RAN;
    k->progress = weft_exec_get_progress(k->exec);
}

/* A rank's states before and after the step. */
typedef struct undisturbed {
    char *before, *after;
} undisturbed;

/* One trial.  Ranks that are at the commit point which nobody passed are told so by nobody: that
 * they could make their updates is tried after their state was looked at. */
static void lose_at(const test_job *j, weft_program **p, int n, int lost, int64_t at,
                    bool after, const undisturbed *good, test_lost *out)
{
    rank             k[TEST_MAX_RANK];
    weft_comm_local *hub       = run_ranks(j, p, n, lost, at, after, k);
    int64_t          committed = -1;
    for (int r = 0; r < n; r++) {
        if (k[r].st != WEFT_OK && k[r].st != WEFT_ERR_PEER) fail_msg("%s", k[r].text);
        if (k[r].progress.passed > committed) committed = k[r].progress.passed;
    }
    out->n_trial++;
    for (int r = 0; r < n; r++) {
        if (!k[r].state) { /* it was still gathering after the step before */
            assert_int_equal(k[r].progress.outcome, WEFT_EXEC_ALONE);
            assert_int_equal(k[r].progress.passed, LOST_STEP - 1);
            assert_int_equal(committed, LOST_STEP - 1);
            check_own(&k[r], good[r].before, at);
            continue;
        }
        if (committed == LOST_STEP - 1) {
            char *have = save_state(&k[r]);
            if (memcmp(have, good[r].before, state_bytes(p[r])) != 0)
                fail_msg("call %lld, rank %d: state was written", (long long)at, r);
            free(have);
        }
        count_outcome(&k[r], committed, at, out);
        if (k[r].progress.passed == LOST_STEP) check_own(&k[r], good[r].after, at);
    }
    close_ranks(k, n, hub);
}

void test_job_run_lost(const test_job *j, weft_program **p, int n, int lost, int every,
                       test_lost *out)
{
    rank             k[TEST_MAX_RANK];
    undisturbed      good[TEST_MAX_RANK];
    weft_comm_local *hub = run_ranks(j, p, n, lost, -1, false, k);
    int64_t          n_call;
    for (int r = 0; r < n; r++) {
        if (k[r].st != WEFT_OK) fail_msg("rank %d: %s", r, k[r].text);
        assert_int_equal(k[r].progress.outcome, WEFT_EXEC_RAN);
        assert_int_equal(k[r].progress.passed, LOST_STEP);
        good[r]    = (undisturbed){k[r].state, save_state(&k[r])};
        k[r].state = NULL;
    }
    n_call = lost_end.n_call;
    close_ranks(k, n, hub);
    assert_true(n_call > 0);
    for (int64_t at = 0; at < 2 * n_call; at += every)
        lose_at(j, p, n, lost, at / 2, at % 2, good, out);
    for (int r = 0; r < n; r++) {
        free(good[r].before);
        free(good[r].after);
    }
}
