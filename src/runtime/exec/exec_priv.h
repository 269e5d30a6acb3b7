/* The executor's own tables. */
#ifndef WEFT_EXEC_PRIV_H
#define WEFT_EXEC_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "exec/exec.h"
#include "program/order.h"

typedef struct weft_exec__stream weft_exec__stream;
typedef struct weft_exec__graph  weft_exec__graph;

typedef struct weft_exec__journal weft_exec__journal;

/* A channel or group as one exec uses it. */
typedef struct weft_exec__link {
    int                tag, peer, group; /* group -1: messages */
    bool               send;
    int                credits;
    int64_t            bytes; /* of its largest message */
    weft_comm_channel *data;
    weft_comm_group   *meeting;
    weft_comm_part    *part; /* while calls are prepared: of the one of most tensors */
    int                n_part;
    weft_comm_room     room;
    weft_device_comm  *on_device;       /* some of its calls run there; NULL: none */
    weft_device_group *device_group;    /* of on_device */
    int64_t            step, n_message; /* messages given to the device in that step */
} weft_exec__link;

/* A run of a slab's bytes, and where they are in the stream's host memory. */
typedef struct weft_exec__range {
    int32_t slab;
    bool    written; /* by the instruction */
    int64_t lo, hi, at;
} weft_exec__range;

/* What an instruction of the host's work needs. */
typedef struct weft_exec__host {
    weft_exec__link   *link;
    weft_comm_request *request; /* COLLECTIVE */
    /* it runs on the device, and is no host work; NULL: it does not */
    weft_device_call *device_call;
    /* bytes that only the device reaches; none: all operands are used where they are */
    int               n_range;
    weft_exec__range *range;
} weft_exec__host;

/* Calls of one kernel that run as one; the first one is the instruction's own. */
typedef struct weft_exec__group {
    int                            n;
    const weft_kernel_call *const *call;
} weft_exec__group;

/* A COPY between host memory and the device's. */
typedef struct weft_exec__transfer {
    weft_memory to, from;
} weft_exec__transfer;

/* An instruction with its addresses filled in. */
typedef struct weft_exec__instr {
    const weft_instr  *i;
    weft_exec__stream *s;
    union {
        const weft_kernel  *kernel; /* COMPUTE */
        weft_kernel_move_fn move;   /* COPY, MERGE */
        weft_exec__host    *host;   /* host work, communication */
    };
    weft_kernel_call  call;  /* its views serve every kind of instruction */
    weft_exec__group *group; /* COMPUTE: what its task runs; NULL: the call alone */
    /* COPY: the device copies, no kernel does; NULL: a kernel */
    weft_exec__transfer *transfer;
} weft_exec__instr;

/* An actor's instructions for one choice of slots; firings that choose the same share it. */
typedef struct weft_exec__variant {
    struct weft_exec__variant *next;
    int32_t                    micro, lane; /* micro: modulo the actor's cycle */
    bool                       first, prepared, loaded;
    weft_exec__instr          *instr;
    weft_task                 *task; /* of each instruction */
    /* of each run, from the place of its first instruction on; how many, at the same place */
    weft_task *grouped;
    int       *n_grouped;
    weft_code *code; /* of each run of them; of each task where tasks are timed */
} weft_exec__variant;

typedef struct weft_exec__actor {
    int32_t             cycle; /* micro-batches after which slots repeat */
    bool                by_lane, adds, writes_state;
    weft_exec__variant *variant;
    /* of each instruction: how many from here go to the device at once; 0: it is host work */
    int *run;
    int  n_code;
} weft_exec__actor;

/* The part of a task's time that one of its instructions gets, from 0 to 1. */
typedef struct weft_exec__part {
    double from, to;
} weft_exec__part;

typedef struct weft_exec__trace {
    weft_slice      *slice;
    weft_exec__part *part;     /* of each slice whose times are numbers of records */
    int64_t          n, cap;   /* n so far; the newest cap are kept */
    int64_t          per_step; /* of the last whole step */
} weft_exec__trace;

