/* The executor: runs one rank's program on a device, step after step.
 *
 *     weft_memory slab[8] = {0};
 *     WEFT_TRY(weft_exec_alloc_slabs(program, weft_device_cpu(), slab));
 *     weft_exec *e;
 *     WEFT_TRY(weft_exec_create(program, &(weft_exec_options){.slab = slab, .seed = 1}, &e));
 *     weft_exec_write(e, "wte", 0, NULL, values);        fill in parameters and inputs
 *     weft_exec_run(e, step, 1);                         one step; allocates nothing
 *     weft_exec_read(e, "loss", 0, NULL, &loss);         look at the outputs
 *     weft_exec_destroy(e);
 *     weft_device_free(&slab[0]);                        and the others
 *
 * Slabs are the caller's.  All other memory is there once create returns: scratch, message
 * buffers, and every instruction's operands as views, for each slot it may meet.  Streams whose
 * device works on the caller's thread (cpu) have threads of their own, others share one; the first
 * runs on the caller's.  An error stops all streams (and, through comm, all ranks) and comes back
 * from weft_exec_run with the instruction's name in front.  Such an exec runs no more steps; what
 * it has done is known exactly (weft_exec_outcome), its memory can be read, and it can be destroyed
 * while peers are gone. */
#ifndef WEFT_EXEC_EXEC_H
#define WEFT_EXEC_EXEC_H

#include "comm/device_comm.h"
#include "device/device.h"
#include "kernel/kernel.h"
#include "program/tail.h"
#include "program/timeline.h"

typedef struct weft_exec weft_exec;

/* A READ instruction: fills out[0..n-1], its results, for one micro-batch of a step. */
typedef weft_status (*weft_exec_read_fn)(void *user, int64_t step, int micro, int n,
                                         const weft_view *out);

/* The commit point of a step: value[0..n-1] are its operands, and nothing has written state yet.
 * Called once a step, on the thread of the stream that has it, on devices that compute.  *hold
 * comes in false; set, the step is held back: what writes state is left out, state keeps its bits,
 * and the next step can run.  All ranks of a job answer alike.  An error is one of the run's. */
typedef weft_status (*weft_exec_commit_fn)(void *user, int64_t step, int n,
                                           const double *value, bool *hold);
/* Host work while the device has a step: state is that of the step before, whose updates may still
 * be under way.  An error ends the step, which has written nothing. */
typedef weft_status (*weft_exec_given_fn)(void *user, int64_t step);

/* How long an instruction of p lasts; as weft_cost_instr, whose cluster is arg. */
typedef weft_status (*weft_exec_price_fn)(const weft_program *p, const weft_instr *i,
                                          const void *arg, double *seconds);

/* Carries out a communication instruction in the place of comm, without data: from *start_s on,
 * where its stream is ready, until *end_s; both are moved on.  seconds: its price. */
typedef weft_status (*weft_exec_carry_fn)(void *arg, const weft_instr *i, double seconds,
                                          double *start_s, double *end_s);

enum {
    WEFT_EXEC_MAX_DEVICE  = 4,
    WEFT_EXEC_MAX_BACKEND = 3 /* of communication on devices */
};

typedef struct weft_exec_options {
    /* those that the program's streams name by number (WEFT_HOST_DEVICE: the host's); none: cpu */
    weft_device *device[WEFT_EXEC_MAX_DEVICE];
    /* borrowed, for kernels of the compute stream; NULL: one of n_thread */
    weft_pool *pool;
    int        n_thread;
    weft_comm *comm; /* borrowed; NULL: only for programs of a single rank */
    /* borrowed; the first that joins a group's ranks and takes a call carries it out, on the
     * stream; the host does the rest */
    weft_device_comm *device_comm[WEFT_EXEC_MAX_BACKEND];
    /* One for each slab of the program, the caller's before and after: weft_exec_alloc_slabs, or
     * memory that is there already.  Only the array is copied. */
    const weft_memory *slab;

    uint64_t seed;
    /* samples a step and a micro-batch: number random draws */
    int64_t             batch, micro_batch;
    weft_exec_read_fn   read;
    weft_exec_commit_fn commit; /* NULL: no step is held back */
    /* NULL: there is nothing to do meanwhile.  Where weft_exec_overlaps() a step is given to the
     * device up to its commit point, and this is called before it is waited for. */
    weft_exec_given_fn given;
    void              *user; /* of all three */

    /* weft_exec_journal_bytes() of memory that outlives this process, as the slabs do, or NULL.  On
     * devices in host memory only; steps are run one by one. */
    void *journal;
    /* it is that of an exec of the same program over the same slabs; else it is made new */
    bool resumes;
    /* there are no peers, and no comm: weft_exec_resume() or weft_exec_run_tail() is all that is
     * called */
    bool alone;

    /* What a device gathers into the state after the commit point: this rank's own share is put in
     * its place before, so that a step which loses a peer there can be ended alone. */
    bool places_shares;

    int  trace; /* slices to keep a stream, the newest ones; 0: none */
    bool gaps;  /* weft_exec_get_gaps() */
    /* Emulation: instructions have seconds instead of kernels and readers, and perhaps messages
     * have, too.  NULL: they compute and communicate. */
    weft_exec_price_fn price;
    const void        *price_arg;
    weft_exec_carry_fn carry;
    void              *carry_arg;
} weft_exec_options;

