/* A program: what one rank does in one step, read-only once made.  The bridge between the wings:
 * exec runs it in real time, sim runs the very same thing in virtual time.
 *
 *   slab      a run of memory                     buffer   a named piece of a slab, perhaps in
 *   several slots actor     a straight run of instructions      edge     messages from one actor
 *   to another, with credits firing    one run of an actor for one micro-batch
 *   stream    what issues firings in order, on a device: its list is the schedule of a step
 *
 * A firing takes one message from each in-edge and gives one to each out-edge; the credit returns
 * when the consumer's firing ends.  Instructions name micro-batches only through the firing, so a
 * program is no longer for more micro-batches; only its lists are.  Actors of one stream follow
 * its list and need no edges; between streams an edge is the only thing that orders them.
 * program/order.h says exactly what a firing waits for, program/walk.h runs the programs of a job
 * in that order.
 *
 * Always true (weft_program_verify):
 * (1) every operand lies inside its buffer, every buffer inside its slab
 * (2) buffers that live at the same time do not overlap
 * (3) a buffer is written before it is read
 * (4) over all ranks of a job, the graph of firings (stream order, data, credit returns, one node
 *     for a collective across its ranks) has no cycle, so no timing can deadlock
 * (5) a program that writes state has one commit point, once a step: every write of state is
 *     ordered after it, and nothing that is computed into state after it comes from a message that
 *     is not ordered before it.  Only gathers of what was written may write state from messages */
#ifndef WEFT_PROGRAM_PROGRAM_H
#define WEFT_PROGRAM_PROGRAM_H

#include "base/arena.h"
#include "base/text.h"
#include "exchange/collective.h"
#include "op/op.h"

typedef enum weft_slab_kind {
    WEFT_SLAB_STATE, /* owned by session: parameters, optimizer state; outlives the program */
    WEFT_SLAB_WORK,    /* activations, gradients */
    WEFT_SLAB_STAGING, /* inputs and outputs: what the host reads and writes */
    /* in host memory that the device copies from and to, where updates run on the host: states
     * that only updates use, owned by session; and what is copied there and back */
    WEFT_SLAB_HOST_STATE,
    WEFT_SLAB_HOST_WORK,
    WEFT_N_SLAB_KIND
} weft_slab_kind;

typedef struct weft_slab {
    const char    *name;
    weft_slab_kind kind;
    int64_t        bytes;
} weft_slab;

/* Which slot of a buffer a firing uses. */
typedef enum weft_slot_by {
    WEFT_SLOT_ONE,   /* there is one */
    WEFT_SLOT_MICRO, /* micro-batch number modulo slots */
    WEFT_SLOT_LANE,  /* the firing's lane slot: gradient accumulators */
} weft_slot_by;

typedef struct weft_buffer {
    const char  *name;
    int32_t      slab;
    int64_t      offset; /* of slot 0, in bytes; slot i lies i * bytes further */
    int64_t      bytes;  /* of one slot, rounded up to 64 */
    int32_t      n_slot;
    weft_slot_by slot_by;
} weft_buffer;

/* A typed view of a buffer. */
typedef struct weft_operand {
    int32_t   buffer; /* -1: not there (an optional operand left out) */
    int64_t   offset; /* in elements */
    weft_type type;
    int64_t   stride[WEFT_MAX_DIM]; /* in elements */
} weft_operand;

typedef enum weft_instr_kind {
    WEFT_INSTR_COMPUTE,
    WEFT_INSTR_COLLECTIVE,
    WEFT_INSTR_SEND,
    WEFT_INSTR_RECV,
    WEFT_INSTR_COPY,  /* out[0] = in[0] */
    WEFT_INSTR_READ,  /* samples into out[0..] */
    WEFT_INSTR_MERGE, /* out[0] += in[0]: one level of the tree over lanes */
    WEFT_INSTR_MARK,  /* a name in the trace */
    /* the commit point: its operands are the step's outcome.  Before it nothing writes state,
     * after it no update waits for a message: here a step can be held back whole */
    WEFT_INSTR_COMMIT,
    WEFT_N_INSTR_KIND
} weft_instr_kind;

