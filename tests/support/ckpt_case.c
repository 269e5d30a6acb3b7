#include "support/ckpt_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/snapshot.h"

#define N 300

enum {
    N_ADAM     = 777,
    MAX_WRITER = 4,
    N_TENSOR   = 3
};

int      test_ckpt_n_writer = 1;
uint32_t test_ckpt_epoch    = 0;

static weft_status yield(void *arg, int64_t offset, void *buf, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)buf)[i] = (uint8_t)(((int)offset + (int)i) * 13 + *(int *)arg);
    return WEFT_OK;
}

/* ---- by several ranks ---- */

/* The tensors of the two files: a's columns and m's bytes are shared out, b is on every rank. */
static const weft_state_tensor tensor[N_TENSOR] = {
    {.name = "a.weight", .dtype = WEFT_DTYPE_F32, .shape = {2, {3, N / 3}}},
    {.name = "b.bias", .dtype = WEFT_DTYPE_F32, .shape = {1, {N}}},
    {.name = "m.a.weight", .dtype = WEFT_DTYPE_U8, .shape = {1, {N_ADAM}}}};

typedef struct rank_parts {
    weft_part     part[N_TENSOR];
    weft_interval run[N_TENSOR][2];
} rank_parts;

static void share_out(int rank, int n_rank, rank_parts *out)
{
    for (int k = 0; k < N_TENSOR; k++) {
        const weft_shape *s = &tensor[k].shape;
        out->part[k]        = (weft_part){.shape = *s};
        for (int d = 0; d < s->n; d++) {
            bool    cut    = k != 1 && d == s->n - 1;
            int64_t n      = s->d[d];
            out->run[k][d] = (weft_interval){cut ? n * rank / n_rank : 0,
                                             cut ? n * (rank + 1) / n_rank : n};
            out->part[k].n[d]   = 1;
            out->part[k].run[d] = &out->run[k][d];
        }
    }
}

static weft_status fill_state(const rank_parts *p, int seed, weft_state **out)
{
    float   w[N];
    uint8_t m[N_ADAM];
    int64_t at = 0;
    for (int i = 0; i < N; i++) w[i] = (float)(seed * 1000 + i);
    (void)yield(&seed, 0, m, sizeof m);
    WEFT_TRY(weft_state_create(NULL, 8 * (int64_t)sizeof w, out));
    for (int k = 0; k < N_TENSOR; k++) {
        weft_state_tensor t   = tensor[k];
        weft_region       all = weft_region_whole(&t.shape);
        t.part                = &p->part[k];
        t.offset              = at;
        at += weft_part_count(t.part) * weft_dtype_bytes(t.dtype);
        WEFT_TRY(weft_state_add(*out, &t));
        WEFT_TRY(weft_state_write(*out, k, &all, k == 2 ? (void *)m : (void *)w));
    }
    return WEFT_OK;
}

/* What ranks hold, and the files they write. */
typedef struct rank_case {
    int                 n_rank;
    rank_parts          parts[MAX_WRITER];
    weft_holders       *holders;
    weft_snapshot_item  item[N_TENSOR];
    weft_snapshot_file  file[2];
    weft_snapshot_total total[2];
    weft_store_writer  *writer[2];
} rank_case;

static weft_status make_case(rank_case *c, weft_ckpt_file *file)
{
    const weft_part *part[N_TENSOR * MAX_WRITER];
    for (int r = 0; r < c->n_rank; r++) share_out(r, c->n_rank, &c->parts[r]);
    for (int k = 0; k < N_TENSOR; k++) {
        for (int r = 0; r < c->n_rank; r++)
            part[k * c->n_rank + r] = &c->parts[r].part[k];
        c->item[k] =
            (weft_snapshot_item){k, weft_region_whole(&tensor[k].shape), tensor[k].dtype};
    }
    WEFT_TRY(weft_holders_create(N_TENSOR, tensor, c->n_rank, part, &c->holders));
    for (int f = 0; f < 2; f++) {
        size_t n;
        WEFT_TRY(weft_store_writer_create(&file[1 + f].tensors, &c->writer[f]));
        c->file[f]      = (weft_snapshot_file){.item = c->item + 2 * f, .n_item = 2 - f};
        c->file[f].head = weft_store_writer_header(c->writer[f], &n);
        c->file[f].n_head       = (int64_t)n;
        file[1 + f].tensors     = (weft_store_spec){0};
        file[1 + f].block_bytes = weft_snapshot_file_bytes(&c->file[f]);
    }
    return WEFT_OK;
}

static weft_status write_rank(rank_case *c, int rank, int seed)
{
    weft_state    *s  = NULL;
    weft_snapshot *p  = NULL;
    weft_status    st = WEFT_OK;
    int            n;
    WEFT_GO(fill_state(&c->parts[rank], seed, &s));
    WEFT_GO(weft_snapshot_start(&(weft_snapshot_source){s, c->holders, rank}, c->file, 2,
                                NULL, &p));
    while (!weft_snapshot_wait(p, WEFT_SNAPSHOT_WRITTEN, 60)) continue;
    WEFT_GO(weft_snapshot_status(p));
    weft_snapshot_add(c->total, weft_snapshot_blocks(p, &n), 2);
out:
    weft_snapshot_close(p);
    weft_state_destroy(s);
    return st;
}

