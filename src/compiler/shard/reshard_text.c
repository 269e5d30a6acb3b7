/* Reshards as text and back.
 *
 *     reshard bytes 24 bound 24 links [24, 0, 0, 0] steps 1 {
 *       all_gather [dp, *] -> [*, *] axes [dp] bytes 24 max 12
 *       send [*] sum(a) -> [*] reduce sum bytes 8 max 4 {
 *         0 -> 1 round 0 part 0 [0:2]
 *       }
 *     } */
#include <string.h>

#include "shard/shard_priv.h"

static const char *const reduce_name[] = {"none", "sum", "max", "pair"};

static void print_transfer(const weft_transfer *m, weft_text *t)
{
    weft_text_add(t, "    %d -> %d round %d part %d of [", m->from, m->to, m->round,
                  m->part);
    for (int d = 0; d < m->region.global.n; d++)
        weft_text_add(t, "%s%lld", d ? ", " : "", (long long)m->region.global.d[d]);
    weft_text_add(t, "] at [");
    for (int d = 0; d < m->region.global.n; d++)
        weft_text_add(t, "%s%lld : %lld", d ? ", " : "", (long long)m->region.offset[d],
                      (long long)m->region.extent[d]);
    weft_text_add(t, "]\n");
}

void weft_reshard_print(const weft_reshard *r, const weft_mesh *a, const weft_mesh *b,
                        weft_text *t)
{
    weft_text_add(t, "reshard bytes %lld bound %lld links [", (long long)r->bytes,
                  (long long)r->bound);
    for (int i = 0; i < WEFT_MAX_LINK; i++)
        weft_text_add(t, "%s%lld", i ? ", " : "", (long long)r->measure.bytes[i]);
    weft_text_add(t, "] steps %lld {\n", (long long)r->measure.steps);
    for (int i = 0; i < r->n_step; i++) {
        const weft_reshard_step *s    = &r->step[i];
        bool                     send = s->kind == WEFT_STEP_SEND;
        weft_text_add(t, "  %s on %d ", weft_step_name(s), s->before.mesh);
        weft_layout_print(&s->before, a, t);
        weft_text_add(t, " -> on %d ", s->after.mesh);
        weft_layout_print(&s->after, send ? b : a, t);
        weft_text_add(t, " axes %u reduce %s bytes %lld most %lld", s->axes,
                      reduce_name[s->reduce], (long long)s->bytes,
                      (long long)s->max_bytes);
        weft_text_add(t, send ? " {\n" : "\n");
        for (int k = 0; k < s->n_transfer; k++) print_transfer(&s->transfer[k], t);
        if (send) weft_text_add(t, "  }\n");
    }
    weft_text_add(t, "}\n");
}

/* ---- parse ---- */

static weft_status number(weft_lex *x, const char *word, int64_t *out)
{
    *out = 0;
    WEFT_TRY(weft_lex_expect(x, word));
    return weft_lex_int(x, out);
}

static weft_status word_of(weft_lex *x, const char *const *name, int n, int *out)
{
    for (int i = 0; i < n; i++)
        if (weft_lex_accept(x, name[i])) {
            *out = i;
            return WEFT_OK;
        }
    return weft_lex_fail(x, "unexpected '%s'", x->text);
}

static weft_status read_transfer(weft_lex *x, weft_transfer *m)
{
    int64_t n[4] = {0};
    memset(m, 0, sizeof *m);
    WEFT_TRY(weft_lex_int(x, &n[0]));
    WEFT_TRY(weft_lex_expect(x, "->"));
    WEFT_TRY(weft_lex_int(x, &n[1]));
    WEFT_TRY(number(x, "round", &n[2]));
    WEFT_TRY(number(x, "part", &n[3]));
    m->from  = (int32_t)n[0];
    m->to    = (int32_t)n[1];
    m->round = (int32_t)n[2];
    m->part  = (int32_t)n[3];
    WEFT_TRY(weft_lex_expect(x, "of"));
    WEFT_TRY(weft_lex_expect(x, "["));
    weft_shape *s = &m->region.global;
    while (!weft_lex_accept(x, "]")) {
        if (s->n == WEFT_MAX_DIM) return weft_lex_fail(x, "too many dimensions");
        if (s->n) WEFT_TRY(weft_lex_expect(x, ","));
        WEFT_TRY(weft_lex_int(x, &s->d[s->n++]));
    }
    WEFT_TRY(weft_lex_expect(x, "at"));
    WEFT_TRY(weft_lex_expect(x, "["));
    for (int d = 0; d < s->n; d++) {
        if (d) WEFT_TRY(weft_lex_expect(x, ","));
        WEFT_TRY(weft_lex_int(x, &m->region.offset[d]));
        WEFT_TRY(number(x, ":", &m->region.extent[d]));
    }
    return weft_lex_expect(x, "]");
}