enum {
    WEFT_MAX_OUTCOME  = 8,  /* operands of a commit point */
    WEFT_COMMIT_BYTES = 168 /* that all ranks sum at it */
};

enum {
    WEFT_STANDBY_TAG = 3 << 20 /* from here on: gradients for a standby replica */
};

/* A step that lowering fused onto a compute instruction: applied to the result so far, in order.
 * op is one of add, mul, scale, gelu, silu, relu, tanh and their _grad forms; for two-operand
 * ones the result so far is operand 0 (of add, mul) or dy (of the gradients).  On a cross_entropy
 * the one possible
 * step is its cross_entropy_grad: in is dloss, out the gradient of the logits, which may be their
 * memory.  On norms' gradients and updates (weft_fusion): add, reduce and cast;
 * the result so far is then as it would be stored, and a reduce or cast leaves it unchanged.  On an
 * attention_grad: two rotary, of dq and of dk; what comes out may be their memory. */
typedef struct weft_post {
    weft_op          op;
    const weft_attr *attr;
    int32_t          in; /* index into the instruction's operands, -1 none */
    /* index into its results where this stage's value is stored, -1 not kept */
    int32_t out;
} weft_post;

/* An all_reduce, reduce_scatter or all_gather may be of several tensors of one type: operand k
 * becomes result k, and ranks meet once for all of them. */
typedef struct weft_instr {
    weft_instr_kind kind;
    const char     *name; /* for people: the graph value it makes */
    /* compute */
    weft_op          op;
    const weft_attr *attr;
    /* operands; the first n_own_in are the operator's, the rest posts' */
    int n_in, n_own_in;
    int n_out, n_own_out; /* likewise; an own result with buffer -1 is not kept */
    weft_operand *in, *out;
    int           n_post;
    weft_post    *post;
    /* bit j: result j is a lane's accumulator: stored by the lane's first firing, added to by the
     * later ones */
    unsigned add;
    /* bit j: result j is added to what an instruction before it in the same firing stored there:
     * parts of one sum */
    unsigned into;
    /* communication */
    weft_collective coll;
    int32_t         group; /* collective */
    /* reduce_scatter, all_gather: shares are runs of units of so many elements (weft_part_start);
     * 0: equal shares */
    int64_t  unit;
    int64_t *units; /* of several tensors: the unit of each; NULL: all have `unit` */
    /* all_reduce, reduce_scatter: the group's ranks share so many lanes (base/lanes.h), and the
     * operand is the rank's terms, in slots 0, 1, ... of its buffer; 0: one term */
    int32_t lanes;
    int32_t peer; /* send, recv: rank */
    /* sends meet receives by (from, to, tag), collectives by (ranks, tag), in order */
    int32_t tag;
    /* send, recv: messages that may wait unreceived, the same at both ends; 0: a send ends with
     * its receive */
    int32_t credits;
    /* stated time: sim takes it, emu sleeps it; < 0: ask the cost model */
    double seconds;
} weft_instr;

/* The own result that post k works on. */
static inline int weft_post_result(const weft_instr *i, int k)
{
    return i->op == WEFT_OP_ATTENTION_GRAD ? k : 0;
}

typedef enum weft_stream_kind {
    WEFT_STREAM_COMPUTE,
    WEFT_STREAM_COMM,
    WEFT_STREAM_HOST,
    WEFT_STREAM_IO,
    WEFT_N_STREAM_KIND
} weft_stream_kind;
enum {
    WEFT_MAX_STREAM  = 8, /* of one program */
    WEFT_HOST_DEVICE = 1  /* the number of the rank's host, where it works for a device */
};

typedef struct weft_actor {
    const char *name;
    int32_t     stream; /* number in the program's table */
    int         n_instr;
    weft_instr *instr;
} weft_actor;

/* Messages are matched by micro-batch.  per_step: one message a step, given when the producer's
 * last firing of the step ends (its first needs the credit), taken by the consumer's first, its
 * credit returned by the consumer's last. */
