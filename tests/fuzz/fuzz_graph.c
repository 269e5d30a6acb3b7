/* Any bytes as graph text: refused with a line, or a graph that prints and reads back the same. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_graph *g, *h;
    char       *a, *b;
    if (weft_graph_from_text("fuzz", (const char *)data, n, &g) != WEFT_OK) {
        if (!*weft_error_text()) abort();
        return 0;
    }
    weft_graph_layers layers;
    if (g->n_node < 200 && weft_graph_find_layers(g, &layers) != WEFT_OK) abort();
    if (weft_graph_to_text(g, &a) != WEFT_OK) abort();
    if (weft_graph_from_text("again", a, strlen(a), &h) != WEFT_OK) abort();
    if (weft_graph_to_text(h, &b) != WEFT_OK || strcmp(a, b)) abort();
    if (weft_graph_hash(g) != weft_graph_hash(h)) abort();
    free(a);
    free(b);
    weft_graph_destroy(g);
    weft_graph_destroy(h);
    return 0;
}