/* As checkpoints of a job are written: state.json's text is known last. */
static weft_status save_by_ranks(const char *dir, int64_t step, int seed,
                                 weft_ckpt_file *file)
{
    rank_case        c      = {.n_rank = test_ckpt_n_writer};
    weft_ckpt_draft *d      = NULL;
    const char      *text   = file[3].text;
    weft_store_sum   sum[2] = {{0}};
    weft_status      st     = WEFT_OK;

    weft_ckpt_findings found = {.epoch = test_ckpt_epoch};
    file[3].text             = NULL;
    WEFT_GO(make_case(&c, file));
    WEFT_GO(weft_ckpt_begin(dir, step, file, 4, &found, &d));
    WEFT_GO(weft_ckpt_reserve(d));
    for (int f = 0; f < 2; f++) c.file[f].path = weft_ckpt_draft_path(d, 1 + f);
    for (int r = 0; r < c.n_rank; r++) WEFT_GO(write_rank(&c, r, seed));
    WEFT_GO(weft_snapshot_sum(c.file, 2, c.total, sum));
    for (int f = 0; f < 2; f++) WEFT_GO(weft_ckpt_set_sum(d, 1 + f, &sum[f]));
    WEFT_GO(weft_ckpt_set_text(d, 3, text, file[3].n_text));
    WEFT_GO(weft_ckpt_commit(d, &found));
out:
    weft_ckpt_findings_fini(&found);
    for (int f = 0; f < 2; f++) weft_store_sum_fini(&sum[f]);
    weft_ckpt_draft_close(d);
    weft_holders_destroy(c.holders);
    for (int f = 0; f < 2; f++) weft_store_writer_destroy(c.writer[f]);
    return st;
}

weft_status test_ckpt_save(const char *dir, int64_t step, int seed)
{
    static const weft_store_pair meta[] = {{"format", "pt"}};
    float                        w[N];
    char                         text[64];
    int n = snprintf(text, sizeof text, "{\"seed\": %d}\n", seed);

    for (int i = 0; i < N; i++) w[i] = (float)(seed * 1000 + i);
    weft_store_item model[] = {{"a.weight", WEFT_DTYPE_F32, {2, {3, N / 3}}, {.data = w}},
                               {"b.bias", WEFT_DTYPE_F32, {1, {N}}, {.data = w}}};
    weft_store_item adam[]  = {
         {"m.a.weight", WEFT_DTYPE_U8, {1, {N_ADAM}}, {.read = yield, .arg = &seed}}};
    weft_ckpt_file file[] = {
        {.name = "config.json", .text = "{}\n", .n_text = 3},
        {.name = "model.safetensors", .tensors = {model, 2, meta, 1, NULL}},
        {.name = "optimizer.safetensors", .tensors = {adam, 1, NULL, 0, NULL}},
        {.name = "state.json", .text = text, .n_text = (size_t)n},
    };

    if (test_ckpt_n_writer > 1) return save_by_ranks(dir, step, seed, file);
    weft_ckpt_findings found = {.epoch = test_ckpt_epoch};
    weft_status        st    = weft_ckpt_save(dir, step, file, 4, &found);
    weft_ckpt_findings_fini(&found);
    return st;
}

int test_ckpt_seed(const weft_ckpt *c)
{
    const weft_store_file   *model = weft_ckpt_tensors(c, "model.safetensors");
    const weft_store_file   *adam  = weft_ckpt_tensors(c, "optimizer.safetensors");
    const weft_store_tensor *t, *m;
    const char              *text = weft_ckpt_text(c, "state.json", NULL);
    int                      seed = -1;

    if (!model || !adam || !text || sscanf(text, "{\"seed\": %d}", &seed) != 1) return -1;
    t = weft_store_find(model, "b.bias");
    m = weft_store_find(adam, "m.a.weight");
    if (!t || !m || t->bytes != 4 * N || m->bytes != N_ADAM) return -1;
    for (int i = 0; i < N; i++) {
        float v;

        memcpy(&v, (const char *)t->data + 4 * i, 4);
        if (v != (float)(seed * 1000 + i)) return -1;
    }
    for (int i = 0; i < N_ADAM; i++)
        if (((const uint8_t *)m->data)[i] != (uint8_t)(i * 13 + seed)) return -1;
    return seed;
}

int test_ckpt_newest(const char *dir, int64_t *step, weft_ckpt_findings *found)
{
    weft_ckpt *c = NULL;
    int        seed;

    if (weft_ckpt_open(dir, WEFT_CKPT_NEWEST, found, &c) != WEFT_OK) return -2;
    seed = test_ckpt_seed(c);
    if (step) *step = weft_ckpt_step(c);
    weft_ckpt_close(c);
    return seed;
}