struct weft_exec__stream {
    weft_exec           *e;
    int                  number;  /* in the program's table */
    weft_exec__variant **variant; /* of each firing */
    weft_device         *device;
    weft_stream          dev;
    weft_kernel_ctx      ctx;
    weft_pool           *pool; /* of its kernels where no step is dropped */
    int64_t              scratch_bytes;
    bool                 has_kernel;
    weft_memory          scratch, scalars; /* behind ctx */
    weft_step_scalars    written; /* what scalars is, or will be in the stream's order */
    int64_t              stage_bytes;
    weft_memory          stage; /* copies in host memory, for one instruction at a time */
    weft_exec__trace     trace;
    /* of a traced stream whose device learns times later: a record before and after each task.
     * Slices have the records' numbers, negative, until somebody asks for times */
    weft_event         timed;
    int64_t            n_timed;
    const weft_firing *firing;   /* the running one */
    int64_t            job_step; /* and its step, counted from the job's start */
    double             busy_s;   /* CPU seconds in launches */
    /* for the detector of hangs, of the thread: what it had of a core when the instruction began,
     * and how often it was preempted, when that was last asked */
    double begun_cpu_s;
    long   n_preempted;
    /* of a step, for numbers.c: the first, those of this step so far */
    int     first_call, n_call;
    int64_t step;  /* of this executor's, from 0: the next firing is of it, */
    int     at;    /* has this place in the list, */
    int     instr; /* and begins with this instruction: not 0 after a failure in it */
};

/* A thread and the streams it gives work to. */
typedef struct weft_exec__issuer {
    weft_exec         *e;
    int                n;
    weft_exec__stream *stream[WEFT_MAX_STREAM];
    pthread_t          thread;
    bool               has_thread;
    bool               open; /* weft_exec_start does not wait for it */
    int64_t            done; /* runs that it is through with, under lock */
} weft_exec__issuer;

/* Hashes of samples of a call; 0: there was none. */
typedef struct weft_exec__numbers {
    uint32_t sent, got;
} weft_exec__numbers;

/* An edge's counters (program/order.h) are two events: messages given, credits returned.  Between
 * streams of one device the device waits for them; else a host thread does. */
typedef struct weft_exec__edge {
    weft_event event[2];
    bool       host;
    /* its waits are given to a device only after their records, which another thread may give:
     * records given so far, under lock */
    bool    tracked;
    int64_t issued[2];
} weft_exec__edge;

struct weft_exec {
    const weft_program *p;
    weft_exec_options   o;
    weft_arena         *arena;
    weft_pool          *own_pool;
    /* the threads of its kernels, for the run's steps until one is committed; NULL: kernels end
     * by themselves */
    weft_pool        *drop_pool;
    _Atomic bool      dropped;
    weft_comm_watcher watcher; /* of comm, where there is a drop_pool */
    weft_memory      *slab;
    /* Of a staging slab whose device does not work in the host's memory: the caller's, where
     * readers write; slab is then a copy of ours in the device's.  Else an address of NULL. */
    weft_memory      *host_slab;
    weft_exec__actor *actor;
    weft_order        order;
    weft_exec__edge  *edge;
    bool              tracked; /* some edge is */
    int64_t           event_bytes;
    int               n_link, cap_link;
    weft_exec__link **link;
    bool              opened; /* all of them are */
    int               n_stream;
    weft_exec__stream stream[WEFT_MAX_STREAM];
    int               n_issuer;
    weft_exec__issuer issuer[WEFT_MAX_STREAM];
    weft_exec__graph *graph;    /* steps are replayed; NULL: every step is issued */
    double            origin_s; /* of the trace */
    int64_t           origin_step;
    /* the newest step that was held back; written by the commit point, read only by what is
     * ordered after it: instructions that write state.  -1 none */
    int64_t held_step;
    /* steps as in weft_exec_progress; written by the commit point */
    _Atomic int64_t   arrived, passed;
    weft_exec_outcome outcome;
    double            busy_s; /* of the stream with the commit point, at it */
    /* numbers.c: of each call of a step, then those that they are compared with */
    int                 n_number;
    weft_exec__numbers *number;
    bool                compares;
    _Atomic bool        sent_other, got_other;
    bool alone;         /* updates are made without peers: communication is left out */
    bool gathers_again; /* only gathers after the commit point are run */
    weft_exec__journal *journal; /* NULL: none */
    /* of each instruction of each actor: seconds of its longest run on the host's cores */
    float **longest, *longest_table;

