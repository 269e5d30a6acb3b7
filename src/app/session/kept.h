/* What a rank leaves in the agent's memory, beside its state, for the process that takes its place:
 * how far the job is (a card of each of the last two steps), the plan, where its work memory is,
 * and the journal of its updates (exec.h).
 *
 * (1) A card is there or it is not: one that is being written is not.
 * (2) The card of a step is there before the rank brings the step to its vote.
 * (3) Once a record is described there always is one: that of another plan is written next to it,
 *     with its cards, and takes its place by one word of the slot. */
#ifndef WEFT_SESSION_KEPT_H
#define WEFT_SESSION_KEPT_H

#include "ckpt/state.h"
#include "comm/comm.h"
#include "exec/exec.h"
#include "session/metrics.h"

enum {
    /* layers with experts whose loads a new rank 0 writes again */
    WEFT_KEPT_MAX_LOAD   = 256,
    WEFT_KEPT_MAX_SLAB   = 16,
    WEFT_KEPT_MAX_CHANGE = 64 /* of the checkpoint's history */
};

/* What the job has decided, and the row of its step `steps`. */
typedef struct weft_kept_card {
    int32_t          started; /* 0: of a rank that knows nothing */
    int64_t          first_step, steps, saved_step;
    int64_t          micro_batch, lanes, snapshot_every;
    uint64_t         run;         /* its name, as the file epoch has it */
    double           predicted_s; /* of a step; 0: nothing predicts it */
    char             reduction[16], folder[1024];
    weft_metrics_row row; /* step 0: there is none; its loads are the next field */
    float            load[WEFT_KEPT_MAX_LOAD];
    int32_t          n_change; /* of the history; the newest of them: */
    weft_ckpt_change change[WEFT_KEPT_MAX_CHANGE];
} weft_kept_card;

typedef struct weft_kept weft_kept; /* in the agent's memory */

/* This rank's, as an earlier generation has left it; NULL: there is none.  Reads only. */
const weft_kept *weft_kept_find(weft_comm *comm);
/* The same of any slot of the host, also of one that has no rank now. */
const weft_kept *weft_kept_find_of(weft_comm *comm, int slot);
/* The card of a step; NULL: it is not there. */
const weft_kept_card *weft_kept_find_card(const weft_kept *k, int64_t step);
/* The newest. */
const weft_kept_card *weft_kept_newest(const weft_kept *k);
const char           *weft_kept_plan(const weft_kept *k, int64_t *bytes);
int                   weft_kept_rank(const weft_kept *k); /* that its program is of */
int64_t               weft_kept_bytes(const weft_kept *k);

typedef struct weft_kept_need {
    const char         *plan; /* its text */
    int64_t             plan_bytes;
    const weft_program *program; /* of the training */
    int                 rank;    /* that it is of */
    int                 n_thread;
    bool                journals; /* its updates, which are in memory that stays */
} weft_kept_need;
/* Of the pool that its journal is for, where that is of p; 0: it is of another program. */
int weft_kept_threads(const weft_kept *k, const weft_program *p);
/* Bytes of the record that says it, and of what a rank with that program takes of its slab: states,
 * work, record. */
int64_t weft_kept_record_bytes(const weft_kept_need *need);
int64_t weft_kept_room(const weft_kept_need *need);
/* The one that is there, before anything is allocated in the rank's slab, where it is of that plan
 * and rank and as large as that needs; false: it is not. */
bool weft_kept_adopt(weft_comm *comm, const weft_kept_need *need, weft_kept **out);
/* Else: what is there stays until another one is described.  NULL: there is nothing. */
weft_kept *weft_kept_reserve(weft_comm *comm);
/* A new one; the slot is told when it is described. */
weft_status weft_kept_create(weft_comm *comm, const weft_kept_need *need,
                             weft_kept **out);
/* Its memory is free for others; accepts NULL.  The slot still says that it is there. */
void weft_kept_close(weft_comm *comm, weft_kept *k);

void          *weft_kept_journal(weft_kept *k);
const int64_t *weft_kept_slabs(const weft_kept *k, const weft_program *p);
/* slab_at: where each slab of the program is (weft_runner_slab_at).  From now on a process can take
 * this rank's place.  before: the reserved one, whose cards it takes over, or NULL. */
void weft_kept_describe(weft_kept *k, weft_comm *comm, const weft_kept_need *need,
                        const int64_t *slab_at, const weft_kept *before);
void weft_kept_put_card(weft_kept *k, const weft_kept_card *c);

#endif
