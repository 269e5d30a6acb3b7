/* The text of program/print.c back into a program.  What it reads is well-formed, not yet right:
 * ask weft_program_verify(). */
#include <stdlib.h>
#include <string.h>

#include "base/lex.h"
#include "base/suggest.h"
#include "program/program.h"

typedef struct parser {
    weft_lex      l;
    weft_program *p;
    int           cap_slab, cap_buffer, cap_actor, cap_edge, cap_group, cap_binding;
    int           cap_firing[WEFT_MAX_STREAM];
} parser;

/* Makes room for one more element and counts it; gives the new, zeroed one. */
#define PUSH(ps, array, n, cap, out)                                                     \
    do {                                                                                 \
        void *grow_ = (array);                                                           \
        WEFT_TRY(                                                                        \
            weft_arena_grow((ps)->p->arena, &grow_, &(cap), (n) + 1, sizeof *(array)));  \
        (array) = grow_;                                                                 \
        (out)   = &(array)[(n)++];                                                       \
        memset((out), 0, sizeof *(out));                                                 \
    } while (0)

/* ---- words and numbers ---- */

static weft_status read_name(parser *ps, const char **out)
{
    weft_lex *l = &ps->l;
    if (l->tok != WEFT_TOK_WORD && l->tok != WEFT_TOK_STRING)
        return weft_lex_fail(l, "expected a name, got '%.40s'", l->text);
    *out = l->text;
    weft_lex_next(l);
    return WEFT_OK;
}

static weft_status read_int32(parser *ps, int32_t *out)
{
    int64_t v;
    WEFT_TRY(weft_lex_int(&ps->l, &v));
    if (v < INT32_MIN || v > INT32_MAX)
        return weft_lex_fail(&ps->l, "%lld does not fit 32 bits", (long long)v);
    *out = (int32_t)v;
    return WEFT_OK;
}

/* One of a list of words, as its place in the list. */
static weft_status read_choice(parser *ps, const char *what, const char *const *word,
                               int n, int *out)
{
    const char *s;
    WEFT_TRY(weft_lex_word(&ps->l, &s));
    for (int i = 0; i < n; i++)
        if (!strcmp(s, word[i])) {
            *out = i;
            return WEFT_OK;
        }
    const char *near = weft_suggest(s, word, n);
    return weft_lex_fail(&ps->l, "'%.40s' is no %s%s%s%s", s, what,
                         near ? ", did you mean '" : "", near ? near : "",
                         near ? "'?" : "");
}

/* The same, where the words are those of a _name() function. */
#define READ_KIND(ps, what, T, name_of, n_kind, out)                                     \
    do {                                                                                 \
        const char *word_[n_kind];                                                       \
        int         k_;                                                                  \
        for (k_ = 0; k_ < (n_kind); k_++) word_[k_] = name_of((T)k_);                    \
        WEFT_TRY(read_choice((ps), (what), word_, (n_kind), &k_));                       \
        (out) = (T)k_;                                                                   \
    } while (0)

/* "[1,2]" into d, at most WEFT_MAX_DIM. */
static weft_status read_list(parser *ps, int *n, int64_t *d)
{
    WEFT_TRY(weft_lex_expect(&ps->l, "["));
    for (*n = 0; !weft_lex_accept(&ps->l, "]");) {
        if (*n) WEFT_TRY(weft_lex_expect(&ps->l, ","));
        if (*n == WEFT_MAX_DIM)
            return weft_lex_fail(&ps->l, "more than %d dimensions", WEFT_MAX_DIM);
        WEFT_TRY(weft_lex_int(&ps->l, &d[(*n)++]));
    }
    return WEFT_OK;
}

/* ---- operands ---- */

