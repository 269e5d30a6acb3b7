/* Kernels: functions that change numbers in tensors, found by operator, device and storage type.
 *
 *     weft_kernel_register(&table);                          once, a device's kernels
 *     WEFT_TRY(weft_kernel_find("cpu", &call, &kernel));     once an instruction and slot:
 *     bytes = weft_kernel_scratch(kernel, &call, n_thread);
 *     WEFT_TRY(weft_kernel_prepare(kernel, &ctx, arena, &call));
 *     WEFT_TRY(kernel->run(&call, &ctx));                    every step
 *     weft_kernel_release(kernel, &call);                    once
 *
 * Every kernel promises:
 * (1) its bits depend on shapes, dtypes and attributes only: work is cut into a task grid
 *     computed from the shape, threads only decide who runs a task
 * (2) run allocates nothing; scratch is what its scratch() returned for the same call
 * (3) what its row in ops.def promises: WEFT_OP_STRIDED views, WEFT_OP_ADDS into results,
 *     WEFT_OP_POSTS
 * (4) scratch, takes and prepare look at types, strides, attributes and addresses, never at the
 *     memory behind them: operands and step scalars change from step to step, and only the
 *     device that runs the kernel may be able to read them
 * (5) where the pool's work is dropped (base/pool.h) run ends within some 100 us of work and
 *     overwrites what it likes of its results; it still reads and writes inside them alone
 * Anything else comes contiguous. */
#ifndef WEFT_KERNEL_KERNEL_H
#define WEFT_KERNEL_KERNEL_H

#include "base/arena.h"
#include "base/pool.h"
#include "op/op.h"

/* Mirrors weft_post of program.h with views instead of buffers. */
typedef struct weft_kernel_post {
    weft_op          op;
    const weft_attr *attr;
    int              in;  /* index into call->in, -1 none */
    int              out; /* index into call->out, -1 not kept */
} weft_kernel_post;

typedef struct weft_kernel_undo weft_kernel_undo; /* undo.h */

typedef struct weft_kernel_call {
    weft_op          op;
    unsigned         add; /* bit j: add to result j instead of storing it */
    const weft_attr *attr;
    int              n_in, n_own_in;
    int              n_out, n_own_out;
    const weft_view *in;
    /* p == NULL: an own result nobody keeps (its shape is still given) */
    const weft_view        *out;
    int                     n_post;
    const weft_kernel_post *post;
    void                   *prepared; /* what the kernel's prepare made of this call */
    weft_kernel_undo       *undo;     /* NULL: old values are not stored */
} weft_kernel_call;

/* What changes from step to step and is no operand of a program, in memory that the device reads.
 * The executor writes it in the order of the stream, before the kernels of a micro-batch. */
typedef struct weft_step_scalars {
    uint64_t seed;
    int64_t  step;
    int64_t  sample;       /* the step's first sample, counted from the job's start */
    int64_t  micro_sample; /* the micro-batch's first sample, counted from the step's */
} weft_step_scalars;

/* The same for every call of a stream; prepared calls may hold these addresses. */
typedef struct weft_kernel_ctx {
    weft_pool               *pool;
    void                    *scratch;
    const weft_step_scalars *scalars;
    void *queue; /* the device's stream (its impl), where kernels issue */
} weft_kernel_ctx;

typedef weft_status (*weft_kernel_fn)(const weft_kernel_call *c,
                                      const weft_kernel_ctx  *x);
typedef size_t (*weft_kernel_scratch_fn)(const weft_kernel_call *c, int n_thread);
typedef bool (*weft_kernel_takes_fn)(const weft_kernel_call *c);
/* Work that needs to be done once: descriptors, chosen algorithms, attributes by name.  *out is
 * NULL and may stay so; host memory comes from the arena.  A prepare that fails keeps nothing. */
typedef weft_status (*weft_kernel_prepare_fn)(const weft_kernel_call *c,
                                              const weft_kernel_ctx *x, weft_arena *arena,
                                              void **out);
