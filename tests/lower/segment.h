/* A graph in text, lowered; its instructions by name. */
#ifndef WEFT_TESTS_SEGMENT_H
#define WEFT_TESTS_SEGMENT_H

#include "support/test.h"

#include "lower/lower.h"

static inline weft_segment *segment_lower(const char *text, const weft_lower_options *o)
{
    weft_graph   *g;
    weft_segment *s;
    assert_ok(weft_graph_from_text("test", text, strlen(text), &g));
    assert_ok(weft_lower(g, o, &s));
    weft_graph_destroy(g);
    return s;
}

/* -1: there is none. */
static inline int segment_find_index(const weft_segment *s, const char *name)
{
    for (int i = 0; i < s->n_instr; i++)
        if (!strcmp(s->instr[i].name, name)) return i;
    return -1;
}

static inline const weft_instr *segment_find(const weft_segment *s, const char *name)
{
    int i = segment_find_index(s, name);
    if (i < 0) fail_msg("no instruction %s", name);
    return &s->instr[i];
}

#endif
