/* state.json, out and in.  64-bit hashes are hexadecimal strings: JSON's numbers are not
 * safe there. */
#include "ckpt/state.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"

#define AT(field) offsetof(weft_ckpt_state, field)

static const struct {
    const char *key;
    size_t      at;
} whole[] = {{"step", AT(step)},   {"sample", AT(sample)},           {"seed", AT(seed)},
             {"batch", AT(batch)}, {"micro_batch", AT(micro_batch)}, {"lanes", AT(lanes)},
             {"seq", AT(seq)}},
  hex[]   = {{"data_id", AT(data_id)},
             {"graph_hash", AT(graph_hash)},
             {"weights_xxh64", AT(weights_xxh64)}};

weft_status weft_ckpt_state_print(const weft_ckpt_state *s, weft_text *t)
{
    weft_text_add(t, "{\"format\": 1");
    for (size_t i = 0; i < WEFT_COUNT(whole); i++)
        weft_text_add(t, ",\n \"%s\": %" PRId64, whole[i].key,
                      *(const int64_t *)((const char *)s + whole[i].at));
    for (size_t i = 0; i < WEFT_COUNT(hex); i++)
        weft_text_add(t, ",\n \"%s\": \"%016" PRIx64 "\"", hex[i].key,
                      *(const uint64_t *)((const char *)s + hex[i].at));
    weft_text_add(t, ",\n \"kernel_set\": ");
    weft_text_put_quoted(t, s->kernel_set);
    if (s->extra) weft_text_add(t, ",\n \"extra\": %s", s->extra);
    weft_text_add(t, "}\n");
    return weft_text_status(t);
}

static weft_status get_hex(const weft_doc *d, const char *key, uint64_t *out)
{
    const char *s = NULL;

    WEFT_TRY(weft_doc_get_string(d, weft_doc_root(d), key, &s));
    if (!s || strlen(s) != 16 || strspn(s, "0123456789abcdef") != 16)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: no %s of 16 hexadecimal digits",
                         weft_doc_file(d), key);
    *out = strtoull(s, NULL, 16);
    return WEFT_OK;
}

static weft_status get_extra(const weft_doc *d, weft_ckpt_state *s)
{
    const weft_node *n = weft_node_get(weft_doc_root(d), "extra");
    weft_text        t = {0};

    if (!n) return WEFT_OK;
    weft_node_print_json(n, &t);
    WEFT_TRY(weft_text_status(&t));
    s->extra = t.s; /* the text's memory is malloc's */
    return WEFT_OK;
}

static weft_status read_doc(const weft_doc *d, weft_ckpt_state *s)
{
    const weft_node *root   = weft_doc_root(d);
    const char      *kernel = NULL;
    int64_t          format = 0;

    if (root->kind != WEFT_NODE_MAP)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: no map", weft_doc_file(d));
    WEFT_TRY(weft_doc_get_int(d, root, "format", &format));
    if (format != 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: state of format %lld, only 1 is known",
                         weft_doc_file(d), (long long)format);
    for (size_t i = 0; i < WEFT_COUNT(whole); i++) {
        if (!weft_node_get(root, whole[i].key))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: no %s in it", weft_doc_file(d),
                             whole[i].key);
        WEFT_TRY(weft_doc_get_int(d, root, whole[i].key,
                                  (int64_t *)((char *)s + whole[i].at)));
    }
    for (size_t i = 0; i < WEFT_COUNT(hex); i++)
        WEFT_TRY(get_hex(d, hex[i].key, (uint64_t *)((char *)s + hex[i].at)));
    WEFT_TRY(weft_doc_get_string(d, root, "kernel_set", &kernel));
    snprintf(s->kernel_set, sizeof s->kernel_set, "%s", kernel ? kernel : "");
    return get_extra(d, s);
}

weft_status weft_ckpt_state_parse(const char *file, const char *text, size_t n,
                                  weft_ckpt_state *out)
{
    weft_doc       *d = NULL;
    weft_ckpt_state s = {0};
    weft_status     st;

    WEFT_TRY(weft_doc_parse_json(file, text, n, &d));
    st = read_doc(d, &s);
    weft_doc_destroy(d);
    if (st == WEFT_OK) *out = s;
    return st;
}

void weft_ckpt_state_fini(weft_ckpt_state *s)
{
    free(s->extra);
    s->extra = NULL;
}