/* A price: the seconds that an instruction states.  WEFT_ERR_ARG: it states none. */
weft_status weft_exec_stated_seconds(const weft_program *p, const weft_instr *i,
                                     const void *arg, double *seconds);

/* Borrows p and what o points to for its life.  WEFT_ERR_ARG: "no kernel for X on cpu in bf16". */
weft_status weft_exec_create(const weft_program *p, const weft_exec_options *o,
                             weft_exec **out);
void        weft_exec_destroy(weft_exec *e);

/* Steps step .. step + n_step - 1 of the job, counted from 0, as a window of the steps that this
 * executor runs: what edges hold at the end of one run is there in the next. */
weft_status weft_exec_run(weft_exec *e, int64_t step, int n_step);
/* The same, but ends when staging is of the last step: the caller can read its outputs, write the
 * next one's inputs and start it.  Streams that have neither staging nor messages may go on with
 * updates; until they are settled nobody but exec uses states.  They are settled by settle, and by
 * a start of another step than the next.  An error of theirs comes from the next of these calls. */
weft_status weft_exec_start(weft_exec *e, int64_t step, int n_step);
weft_status weft_exec_settle(weft_exec *e);
/* Does a device go on with updates when a step has ended, behind which the next one is given to it?
 * Then, in `given`: what the step before has left is waited for, the running one not. */
bool        weft_exec_overlaps(const weft_exec *e);
weft_status weft_exec_await_updates(weft_exec *e);

/* What the newest step of the last run has done to the state.  Step N is the one that the run was
 * in when it ended; a program without a commit point writes no state, and its steps end as RAN or,
 * with an error, HELD. */
typedef enum weft_exec_outcome {
    /* N passed its commit point and is finished: all of the state is of step N. */
    WEFT_EXEC_RAN,
    /* N has not passed: not one byte of the state was written, all of it is of step N - 1.  With
     * WEFT_OK the commit function held it back, and the next run may run N again; with
     * WEFT_ERR_PEER a peer was lost before; with another error this rank failed. */
    WEFT_EXEC_HELD,
    /* N passed, then a peer was lost (WEFT_ERR_PEER): every update was made without peers.  What
     * this rank computes of the state is of step N, bit by bit as if nobody had been lost; what it
     * gathers from other ranks after the commit point (ZeRO 1 and 2, tied weights of a pipeline) is
     * of step N or N - 1 or a mixture, and has to be gathered again from those who compute it. */
    WEFT_EXEC_ALONE,
    /* N passed, and this rank failed to make an update, or the device of a lost peer's rank kept a
     * shard that only a collective puts in its place: the state is of no step. */
    WEFT_EXEC_TORN,
} weft_exec_outcome;

/* Steps are the job's, counted from 0; -1: none.  arrived: at whose commit point this rank has been
 * with everything that its updates need; passed: that went through it, so that state is of it
 * (unless TORN).  arrived is passed or the step after it. */
typedef struct weft_exec_progress {
    weft_exec_outcome outcome;
    int64_t           arrived, passed;
} weft_exec_progress;
/* Of the last run.  Not while one is on. */
weft_exec_progress weft_exec_get_progress(const weft_exec *e);

/* After WEFT_ERR_PEER with arrived == passed + 1 (the peer was lost in the vote), where another
 * rank
 * has passed: makes the updates of step `arrived` without peers, out of what is in memory.  HELD
 * becomes ALONE, passed moves on.  WEFT_ERR_ARG: there is no such step. */
weft_status weft_exec_finish_alone(weft_exec *e);

/* The journal: how far each stream is in a step, and of an update that is being made which chunks
 * are done, with the old values of those that are not.  A process that is killed at any
 * instruction after it arrived at a commit point leaves all that another one needs to make the rest
 * of the updates, alone:
 *
 *     weft_exec_create(program, &(weft_exec_options){.journal = j, .resumes = true, ..}, &e);
 *     if (weft_exec_journal_step(e) == step) weft_exec_resume(e, step);
 *
 * Then the state is as after WEFT_EXEC_ALONE, and e runs steps as a new one does, once work memory
 * may be overwritten.  What can be resumed can be resumed again, if it is broken off.
 * n_thread: of the pool. */
int64_t weft_exec_journal_bytes(const weft_program *p, int n_thread);
int64_t weft_exec_journal_step(const weft_exec *e); /* -1: of none */
/* WEFT_ERR_ARG: the journal has no such step, or an instruction was broken off that cannot be
 * repeated. */