    /* shared by the streams' threads, under lock */
    pthread_mutex_t lock;
    pthread_cond_t  moved;
    int64_t         turn; /* runs begun */
    int64_t first_step;   /* the job's number of step 0 of this executor's, in this run */
    _Atomic int64_t until;    /* this run ends before this step of the executor's */
    _Atomic int64_t run_step; /* its first, of the job's */
    bool            in_run;
    bool            lost; /* a rank is, and why */
    /* comm reported the loss: ranks of other hosts get it from here */
    bool            reports_to_peers;
    char            lost_text[256];
    _Atomic int64_t host_wakeups;
    _Atomic bool    stop;
    bool            quit;
    weft_status     st;
    bool            failed_open; /* the first error is of a stream that was left open */
    bool            ended;       /* after an error: the outcome is known */
    char            text[1024];  /* of the first error */
};

/* prepare.c: everything that can be known before the first step. */
weft_status weft_exec__prepare(weft_exec *e);
void        weft_exec__free_staging(weft_exec *e);
void        weft_exec__close_stream(weft_exec__stream *s);
void        weft_exec__close_edges(weft_exec *e);
/* The view of an operand in a firing; its address is one of the slab's space. */
weft_view weft_exec__view(const weft_exec *e, const weft_operand *o, int32_t slot);

/* The call of an instruction in a firing; *results: the views of its results. */
weft_status weft_exec__bind_call(weft_exec *e, const weft_firing *f, bool first,
                                 const weft_instr *i, weft_exec__instr *x,
                                 weft_view **results);

/* The host's address of the same bytes, where the slab has a copy on the device. */
void *weft_exec__host_address(const weft_exec *e, int slab, void *device);

/* link.c: channels and groups; an instruction that needs none leaves *out alone. */
weft_status weft_exec__find_link(weft_exec *e, const weft_device *d, const weft_instr *i,
                                 weft_exec__link **out);
weft_status weft_exec__open_links(weft_exec *e);
/* Collectives, once: a step only starts them. */
weft_status weft_exec__prepare_calls(weft_exec *e);
void        weft_exec__close_links(weft_exec *e);
weft_status weft_exec__communicate(weft_exec__stream *s, weft_exec__instr *x);

/* device_link.c: communication that the device carries out. */
/* Of an instruction on a stream of d; NULL: it is host work, or no communication. */
/* Is it work of a host thread: carried out there, or issued when the stream has come to it? */
bool              weft_exec__comm_needs_host(const weft_exec *e, const weft_device *d,
                                             const weft_instr *i);
weft_device_comm *weft_exec__find_device_comm(const weft_exec *e, const weft_device *d,
                                              const weft_instr *i);
weft_status       weft_exec__open_device_links(weft_exec *e);
weft_status       weft_exec__prepare_message(weft_exec *e, weft_exec__instr *x);
void              weft_exec__close_device_links(weft_exec *e);
weft_status       weft_exec__run_on_device(const weft_exec__instr *x);
/* Errors of calls that the device carries out name the step. */
void weft_exec__note_device_step(const weft_exec *e, int64_t step);
/* WEFT_ERR_PEER: what was issued has ended without doing its work. */
weft_status weft_exec__check_device_comm(const weft_exec *e);

/* group.c */
/* Makes v->grouped of the run of n instructions from `from` on.  keep: what outlives the call. */
weft_status weft_exec__group_run(weft_exec__variant *v, int from, int n, weft_arena *keep,
                                 int *n_task);

