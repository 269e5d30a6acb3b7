/* The parts of the YAML reader: doc_yaml.c reads blocks, doc_yaml_scalar.c the plain and block
 * scalars in them, doc_yaml_flow.c quoted scalars and flow collections. */
#ifndef WEFT_BASE_DOC_YAML_PRIV_H
#define WEFT_BASE_DOC_YAML_PRIV_H

#include "base/doc_priv.h"

typedef struct weft_yaml {
    weft_reader r;
    const char *line_start; /* of the line that r.p stands in */
} weft_yaml;

/* Is there nothing, or white space, at p? */
static inline bool weft_base__yaml_blank(const weft_yaml *y, const char *p)
{
    return p >= y->r.end || *p == ' ' || *p == '\n' || *p == '\t' || *p == '\r';
}

static inline bool weft_base__yaml_at(const weft_yaml *y, char c)
{
    return y->r.p < y->r.end && *y->r.p == c;
}

static inline int weft_base__yaml_column(const weft_yaml *y)
{
    return (int)(y->r.p - y->line_start);
}

/* blocks, for the scalars ------------------------------------------------------------------- */

/* Is the rest of the line empty or a comment? */
bool weft_base__yaml_line_done(weft_yaml *y);
/* Steps over the rest of the line, which must be done, to the next line with content. */
weft_status weft_base__yaml_end_line(weft_yaml *y);
/* The same from the start of a line. */
weft_status weft_base__yaml_find_content(weft_yaml *y);
void        weft_base__yaml_newline(weft_yaml *y); /* r.p stands at '\n' */
bool        weft_base__yaml_at_key(const weft_yaml *y);

/* scalars, for the blocks ------------------------------------------------------------------- */

/* A scalar or flow collection inside a block that starts in column `parent`; like every reader of
 * a block, leaves r.p at the next line with content. */
weft_status weft_base__yaml_scalar(weft_yaml *y, int parent, weft_node **out);
weft_status weft_base__yaml_quoted(weft_yaml *y, const char **out);
/* A scalar or collection inside [] or {}; leaves r.p right behind it. */
weft_status weft_base__yaml_flow(weft_yaml *y, weft_node **out);
weft_status weft_base__yaml_string(weft_yaml *y, int line, const char *s,
                                   weft_node **out);
/* Turns a string node into what it spells as a plain scalar: a number, true, null. */
weft_status weft_base__yaml_resolve(const weft_reader *r, weft_node *n);
/* Refuses what a plain scalar cannot start with: anchors, tags, reserved characters. */
weft_status weft_base__yaml_check_plain(const weft_yaml *y);

#endif