weft_status weft_exec_resume(weft_exec *e, int64_t step);
/* Sets late[b] for each buffer b of p that gets what other ranks have computed after the commit
 * point: updates that are made alone leave those as they were, but for this rank's own share. */
weft_status weft_exec_find_late(const weft_program *p, weft_arena *a, bool *late);
/* After updates that some rank made alone, all ranks that gather with each other: what is gathered
 * from other ranks after the commit point is gathered once more.  WEFT_ERR_ARG: there is no
 * journal, or what it gathers is not in the state alone (can: asks before). */
bool        weft_exec_gathers(const weft_exec *e); /* there is something to gather then */
bool        weft_exec_can_gather_again(const weft_exec *e);
weft_status weft_exec_gather_again(weft_exec *e, int64_t step);
/* Sets with[r] for each rank of the world that this one gathers with then. */
void weft_exec_gather_ranks(const weft_exec *e, bool *with);

/* The tail of a step (program/tail.h) out of inputs that came from elsewhere, without peers; t: of
 * the same program.  The state is then as after WEFT_EXEC_RAN of that step, where it was after the
 * one before.  Only of an exec with `alone`, on devices in host memory: the caller fills the inputs
 * by their addresses. */
void       *weft_exec_tail_input(const weft_exec *e, const weft_tail_input *x);
weft_status weft_exec_run_tail(weft_exec *e, const weft_tail *t, int64_t step);

/* A step that was held back is run again: did this rank send other numbers the second time though
 * it had received the same ones until then?  Then it has computed them wrongly in one of the runs.
 *
 *     weft_exec_run(e, step, 1);  weft_exec_keep_numbers(e);
 *     weft_exec_run(e, step, 1);  if (weft_exec_sent_other(e)) ...
 *
 * By samples of what goes through the host: false is no proof. */
void weft_exec_keep_numbers(weft_exec *e);
bool weft_exec_sent_other(weft_exec *e);

/* Host memory from and to a binding, for a micro-batch (a lane slot for accumulators; 0 where there
 * is one slot): the part r of the binding's own shape, row by row without gaps; NULL: all of it.
 * Not while a run is on. */
weft_status weft_exec_read(const weft_exec *e, const char *name, int micro,
                           const weft_region *r, void *host);
weft_status weft_exec_write(weft_exec *e, const char *name, int micro,
                            const weft_region *r, const void *host);
/* The memory of a binding, where host code may dereference it: staging, or any on cpu.
 * WEFT_ERR_ARG: it is the device's alone. */
weft_status weft_exec_binding(const weft_exec *e, const char *name, int micro,
                              weft_view *out);
/* What this exec holds, known before the first step. */
typedef struct weft_exec_memory {
    int64_t slab_bytes;    /* the caller's: all slabs of the program */
    int64_t scratch_bytes; /* of kernels, all streams */
    int64_t comm_bytes;    /* messages under way to this rank */
    int64_t table_bytes;   /* instructions with their operands, edges */
    int64_t total_bytes;
} weft_exec_memory;
weft_exec_memory weft_exec_mem(const weft_exec *e);

/* What an exec of p will take of the device's memory beside the slabs of states and work: kernels'
 * scratch, step scalars, the copy of staging.  Allocates nothing on the device.  pool: that it will
 * have, or NULL.  WEFT_ERR_ARG as of weft_exec_create. */
weft_status weft_exec_need(const weft_program *p, weft_device *d, weft_pool *pool,
                           int64_t *bytes);

/* What running took of the host, since create. */
typedef struct weft_exec_stats {
    int64_t steps;
    /* waits of host threads on edges: between two devices, or from host work to a device that
     * works by itself */
    int64_t host_wakeups;
    /* CPU seconds of kernels on the thread of the commit point's stream, until it; 0 on devices
     * that work by themselves */
    double busy_s;
} weft_exec_stats;
weft_exec_stats weft_exec_get_stats(const weft_exec *e);

/* Of the newest steps that were replayed as graphs: how long the device had nothing to do between
 * two of them, and at their commit points.  n 0: none, or not asked for (option gaps). */
typedef struct weft_exec_gap {
    int64_t n;
    double  median_s, mean_s, most_s;
} weft_exec_gap;
void weft_exec_get_gaps(const weft_exec *e, weft_exec_gap *between,
                        weft_exec_gap *commit);

/* Memory for the slabs of p that have none (address NULL): staging and the host's in space PINNED,
 * others in DEVICE.  An error frees what was allocated. */
weft_status weft_exec_alloc_slabs(const weft_program *p, weft_device *d,
                                  weft_memory *slab);

/* What ran when, of the newest slices; times from the start of the first run after create or the
 * last weft_exec_timeline().  The caller destroys it. */
weft_status weft_exec_timeline(weft_exec *e, weft_timeline **out);

#endif