/* kernels.c */
weft_status weft_exec__find_kernel(weft_exec__instr *x);
/* Of all variants of a stream. */
weft_status weft_exec__prepare_kernels(weft_exec__stream *s);
void        weft_exec__release_kernels(weft_exec__stream *s);
/* Those of the running firing. */
weft_step_scalars weft_exec__step_scalars(const weft_exec__stream *s);
/* ... written in the stream's order, when it starts. */
weft_status weft_exec__write_scalars(weft_exec__stream *s);

/* stage.c: host work on memory that the host does not reach.  find: at create, before the stream
 * has its host memory; place: after; in and out: around the work. */
weft_status weft_exec__find_stage(weft_exec *e, weft_exec__instr *x);
weft_status weft_exec__place_stage(weft_exec *e, weft_exec__instr *x);
weft_status weft_exec__stage_in(const weft_exec *e, const weft_exec__instr *x);
weft_status weft_exec__stage_out(const weft_exec *e, const weft_exec__instr *x);

/* instr.c: how long instructions take, where another process watches this one. */
weft_status weft_exec__open_watch(weft_exec *e);
void        weft_exec__close_watch(weft_exec *e);
/* In the flight recorder: it begins; for weft_flight_end(). */
int64_t weft_exec__record(const weft_exec__instr *x);
/* What the device calls. */
weft_status weft_exec__task(void *arg);
/* The error of an instruction, with its name in front. */
weft_status weft_exec__blame(const void *instr, weft_status st);
/* Results of a READ are in the host's memory; put_samples: from there to the device's, from
 * `kept` where the caller has kept them (one after another, weft_exec__sample_bytes). */
weft_status weft_exec__read(weft_exec__stream *s, const weft_exec__instr *x);
weft_status weft_exec__put_samples(weft_exec__stream *s, const weft_exec__instr *x,
                                   const weft_memory *kept);
int64_t     weft_exec__sample_bytes(const weft_instr *i, int result);
weft_status weft_exec__commit(weft_exec__stream *s, const weft_exec__instr *x);

/* drop.c: a step that no rank has committed ends in the middle of its instructions. */
weft_status weft_exec__open_drop(weft_exec *e);
void        weft_exec__close_drop(weft_exec *e);
/* Under lock, when a run stops and when it begins. */
void weft_exec__drop_step(weft_exec *e);
bool weft_exec__drop_lost(weft_exec *e);
/* Sets the pool of the next kernel of a stream. */
void weft_exec__choose_pool(weft_exec__stream *s);
/* Was what the stream's running instruction has made dropped? */
bool weft_exec__is_dropped(const weft_exec__stream *s);
/* WEFT_ERR_PEER: the run is stopped; else no step of it is dropped any more. */
weft_status weft_exec__arrive(weft_exec__stream *s);

/* alone.c: the end of a step without peers. */
/* The outcome of a run that has stopped with an error; one that lost a peer after its commit point
 * is finished. */
void weft_exec__end_failed(weft_exec *e);
/* In the place of communication: a gather's own share, where it belongs. */
weft_status weft_exec__keep_own_share(const weft_exec__instr *x);
/* The other way, before it is gathered again: from its place to the operand. */
void weft_exec__take_own_share(const weft_exec__instr *x);
bool weft_exec__is_gather(const weft_instr *i);
bool weft_exec__gathers_state(const weft_exec__instr *x);
/* What each stream has left of the step, in the order of edges. */
weft_status weft_exec__fire_rest(weft_exec *e, int64_t step);

/* journal.c: all of them where there is a journal. */
weft_status weft_exec__open_journal(weft_exec *e);
void        weft_exec__begin_journal(weft_exec *e, int64_t step);
/* Is the instruction to be run?  It is the one that the stream has come to. */
bool weft_exec__takes_part(const weft_exec__instr *x);
/* The firing is done. */
void weft_exec__note_fired(const weft_exec__stream *s);
/* An update by chunks; *done false: it is none, and nothing was run. */
weft_status weft_exec__run_chunks(const weft_exec__instr *x, bool *done);

/* numbers.c: what is sent and received, by samples. */
weft_status weft_exec__open_numbers(weft_exec *e);
void        weft_exec__begin_numbers(weft_exec *e); /* of a run */
/* Before a call and after it; note_sent gives the number of the call. */
int  weft_exec__note_sent(weft_exec__instr *x);
void weft_exec__note_got(weft_exec__instr *x, int call);

