/* A program with memory, threads and a reader: what train, eval, sample and bench run steps with.
 * A thin coat over exec: it reads the model's inputs, and puts and gets scalars. */
#ifndef WEFT_SESSION_RUNNER_H
#define WEFT_SESSION_RUNNER_H

#include "base/pool.h"
#include "comm/comm.h"
#include "compile/compile.h"
#include "data/data.h"
#include "exec/exec.h"
#include "program/timeline.h"
#include "session/program_state.h"

typedef struct weft_runner weft_runner;

typedef struct weft_runner_options {
    const weft_compiled *made; /* borrowed, as all of these */
    weft_pool           *pool;
    weft_device         *device; /* NULL: weft_device_default() */
    uint64_t             seed;
    /* NULL: random numbers that fit the model, or what put_ids gave */
    const weft_data *data;
    /* parameters and states, which fit; NULL: the runner has its own */
    weft_state *state;
    weft_comm  *comm; /* of a program of several ranks */
    /* WEFT_EXEC_MAX_BACKEND of them, or NULL: weft_exec_options.device_comm */
    weft_device_comm *const *gpu_comm;
    /* called at the commit point of a step; NULL: no step is held back */
    weft_exec_commit_fn commit;
    void               *commit_arg;
    /* weft_exec_options.journal; resumes: slab_at says where an earlier generation has left each
     * slab of the program that is not of the state */
    void          *journal;
    bool           resumes;
    const int64_t *slab_at;
    bool           places_shares; /* weft_exec_options.places_shares */
    int  trace; /* instructions to keep for weft_runner_trace, the newest; 0 none */
    bool gaps;  /* weft_exec_get_gaps() */
    /* with commit_arg: host work while the device has a step (exec.h); NULL: none */
    weft_status (*given)(void *arg, int64_t step);
} weft_runner_options;

weft_status weft_runner_create(const weft_runner_options *o, weft_runner **out);
void        weft_runner_destroy(weft_runner *r); /* accepts NULL */
weft_state *weft_runner_state(const weft_runner *r);
weft_exec  *weft_runner_exec(const weft_runner *r);

/* Scalars that go in and out once a step; what the program does not bind is left alone, or 0.  A
 * device that fails makes the next step fail, or gives NaN. */
void   weft_runner_put(weft_runner *r, const char *name, double x);
double weft_runner_get(const weft_runner *r, const char *name);
/* Row number `row` of an output, counted through all dimensions but the last, in its type. */
weft_status weft_runner_read_row(const weft_runner *r, const char *name, int64_t row,
                                 void *host);
/* The tokens of every micro-batch from now on, n of them; the rest are 0. */
void weft_runner_put_ids(weft_runner *r, const int32_t *ids, int64_t n);

/* Step number `step`, counted from 0: samples step * batch and on.  Allocates nothing.  Its outputs
 * are there and the next step can follow; updates may go on (weft_exec_start) until settle: only
 * then are states read. */
weft_status weft_runner_step(weft_runner *r, int64_t step);
weft_status weft_runner_settle(weft_runner *r);

/* The samples that the running step has read so far here, and the sum of their weft_vote_hash(). */
typedef struct weft_runner_reads {
    uint64_t n, sum;
} weft_runner_reads;
weft_runner_reads weft_runner_get_reads(const weft_runner *r);
/* Seconds in which this rank's kernels ran, at the commit point, since create; 0: not known. */
double weft_runner_busy(const weft_runner *r);
/* weft_exec_keep_numbers(), weft_exec_sent_other() */
void weft_runner_keep_numbers(weft_runner *r);
bool weft_runner_sent_other(weft_runner *r);
/* What became of the state in the last step. */
weft_exec_progress weft_runner_progress(const weft_runner *r);
/* Where slab i of the program is in the memory that ranks share; -1: it is elsewhere. */
int64_t weft_runner_slab_at(const weft_runner *r, int i);

/* Memory of its own: slabs (the state's only where none was given), scratch, tables.  What comm
 * holds is not counted. */
typedef struct weft_runner_memory {
    int64_t bytes, shared_bytes; /* shared_bytes of them in memory that ranks share */
    int64_t table_bytes;         /* of bytes: the program, its graphs, what runs them */
} weft_runner_memory;
weft_runner_memory weft_runner_mem(const weft_runner *r);

/* Instructions that one step of p runs, and cores this process may use. */
int weft_runner_instructions(const weft_program *p);
int weft_runner_cores(void);

/* The newest instructions; the caller destroys it. */
weft_status weft_runner_timeline(weft_runner *r, weft_timeline **out);
/* The same as a file for Perfetto. */
weft_status weft_runner_trace(weft_runner *r, const char *path);

#endif
