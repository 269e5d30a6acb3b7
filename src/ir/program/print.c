/* A program as text: everything that is in it, in a form that weft_program_parse() reads back.
 *
 *     program two rank 0 of 2 micro 4 lanes 1 {
 *       slab work work 4096
 *       buffer x slab work at 0 bytes 1024 slots 2 by micro
 *       group [0,1]
 *       bind input x x f32[4,64]
 *       stream compute compute device 0 threads 0
 *       actor fwd on compute {
 *         compute y matmul "spec=bd,dn->bn" (x f32[4,64], w f32[64,8]) -> (y f32[4,8]) ;
 *         send y to 1 tag 3 credits 2 (y f32[4,8]) seconds 0.001 ;
 *         commit step (loss f32[], norm f32[]) ;
 *       }
 *       edge fwd -> bwd credits 2
 *       list compute { fwd 0 first; fwd 1; }
 *     }
 *
 * An operand is: buffer [+ offset] dtype[shape] [stride [..]]; '_' is none.  '|' parts an
 * operator's own operands from those of the steps fused behind it.  A binding may end with
 * origin [..]. */
#include "program/program.h"

#include <string.h>

static bool plain_char(char c, bool first)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_') return true;
    return !first && ((c >= '0' && c <= '9') || c == '.' || c == '/');
}

/* Names that a tokenizer would take apart stand in quotes. */
static void put_name(weft_text *t, const char *s)
{
    bool plain = s[0] && strcmp(s, "_") != 0;
    for (int i = 0; s[i]; i++) plain = plain && plain_char(s[i], i == 0);
    if (plain)
        weft_text_add(t, "%s", s);
    else
        weft_text_put_quoted(t, s);
}

static void put_list(weft_text *t, const char *word, int n, const int64_t *d)
{
    weft_text_add(t, "%s[", word);
    for (int i = 0; i < n; i++) weft_text_add(t, i ? ",%lld" : "%lld", (long long)d[i]);
    weft_text_add(t, "]");
}

static void put_operand(const weft_program *p, const weft_operand *o, weft_text *t)
{
    int          n     = o->type.shape.n;
    bool         same  = true;
    weft_operand plain = weft_operand_make(o->buffer, o->type.dtype, &o->type.shape);
    for (int d = 0; d < n; d++) same = same && o->stride[d] == plain.stride[d];
    if (o->buffer < 0)
        weft_text_add(t, "_");
    else
        put_name(t, p->buffer[o->buffer].name);
    if (o->offset) weft_text_add(t, " + %lld", (long long)o->offset);
    weft_text_add(t, " %s", weft_dtype_name(o->type.dtype));
    put_list(t, "", n, o->type.shape.d);
    if (!same) put_list(t, " stride ", n, o->stride);
}

static void put_operands(const weft_program *p, int n, int n_own, const weft_operand *o,
                         weft_text *t)
{
    weft_text_add(t, "(");
    for (int i = 0; i < n; i++) {
        weft_text_add(t, "%s", i == n_own ? (i ? " | " : "| ") : i ? ", " : "");
        put_operand(p, &o[i], t);
    }
    weft_text_add(t, ")");
}

static void put_op(weft_op op, const weft_attr *attr, weft_text *t)
{
    weft_text a = {0};
    weft_text_add(t, " %s", weft_op_get(op)->name);
    if (attr) weft_op_print_attr(op, attr, &a);
    if (a.failed) t->failed = 1;
    if (a.n) {
        weft_text_add(t, " ");
        weft_text_put_quoted(t, a.s);
    }
    weft_text_fini(&a);
}

static void put_posts(const weft_instr *i, weft_text *t)
{
    for (int k = 0; k < i->n_post; k++) {
        const weft_post *s = &i->post[k];
        weft_text_add(t, "\n      post");
        put_op(s->op, s->attr, t);
        if (s->in >= 0) weft_text_add(t, " in %d", s->in);
        if (s->out >= 0) weft_text_add(t, " out %d", s->out);
    }
}

static void put_instr(const weft_program *p, const weft_instr *i, weft_text *t)
{
    bool compute = i->kind == WEFT_INSTR_COMPUTE;
    weft_text_add(t, "    %s ", weft_instr_kind_name(i->kind));
    put_name(t, i->name);
    switch (i->kind) {
    case WEFT_INSTR_COMPUTE: put_op(i->op, i->attr, t); break;
    case WEFT_INSTR_COLLECTIVE:
        weft_text_add(t, " %s group %d", weft_collective_name(i->coll), i->group);
        if (i->unit) weft_text_add(t, " unit %lld", (long long)i->unit);
        if (i->units) put_list(t, " units ", i->n_in, i->units);
        if (i->lanes) weft_text_add(t, " lanes %d", i->lanes);
        break;
    case WEFT_INSTR_SEND: weft_text_add(t, " to %d", i->peer); break;
    case WEFT_INSTR_RECV: weft_text_add(t, " from %d", i->peer); break;
    default: break;
    }
    if (i->tag) weft_text_add(t, " tag %d", i->tag);
    if (i->credits) weft_text_add(t, " credits %d", i->credits);
    if (i->n_in || compute) {
        weft_text_add(t, " ");
        put_operands(p, i->n_in, compute ? i->n_own_in : i->n_in, i->in, t);
    }
    if (i->n_out) {
        weft_text_add(t, " -> ");
        put_operands(p, i->n_out, compute ? i->n_own_out : i->n_out, i->out, t);
    }
    if (i->add) weft_text_add(t, " add %u", i->add);
    if (i->into) weft_text_add(t, " into %u", i->into);
    put_posts(i, t);
    if (i->seconds != -1) {
        weft_text_add(t, " seconds ");
        weft_text_put_double(t, i->seconds);
    }
    weft_text_add(t, " ;\n");
}