typedef struct weft_exec__gaps weft_exec__gaps;

/* replay.c: steps as graphs, where a device captures and only reading and the commit point are the
 * host's. */
bool        weft_exec__can_replay(const weft_exec *e);
weft_status weft_exec__make_graph(weft_exec *e);
void        weft_exec__free_graph(weft_exec *e);
int64_t     weft_exec__graph_bytes(const weft_exec *e);
weft_status weft_exec__replay_step(weft_exec *e);
/* Does the device still work on the updates of the last step?  Until they are finished, or the next
 * step is at its commit point. */
bool                   weft_exec__is_left(const weft_exec *e);
weft_status            weft_exec__finish_left(weft_exec *e);
const weft_exec__gaps *weft_exec__graph_gaps(const weft_exec *e);
/* The stream that steps are given to; NULL: there is no graph. */
weft_stream *weft_exec__graph_order(const weft_exec *e);
/* The rest of the step that was being replayed, without peers. */
weft_status weft_exec__replay_alone(weft_exec *e);
/* Numbers that the step has left in pinned memory, NULL: none.  Operand k of the commit point, at
 * it; an output, after the run and until something is written. */
const void *weft_exec__find_outcome(const weft_exec *e, int k);
const void *weft_exec__find_output(const weft_exec *e, const char *name);
void        weft_exec__forget_outputs(weft_exec *e);

/* gaps.c: times in which the device has nothing to do; all accept NULL. */
weft_status weft_exec__open_gaps(weft_device *d, weft_arena *a, weft_exec__gaps **out);
void        weft_exec__close_gaps(weft_exec__gaps *g);
/* part 0: up to the commit point, 1: after it. */
weft_status weft_exec__record_gap(weft_exec__gaps *g, weft_stream *s, int part,
                                  bool last);
/* Before the updates of a step are given, and after that. */
weft_status weft_exec__read_updates(weft_exec__gaps *g);
weft_status weft_exec__read_before_commit(weft_exec__gaps *g);
void        weft_exec__sum_gaps(const weft_exec__gaps *g, weft_exec_gap *between,
                                weft_exec_gap *commit);

/* stream.c */
/* The waits before a firing, and its records after it. */
weft_status weft_exec__wait_for(weft_exec__stream *s, const weft_firing_order *f);
weft_status weft_exec__give(weft_exec__stream *s, const weft_firing_order *f);
/* Are tasks of this stream timed by the device? */
bool weft_exec__is_timed(const weft_exec *e, const weft_device *d);
/* A task of v's with a record before and after it; *record: the first one's number. */
weft_status weft_exec__launch_timed(weft_exec__stream *s, const weft_code *c,
                                    int64_t *record);
/* Slices of the instructions of a timed task of v's, in the running firing. */
void weft_exec__trace_task(weft_exec__stream *s, const weft_exec__variant *v,
                           const weft_code *c, int64_t record);
/* The slice of one instruction. */
void weft_exec__add_slice(weft_exec__stream *s, int instr, double start, double end);
/* Times of the slices that are still numbers of records. */
weft_status weft_exec__find_times(weft_exec__stream *s);
/* Communication, reading and the commit point (weft_host_fn; arg: the instruction's task). */
weft_status weft_exec__host_work(void *arg, double *start_s, double *end_s);
weft_status weft_exec__run_issuer(weft_exec__issuer *u);
/* The next firing of a stream, or the rest of one that failed, without its waits. */
weft_status weft_exec__fire(weft_exec__stream *s);
weft_status weft_exec__start_threads(weft_exec *e);
void        weft_exec__stop_threads(weft_exec *e);
/* The first error of a run stops everybody. */
void weft_exec__fail(weft_exec__issuer *u, weft_status st);
/* Under lock; false: it is stopped already.  Then, without it: who waits for an event. */
bool weft_exec__stop(weft_exec *e, weft_status st, const char *text);
void weft_exec__cancel_events(weft_exec *e);

#endif