typedef struct weft_edge {
    int32_t from, to; /* actors */
    int32_t credits;  /* messages that may be under way, at least 1 */
    bool    per_step; /* one message a step instead of one a micro-batch */
    /* step t takes what step t - delay gave; the first steps find it there */
    int32_t delay;
} weft_edge;

typedef struct weft_firing {
    int32_t actor;
    int32_t micro; /* logical micro-batch number of the step, global; -1: once a step */
    /* accumulator slot; of a merge actor: the slot that is added into slot - 1 */
    int32_t lane_slot;
    bool    first; /* first micro-batch of its lane: store, do not add */
} weft_firing;

/* A stream issues its firings one after the other, in the order of its list. */
typedef struct weft_stream_spec {
    const char      *name;
    weft_stream_kind kind;
    int32_t          device;  /* of the rank's, by number */
    int32_t          threads; /* that run its kernels: 1 its own, 0 the executor's pool */
    int              n_firing;
    weft_firing     *firing;
} weft_stream_spec;

typedef struct weft_group {
    int      n_rank;
    int32_t *rank; /* in mesh order */
    /* lanes of each, where they share lanes (weft_instr.lanes); NULL: equal */
    int32_t *share;
} weft_group;

/* Where the outside meets the program: "wte" -> buffer. */
typedef enum weft_binding_kind {
    WEFT_BIND_PARAM,
    WEFT_BIND_STATE,
    WEFT_BIND_INPUT,      /* once a micro-batch */
    WEFT_BIND_STEP_INPUT, /* once a step */
    WEFT_BIND_OUTPUT,
    /* a parameter or state of another rank, held for it (weft_standby_name) */
    WEFT_BIND_STANDBY,
    WEFT_N_BIND
} weft_binding_kind;

typedef struct weft_binding {
    const char       *name;
    weft_binding_kind kind;
    weft_operand      at;                   /* slot 0 */
    int64_t           origin[WEFT_MAX_DIM]; /* where the piece is in the global tensor */
} weft_binding;

typedef struct weft_program {
    weft_arena       *arena;
    const char       *name;
    int               rank, world;
    int               n_micro; /* logical micro-batches a step, over all ranks */
    int               n_lane;
    int               n_slab;
    weft_slab        *slab;
    int               n_buffer;
    weft_buffer      *buffer;
    int               n_actor;
    weft_actor       *actor;
    int               n_edge;
    weft_edge        *edge;
    int               n_group;
    weft_group       *group;
    int               n_stream;
    weft_stream_spec *stream;
    int               n_binding;
    weft_binding     *binding;
} weft_program;

/* Empty, for builders. */
weft_status weft_program_create(const char *name, weft_program **out);
void        weft_program_destroy(weft_program *p);
/* A stream at the end of the table, without firings; *out its number. */
weft_status weft_program_add_stream(weft_program *p, weft_stream_spec s, int32_t *out);
/* The first stream of a kind; NULL: there is none. */
weft_stream_spec *weft_program_stream(const weft_program *p, weft_stream_kind k);
weft_status       weft_program_copy(const weft_program *p, weft_program **out);

/* Invariants (1)-(3) and (5) of one program; (4) over the n programs of a job (n = 1 is fine). */
weft_status weft_program_verify(const weft_program *p);
/* One that has nothing but calls without data (weft_talk_strip), perhaps from another process: it
 * can be walked. */
weft_status weft_program_verify_calls(const weft_program *p);
weft_status weft_program_verify_all(const weft_program *const *p, int n);

/* Text and back: parse(print(p)) == p. */
weft_status weft_program_print(const weft_program *p, weft_text *t);
weft_status weft_program_parse(const char *file, const char *text, size_t n,
                               weft_program **out);

/* Several programs one after another in one text: the ranks of a job.  Free with destroy_set. */
weft_status weft_program_parse_set(const char *file, const char *text, size_t n,
                                   weft_program ***out, int *n_out);
void        weft_program_destroy_set(weft_program **p, int n);

