/* Initial weights: philox(seed, tensor's name, index), so that any piece of any tensor can be made
 * anywhere, in any order, to the same bits. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "model/model.h"

enum {
    PIECE = 1 << 14
};

/* Numbers 4k .. 4k+3 of a tensor come from one call of philox. */
static void four(uint64_t seed, uint64_t name, int64_t k, float out[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, w[4];
    uint32_t ctr[4] = {(uint32_t)k, (uint32_t)((uint64_t)k >> 32), (uint32_t)name,
                       (uint32_t)(name >> 32)};
    weft_random_philox(key, ctr, w);
    weft_random_normal2(w[0], w[1], out);
    weft_random_normal2(w[2], w[3], out + 2);
}

void weft_model_init_values(const weft_model_param *p, const weft_model_tensor *t,
                            uint64_t seed, int64_t first, int64_t n, float *out)
{
    if (p->init != WEFT_INIT_NORMAL) {
        for (int64_t i = 0; i < n; i++) out[i] = p->init == WEFT_INIT_ONES ? 1.0f : 0.0f;
        return;
    }
    uint64_t name = weft_hash_xxh64(t->name, strlen(t->name), 0);
    float    std  = (float)p->init_std, x[4];
    for (int64_t i = first; i < first + n;) {
        four(seed, name, i >> 2, x);
        do {
            out[i - first] = std * x[i & 3];
            i++;
        } while (i & 3 && i < first + n);
    }
}

static weft_status init_tensor(const weft_model_param *p, const weft_model_tensor *t,
                               uint64_t seed, weft_model_fill_fn fill, void *arg,
                               float *buf)
{
    int64_t count = weft_shape_count(&t->shape);
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;
        weft_model_init_values(p, t, seed, at, n, buf);
        WEFT_TRY(fill(arg, p, t, at, n, buf));
    }
    return WEFT_OK;
}

weft_status weft_model_init(const weft_model *m, uint64_t seed, weft_model_fill_fn fill,
                            void *arg)
{
    weft_status st  = WEFT_OK;
    float      *buf = malloc(PIECE * sizeof *buf);
    if (!buf)
        return WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory for initial weights", m->name);
    for (int i = 0; i < m->n_param; i++)
        for (int k = 0; k < m->param[i].n_tensor; k++)
            WEFT_GO(
                init_tensor(&m->param[i], &m->param[i].tensor[k], seed, fill, arg, buf));
    for (int i = 0; i < m->n_stat; i++)
        WEFT_GO(
            init_tensor(&m->stat[i].p, &m->stat[i].p.tensor[0], seed, fill, arg, buf));
out:
    free(buf);
    return st;
}
