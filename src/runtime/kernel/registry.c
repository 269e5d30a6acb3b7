/* All tables of kernels, and the choice of one for a call.
 *
 * Tables stand in slots that are filled from the front and never emptied, so readers need no
 * lock: a slot is written once, by compare and exchange. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "kernel/cpu_priv.h"

enum {
    MAX_TABLE = 64
};

static const weft_kernel_table *_Atomic table[MAX_TABLE];

/* ---- registering ---- */

static weft_status check_table(const weft_kernel_table *t)
{
    if (!t->device || !*t->device || !t->storage || !t->id)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "a table of kernels needs a device, storage types and an id");
    for (int i = 0; i < t->n; i++) {
        const weft_kernel *k = &t->kernel[i];
        if ((int)k->op < 0 || k->op >= WEFT_N_OP)
            return WEFT_FAIL(WEFT_ERR_ARG, "kernels of %s, row %d: no operator %d",
                             t->device, i, (int)k->op);
        if (!k->run || (k->release && !k->prepare))
            return WEFT_FAIL(WEFT_ERR_ARG, "kernels of %s, row %d: %s has %s", t->device,
                             i, weft_op_get(k->op)->name,
                             k->run ? "a release and no prepare" : "no run");
    }
    return WEFT_OK;
}

static weft_status add_table(const weft_kernel_table *t)
{
    WEFT_TRY(check_table(t));
    for (int i = 0; i < MAX_TABLE; i++) {
        const weft_kernel_table *there = NULL;
        if (atomic_compare_exchange_strong(&table[i], &there, t) || there == t)
            return WEFT_OK;
    }
    return WEFT_FAIL(WEFT_ERR_ARG, "more than %d tables of kernels", MAX_TABLE);
}

/* The CPU's table goes through the same steps as every other, before it. */
static weft_status add_builtin(void)
{
    return atomic_load(&table[0]) ? WEFT_OK : add_table(&weft_kernel__cpu_table);
}

weft_status weft_kernel_register(const weft_kernel_table *t)
{
    WEFT_TRY(add_builtin());
    return add_table(t);
}

const weft_kernel_table *weft_kernel_table_at(int i)
{
    if (i < 0 || i >= MAX_TABLE || add_builtin() != WEFT_OK) return NULL;
    return atomic_load(&table[i]);
}

static int count_tables(void)
{
    int n = 0;
    while (weft_kernel_table_at(n)) n++;
    return n;
}

/* ---- finding ---- */

weft_dtype weft_kernel_storage(const weft_kernel_call *c)
{
    for (int k = 0; k < c->n_own_in + c->n_own_out; k++) {
        weft_dtype t = (k < c->n_own_in ? &c->in[k] : &c->out[k - c->n_own_in])->dtype;
        if (t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_BF16) return t;
    }
    return WEFT_DTYPE_F32;
}

/* Does the kernel take all steps of the call?  Those of WEFT_OP_POSTS every kernel does. */
static bool takes_steps(const weft_kernel *k, const weft_kernel_call *c)
{
    unsigned need = 0;
    for (int i = 0; i < c->n_post; i++) need |= weft_op_fusion(c->op, c->post[i].op);
    return !(need & ~k->fusions);
}

/* Rows for this operator, device and storage type are counted, whether or not they take it. */
static const weft_kernel *find_row(const weft_kernel_table *t, const weft_kernel_call *c,
                                   int *n_row)
{
    for (int i = 0; i < t->n; i++) {
        const weft_kernel *k = &t->kernel[i];
        if (k->op != c->op) continue;
        ++*n_row;
        if (takes_steps(k, c) && (!k->takes || k->takes(c))) return k;
    }
    return NULL;
}