static weft_status find_buffer(parser *ps, int32_t *out)
{
    const char *name = NULL;
    if (weft_lex_accept(&ps->l, "_")) {
        *out = -1;
        return WEFT_OK;
    }
    WEFT_TRY(read_name(ps, &name));
    for (int i = 0; i < ps->p->n_buffer; i++)
        if (!strcmp(ps->p->buffer[i].name, name)) {
            *out = i;
            return WEFT_OK;
        }
    return weft_lex_fail(&ps->l, "there is no buffer '%.60s'", name);
}

static weft_status read_same_list(parser *ps, const char *word, int n, int64_t *d)
{
    int got;
    if (!weft_lex_accept(&ps->l, word)) return WEFT_OK;
    WEFT_TRY(read_list(ps, &got, d));
    if (got != n)
        return weft_lex_fail(&ps->l, "%s has %d numbers for %d dimensions", word, got, n);
    return WEFT_OK;
}

static weft_status read_operand(parser *ps, weft_operand *o)
{
    int32_t     buffer = -1;
    int64_t     offset = 0;
    const char *dtype  = NULL;
    weft_dtype  t;
    weft_shape  s = {0};
    WEFT_TRY(find_buffer(ps, &buffer));
    if (weft_lex_accept(&ps->l, "+")) WEFT_TRY(weft_lex_int(&ps->l, &offset));
    WEFT_TRY(weft_lex_word(&ps->l, &dtype));
    if (!weft_dtype_parse(dtype, &t))
        return weft_lex_fail(&ps->l, "'%.40s' is no data type", dtype);
    WEFT_TRY(read_list(ps, &s.n, s.d));
    if (weft_shape_verify(&s) != WEFT_OK)
        return weft_lex_fail(&ps->l, "%s", weft_error_text());
    *o        = weft_operand_make(buffer, t, &s);
    o->offset = offset;
    return read_same_list(ps, "stride", s.n, o->stride);
}

/* "(a, b | c)": all of them, and how many stand before the bar. */
static weft_status read_operands(parser *ps, int *n, int *n_own, weft_operand **out)
{
    weft_operand *list = NULL, *o;
    int           cap  = 0;
    bool          bar  = false;
    *n                 = 0;
    WEFT_TRY(weft_lex_expect(&ps->l, "("));
    while (!weft_lex_accept(&ps->l, ")")) {
        if (!bar && weft_lex_accept(&ps->l, "|")) {
            bar    = true;
            *n_own = *n;
        } else if (*n) {
            WEFT_TRY(weft_lex_expect(&ps->l, ","));
        }
        PUSH(ps, list, *n, cap, o);
        WEFT_TRY(read_operand(ps, o));
    }
    if (!bar) *n_own = *n;
    *out = list;
    return WEFT_OK;
}

/* ---- instructions ---- */

static weft_status read_op(parser *ps, weft_op *op, const weft_attr **out)
{
    weft_lex   *l = &ps->l;
    const char *name, *text = NULL;
    WEFT_TRY(weft_lex_word(l, &name));
    if (!weft_op_find(name, op)) {
        const char *near = weft_op_suggest(name);
        return weft_lex_fail(l, "there is no operator '%.40s'%s%s%s", name,
                             near ? ", did you mean '" : "", near ? near : "",
                             near ? "'?" : "");
    }
    if (l->tok == WEFT_TOK_STRING) {
        text = l->text;
        weft_lex_next(l);
    }
    weft_attr *attr = WEFT_ARENA_ARRAY(ps->p->arena, weft_attr, WEFT_MAX_ATTR);
    if (!attr) return weft_arena_status(ps->p->arena);
    if (weft_op_parse_attr(*op, text, ps->p->arena, attr) != WEFT_OK)
        return weft_lex_fail(l, "%s", weft_error_text());
    *out = attr;
    return WEFT_OK;
}

static weft_status read_post(parser *ps, weft_instr *i, int *cap)
{
    weft_post *s;
    PUSH(ps, i->post, i->n_post, *cap, s);
    s->in = s->out = -1;
    WEFT_TRY(read_op(ps, &s->op, &s->attr));
    if (weft_lex_accept(&ps->l, "in")) WEFT_TRY(read_int32(ps, &s->in));
    if (weft_lex_accept(&ps->l, "out")) WEFT_TRY(read_int32(ps, &s->out));
    return WEFT_OK;
}