/* Gives back what is not the arena's; called once for each *out that is not NULL. */
typedef void (*weft_kernel_release_fn)(void *prepared);

/* Several calls of one kernel as one: prepared, and independent, so that none touches memory that
 * another one writes.  The same bits as one by one. */
typedef struct weft_kernel_many {
    weft_status (*run)(const weft_kernel_call *const *c, int n, const weft_kernel_ctx *x);
    /* NULL: no more than the largest of them */
    size_t (*scratch)(const weft_kernel_call *const *c, int n, int n_thread);
} weft_kernel_many;

typedef struct weft_kernel {
    weft_op                 op;
    weft_kernel_fn          run;
    weft_kernel_scratch_fn  scratch; /* NULL: none */
    weft_kernel_takes_fn    takes;   /* NULL: every call */
    weft_kernel_prepare_fn  prepare; /* NULL: nothing to prepare */
    weft_kernel_release_fn  release; /* NULL: nothing to give back */
    const weft_kernel_many *many;    /* NULL: one by one */
    unsigned fusions; /* weft_fusion that it takes; calls with others are not its */
    bool     undoes;  /* stores old values in call->undo */
} weft_kernel;

/* Instructions of programs that are no operators; to and from have one shape and type.  copy: any
 * strides; merge: to += from, both without gaps. */
typedef weft_status (*weft_kernel_move_fn)(const weft_kernel_ctx *x, const weft_view *to,
                                           const weft_view *from);

/* A device's kernels for some storage types.  Several rows may have one operator: the first that
 * takes the call runs it, so fast kernels precede general ones. */
typedef struct weft_kernel_table {
    const char *device;
    unsigned    storage; /* of weft_kernel_storage_bit() */
    /* names build and libraries: bitwise promises hold while it is equal */
    const char *(*id)(void);
    int                 n;
    const weft_kernel  *kernel;
    weft_kernel_move_fn copy, merge; /* NULL: another table of the device has them */
} weft_kernel_table;

static inline unsigned weft_kernel_storage_bit(weft_dtype storage)
{
    return 1u << (unsigned)storage;
}

/* Borrows the table for the life of the process.  Tables registered later are asked first; the
 * CPU's is registered before all others.  Any thread may register and find at any time.  The same
 * table again changes nothing. */
weft_status weft_kernel_register(const weft_kernel_table *t);
/* Registered table i, the CPU's first; NULL: there are no more. */
const weft_kernel_table *weft_kernel_table_at(int i);

/* The type that chooses the kernel: F32 or BF16, that of the first floating operand or result. */
weft_dtype weft_kernel_storage(const weft_kernel_call *c);

/* The kernel of a device that takes the call.  WEFT_ERR_ARG: "no kernel for X on cpu in bf16". */
weft_status weft_kernel_find(const char *device, const weft_kernel_call *c,
                             const weft_kernel **out);
/* WEFT_ERR_ARG: no table of the device has it. */
weft_status weft_kernel_find_copy(const char *device, weft_kernel_move_fn *out);
weft_status weft_kernel_find_merge(const char *device, weft_kernel_move_fn *out);
size_t weft_kernel_scratch(const weft_kernel *k, const weft_kernel_call *c, int n_thread);
/* Sets c->prepared.  Prepared calls are released before the arena is destroyed. */
weft_status weft_kernel_prepare(const weft_kernel *k, const weft_kernel_ctx *x,
                                weft_arena *arena, weft_kernel_call *c);
void        weft_kernel_release(const weft_kernel *k, weft_kernel_call *c);

/* Of all kernels of a device: what lowering may fuse for it. */
unsigned weft_kernel_fusions(const char *device);

/* Names a device's set of kernels, all tables of it: bitwise promises hold while it is equal.
 * Valid in this thread until the next call. */
const char *weft_kernel_set_id(const char *device);

#endif
