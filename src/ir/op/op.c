/* The table of operators and what can be asked of a row. */
#include "op/op.h"

#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "op/op_priv.h"

static const weft_op_row rows[WEFT_N_OP] = {
#define OP(ID, name, in, out, attr, rule, shape, flops, bytes, flags)                    \
    [WEFT_OP_##ID] = {name,                                                              \
                      in,                                                                \
                      out,                                                               \
                      attr,                                                              \
                      rule,                                                              \
                      weft_op__shape_##shape,                                            \
                      weft_op__flops_##flops,                                            \
                      weft_op__bytes_##bytes,                                            \
                      flags},
#include "op/ops.def"
#undef OP
};

const weft_op_row *weft_op_get(weft_op op)
{
    return &rows[op];
}

bool weft_op_find(const char *name, weft_op *out)
{
    for (int i = 0; i < WEFT_N_OP; i++)
        if (!strcmp(rows[i].name, name)) {
            *out = (weft_op)i;
            return true;
        }
    return false;
}

const char *weft_op_suggest(const char *name)
{
    const char *list[WEFT_N_OP];
    for (int i = 0; i < WEFT_N_OP; i++) list[i] = rows[i].name;
    return weft_suggest(name, list, WEFT_N_OP);
}

/* Counts the words of "x w bias?": *min without optional ones, *max with them. */
static void count_words(const char *s, int many, int *min, int *max)
{
    *min = *max = 0;
    for (const char *p = s; *p;) {
        p += strspn(p, " ");
        size_t n = strcspn(p, " ");
        if (!n) break;
        if (p[n - 1] == '*') {
            *max = many;
            return;
        }
        *max += 1;
        if (p[n - 1] != '?') *min += 1;
        p += n;
    }
}

void weft_op_arity(weft_op op, int *in_min, int *in_max, int *out_min, int *out_max)
{
    count_words(rows[op].in, WEFT_MAX_IN, in_min, in_max);
    count_words(rows[op].out, WEFT_MAX_OUT, out_min, out_max);
}

/* A row's attributes are words "name:type=default": the first from p on, the one behind that at
 * p; NULL past the end. */
static const char *first_attr(const char *p)
{
    while (*p == ' ') p++;
    return *p ? p : NULL;
}

static const char *next_attr(const char *p)
{
    while (*p && *p != ' ') p++;
    return first_attr(p);
}

static const char *attr_at(weft_op op, int i)
{
    const char *p = first_attr(rows[op].attr);
    while (p && i-- > 0) p = next_attr(p);
    return p;
}

int weft_op_n_attr(weft_op op)
{
    int n = 0;
    for (const char *p = first_attr(rows[op].attr); p; p = next_attr(p)) n++;
    return n;
}

const char *weft_op_attr_name(weft_op op, int i, char *buf, size_t n)
{
    const char *p   = attr_at(op, i);
    size_t      len = p ? strcspn(p, ":") : 0;
    if (len >= n) len = n - 1;
    if (p) memcpy(buf, p, len);
    buf[len] = 0;
    return buf;
}

weft_attr_type weft_op_attr_type(weft_op op, int i)
{
    const char *p = attr_at(op, i);
    return p ? (weft_attr_type)p[strcspn(p, ":") + 1] : WEFT_ATTR_INT;
}

int weft_op_attr_index(weft_op op, const char *name)
{
    size_t n = strlen(name);
    int    i = 0;
    for (const char *p = first_attr(rows[op].attr); p; p = next_attr(p), i++)
        if (!strncmp(p, name, n) && p[n] == ':') return i;
    return -1;
}

/* Defaults that are words need storage that lives for ever: they are few. */
static const char *default_word(const char *p, size_t n)
{
    static const char *const words[] = {"tanh", "default", "f32", "sum", "silu"};
    for (size_t i = 0; i < WEFT_COUNT(words); i++)
        if (strlen(words[i]) == n && !strncmp(words[i], p, n)) return words[i];
    return "";
}

void weft_op_attr_defaults(weft_op op, weft_attr attr[WEFT_MAX_ATTR])
{
    memset(attr, 0, sizeof(weft_attr) * WEFT_MAX_ATTR);
    const char *p = first_attr(rows[op].attr);
    for (int i = 0; p; p = next_attr(p), i++) {
        const char *type  = p + strcspn(p, ":") + 1;
        const char *value = type[1] == '=' ? type + 2 : NULL;
        switch ((weft_attr_type)*type) {
        case WEFT_ATTR_INT:
        case WEFT_ATTR_BOOL: attr[i].i = value ? strtoll(value, NULL, 10) : 0; break;
        case WEFT_ATTR_FLOAT: attr[i].f = value ? strtod(value, NULL) : 0; break;
        case WEFT_ATTR_STRING:
            attr[i].s = value ? default_word(value, strcspn(value, " ")) : "";
            break;
        case WEFT_ATTR_LIST: break;
        }
    }
}

const weft_attr *weft_use_attr(const weft_op_use *u, const char *attr)
{
    static const weft_attr none = {.s = ""};
    int                    i    = weft_op_attr_index(u->op, attr);
    return i < 0 ? &none : &u->attr[i];
}

int64_t weft_use_int(const weft_op_use *u, const char *a)
{
    return weft_use_attr(u, a)->i;
}
double weft_use_float(const weft_op_use *u, const char *a)
{
    return weft_use_attr(u, a)->f;
}
const char *weft_use_string(const weft_op_use *u, const char *a)
{
    const char *s = weft_use_attr(u, a)->s;
    return s ? s : "";
}

const char *weft_op__shape(const weft_op_use *u, int in, char buf[WEFT_OP__TEXT])
{
    return weft_shape_text(&u->in[in].shape, buf, WEFT_OP__TEXT);
}

unsigned weft_op_fusion(weft_op op, weft_op step)
{
    bool norm = op == WEFT_OP_LAYER_NORM_GRAD || op == WEFT_OP_RMS_NORM_GRAD;
    if (norm && step == WEFT_OP_ADD) return WEFT_FUSION_RESIDUAL;
    if (norm && step == WEFT_OP_REDUCE) return WEFT_FUSION_NORM_SUMS;
    if (rows[op].flags & WEFT_OP_UPDATE && op != WEFT_OP_EMA && step == WEFT_OP_CAST)
        return WEFT_FUSION_COPY;
    if (op == WEFT_OP_ATTENTION_GRAD && step == WEFT_OP_ROTARY) return WEFT_FUSION_ROTARY;
    return 0;
}

weft_status weft_op_infer(const weft_op_use *u, weft_type *out)
{
    const weft_op_row *row = &rows[u->op];
    int                in_min, in_max, out_min, out_max;
    weft_op_arity(u->op, &in_min, &in_max, &out_min, &out_max);
    if (u->n_in < in_min || u->n_in > in_max)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: takes %d%s operands (%s), got %d", row->name,
                         in_min, in_max > in_min ? " or more" : "", row->in, u->n_in);
    if (u->n_out < out_min || u->n_out > out_max)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: gives %d%s results (%s), got %d", row->name,
                         out_min, out_max > out_min ? " or more" : "", row->out,
                         u->n_out);
    WEFT_TRY(row->shape(u, out));
    for (int j = 0; j < u->n_out; j++) WEFT_TRY(weft_shape_verify(&out[j].shape));
    return WEFT_OK;
}

double weft_op_flops(const weft_op_use *u)
{
    return rows[u->op].flops(u);
}
double weft_op_bytes(const weft_op_use *u)
{
    return rows[u->op].bytes(u);
}
