/* Text of clusters, whatever it holds: no crash, and what was read reads back the same.  The
 * first byte chooses: '=' a one-line description, '!' an event, else a file. */
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static weft_status read(const char *text, size_t n, weft_cluster **c)
{
    weft_cluster *base;
    if (n && text[0] == '=') return weft_cluster_parse_line(text + 1, NULL, c);
    if (!n || text[0] != '!') return weft_cluster_parse("fuzz", text, n, c);
    if (weft_cluster_parse_line("4 x (2 x t4)", NULL, &base) != WEFT_OK) abort();
    weft_status st = weft_cluster_change(base, text + 1, c);
    weft_cluster_destroy(base);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_cluster *c, *d;
    weft_text     one = {0}, two = {0};
    char         *text = malloc(n + 1);
    if (!text) return 0;
    memcpy(text, data, n);
    text[n] = 0;
    if (read(text, n, &c) == WEFT_OK) {
        weft_group_shape g;
        weft_cluster_print(c, &one);
        if (weft_cluster_parse("again", one.s, one.n, &d) != WEFT_OK) abort();
        weft_cluster_print(d, &two);
        if (strcmp(one.s, two.s)) abort();
        if (weft_cluster_hash_constants(c) != weft_cluster_hash_constants(d)) abort();
        int end = weft_cluster_count(c);
        if (weft_cluster_group_stride(c, 0, end < 64 ? end : 64, 1, &g) != WEFT_OK)
            abort();
        weft_cluster_destroy(c);
        weft_cluster_destroy(d);
    }
    weft_text_fini(&one);
    weft_text_fini(&two);
    free(text);
    return 0;
}
