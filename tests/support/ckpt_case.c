#include "support/ckpt_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 300

static weft_status yield(void *arg, int64_t offset, void *buf, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)buf)[i] = (uint8_t)(((int)offset + (int)i) * 13 + *(int *)arg);
    return WEFT_OK;
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
         {"m.a.weight", WEFT_DTYPE_U8, {1, {777}}, {.read = yield, .arg = &seed}}};
    weft_ckpt_file file[] = {
        {.name = "config.json", .text = "{}\n", .n_text = 3},
        {.name = "model.safetensors", .tensors = {model, 2, meta, 1, NULL}},
        {.name = "optimizer.safetensors", .tensors = {adam, 1, NULL, 0, NULL}},
        {.name = "state.json", .text = text, .n_text = (size_t)n},
    };

    return weft_ckpt_save(dir, step, file, 4, NULL);
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
    if (!t || !m || t->bytes != 4 * N || m->bytes != 777) return -1;
    for (int i = 0; i < N; i++) {
        float v;

        memcpy(&v, (const char *)t->data + 4 * i, 4);
        if (v != (float)(seed * 1000 + i)) return -1;
    }
    for (int i = 0; i < 777; i++)
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