/* n_own_in counts them until the operands come. */
static weft_status read_units(parser *ps, weft_instr *i)
{
    int      cap = 0;
    int64_t *u;
    WEFT_TRY(weft_lex_expect(&ps->l, "["));
    do {
        PUSH(ps, i->units, i->n_own_in, cap, u);
        WEFT_TRY(weft_lex_int(&ps->l, u));
    } while (weft_lex_accept(&ps->l, ","));
    return weft_lex_expect(&ps->l, "]");
}

/* What stands between an instruction's kind and its operands. */
static weft_status read_head(parser *ps, weft_instr *i)
{
    weft_lex *l = &ps->l;
    WEFT_TRY(read_name(ps, &i->name));
    switch (i->kind) {
    case WEFT_INSTR_COMPUTE: WEFT_TRY(read_op(ps, &i->op, &i->attr)); break;
    case WEFT_INSTR_COLLECTIVE:
        READ_KIND(ps, "collective", weft_collective, weft_collective_name,
                  WEFT_N_COLLECTIVE, i->coll);
        WEFT_TRY(weft_lex_expect(l, "group"));
        WEFT_TRY(read_int32(ps, &i->group));
        if (weft_lex_accept(l, "unit")) WEFT_TRY(weft_lex_int(l, &i->unit));
        if (weft_lex_accept(l, "units")) WEFT_TRY(read_units(ps, i));
        if (weft_lex_accept(l, "lanes")) WEFT_TRY(read_int32(ps, &i->lanes));
        break;
    case WEFT_INSTR_SEND:
        WEFT_TRY(weft_lex_expect(l, "to"));
        WEFT_TRY(read_int32(ps, &i->peer));
        break;
    case WEFT_INSTR_RECV:
        WEFT_TRY(weft_lex_expect(l, "from"));
        WEFT_TRY(read_int32(ps, &i->peer));
        break;
    default: break;
    }
    if (weft_lex_accept(l, "tag")) WEFT_TRY(read_int32(ps, &i->tag));
    if (weft_lex_accept(l, "credits")) WEFT_TRY(read_int32(ps, &i->credits));
    return WEFT_OK;
}

/* A set of results, by bits. */
static weft_status read_results(weft_lex *l, const char *what, unsigned *out)
{
    int64_t set;
    WEFT_TRY(weft_lex_int(l, &set));
    if (set < 0 || set > UINT32_MAX)
        return weft_lex_fail(l, "%s is a set of 32 results", what);
    *out = (unsigned)set;
    return WEFT_OK;
}

static weft_status read_instr(parser *ps, weft_instr *i)
{
    weft_lex *l        = &ps->l;
    int       cap_post = 0;
    READ_KIND(ps, "instruction", weft_instr_kind, weft_instr_kind_name, WEFT_N_INSTR_KIND,
              i->kind);
    i->seconds = -1;
    WEFT_TRY(read_head(ps, i));
    int n_unit = i->n_own_in;
    if (weft_lex_is(l, "(")) WEFT_TRY(read_operands(ps, &i->n_in, &i->n_own_in, &i->in));
    if (i->units && n_unit != i->n_in)
        return weft_lex_fail(l, "%d units for %d tensors", n_unit, i->n_in);
    if (weft_lex_accept(l, "->"))
        WEFT_TRY(read_operands(ps, &i->n_out, &i->n_own_out, &i->out));
    if (weft_lex_accept(l, "add")) WEFT_TRY(read_results(l, "add", &i->add));
    if (weft_lex_accept(l, "into")) WEFT_TRY(read_results(l, "into", &i->into));
    while (weft_lex_accept(l, "post")) WEFT_TRY(read_post(ps, i, &cap_post));
    if (weft_lex_accept(l, "seconds")) {
        WEFT_TRY(weft_lex_double(l, &i->seconds));
        if (!(i->seconds >= -1 && i->seconds < 1e9))
            return weft_lex_fail(
                l, "seconds are between 0 and 1e9, or -1: ask the cost model");
    }
    return weft_lex_expect(l, ";");
}

