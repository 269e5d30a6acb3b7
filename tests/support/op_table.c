#include "support/op_table.h"

#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "support/device_call.h"
#include "support/op_trial.h"

enum {
    N_TYPE  = 2, /* f32, bf16 */
    MAX_OUT = 4, /* results whose forms are tried one by one */
    TELL_S  = 10 /* from one line about progress to the next */
};

static const weft_op_table_setting plain = {.name = "no pool"};

static const weft_step_scalars first_step = {
    .seed = 7, .step = 3, .sample = 5, .micro_sample = 2};
static const weft_step_scalars second_step = {
    .seed = 8, .step = 4, .sample = 9, .micro_sample = 4};

typedef struct cell {
    int    n_case, n_trial, n_failed;
    bool   has_kernel;
    double error;
} cell;

typedef struct table_run {
    weft_device                 *device;
    const weft_op_table_options *o;
    const weft_op_table_setting *setting;
    int                          n_setting;
    weft_pool                   *pool[32]; /* of each setting */
    op_numbers                   numbers;  /* of the case */
    FILE                        *out;
    double                       begun_s, told_s;
    weft_op_table_report        *report;
    cell                         cell[WEFT_N_OP][N_TYPE];
} table_run;

/* What is being run, for lines about failures. */
typedef struct running {
    table_run               *table;
    op_trial                *trial;
    const weft_kernel_table *kernels;
    const weft_kernel       *kernel;
    const char              *setting;
    char                    *bytes; /* of the first run; NULL: none yet */
} running;

static weft_dtype type_of(int t)
{
    return t ? WEFT_DTYPE_BF16 : WEFT_DTYPE_F32;
}

static cell *cell_of(table_run *r, const op_trial *t)
{
    return &r->cell[t->use.op][t->form.storage == OP_STORAGE_F32 ? 0 : 1];
}

/* ---- failures ---- */

/* Prints the message of the last error. */
static void report_failure(table_run *r, const op_trial *t, const char *where)
{
    char name[256], form[256];
    op_form_text(t->the_case, &t->form, form, sizeof form);
    fprintf(r->out, "%s, %s: %s: %s: %s\n", r->device->name,
            weft_test_case_text(t->the_case, name, sizeof name), form, where,
            weft_error_text());
    fflush(r->out);
    r->report->n_failed++;
    cell_of(r, t)->n_failed++;
}

static bool is_over(const table_run *r)
{
    return r->o->fail_fast && r->report->n_failed;
}

/* ---- one kernel ---- */

static weft_status compare_bits(running *x, const char *with)
{
    if (!x->bytes) x->bytes = op_trial_bytes(x->trial);
    if (!x->bytes) return weft_arena_status(x->trial->arena);
    if (op_trial_same(x->trial, x->bytes)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "other bits with %s", with);
}

static weft_status run_step(running *x, device_call *c, const weft_step_scalars *scalars)
{
    op_trial_restore(x->trial);
    return device_call_run(c, scalars);
}

/* Results against the reference. */
static weft_status check_result(running *x)
{
    cell     *own    = cell_of(x->table, x->trial);
    op_limits limits = {.by_element = x->table->o->by_element};
    double    error;
    WEFT_TRY(op_trial_check(x->trial, &limits, &error));
    if (error > own->error) own->error = error;
    return WEFT_OK;
}

static weft_status try_setting(running *x, weft_pool *pool)
{
    device_call c;
    bool        first = !x->bytes;
    WEFT_TRY(device_call_open(&c, x->table->device, x->kernel, &x->trial->call, pool));
    weft_status st = run_step(x, &c, &first_step);
    if (st == WEFT_OK && first) st = check_result(x);
    if (st == WEFT_OK) st = compare_bits(x, x->setting);
    if (st == WEFT_OK && first) st = run_step(x, &c, &first_step);
    if (st == WEFT_OK && first) st = compare_bits(x, "the same call again");
    device_call_close(&c);
    return st;
}

