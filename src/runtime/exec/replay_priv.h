/* A step as a list of what the device gets, cut at the commit point: made by replay_list.c, given
 * by replay.c. */
#ifndef WEFT_EXEC_REPLAY_PRIV_H
#define WEFT_EXEC_REPLAY_PRIV_H

#include "exec/exec_priv.h"

enum {
    WEFT_EXEC__SAMPLE_ALIGN = 64
};

/* What a step does, in order. */
typedef struct step_item {
    weft_exec__stream *s;
    int                firing, instr;
    bool               enters, leaves; /* the first and the last of its firing */
    const weft_code   *code;           /* NULL: a read or the commit point, or nothing */
    bool               writes_state;
    int                scalars; /* number of those that are written before it; -1 none */
    int64_t            samples; /* of a read: where its results are kept */
    int64_t            record;  /* where tasks are timed: the first one of its two */
} step_item;

/* A run of items that the device gets at once. */
typedef struct step_segment {
    int           first, n;
    bool          writes_state;
    weft_captured captured; /* all zero: not yet */
} step_segment;

/* Numbers that the host looks at after a segment: an operand of the commit point, or a small
 * output. */
typedef struct step_number {
    const char *name; /* of an output; NULL: an operand */
    int         segment;
    weft_memory from;
    int64_t     at;        /* in pinned memory */
    bool        is_copied; /* for another one of the segment */
} step_number;

typedef struct step_progress {
    int64_t steps;  /* that were run */
    int     next;   /* the first segment of the running step that was not begun */
    bool    within; /* ... the one before it was not given to the device as a whole */
    bool    open;   /* the device was left working on the last segment, a captured one */
    bool    done;   /* numbers are those of the last step */
} step_progress;

struct weft_exec__graph {
    weft_exec__stream *s; /* the one with the commit point */
    /* all others are joined to it at the end of a segment: segments run so far */
    weft_event    join[WEFT_MAX_STREAM];
    int64_t       n_joined;
    int           n_item, n_segment, n_scalars;
    step_item    *item;
    step_segment *segment;
    int           n_number, n_outcome;
    step_number  *number; /* the first n_outcome are operands, in order */
    weft_memory   pinned; /* scalars, samples, numbers */
    /* samples of the next step, read while the device is busy; the step they are of, -1: none */
    char   *ahead;
    int64_t ahead_step, first_sample;
    bool    leaves; /* a step may end while the device makes its updates */
    /* behind the updates of the newest step that was left: records so far */
    weft_event       updates;
    int64_t          n_updates;
    step_progress    at;
    weft_exec__gaps *gaps; /* NULL: they are not measured */
};

static inline const weft_exec__instr *instr_of(const step_item *x)
{
    return &x->s->variant[x->firing]->instr[x->instr];
}

static inline bool is_read(const step_item *x)
{
    return x->instr >= 0 && instr_of(x)->i->kind == WEFT_INSTR_READ;
}

static inline bool is_commit(const step_item *x)
{
    return x->instr >= 0 && instr_of(x)->i->kind == WEFT_INSTR_COMMIT;
}

/* Bytes that a read's results take where they are kept. */
static inline int64_t sample_bytes(const weft_instr *i)
{
    int64_t bytes = 0;
    for (int k = 0; k < i->n_out; k++) bytes += weft_exec__sample_bytes(i, k);
    return (bytes + WEFT_EXEC__SAMPLE_ALIGN - 1) / WEFT_EXEC__SAMPLE_ALIGN *
           WEFT_EXEC__SAMPLE_ALIGN;
}

#endif