static weft_status read_layout(weft_lex *x, const weft_mesh *m, weft_layout *out)
{
    int64_t mesh;
    WEFT_TRY(number(x, "on", &mesh));
    if (mesh < 0 || mesh > INT16_MAX) return weft_lex_fail(x, "no such mesh");
    return weft_layout_parse(x, m, (int)mesh, out);
}

static weft_status read_kind(weft_lex *x, weft_reshard_step *s)
{
    memset(s, 0, sizeof *s);
    for (s->kind = 0; s->kind < WEFT_STEP_COLLECTIVE; s->kind++)
        if (weft_lex_accept(x, weft_step_name(s))) return WEFT_OK;
    for (int c = 0; c < WEFT_N_COLLECTIVE; c++) {
        s->coll = (weft_collective)c;
        if (weft_lex_accept(x, weft_step_name(s))) return WEFT_OK;
    }
    return weft_lex_fail(x, "unexpected '%s'", x->text);
}

static weft_status read_step(weft_lex *x, const weft_mesh *a, const weft_mesh *b,
                             weft_arena *arena, weft_reshard_step *s)
{
    int     k = 0, cap = 0;
    int64_t axes;
    WEFT_TRY(read_kind(x, s));
    WEFT_TRY(read_layout(x, a, &s->before));
    WEFT_TRY(weft_lex_expect(x, "->"));
    WEFT_TRY(read_layout(x, s->kind == WEFT_STEP_SEND ? b : a, &s->after));
    WEFT_TRY(number(x, "axes", &axes));
    s->axes = (uint32_t)axes;
    WEFT_TRY(weft_lex_expect(x, "reduce"));
    WEFT_TRY(word_of(x, reduce_name, WEFT_N_UNREDUCED, &k));
    s->reduce = (weft_unreduced)k;
    WEFT_TRY(number(x, "bytes", &s->bytes));
    WEFT_TRY(number(x, "most", &s->max_bytes));
    if (s->kind != WEFT_STEP_SEND) return WEFT_OK;
    WEFT_TRY(weft_lex_expect(x, "{"));
    for (; !weft_lex_accept(x, "}"); s->n_transfer++) {
        WEFT_TRY(weft_arena_grow(arena, (void **)&s->transfer, &cap, s->n_transfer + 1,
                                 sizeof *s->transfer));
        WEFT_TRY(read_transfer(x, &s->transfer[s->n_transfer]));
    }
    return WEFT_OK;
}

weft_status weft_reshard_parse(weft_lex *x, const weft_mesh *a, const weft_mesh *b,
                               weft_arena *arena, weft_reshard *out)
{
    int cap = 0;
    memset(out, 0, sizeof *out);
    WEFT_TRY(weft_lex_expect(x, "reshard"));
    WEFT_TRY(number(x, "bytes", &out->bytes));
    WEFT_TRY(number(x, "bound", &out->bound));
    WEFT_TRY(weft_lex_expect(x, "links"));
    WEFT_TRY(weft_lex_expect(x, "["));
    for (int i = 0; i < WEFT_MAX_LINK; i++) {
        if (i) WEFT_TRY(weft_lex_expect(x, ","));
        WEFT_TRY(weft_lex_int(x, &out->measure.bytes[i]));
    }
    WEFT_TRY(weft_lex_expect(x, "]"));
    WEFT_TRY(number(x, "steps", &out->measure.steps));
    WEFT_TRY(weft_lex_expect(x, "{"));
    for (; !weft_lex_accept(x, "}"); out->n_step++) {
        WEFT_TRY(weft_arena_grow(arena, (void **)&out->step, &cap, out->n_step + 1,
                                 sizeof *out->step));
        WEFT_TRY(read_step(x, a, b, arena, &out->step[out->n_step]));
    }
    return WEFT_OK;
}
