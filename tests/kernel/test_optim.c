/* Updates that store old values for a journal (undo.h): with and without it they have the same
 * bits, and when they end the old values of the last two blocks are there. */
#include <string.h>

#include "base/arena.h"
#include "kernel/isa.h"
#include "kernel/undo.h"
#include "support/test.h"

enum {
    N     = 3 * WEFT_UNDO_BLOCK + 21, /* the last block is short */
    LAST  = N / WEFT_UNDO_BLOCK,
    FIRST = 5,
    MAX   = 10
};

/* Its operands: tensors of N elements but for the scalars. */
typedef struct operands {
    float     value[MAX][N];
    uint16_t  copy[N];
    weft_view in[MAX], out[WEFT_UNDO_RESULT + 1];
    int       n_in, n_out;
    float    *state[WEFT_UNDO_RESULT];
} operands;

static bool is_scalar(const char *name, size_t n)
{
    static const char *const list[] = {"lr", "scale", "step", "p_sq", "u_sq"};
    for (size_t i = 0; i < WEFT_COUNT(list); i++)
        if (strlen(list[i]) == n && !memcmp(list[i], name, n)) return true;
    return false;
}

static int count_names(const char *p)
{
    int n = *p != 0;
    for (; *p; p++) n += *p == ' ';
    return n;
}

static void fill_operands(operands *o, weft_op op)
{
    const char *name  = weft_op_get(op)->in;
    weft_shape  whole = {.n = 1, .d = {N}}, none = {0};
    o->n_in  = 0;
    o->n_out = count_names(weft_op_get(op)->out);
    for (; *name; o->n_in++) {
        size_t n = strcspn(name, " ");
        int    k = o->n_in;
        assert_true(k < MAX);
        for (int i = 0; i < N; i++)
            o->value[k][i] = (float)((i * 37 + k * 11) % 101 + 1) / 50;
        o->in[k] = weft_view_make(o->value[k], WEFT_DTYPE_F32,
                                  is_scalar(name, n) ? &none : &whole);
        name += n + (name[n] == ' ');
    }
    for (int k = 0; k < o->n_out; k++) { /* p g m v -> p m v */
        o->out[k]   = o->in[k ? k + 1 : 0];
        o->state[k] = o->out[k].p;
    }
    o->out[o->n_out] = weft_view_make(o->copy, WEFT_DTYPE_BF16, &whole);
    memset(o->copy, 0, sizeof o->copy);
}

static const weft_kernel *run_update(weft_op op, operands *o, bool copies,
                                     weft_kernel_undo *undo)
{
    weft_attr          attr[WEFT_MAX_ATTR];
    weft_kernel_post   post = {.op = WEFT_OP_CAST, .in = -1, .out = o->n_out};
    const weft_kernel *kernel;
    weft_arena        *arena;
    weft_kernel_call   c = {.op        = op,
                            .attr      = attr,
                            .n_in      = o->n_in,
                            .n_own_in  = o->n_in,
                            .n_out     = o->n_out + copies,
                            .n_own_out = o->n_out,
                            .in        = o->in,
                            .out       = o->out,
                            .n_post    = copies,
                            .post      = &post,
                            .undo      = undo};
    weft_op_attr_defaults(op, attr);
    assert_ok(weft_arena_create(&arena));
    assert_ok(weft_kernel_find("cpu", &c, &kernel));
    assert_ok(weft_kernel_prepare(kernel, &(weft_kernel_ctx){0}, arena, &c));
    assert_ok(kernel->run(&c, &(weft_kernel_ctx){0}));
    weft_kernel_release(kernel, &c);
    weft_arena_destroy(arena);
    return kernel;
}

static void check_old(const weft_kernel_undo *undo, const operands *before)
{
    assert_int_equal(undo->block, FIRST + LAST);
    for (int b = LAST - 1; b <= LAST; b++) {
        int64_t n = b == LAST ? N % WEFT_UNDO_BLOCK : WEFT_UNDO_BLOCK;
        for (int k = 0; k < before->n_out; k++)
            assert_memory_equal(undo->old[(FIRST + b) % 2][k],
                                before->state[k] + b * WEFT_UNDO_BLOCK,
                                (size_t)n * sizeof(float));
    }
}

static void check_update(weft_op op, bool copies)
{
    static operands  before, plain, kept;
    weft_kernel_undo undo = {.block = -1, .first = FIRST};
    fill_operands(&before, op);
    fill_operands(&plain, op);
    fill_operands(&kept, op);
    run_update(op, &plain, copies, NULL);
    assert_true(run_update(op, &kept, copies, &undo)->undoes);
    for (int k = 0; k < kept.n_out; k++) {
        assert_memory_equal(kept.state[k], plain.state[k], sizeof(float) * N);
        assert_true(memcmp(kept.state[k], before.state[k], sizeof(float) * N) != 0);
    }
    assert_memory_equal(kept.copy, plain.copy, sizeof kept.copy);
    assert_int_equal(copies, kept.copy[N - 1] != 0);
    check_old(&undo, &before);
}

static void old_values_are_kept(void **state)
{
    weft_isa was = weft_kernel_isa();
    int      n   = 0;
    (void)state;
    for (int isa = 0; isa < WEFT_N_ISA; isa++) {
        if (!weft_kernel_isa_use((weft_isa)isa)) continue;
        for (int op = 0; op < WEFT_N_OP; op++) {
            if (!(weft_op_get((weft_op)op)->flags & WEFT_OP_UPDATE)) continue;
            check_update((weft_op)op, false);
            if (op != WEFT_OP_EMA) check_update((weft_op)op, true);
            n++;
        }
    }
    assert_true(weft_kernel_isa_use(was));
    assert_true(n >= 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_values_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