/* ---- the parts of a program ---- */

static weft_status read_slab(parser *ps)
{
    weft_slab *s;
    PUSH(ps, ps->p->slab, ps->p->n_slab, ps->cap_slab, s);
    WEFT_TRY(read_name(ps, &s->name));
    READ_KIND(ps, "kind of slab", weft_slab_kind, weft_slab_kind_name, WEFT_N_SLAB_KIND,
              s->kind);
    return weft_lex_int(&ps->l, &s->bytes);
}

static weft_status read_buffer(parser *ps)
{
    static const char *const by[] = {"one", "micro", "lane"};
    weft_buffer             *b;
    const char              *slab = NULL;
    int                      k    = 0;
    PUSH(ps, ps->p->buffer, ps->p->n_buffer, ps->cap_buffer, b);
    b->n_slot = 1;
    b->slab   = -1;
    WEFT_TRY(read_name(ps, &b->name));
    WEFT_TRY(weft_lex_expect(&ps->l, "slab"));
    WEFT_TRY(read_name(ps, &slab));
    for (int i = 0; i < ps->p->n_slab; i++)
        if (!strcmp(ps->p->slab[i].name, slab)) b->slab = i;
    if (b->slab < 0) return weft_lex_fail(&ps->l, "there is no slab '%.60s'", slab);
    WEFT_TRY(weft_lex_expect(&ps->l, "at"));
    WEFT_TRY(weft_lex_int(&ps->l, &b->offset));
    WEFT_TRY(weft_lex_expect(&ps->l, "bytes"));
    WEFT_TRY(weft_lex_int(&ps->l, &b->bytes));
    if (!weft_lex_accept(&ps->l, "slots")) return WEFT_OK;
    WEFT_TRY(read_int32(ps, &b->n_slot));
    WEFT_TRY(weft_lex_expect(&ps->l, "by"));
    WEFT_TRY(read_choice(ps, "way to choose a slot", by, 3, &k));
    b->slot_by = (weft_slot_by)k;
    return WEFT_OK;
}

static weft_status read_numbers(parser *ps, int32_t **to, int *n)
{
    int      cap = 0;
    int32_t *x;
    WEFT_TRY(weft_lex_expect(&ps->l, "["));
    while (!weft_lex_accept(&ps->l, "]")) {
        if (*n) WEFT_TRY(weft_lex_expect(&ps->l, ","));
        PUSH(ps, *to, *n, cap, x);
        WEFT_TRY(read_int32(ps, x));
    }
    return WEFT_OK;
}

static weft_status read_group(parser *ps)
{
    weft_group *g;
    int         n_share = 0;
    PUSH(ps, ps->p->group, ps->p->n_group, ps->cap_group, g);
    WEFT_TRY(read_numbers(ps, &g->rank, &g->n_rank));
    if (!weft_lex_accept(&ps->l, "lanes")) return WEFT_OK;
    WEFT_TRY(read_numbers(ps, &g->share, &n_share));
    return n_share == g->n_rank
               ? WEFT_OK
               : weft_lex_fail(&ps->l, "lanes of %d ranks for a group of %d", n_share,
                               g->n_rank);
}

static weft_status read_binding(parser *ps)
{
    static const char *const kind[] = {"param",      "state",  "input",
                                       "step_input", "output", "standby"};
    weft_binding            *b;
    int                      k;
    PUSH(ps, ps->p->binding, ps->p->n_binding, ps->cap_binding, b);
    WEFT_TRY(read_choice(ps, "kind of binding", kind, WEFT_N_BIND, &k));
    b->kind = (weft_binding_kind)k;
    WEFT_TRY(read_name(ps, &b->name));
    WEFT_TRY(read_operand(ps, &b->at));
    return read_same_list(ps, "origin", b->at.type.shape.n, b->origin);
}

