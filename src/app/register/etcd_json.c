#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "register/etcd_priv.h"

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void weft_register__put_base64(weft_text *t, const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t x = (uint32_t)b[i] << 16;
        if (i + 1 < n) x |= (uint32_t)b[i + 1] << 8;
        if (i + 2 < n) x |= b[i + 2];
        char out[4] = {digits[x >> 18], digits[x >> 12 & 63],
                       i + 1 < n ? digits[x >> 6 & 63] : '=',
                       i + 2 < n ? digits[x & 63] : '='};
        weft_text_put(t, out, 4);
    }
}

/* The bytes of a text, which the caller frees; NULL: it is not base64. */
static uint8_t *read_base64(const char *s, size_t *n)
{
    size_t   len = strlen(s), at = 0;
    uint8_t *out = malloc(len / 4 * 3 + 1);
    if (!out || len % 4) {
        free(out);
        return NULL;
    }
    for (size_t i = 0; i < len; i += 4) {
        uint32_t x     = 0;
        int      n_pad = 0;
        for (size_t k = i; k < i + 4; k++) {
            const char *d = s[k] == '=' ? NULL : strchr(digits, s[k]);
            if (s[k] == '=' && i + 4 == len && k >= i + 2)
                n_pad++;
            else if (!d || n_pad) {
                free(out);
                return NULL;
            }
            x = x << 6 | (d ? (uint32_t)(d - digits) : 0);
        }
        for (int k = 0; k < 3 - n_pad; k++) out[at++] = (uint8_t)(x >> (16 - 8 * k));
    }
    *n = at;
    return out;
}

/* The entry that every answer about keys has, once: what is found. */
static const weft_node *find_pair(const weft_node *root)
{
    const weft_node *range = root, *list = weft_node_get(root, "responses");
    if (list && list->kind == WEFT_NODE_LIST && list->u.list.n == 1 &&
        list->u.list.node[0]->kind == WEFT_NODE_MAP)
        range = weft_node_get(list->u.list.node[0], "response_range");
    if (!range || range->kind != WEFT_NODE_MAP) return NULL;
    const weft_node *pairs = weft_node_get(range, "kvs");
    if (!pairs || pairs->kind != WEFT_NODE_LIST || pairs->u.list.n != 1) return NULL;
    const weft_node *pair = pairs->u.list.node[0];
    return pair->kind == WEFT_NODE_MAP ? pair : NULL;
}

static const char *text_of(const weft_node *map, const char *key)
{
    const weft_node *n = weft_node_get(map, key);
    return n && n->kind == WEFT_NODE_STRING ? n->u.s : NULL;
}

/* The ten digits after the prefix. */
static bool read_epoch_of(const char *key_text, const char *prefix, uint32_t *epoch)
{
    size_t   n, skip = strlen(prefix);
    uint8_t *key = key_text ? read_base64(key_text, &n) : NULL;
    uint64_t x   = 0;
    bool     ok  = key && n == skip + 10 && !memcmp(key, prefix, skip);
    for (size_t k = skip; ok && k < n; k++) {
        ok = key[k] >= '0' && key[k] <= '9';
        x  = x * 10 + key[k] - '0';
    }
    free(key);
    *epoch = (uint32_t)x;
    return ok && x < WEFT_REGISTER_NEWEST;
}

weft_status weft_register__read_etcd(const char *text, size_t n, const char *prefix,
                                     bool *succeeded, register_value *value)
{
    static const char wrong[] = "etcd: an answer that is not its own";
    weft_doc         *doc;
    weft_status       st = WEFT_OK;
    *succeeded           = false;
    *value               = (register_value){0};
    WEFT_TRY(weft_doc_parse_json("etcd's answer", text, n, &doc));
    const weft_node *root = weft_doc_root(doc);
    if (root->kind != WEFT_NODE_MAP || !weft_node_get(root, "header"))
        WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "%s", wrong));
    const weft_node *flag = weft_node_get(root, "succeeded"), *pair = find_pair(root);
    *succeeded = flag && flag->kind == WEFT_NODE_BOOL && flag->u.b;
    if (!pair) goto out;
    /* an empty value is left out */
    const char *held = weft_node_get(pair, "value") ? text_of(pair, "value") : "";
    if (!read_epoch_of(text_of(pair, "key"), prefix, &value->epoch) || !held)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "%s", wrong));
    value->bytes = read_base64(held, &value->n);
    if (!value->bytes || value->n > WEFT_REGISTER_MOST)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "%s", wrong));
    value->stands = true;
out:
    weft_doc_destroy(doc);
    if (st != WEFT_OK) {
        free(value->bytes);
        *value = (register_value){0};
    }
    return st;
}

weft_status weft_register__read_etcd_beat(const char *text, size_t n, uint64_t *beat)
{
    weft_doc *doc;
    size_t    bytes = 0;
    *beat           = 0;
    WEFT_TRY(weft_doc_parse_json("etcd's answer", text, n, &doc));
    const weft_node *root = weft_doc_root(doc), *pair = NULL;
    if (root->kind == WEFT_NODE_MAP) pair = find_pair(root);
    const char *held  = pair ? text_of(pair, "value") : NULL;
    uint8_t    *value = held ? read_base64(held, &bytes) : NULL;
    if (bytes == sizeof *beat) memcpy(beat, value, sizeof *beat);
    free(value);
    weft_doc_destroy(doc);
    return WEFT_OK;
}