/* Two steps of one prepared call: the second has the bits of a call prepared for it alone. */
static weft_status run_two_steps(running *x, device_call *once, uint64_t seed)
{
    device_call fresh;
    WEFT_TRY(run_step(x, once, &first_step));
    op_trial_fill(x->trial, seed + 1, 2);
    WEFT_TRY(op_trial_reference(x->trial, &second_step));
    WEFT_TRY(
        device_call_open(&fresh, x->table->device, x->kernel, &x->trial->call, NULL));
    weft_status st = run_step(x, &fresh, &second_step);
    device_call_close(&fresh);
    if (st != WEFT_OK) return st;
    x->bytes = NULL;
    WEFT_TRY(compare_bits(x, "itself"));
    WEFT_TRY(run_step(x, once, &second_step));
    WEFT_TRY(compare_bits(x, "what was prepared for an earlier step"));
    return check_result(x);
}

static weft_status try_two_steps(running *x, uint64_t seed)
{
    device_call once;
    x->setting = "two steps";
    WEFT_TRY(device_call_open(&once, x->table->device, x->kernel, &x->trial->call, NULL));
    weft_status st = run_two_steps(x, &once, seed);
    device_call_close(&once);
    op_trial_fill(x->trial, seed, 1);
    if (st == WEFT_OK) st = op_trial_reference(x->trial, &first_step);
    return st;
}

static bool is_plain(const op_form *f)
{
    return f->layout == OP_DENSE && !f->add && !f->unkept && !f->in_place && f->chain < 0;
}

/* Forms that run under every setting. */
static bool needs_all_settings(const op_form *f)
{
    return f->layout != OP_SHIFTED && f->layout != OP_SPREAD && !f->in_place &&
           !f->unkept;
}

static weft_status try_kernel(running *x)
{
    table_run *r = x->table;
    int        n = needs_all_settings(&x->trial->form) ? r->n_setting : 1;
    for (int i = 0; i < n; i++) {
        const weft_op_table_setting *s = &r->setting[i];
        if (s->enter && !s->enter(s->arg)) continue;
        x->setting = s->name;
        WEFT_TRY(try_setting(x, r->pool[i]));
    }
    if (r->setting[0].enter) r->setting[0].enter(r->setting[0].arg);
    return is_plain(&x->trial->form) ? try_two_steps(x, r->o->seed) : WEFT_OK;
}

/* ---- one form of a case ---- */

static void try_kernels_of(table_run *r, op_trial *t, const weft_kernel_table *kernels)
{
    unsigned bit = weft_kernel_storage_bit(weft_kernel_storage(&t->call));
    for (int i = 0; kernels->storage & bit && i < kernels->n; i++) {
        const weft_kernel *k = &kernels->kernel[i];
        running            x = {.table = r, .trial = t, .kernels = kernels, .kernel = k};
        if (k->op != t->use.op || (k->takes && !k->takes(&t->call))) continue;
        if (op_form_fusions(k->op, &t->form) & ~k->fusions) continue;
        r->report->n_trial++;
        cell_of(r, t)->n_trial++;
        if (try_kernel(&x) != WEFT_OK) {
            char where[256];
            snprintf(where, sizeof where, "kernel %d of %s, %s", i, kernels->id(),
                     x.setting);
            report_failure(r, t, where);
        }
    }
}

static weft_status try_form(table_run *r, weft_arena *arena, const weft_test_case *c,
                            const op_form *f)
{
    op_trial                 t;
    const weft_kernel       *found;
    const weft_kernel_table *kernels;
    weft_status              st = op_trial_make(&t, arena, c, f, &r->numbers, r->o->seed);
    if (st == WEFT_AGAIN) return WEFT_OK;
    if (st == WEFT_OK) st = op_trial_reference(&t, &first_step);
    if (st != WEFT_OK) {
        char text[256];
        return weft_fail_in(st, "%s: ", weft_test_case_text(c, text, sizeof text));
    }
    cell_of(r, &t)->n_case++;
    if (!cell_of(r, &t)->has_kernel) return WEFT_OK; /* the table says so */
    if (weft_kernel_find(r->device->kernels, &t.call, &found) != WEFT_OK)
        report_failure(r, &t, "no kernel takes it");
    for (int i = 0; (kernels = weft_kernel_table_at(i)) && !is_over(r); i++)
        if (!strcmp(kernels->device, r->device->kernels)) try_kernels_of(r, &t, kernels);
    return WEFT_OK;
}