/* NULL: the program has no binding of that name. */
const weft_binding *weft_program_find(const weft_program *p, const char *name);
int64_t             weft_program_bytes(const weft_program *p, weft_slab_kind k);
const char         *weft_slab_kind_name(weft_slab_kind k);
/* Does a slab of the kind outlive programs? */
bool weft_slab_kind_is_state(weft_slab_kind k);
/* Is a slab of the kind in host memory, and not on the device? */
bool        weft_slab_kind_is_host(weft_slab_kind k);
const char *weft_stream_kind_name(weft_stream_kind k);
const char *weft_instr_kind_name(weft_instr_kind k);

/* Which slot of buffer b an operand of instruction i stands for in firing f (is_out: a result).
 * A merge reads its lane slot and adds it into the one before. */
int32_t weft_program_slot(const weft_program *p, const weft_instr *i, bool is_out,
                          int32_t buffer, const weft_firing *f);
/* The bytes of a slot that an operand touches, [*lo, *hi), by its box; false: they overflow. */
bool weft_operand_span(const weft_operand *o, int64_t *lo, int64_t *hi);
bool weft_operand_contiguous(const weft_operand *o);
/* Contiguous. */
weft_operand weft_operand_make(int32_t buffer, weft_dtype t, const weft_shape *s);
/* Instructions numbered through all actors: the number of actor a's first. */
int weft_program_instr_base(const weft_program *p, int32_t actor);
int weft_program_n_instr(const weft_program *p);
/* Elements of the whole of tensor t that a reduce_scatter or all_gather over n ranks deals to
 * position k: [*lo, *hi). */
void weft_instr_share(const weft_instr *i, int t, int n, int k, int64_t *lo, int64_t *hi);
/* The unit of tensor t. */
int64_t weft_instr_unit(const weft_instr *i, int t);
/* May b's tensors be dealt with in a's meeting?  Only what the instructions say counts, not where
 * memory lies. */
bool weft_instr_can_join(const weft_instr *a, const weft_instr *b);
/* n collectives that can join as one of several tensors, in a; of one, that one. */
weft_status weft_instr_join(const weft_instr *const *of, int n, weft_arena *a,
                            weft_instr *out);
/* Tensor t of a collective as one of its own. */
weft_status weft_instr_split(const weft_instr *i, int t, weft_arena *a, weft_instr *out);
/* With its operands, in a. */
weft_status weft_instr_copy(const weft_instr *from, weft_arena *a, weft_instr *to);
/* Terms that position k of n brings to a collective: 1 without lanes. */
int weft_instr_terms(const weft_instr *i, const weft_group *g, int k);
/* Ranks of one stage of the pipeline, which come one after another: the distance to the nearest
 * rank that p exchanges messages of the pipeline with; without such all ranks. */
int weft_program_stage_ranks(const weft_program *p);
/* What is held of `name` for another rank, the first (k is 0) of them: "standby.1.NAME", in a. */
const char *weft_standby_name(weft_arena *a, int k, const char *name);
/* For how many other ranks p holds state. */
int weft_program_n_standby(const weft_program *p);
/* A message that goes to a standby replica or comes for one. */
bool weft_instr_is_standby(const weft_instr *i);
/* True when an instruction talks to other ranks. */
bool weft_instr_is_comm(const weft_instr *i);
/* True when an instruction takes no time of its own unless it states some. */
bool weft_instr_is_free(const weft_instr *i);
/* True when every operand and result of i is in host memory: it runs on the host. */
bool weft_instr_is_on_host(const weft_program *p, const weft_instr *i);
/* True when a result of i is in a state slab. */
bool weft_instr_writes_state(const weft_program *p, const weft_instr *i);
/* The commit point: its actor, and which instruction of it; false: there is none. */
bool weft_program_find_commit(const weft_program *p, int *actor, int *instr);

/* The operator-level view of a compute instruction without its posts; a result that is not kept
 * has the type it would have.  in and out are the caller's, n_own_in and n_own_out long. */
weft_op_use weft_instr_use(const weft_instr *i, weft_type *in, weft_type *out);
/* Flops with posts; bytes with only what really moves (fused values do not).  Of rows that are
 * sent or returned: all that are at home, which is what moves, whatever the bound of those that
 * come. */
double weft_instr_flops(const weft_instr *i);
double weft_instr_bytes(const weft_instr *i);

#endif