static void put_memory(const weft_program *p, weft_text *t)
{
    static const char *const by[] = {"one", "micro", "lane"};
    for (int i = 0; i < p->n_slab; i++) {
        weft_text_add(t, "  slab ");
        put_name(t, p->slab[i].name);
        weft_text_add(t, " %s %lld\n", weft_slab_kind_name(p->slab[i].kind),
                      (long long)p->slab[i].bytes);
    }
    for (int i = 0; i < p->n_buffer; i++) {
        const weft_buffer *b = &p->buffer[i];
        weft_text_add(t, "  buffer ");
        put_name(t, b->name);
        weft_text_add(t, " slab ");
        put_name(t, p->slab[b->slab].name);
        weft_text_add(t, " at %lld bytes %lld", (long long)b->offset,
                      (long long)b->bytes);
        if (b->n_slot != 1 || b->slot_by != WEFT_SLOT_ONE)
            weft_text_add(t, " slots %d by %s", b->n_slot, by[b->slot_by]);
        weft_text_add(t, "\n");
    }
    for (int i = 0; i < p->n_group; i++) {
        weft_text_add(t, "  group [");
        for (int k = 0; k < p->group[i].n_rank; k++)
            weft_text_add(t, k ? ",%d" : "%d", p->group[i].rank[k]);
        for (int k = 0; k < p->group[i].n_rank && p->group[i].share; k++)
            weft_text_add(t, k ? ",%d" : "] lanes [%d", p->group[i].share[k]);
        weft_text_add(t, "]\n");
    }
}

static void put_bindings(const weft_program *p, weft_text *t)
{
    static const char *const kind[] = {"param",      "state",  "input",
                                       "step_input", "output", "standby"};
    for (int i = 0; i < p->n_binding; i++) {
        weft_text_add(t, "  bind %s ", kind[p->binding[i].kind]);
        put_name(t, p->binding[i].name);
        weft_text_add(t, " ");
        put_operand(p, &p->binding[i].at, t);
        bool zero = true;
        int  n    = p->binding[i].at.type.shape.n;
        for (int d = 0; d < n; d++) zero = zero && p->binding[i].origin[d] == 0;
        if (!zero) put_list(t, " origin ", n, p->binding[i].origin);
        weft_text_add(t, "\n");
    }
}

static void put_edges(const weft_program *p, weft_text *t)
{
    for (int i = 0; i < p->n_edge; i++) {
        const weft_edge *e = &p->edge[i];
        weft_text_add(t, "  edge ");
        put_name(t, p->actor[e->from].name);
        weft_text_add(t, " -> ");
        put_name(t, p->actor[e->to].name);
        weft_text_add(t, " credits %d%s", e->credits, e->per_step ? " per_step" : "");
        if (e->delay) weft_text_add(t, " delay %d", e->delay);
        weft_text_add(t, "\n");
    }
}

static void put_streams(const weft_program *p, weft_text *t)
{
    for (int s = 0; s < p->n_stream; s++) {
        const weft_stream_spec *x = &p->stream[s];
        weft_text_add(t, "  stream ");
        put_name(t, x->name);
        weft_text_add(t, " %s device %d threads %d\n", weft_stream_kind_name(x->kind),
                      x->device, x->threads);
    }
}

static void put_list_of(const weft_program *p, int s, weft_text *t)
{
    if (!p->stream[s].n_firing) return;
    weft_text_add(t, "  list ");
    put_name(t, p->stream[s].name);
    weft_text_add(t, " {\n");
    for (int i = 0; i < p->stream[s].n_firing; i++) {
        const weft_firing *f = &p->stream[s].firing[i];
        weft_text_add(t, "    ");
        put_name(t, p->actor[f->actor].name);
        if (f->micro >= 0) weft_text_add(t, " %d", f->micro);
        if (f->lane_slot) weft_text_add(t, " lane %d", f->lane_slot);
        weft_text_add(t, "%s;\n", f->first ? " first" : "");
    }
    weft_text_add(t, "  }\n");
}

weft_status weft_program_print(const weft_program *p, weft_text *t)
{
    weft_text_add(t, "program ");
    put_name(t, p->name);
    weft_text_add(t, " rank %d of %d micro %d lanes %d {\n", p->rank, p->world,
                  p->n_micro, p->n_lane);
    put_memory(p, t);
    put_bindings(p, t);
    put_streams(p, t);
    for (int a = 0; a < p->n_actor; a++) {
        weft_text_add(t, "  actor ");
        put_name(t, p->actor[a].name);
        weft_text_add(t, " on ");
        put_name(t, p->stream[p->actor[a].stream].name);
        weft_text_add(t, " {\n");
        for (int i = 0; i < p->actor[a].n_instr; i++)
            put_instr(p, &p->actor[a].instr[i], t);
        weft_text_add(t, "  }\n");
    }
    put_edges(p, t);
    for (int s = 0; s < p->n_stream; s++) put_list_of(p, s, t);
    weft_text_add(t, "}\n");
    return weft_text_status(t);
}