/* In an arena of its own. */
static weft_status try_alone(table_run *r, const weft_test_case *c, const op_form *f)
{
    weft_arena *arena;
    if (!op_form_fits(c, f) || is_over(r)) return WEFT_OK;
    if (op_form_fusions(c->op, f) & ~weft_kernel_fusions(r->device->kernels))
        return WEFT_OK; /* lowering offers it to other devices */
    WEFT_TRY(weft_arena_create(&arena));
    weft_status st = try_form(r, arena, c, f);
    weft_arena_destroy(arena);
    return st;
}

static weft_status try_forms(table_run *r, const weft_test_case *c, op_storage storage)
{
    op_form  f   = {.storage = storage, .chain = -1};
    unsigned all = c->n_out < 32 ? (1u << c->n_out) - 1 : ~0u;
    for (int layout = 0; layout < OP_N_LAYOUT; layout++) {
        op_form l = {.storage = storage, .layout = (op_layout)layout, .chain = -1};
        WEFT_TRY(try_alone(r, c, &l));
        l.add = all;
        WEFT_TRY(try_alone(r, c, &l));
        l.add = 0;
        for (l.chain = 0; l.chain < op_n_chain(c->op); l.chain++)
            if (layout == OP_DENSE || layout == OP_PADDED) WEFT_TRY(try_alone(r, c, &l));
        l.add_sums = true;
        if (weft_op_get(c->op)->flags & WEFT_OP_ADDS) l.add = all & ~1u;
        for (l.chain = 0; l.chain < op_n_chain(c->op) && layout == OP_DENSE; l.chain++)
            WEFT_TRY(try_alone(r, c, &l));
        l.add      = 0;
        l.add_sums = false;
        l.chain    = -1;
        l.in_place = true;
        if (layout == OP_DENSE || layout == OP_PADDED) WEFT_TRY(try_alone(r, c, &l));
    }
    for (int j = 0; j < MAX_OUT && c->n_out > 1; j++) {
        f.unkept = 1u << j, f.add = 0;
        WEFT_TRY(try_alone(r, c, &f));
        f.unkept = 0, f.add = 1u << j;
        WEFT_TRY(try_alone(r, c, &f));
    }
    return WEFT_OK;
}

static weft_status try_case(table_run *r, const weft_test_case *c)
{
    weft_status st = WEFT_OK;
    r->numbers     = (op_numbers){0};
    WEFT_TRY(weft_arena_create(&r->numbers.arena));
    for (int s = 0; s < OP_N_STORAGE && st == WEFT_OK; s++)
        st = try_forms(r, c, (op_storage)s);
    weft_arena_destroy(r->numbers.arena);
    return st;
}

/* ---- all of them ---- */

static bool is_named(const char *only, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = only; p && *p; p += *p == ',')
        if (!strncmp(p, name, n) && (p[n] == ',' || !p[n]))
            return true;
        else
            p += strcspn(p, ",");
    return !only;
}

static bool is_asked_for(const table_run *r, weft_op op)
{
    const weft_op_row *row = weft_op_get(op);
    return !(row->flags & WEFT_OP_COMM) && is_named(r->o->only, row->name);
}

static void tell_progress(table_run *r, int n_case, int n, weft_op next)
{
    double now_s = weft_clock_s();
    if (r->o->quiet || now_s < r->told_s + TELL_S) return;
    r->told_s = now_s;
    fprintf(r->out, "%4.0f s: %d trials, %d failed; case %d of %d, %s, is next\n",
            now_s - r->begun_s, r->report->n_trial, r->report->n_failed, n_case, n,
            weft_op_get(next)->name);
    fflush(r->out);
}

static weft_status try_cases(table_run *r, const weft_test_case *c, int n, int stride)
{
    for (int i = 0; i < n; i += stride ? stride : 1) {
        if (!is_asked_for(r, c[i].op)) continue;
        tell_progress(r, i, n, c[i].op);
        WEFT_TRY(try_case(r, &c[i]));
    }
    return WEFT_OK;
}

