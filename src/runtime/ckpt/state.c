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

enum {
    PLAIN        = 1, /* formats */
    WITH_HISTORY = 2,
    MAX_HISTORY  = 1 << 16 /* of a file that can be meant */
};

weft_status weft_ckpt_state_add_change(weft_ckpt_state *s, const weft_ckpt_change *c)
{
    weft_ckpt_change *more =
        realloc(s->history, sizeof *more * ((size_t)s->n_history + 1));
    if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a checkpoint's history");
    more[s->n_history++] = *c;
    s->history           = more;
    return WEFT_OK;
}

void weft_ckpt_state_print_history(const weft_ckpt_state *s, weft_text *t)
{
    weft_text_add(t, "[");
    for (int i = 0; i < s->n_history; i++) {
        const weft_ckpt_change *c = &s->history[i];
        weft_text_add(t, "%s{\"step\": %" PRId64 ", \"key\": ", i ? ", " : "", c->step);
        weft_text_put_quoted(t, c->key);
        weft_text_add(t, ", \"from\": %" PRId64 ", \"to\": %" PRId64 "}", c->from, c->to);
    }
    weft_text_add(t, "]");
}

weft_status weft_ckpt_state_print(const weft_ckpt_state *s, weft_text *t)
{
    weft_text_add(t, "{\"format\": %d", s->n_history ? WITH_HISTORY : PLAIN);
    for (size_t i = 0; i < WEFT_COUNT(whole); i++)
        weft_text_add(t, ",\n \"%s\": %" PRId64, whole[i].key,
                      *(const int64_t *)((const char *)s + whole[i].at));
    for (size_t i = 0; i < WEFT_COUNT(hex); i++)
        weft_text_add(t, ",\n \"%s\": \"%016" PRIx64 "\"", hex[i].key,
                      *(const uint64_t *)((const char *)s + hex[i].at));
    if (s->has_content_id)
        weft_text_add(t, ",\n \"content_id\": \"%016" PRIx64 "\"", s->content_id);
    weft_text_add(t, ",\n \"kernel_set\": ");
    weft_text_put_quoted(t, s->kernel_set);
    if (s->n_history) {
        weft_text_add(t, ",\n \"history\": ");
        weft_ckpt_state_print_history(s, t);
    }
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

static weft_status read_change(const weft_doc *d, const weft_node *n, weft_ckpt_state *s)
{
    weft_ckpt_change c   = {.step = -1, .from = -1, .to = -1};
    const char      *key = NULL;

    if (n->kind == WEFT_NODE_MAP) {
        WEFT_TRY(weft_doc_get_int(d, n, "step", &c.step));
        WEFT_TRY(weft_doc_get_string(d, n, "key", &key));
        WEFT_TRY(weft_doc_get_int(d, n, "from", &c.from));
        WEFT_TRY(weft_doc_get_int(d, n, "to", &c.to));
    }
    if (!key || !*key || strlen(key) >= sizeof c.key || c.step < 0 || c.from < 0 ||
        c.to < 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: an entry of history needs step, key, from and to",
                         weft_doc_file(d));
    snprintf(c.key, sizeof c.key, "%s", key);
    return weft_ckpt_state_add_change(s, &c);
}

static weft_status read_history(const weft_doc *d, weft_ckpt_state *s)
{
    const weft_node *n = weft_node_get(weft_doc_root(d), "history");

    if (!n) return WEFT_OK;
    if (n->kind != WEFT_NODE_LIST || n->u.list.n > MAX_HISTORY)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: history is no list of changes",
                         weft_doc_file(d));
    for (int i = 0; i < n->u.list.n; i++) WEFT_TRY(read_change(d, n->u.list.node[i], s));
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
    if (format != PLAIN && format != WITH_HISTORY)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: state of format %lld, only 1 and 2 are known",
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
    s->has_content_id = weft_node_get(root, "content_id") != NULL;
    if (s->has_content_id) WEFT_TRY(get_hex(d, "content_id", &s->content_id));
    WEFT_TRY(weft_doc_get_string(d, root, "kernel_set", &kernel));
    snprintf(s->kernel_set, sizeof s->kernel_set, "%s", kernel ? kernel : "");
    WEFT_TRY(read_history(d, s));
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
    if (st == WEFT_OK)
        *out = s;
    else
        weft_ckpt_state_fini(&s);
    return st;
}

void weft_ckpt_state_fini(weft_ckpt_state *s)
{
    free(s->extra);
    free(s->history);
    s->extra     = NULL;
    s->history   = NULL;
    s->n_history = 0;
}