static weft_status fail_to_find(const char *device, const weft_kernel_call *c,
                                bool known_device, int n_row)
{
    char        operands[512] = "";
    size_t      n             = 0;
    const char *op            = weft_op_get(c->op)->name;
    const char *storage       = weft_dtype_name(weft_kernel_storage(c));
    if (!known_device)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "no kernel for %s on %s in %s: "
                         "no kernels are registered for %s",
                         op, device, storage, device);
    if (!n_row)
        return WEFT_FAIL(WEFT_ERR_ARG, "no kernel for %s on %s in %s", op, device,
                         storage);
    for (int i = 0; i < c->n_in && n < sizeof operands; i++) {
        char shape[128];
        n += (size_t)snprintf(operands + n, sizeof operands - n, " %s[%s]",
                              weft_dtype_name(c->in[i].dtype),
                              weft_shape_text(&c->in[i].shape, shape, sizeof shape));
    }
    return WEFT_FAIL(WEFT_ERR_ARG, "no kernel for %s on %s in %s takes%s%s%s", op, device,
                     storage, operands, c->add ? ", added" : "",
                     c->n_post ? ", with steps fused" : "");
}

weft_status weft_kernel_find(const char *device, const weft_kernel_call *c,
                             const weft_kernel **out)
{
    weft_dtype storage = weft_kernel_storage(c);
    bool       known   = false;
    int        n_row   = 0;
    for (int i = count_tables() - 1; i >= 0; i--) {
        const weft_kernel_table *t = weft_kernel_table_at(i);
        if (strcmp(t->device, device) != 0) continue;
        known = true;
        if (!(t->storage & weft_kernel_storage_bit(storage))) continue;
        *out = find_row(t, c, &n_row);
        if (*out) return WEFT_OK;
    }
    return fail_to_find(device, c, known, n_row);
}

static weft_status find_move(const char *device, bool merges, weft_kernel_move_fn *out)
{
    for (int i = count_tables() - 1; i >= 0; i--) {
        const weft_kernel_table *t = weft_kernel_table_at(i);
        if (strcmp(t->device, device) != 0) continue;
        *out = merges ? t->merge : t->copy;
        if (*out) return WEFT_OK;
    }
    return WEFT_FAIL(WEFT_ERR_ARG, "no kernel for %s on %s", merges ? "merge" : "copy",
                     device);
}

unsigned weft_kernel_fusions(const char *device)
{
    unsigned fusions = 0;
    for (int i = 0; i < count_tables(); i++) {
        const weft_kernel_table *t = weft_kernel_table_at(i);
        if (strcmp(t->device, device) != 0) continue;
        for (int k = 0; k < t->n; k++) fusions |= t->kernel[k].fusions;
    }
    return fusions;
}

weft_status weft_kernel_find_copy(const char *device, weft_kernel_move_fn *out)
{
    return find_move(device, false, out);
}

weft_status weft_kernel_find_merge(const char *device, weft_kernel_move_fn *out)
{
    return find_move(device, true, out);
}

/* ---- one call ---- */

size_t weft_kernel_scratch(const weft_kernel *k, const weft_kernel_call *c, int n_thread)
{
    return k->scratch ? k->scratch(c, n_thread) : 0;
}

weft_status weft_kernel_prepare(const weft_kernel *k, const weft_kernel_ctx *x,
                                weft_arena *arena, weft_kernel_call *c)
{
    void *prepared = NULL;
    if (!k->prepare) return WEFT_OK;
    WEFT_TRY(k->prepare(c, x, arena, &prepared));
    c->prepared = prepared;
    return WEFT_OK;
}

void weft_kernel_release(const weft_kernel *k, weft_kernel_call *c)
{
    if (k->release && c->prepared) k->release(c->prepared);
    c->prepared = NULL;
}

const char *weft_kernel_set_id(const char *device)
{
    static _Thread_local char id[256];
    size_t                    n = 0;
    *id                         = 0;
    for (int i = 0; weft_kernel_table_at(i) && n < sizeof id; i++) {
        const weft_kernel_table *t = weft_kernel_table_at(i);
        if (strcmp(t->device, device) == 0)
            n += (size_t)snprintf(id + n, sizeof id - n, "%s%s", n ? "+" : "", t->id());
    }
    return id;
}