static weft_status find_stream(parser *ps, int32_t *out)
{
    const char *name = NULL;
    WEFT_TRY(read_name(ps, &name));
    for (int i = 0; i < ps->p->n_stream; i++)
        if (!strcmp(ps->p->stream[i].name, name)) {
            *out = i;
            return WEFT_OK;
        }
    return weft_lex_fail(&ps->l, "there is no stream '%.60s'", name);
}

/* A line of the table. */
static weft_status read_stream(parser *ps)
{
    weft_stream_spec s = {0};
    int32_t          at;
    if (ps->p->n_stream == WEFT_MAX_STREAM)
        return weft_lex_fail(&ps->l, "at most %d streams", WEFT_MAX_STREAM);
    WEFT_TRY(read_name(ps, &s.name));
    READ_KIND(ps, "kind of stream", weft_stream_kind, weft_stream_kind_name,
              WEFT_N_STREAM_KIND, s.kind);
    WEFT_TRY(weft_lex_expect(&ps->l, "device"));
    WEFT_TRY(read_int32(ps, &s.device));
    WEFT_TRY(weft_lex_expect(&ps->l, "threads"));
    WEFT_TRY(read_int32(ps, &s.threads));
    return weft_program_add_stream(ps->p, s, &at);
}

static weft_status read_actor(parser *ps)
{
    weft_actor *a;
    weft_instr *i;
    int         cap = 0;
    PUSH(ps, ps->p->actor, ps->p->n_actor, ps->cap_actor, a);
    WEFT_TRY(read_name(ps, &a->name));
    WEFT_TRY(weft_lex_expect(&ps->l, "on"));
    WEFT_TRY(find_stream(ps, &a->stream));
    WEFT_TRY(weft_lex_expect(&ps->l, "{"));
    while (!weft_lex_accept(&ps->l, "}")) {
        PUSH(ps, a->instr, a->n_instr, cap, i);
        WEFT_TRY(read_instr(ps, i));
    }
    return WEFT_OK;
}

static weft_status find_actor(parser *ps, int32_t *out)
{
    const char *name = NULL;
    WEFT_TRY(read_name(ps, &name));
    for (int i = 0; i < ps->p->n_actor; i++)
        if (!strcmp(ps->p->actor[i].name, name)) {
            *out = i;
            return WEFT_OK;
        }
    return weft_lex_fail(&ps->l, "there is no actor '%.60s'", name);
}

static weft_status read_edge(parser *ps)
{
    weft_edge *e;
    PUSH(ps, ps->p->edge, ps->p->n_edge, ps->cap_edge, e);
    WEFT_TRY(find_actor(ps, &e->from));
    WEFT_TRY(weft_lex_expect(&ps->l, "->"));
    WEFT_TRY(find_actor(ps, &e->to));
    WEFT_TRY(weft_lex_expect(&ps->l, "credits"));
    WEFT_TRY(read_int32(ps, &e->credits));
    e->per_step = weft_lex_accept(&ps->l, "per_step");
    if (weft_lex_accept(&ps->l, "delay")) WEFT_TRY(read_int32(ps, &e->delay));
    return WEFT_OK;
}

static weft_status read_firings(parser *ps)
{
    int32_t      s;
    weft_firing *f;
    WEFT_TRY(find_stream(ps, &s));
    WEFT_TRY(weft_lex_expect(&ps->l, "{"));
    while (!weft_lex_accept(&ps->l, "}")) {
        PUSH(ps, ps->p->stream[s].firing, ps->p->stream[s].n_firing, ps->cap_firing[s],
             f);
        f->micro = -1;
        WEFT_TRY(find_actor(ps, &f->actor));
        if (ps->l.tok == WEFT_TOK_NUMBER) WEFT_TRY(read_int32(ps, &f->micro));
        if (weft_lex_accept(&ps->l, "lane")) WEFT_TRY(read_int32(ps, &f->lane_slot));
        f->first = weft_lex_accept(&ps->l, "first");
        WEFT_TRY(weft_lex_expect(&ps->l, ";"));
    }
    return WEFT_OK;
}