static weft_status check_names(const table_run *r)
{
    for (const char *p = r->o->only; p && *p; p += *p == ',') {
        weft_op op;
        char    name[64];
        size_t  n = strcspn(p, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (!weft_op_find(name, &op))
            return WEFT_FAIL(WEFT_ERR_ARG, "no operator '%s'", name);
        p += n;
    }
    return WEFT_OK;
}

static void find_kernels(table_run *r)
{
    const weft_kernel_table *t;
    for (int i = 0; (t = weft_kernel_table_at(i)); i++)
        for (int k = 0; k < t->n && !strcmp(t->device, r->device->kernels); k++)
            for (int type = 0; type < N_TYPE; type++)
                if (t->storage & weft_kernel_storage_bit(type_of(type)))
                    r->cell[t->kernel[k].op][type].has_kernel = true;
}

static void print_row(table_run *r, weft_op op)
{
    fprintf(r->out, "%-22s", weft_op_get(op)->name);
    for (int type = 0; type < N_TYPE; type++) {
        const cell *c = &r->cell[op][type];
        char        text[64];
        if (!c->has_kernel)
            snprintf(text, sizeof text, "no kernel");
        else if (c->n_failed)
            snprintf(text, sizeof text, "%d of %d failed", c->n_failed, c->n_trial);
        else
            snprintf(text, sizeof text, "%d ok, error %.1e", c->n_trial, c->error);
        fprintf(r->out, "  %-5s%-26s", weft_dtype_name(type_of(type)), text);
    }
    fprintf(r->out, "\n");
}

static void sum_up(table_run *r)
{
    for (int op = 0; op < WEFT_N_OP; op++) {
        if (!is_asked_for(r, (weft_op)op)) continue;
        if (!r->cell[op][0].n_case) {
            fprintf(r->out, "%s has no case\n", weft_op_get((weft_op)op)->name);
            r->report->n_without_case++;
        }
        for (int type = 0; type < N_TYPE; type++)
            r->report->n_missing += !r->cell[op][type].has_kernel;
        if (!r->o->quiet) print_row(r, (weft_op)op);
    }
    if (!r->o->quiet || r->report->n_failed || r->report->n_missing)
        fprintf(
            r->out,
            "%s: %d trials, %d failed, %d rows and types without a kernel, seed %llu\n",
            r->device->name, r->report->n_trial, r->report->n_failed,
            r->report->n_missing, (unsigned long long)r->o->seed);
}

static weft_status open_pools(table_run *r)
{
    if (r->n_setting > (int)WEFT_COUNT(r->pool))
        return WEFT_FAIL(WEFT_ERR_ARG, "more than %d settings", (int)WEFT_COUNT(r->pool));
    for (int i = 0; i < r->n_setting; i++)
        if (r->setting[i].threads)
            WEFT_TRY(weft_pool_create(r->setting[i].threads, 0, &r->pool[i]));
    return WEFT_OK;
}

static weft_status run_table(table_run *r)
{
    WEFT_TRY(check_names(r));
    WEFT_TRY(open_pools(r));
    find_kernels(r);
    if (!r->o->large) {
        WEFT_TRY(try_cases(r, weft_test_cases, weft_n_test_case, r->o->small_stride));
        WEFT_TRY(try_cases(r, weft_empty_cases, weft_n_empty_case, 1));
    }
    if (!r->o->small)
        WEFT_TRY(try_cases(r, weft_kernel_cases, weft_n_kernel_case, r->o->large_stride));
    sum_up(r);
    return WEFT_OK;
}

weft_status weft_op_table_run(weft_device *d, const weft_op_table_options *o,
                              weft_op_table_report *out)
{
    table_run r    = {.device    = d,
                      .o         = o,
                      .setting   = o->n_setting ? o->setting : &plain,
                      .n_setting = o->n_setting ? o->n_setting : 1,
                      .out       = o->out ? o->out : stdout,
                      .begun_s   = weft_clock_s(),
                      .report    = out};
    r.told_s       = r.begun_s;
    *out           = (weft_op_table_report){0};
    weft_status st = run_table(&r);
    for (int i = 0; i < r.n_setting; i++) weft_pool_destroy(r.pool[i]);
    return st;
}