static weft_status read_part(parser *ps)
{
    static const char *const word[]              = {"slab",   "buffer", "group", "bind",
                                                    "stream", "actor",  "edge",  "list"};
    static weft_status (*const read[])(parser *) = {read_slab,    read_buffer, read_group,
                                                    read_binding, read_stream, read_actor,
                                                    read_edge,    read_firings};
    int k;
    WEFT_TRY(read_choice(ps, "part of a program", word, 8, &k));
    return read[k](ps);
}

static weft_status read_program(parser *ps)
{
    weft_program *p = ps->p;
    weft_lex     *l = &ps->l;
    WEFT_TRY(weft_lex_expect(l, "program"));
    WEFT_TRY(read_name(ps, &p->name));
    WEFT_TRY(weft_lex_expect(l, "rank"));
    WEFT_TRY(read_int32(ps, &p->rank));
    WEFT_TRY(weft_lex_expect(l, "of"));
    WEFT_TRY(read_int32(ps, &p->world));
    WEFT_TRY(weft_lex_expect(l, "micro"));
    WEFT_TRY(read_int32(ps, &p->n_micro));
    WEFT_TRY(weft_lex_expect(l, "lanes"));
    WEFT_TRY(read_int32(ps, &p->n_lane));
    WEFT_TRY(weft_lex_expect(l, "{"));
    while (!weft_lex_accept(l, "}")) WEFT_TRY(read_part(ps));
    return WEFT_OK;
}

/* One program from where *at stands; *at moves behind it. */
static weft_status parse_one(const char *file, const char **at, const char *end,
                             int *line, bool last, weft_program **out)
{
    parser ps = {0};
    WEFT_TRY(weft_program_create("", &ps.p));
    weft_lex_init(&ps.l, ps.p->arena, file, *at, (size_t)(end - *at));
    ps.l.line += *line - 1;
    weft_status st = read_program(&ps);
    if (st == WEFT_OK && ps.l.tok != WEFT_TOK_END &&
        (last || !weft_lex_is(&ps.l, "program")))
        st = weft_lex_fail(&ps.l,
                           "expected the end of the text behind the program, got '%.40s'",
                           ps.l.text);
    if (st == WEFT_OK) st = weft_arena_status(ps.p->arena);
    if (st != WEFT_OK) {
        weft_program_destroy(ps.p);
        return st;
    }
    /* the "program" behind "}" has been read already: step back over it */
    *at   = ps.l.tok == WEFT_TOK_END ? end : ps.l.at - strlen(ps.l.text);
    *line = ps.l.line;
    *out  = ps.p;
    return WEFT_OK;
}

weft_status weft_program_parse(const char *file, const char *text, size_t n,
                               weft_program **out)
{
    int line = 1;
    return parse_one(file, &text, text + n, &line, true, out);
}

weft_status weft_program_parse_set(const char *file, const char *text, size_t n,
                                   weft_program ***out, int *n_out)
{
    const char    *at = text, *end = text + n;
    weft_program **list  = NULL;
    int            count = 0, line = 1;
    weft_status    st = WEFT_OK;
    do {
        weft_program **more = realloc(list, sizeof *list * (size_t)(count + 1));
        if (!more) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
        list = more;
        WEFT_GO(parse_one(file, &at, end, &line, false, &list[count]));
        count++;
    } while (at < end);
    *out   = list;
    *n_out = count;
    return WEFT_OK;
out:
    weft_program_destroy_set(list, count);
    return st;
}
