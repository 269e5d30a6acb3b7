/* Inside the session module: what a job holds, and what one membership of its ranks does. */
#ifndef WEFT_SESSION_PRIV_H
#define WEFT_SESSION_PRIV_H

#include <pthread.h>
#include <sys/types.h>

#include "base/pool.h"
#include "ckpt/ckpt.h"
#include "ckpt/state.h"
#include "cluster/cluster.h"
#include "comm/comm.h"
#include "comm/membership.h"
#include "data/data.h"
#include "job/job.h"
#include "session/device.h"
#include "session/events.h"
#include "session/kept_move.h"
#include "session/kept_state.h"
#include "session/kept.h"
#include "session/links.h"
#include "session/metrics.h"
#include "session/replay.h"
#include "session/runner.h"
#include "session/say.h"
#include "session/slow.h"
#include "session/vote.h"
#include "session/weights.h"
#include "state/move_check.h"
#include "state/snapshot.h"
#include "weft/session.h"

/* Evaluation in one generation: a program that shares the training's parameters. */
typedef struct weft_generation_eval {
    weft_compiled made; /* of the training's model */
    weft_runner  *runner;
    weft_state   *state; /* in the memory of the training's, or its own */
    weft_mover   *mover; /* parameters that the training program has elsewhere */
} weft_generation_eval;

/* What a rank runs on, as text; the same size everywhere. */
typedef struct weft_session__card {
    char kind[16];     /* whose kernels: "cpu", "cuda" */
    char gpu[48];      /* id of the GPU; "": none */
    char kernels[192]; /* weft_kernel_set_id() */
} weft_session__card;

typedef struct weft_session__devices {
    int                 n;            /* ranks */
    weft_session__card *card;         /* of each; NULL: only expected */
    int                 n_cpu, n_gpu; /* ranks on CPUs; GPUs, each counted once */
} weft_session__devices;

/* How ranks' programs together read the micro-batches of a step. */
typedef enum weft_session__reads {
    WEFT_SESSION__READS_UNKNOWN,
    WEFT_SESSION__READS_ALIKE,  /* each equally often: samples are counted */
    WEFT_SESSION__READS_DIFFER, /* they are not */
} weft_session__reads;

/* Of the second copy of a snapshot. */
typedef struct weft_session__far_thread {
    pthread_t    thread;
    bool         running; /* it was begun, and not joined */
    _Atomic bool over;
    weft_status  st; /* when it is over */
    char         text[300];
} weft_session__far_thread;

/* Second copies, on other hosts (snapshot_far.c). */
typedef struct weft_session__far {
    int                      guard; /* the rank that keeps this one's; -1: none does */
    int                      ward;  /* the rank whose this one keeps; -1: none's */
    weft_comm_channel       *out, *in;
    int64_t                  step;  /* that is received, */
    int                      into;  /* and into which buffer */
    bool                     ended; /* the ward makes no more */
    weft_session__far_thread sender, receiver;
} weft_session__far;

/* Snapshots of this rank's state in the agent's memory (snapshots.c). */
typedef struct weft_session__snapshots {
    bool        on;   /* this rank makes some */
    weft_state *copy; /* on the device, first; NULL: there is none */
    weft_state *buffer[WEFT_COMM_SHM_OWN];
    /* the one under way, or NULL; of which step, into which buffer */
    weft_snapshot *running;
    int64_t        step;
    int            into;
    int64_t        first; /* step, where it is not known yet how often they are due */
    int64_t begun; /* step of all ranks' newest one; 0: there was none in this view */
    /* of the last one: until it was whole, that steps waited; making memory of the one under way */
    double            total_s, waited_s, prepare_s;
    double            begin_s;   /* of the one under way */
    double            fastest_s; /* step of this generation */
    weft_session__far far;
} weft_session__snapshots;

/* What a move of the state took this rank. */
typedef struct weft_session__moved {
    weft_move_load load;
    double         seconds;
    int64_t        n_batch;    /* of tensors; 0: all at once, by messages alone */
    int64_t        peak_bytes; /* of pages of this host's slots; 0: not known */
    int64_t        learned;    /* bytes that this rank had received before (learn.c) */
} weft_session__moved;

/* What lives as long as one membership: who takes part, how they share the work, and what runs it.
 * Closing it frees all of that, and nothing of the session's. */
typedef struct weft_generation {
    weft_arena           *arena;
    weft_comm            *comm;          /* NULL: alone */
    weft_comm_group      *group;         /* all ranks; NULL: alone */
    int                   n_rank, local; /* to plan for, local of them on each host */
    int                   max_rank, max_local; /* that later memberships may have */
    int                   n_host; /* before there is a comm: ranks of each; 0: one host */
    const int            *host_ranks;
    int                   n_core; /* of a host's ranks together; 0: of this process */
    weft_session__devices devices;
    /* how this rank's GPU communicates, the preferred backend first; NULL: through the host */
    weft_device_comm *gpu_comm[WEFT_EXEC_MAX_BACKEND];
    bool              refused; /* by all ranks, with the same message: no abort is sent */
    char              plan_name[64]; /* its file in the output folder; "": it has none */
    /* After a lost rank (recover.c): */
    bool    continues;     /* some rank had started: this generation goes on from there */
    bool    has_new_plan;  /* not that of the last view */
    bool    restores;      /* nobody holds all of the state: from a checkpoint */
    bool    back;          /* to a snapshot of an earlier step */
    bool    was_snapshot;  /* the state comes from one */
    bool    saves_only;    /* no step follows: what is held is saved (membership.h) */
    bool    takes_over;    /* a run that may still be about to end */
    bool    trims;         /* the heap, after the first step */
    int     leader;        /* a rank that had started and has the newest state */
    int64_t step;          /* of that state; -1: it has none */
    weft_kept_states from; /* what slots have of that step, while the state is opened */
    bool in_batches; /* it is moved so that old and new states need not fit together */
    weft_session__moved moved;      /* into this rank's state */
    bool                unfinished; /* some rank's updates of it are to be ended */
    bool                resumes;    /* this rank's updates of that step are to be ended */
    bool                ends_left;  /* or those of its slot, by the plan before */
    weft_kept          *kept;       /* in the agent's memory; NULL: there is no agent */
    weft_kept     *left; /* of another plan, there until kept is described; or NULL */
    weft_kept_need need;
    weft_plan     *plan;        /* NULL: one rank */
    double         predicted_s; /* of a step, with that plan; 0: nothing predicts it */
    weft_compiled  made;        /* this rank's program, of the training */
    weft_runner   *runner;
    bool           keeps_state; /* the state stays where the session has it */
    weft_holders  *holders;     /* who holds what of the state; NULL: all is here */
    /* with standby replicas: the same, and as holder k * ranks + r what rank r has for the k-th of
     * others, from 1 */
    weft_holders *all_holders;
    const char  **host_name; /* of each rank */
    weft_gather  *gather;    /* all of it at rank 0, for files */
    /* in pinned memory, for checkpoints; NULL: none yet (state_copy.c) */
    weft_state             *copy;
    weft_session__snapshots snapshots;
    /* do all ranks see the output folder?  0: not asked yet, 1: yes, -1: no */
    int                 sees_output;
    weft_weights        weights;
    weft_session__reads reads;  /* whether the sum of samples tells anything */
    double              busy_s; /* of the runner, at the commit point before */
    bool                ahead;  /* plans after this one were asked for */
    struct weft_session__memory_ahead *memory_ahead; /* for the next one; NULL: none */
    double                             opened_s; /* that it took from the connection on */
    int                  n_step; /* that it has run, and the longest of them */
    double               longest_s;
    weft_generation_eval eval;
} weft_generation;

/* Evaluation as the job has it. */
typedef struct weft_session__eval {
    weft_data *data;
    int64_t    n_batch; /* of an evaluation: eval.batches, as far as the data has them */
    int64_t    step;    /* after which the last one was; 0: there was none in this run */
} weft_session__eval;

enum {
    WEFT_SESSION__MAX_RANK  = 4096,
    WEFT_SESSION__MAX_TIMED = 1 << 16, /* the median is over the last that many steps */
    WEFT_SESSION__TAG = 1 << 23, /* of the group of all ranks; programs use small ones */
    WEFT_SESSION__TAG_GATHER   = WEFT_SESSION__TAG + 1, /* and the next one */
    WEFT_SESSION__TAG_TRACE    = WEFT_SESSION__TAG + 3, /* and the next one */
    WEFT_SESSION__TAG_EVAL     = WEFT_SESSION__TAG + 5,
    WEFT_SESSION__TAG_STATE    = WEFT_SESSION__TAG + 6,
    WEFT_SESSION__TAG_LEADER   = WEFT_SESSION__TAG + 7,
    WEFT_SESSION__TAG_SNAPSHOT = WEFT_SESSION__TAG + 8,
    WEFT_SESSION__TAG_STANDBY  = WEFT_SESSION__TAG + 9, /* and those after it */
};

/* What a job writes. */
typedef struct weft_session__output {
    const char        *folder, *checkpoints; /* the output folder, and the one in it */
    uint64_t           probed_hosts; /* a hash of those that sees_output is of; 0: none */
    int                sees_output;  /* as of a generation */
    int                claim;        /* the folder, locked; -1: not */
    uint64_t           run;          /* its name in the file epoch; 0: none yet */
    bool               lock_told;    /* the log says that another process has the lock */
    double             looked_s;     /* when rank 0 has last looked who writes */
    weft_ckpt_findings found;        /* about checkpoints */
    int64_t            saved_step;   /* newest checkpoint, -1 none */
    struct weft_session__saving *saving; /* the one under way, or NULL */
    /* its polling, and the begin of the next one: until the device has the next step */
    bool        put_off;
    weft_state *spent; /* a copy on the device that was dropped; NULL */
    /* from the begin of a step to its commit point, rather too little; 0: not known */
    double commit_s;
    /* one was still under way when the next was due: the next ones are to be faster */
    bool          late;
    bool          left_out; /* some were, which was said */
    weft_status   save_st;  /* of the last that was given up, not said yet */
    char          save_text[512];
    weft_metrics *metrics;
    weft_events  *events;
} weft_session__output;

/* What a rank keeps of the generation before, for one of the same plan and rank. */
typedef struct weft_session__kept {
    weft_plan    *plan; /* NULL: nothing is kept */
    weft_compiled made;
    int           rank;        /* that it was made for */
    double        predicted_s; /* of a step; 0: nothing predicts it */
} weft_session__kept;

/* What makes the next plan, for each number of ranks that there was. */
typedef struct weft_session__replans {
    int                             n;
    struct weft_session__replan_of *of;
} weft_session__replans;

#define WEFT_SESSION__PLANNER                                                            \
    "WEFT_PLANNER" /* of the helper: the process that it is of */

/* Plans that are made ahead (plans_ahead.c). */
typedef struct weft_session__ahead {
    pid_t    pid; /* of the helper; 0: none runs */
    int      answers;
    bool     has_answers; /* in the file */
    bool     asked;       /* the next view takes the plan for the ranks that there are */
    uint64_t was;         /* hash of the plan that they follow */
    /* the plan that was asked for, where it is not among the answers; else NULL */
    weft_plan *better;
} weft_session__ahead;

/* What status.json says that stays for a generation. */
typedef struct weft_session__status {
    bool      writes; /* this rank does, and the folder is there */
    int       n_rank;
    int       n_copy;      /* of each part of the state, at least */
    weft_text members;     /* as JSON */
    char      copies[800]; /* what was last said of them; "": nothing yet */
    bool      few_copies;  /* and then there were fewer than copies asks for */
    char      plan[256];
    double    predicted_s; /* of a step; 0: nothing predicts it */
    double    written_s;   /* when it was last written */
} weft_session__status;

/* How long the steps of this run took. */
typedef struct weft_session__times {
    double   *step_s; /* of the last steps, a ring */
    int64_t   n_step;
    double    total_s;
    double    peak_gflops; /* 0: not measured */
    weft_slow slow;        /* how long each rank was busy, as it said at commit points */
} weft_session__times;

/* How the steps of a generation ended; session.c has a row of reactions for each. */
typedef enum weft_ending {
    WEFT_ENDING_DONE,       /* no step is left */
    WEFT_ENDING_STOP,       /* a signal: all ranks have agreed on it */
    WEFT_ENDING_MEMBERSHIP, /* there is a newer membership: all ranks have agreed on it */
    WEFT_ENDING_PEER_LOST,
    WEFT_ENDING_LOST_REPLACED, /* a peer, and the agent replaces it */
    WEFT_ENDING_NO_MEMORY,     /* of this rank: another view may have what it needs */
    WEFT_ENDING_NOT_FINITE,
    WEFT_ENDING_REFUSED, /* by all ranks, in the same words */
    WEFT_ENDING_FAILED,  /* of this rank */
    WEFT_N_ENDING
} weft_ending;

/* Why a step was held back. */
typedef enum weft_session__fault {
    WEFT_SESSION__NO_FAULT,
    WEFT_SESSION__NOT_FINITE,
    WEFT_SESSION__DIFFERS, /* ranks have different gradient norms */
    WEFT_SESSION__MISREAD, /* a sample of the step was not read, or more often than others */
} weft_session__fault;

/* The outcome of one run of a step: what all ranks found, and what this one brought. */
typedef struct weft_session__trial {
    weft_session__fault fault;
    double              loss;
    float               norm;
    bool                sent_other; /* of a second run: weft_exec_sent_other() */
} weft_session__trial;

/* What lives as long as the job: the job itself, its files and data, model and training graph,
 * state, the step it has got to. */
typedef struct weft_session {
    weft_job                    job; /* a copy: decide.c fills in micro_batch and lanes */
    const weft_job             *asked; /* as it came */
    const weft_session_options *o;
    weft_arena                 *arena;
    weft_say                    say;
    bool                        looks;   /* only decides: --print-plan */
    bool                        started; /* outputs and state are there */
    /* the job says auto, and its devices make that fixed */
    bool                 by_devices;
    char                 left_why[300]; /* what the last generation was lost by */
    weft_generation     *now;
    weft_session__output out;
    weft_ckpt         *resume; /* what to resume from, or NULL; closed after the start */
    weft_ckpt_state    checkpoint; /* its numbers */
    weft_store_dir    *source;     /* the model's own weights, or NULL */
    weft_data         *data;
    weft_session__eval eval;
    weft_pool         *pool;
    weft_device       *device;       /* of all generations; the state is there */
    weft_model_source *model_source; /* read once; job.source */
    weft_training training; /* model and training graph: built once, then read-only */
    weft_state   *state;    /* parameters and optimizer states */
    /* Of them, in the same memory, what this rank has computed itself of a step whose gathers were
     * broken off: the rest is elsewhere.  NULL: none such */
    weft_state           *computed;
    weft_session__kept    kept;
    weft_session__replans replans;
    weft_session__ahead   ahead;
    weft_replay           replay;
    weft_session__times   times;
    weft_links            links;
    weft_session__status  status;
    weft_metrics_row      row; /* of the last step; step 0: there is none in this run */
    weft_metrics_row      running;   /* of the step that runs, so far */
    double                running_s; /* when it began */
    double pages_ahead_s; /* when memory_ahead.c made the last ones; 0: nothing is left */
    int64_t page_bytes; /* of pages made for memberships before, and the time that took */
    double  page_s;
    int64_t slow_due;  /* step after which a slow rank gets less work; 0: none */
    int     n_settled; /* ranks of the last generation that was ready; 0: none was */
    struct weft_session__teaching *teaching; /* NULL: this rank teaches nobody */
    struct {
        uint32_t epoch; /* of the membership that it was learned for; 0: nothing was */
        int64_t  bytes;
        bool     prepared; /* the agent knows */
    } learned;
    struct {
        int64_t step;
        int     n; /* generations after that step that this rank had no memory for */
    } no_memory;
    float              *load; /* of each layer with experts, for the row; NULL: not yet */
    bool                row_written;    /* by this rank */
    bool                over;           /* there is no further membership */
    bool                released;       /* the others go on without this rank */
    bool                exported;       /* the final weights are written, by this rank */
    int64_t             snapshot_every; /* interval in steps; 0: not chosen */
    weft_session__trial trial;          /* the newest one */
    weft_ending ending;    /* after it: done (where none is left), stop, membership */
    weft_session_result r; /* with the step it has got to */
} weft_session;

/* session.c: a session without generations, and its end. */
weft_status weft_session__open(const weft_job *j, const weft_session_options *o,
                               weft_session *s);
weft_status weft_session__close(weft_session *s);

/* generation.c: waits for the next membership, connects its ranks, plans and compiles for them,
 * gives memory to the program; the first one of a session fills the state and opens the outputs,
 * too.  On failure *g is to be closed as well. */
weft_status weft_generation_open(weft_session *s, weft_generation *g);
void        weft_generation_close(weft_session *s, weft_generation *g);
/* What compiling held goes back to the system. */
void weft_generation_trim(weft_generation *g);
/* Before it is closed, where another generation follows: state in memory that ranks share belongs
 * to the communicator, and is copied.  The runner is not used any more. */
weft_status weft_generation_keep_state(weft_session *s);
bool        weft_generation_is_state_shared(const weft_session *s);
/* The program that the decision means, into s->now->made. */
weft_status weft_generation__compile(weft_session *s);

/* recover.c: where an agent replaces lost ranks; elsewhere a lost rank is the end. */
bool weft_session__has_agent(const weft_session *s);
void weft_session__tell_agent(const weft_session *s, weft_membership_news news);
/* This rank's, in the agent's memory; NULL: there is none. */
weft_comm_shm_slot *weft_session__slot(const weft_session *s);
/* Is the state in the agent's memory, and stays when its process is lost?  Else it goes with that,
 * and there are snapshots.  The same answer at all ranks: where one may have a GPU, it goes with
 * its process on CPUs, too, so that all find it in one way. */
bool weft_session__state_stays(const weft_session *s);
/* All ranks are new, and the agent knows of steps after the one that they begin at. */
void weft_session__say_back(weft_session *s);
/* The job goes on from that step: where this rank had come further, with steps and rows of then. */
weft_status weft_session__go_back(weft_session *s, int64_t step);
void        weft_session__fill_card(const weft_session *s, const weft_metrics_row *row,
                                    int64_t steps, weft_kept_card *c);
/* prepare.c: a new rank, before its first membership, where the agent says which it will be; an
 * error: it cannot be one.  offer_brief: what others need for that, to the agent; once more when
 * plans were made ahead. */
weft_status weft_session__prepare(weft_session *s);
void        weft_session__tell_prepared(weft_session *s); /* the agent, once */
void        weft_session__offer_brief(const weft_session *s);
/* memory_ahead.c: after each step: a rank that stays where their number changes makes the memory
 * that it will need then, in a thread; the agent hears when it is there. */
void weft_session__step_memory_ahead(weft_session *s);
void weft_session__close_memory_ahead(weft_generation *g);
/* teach.c: new ranks of a membership to come get the state while this one trains (lesson.h).
 * begin: between two steps, where the agent asks to prepare.  inputs: at the commit point, before
 * the state changes; skipped: the same of a step without an update; state: it is whole after a
 * step.  end: the steps of the generation are over; step: in order, after that one, and what is
 * left to send is sent; -1: not.  close: nothing is sent any more. */
void weft_session__begin_teaching(weft_session *s, const weft_membership_expected *next);
void weft_session__teach_inputs(weft_session *s, int64_t step);
void weft_session__teach_skipped(weft_session *s, int64_t step);
void weft_session__teach_state(weft_session *s, int64_t step);
void weft_session__end_teaching(weft_session *s, int64_t step);
void weft_session__close_teaching(weft_session *s);
/* learn.c: a new rank, whose program is made, gets the state into its slot; the agent hears how far
 * it is, and that the rank is prepared.  forget_learned: it is not in the membership that it was
 * learned for. */
void weft_session__learn(weft_session *s, const weft_membership_expected *x);
void weft_session__check_learned(weft_session *s, uint32_t epoch);
/* catch_up.c.  When ranks are connected: does this generation go on, and from where? */
weft_status weft_session__catch_up(weft_session *s);
/* Of one that goes on: the plan, in the place of a decision; the state; the rest, when the program
 * has its memory. */
weft_status weft_session__take_plan(weft_session *s);
/* What this rank's slot has beside the state: adopt before anything is allocated there, create
 * after the state, where there was nothing. */
weft_status weft_session__adopt_kept(weft_session *s);
weft_status weft_session__create_kept(weft_session *s);
void        weft_session__describe_kept(weft_session *s);
void        weft_session__keep_card(weft_session *s); /* of the last step */
/* Ends updates that were broken off, gathers what ranks did not; then all ranks find the state
 * where it is whole. */
weft_status weft_session__end_updates(weft_session *s);
/* Before anything is allocated in this rank's slab: updates that were broken off under another
 * plan, in its slot or in those without a rank that are its to tell of, are ended without peers;
 * where they cannot be, a warning says so and the slot holds nothing (end_left.c). */
void weft_session__end_left(weft_session *s);
/* A slot without a rank, of those that this rank tells of, whose updates of that step were broken
 * off; -1: there is none (catch_up.c). */
int weft_session__find_unfinished(const weft_session *s, int64_t step);
/* The training is that of the job as it is now (generation.c). */
weft_status weft_session__make_training(weft_session *s);
/* The plan that was decided for another number of ranks, for those that there are. */
weft_status weft_session__resize_plan(weft_session *s);
weft_status weft_session__find_state(weft_session *s, weft_state *to);
/* moves.c.  Can everything be had from who holds something?  The same answer at all ranks; the list
 * of moves is verified. */
weft_status weft_session__find_complete(const weft_holders *from, const weft_holders *to,
                                        bool *out);
/* What a rank says: bytes of pages that are to be made for its new state, and that are free on its
 * host.  Is that too little on one of them (host: of each rank; NULL: there is one)? */
typedef struct weft_session__room {
    int64_t need, have;
} weft_session__room;
bool weft_session__is_short(const weft_session__room *of, const int32_t *host, int world);
/* Before memory is made for new states, by all ranks: s->now->in_batches, where old and new states
 * do not fit together. */
weft_status weft_session__compare_room(weft_session *s);
/* Runs and closes it; what it took is in s->now->moved. */
weft_status weft_session__run_move(weft_session *s, weft_mover *m);
/* Bytes of pages that a rank of this host makes in a second: as it has made others, else a usual
 * number. */
double weft_session__page_Bps(const weft_session *s);
/* All ranks, once theirs is done: log and agent hear what was expected and what it took. */
weft_status weft_session__account_move(weft_session *s);
/* "1.5 GB"; returns text. */
const char *weft_session__print_size(double bytes, char *text, size_t n);
/* Out of what survivors have, by messages; g->restores: that is not all. */
weft_status weft_session__find_sent(weft_session *s, weft_state *to);
/* recover_gpu.c, where the state goes with its process.  find_lost: from survivors, else from the
 * newest snapshot unless a checkpoint is newer.  end_alone: after a lost peer, updates that another
 * rank has passed the vote of are made; then the state says which step it is of. */
weft_status weft_session__find_lost(weft_session *s, weft_state *to);
void        weft_session__end_alone(weft_session *s);
/* The program's state in the memory of an agent, after what slots have was looked at. */
weft_status weft_session__open_kept(weft_session *s, weft_state **out);
/* The step after which the state is whole; -1: of none, from now on. */
void weft_session__mark_state(weft_session *s, int64_t step);
/* This rank has all that the updates of the running step need; has passed its vote; or it was held
 * back. */
void        weft_session__note_arrival(weft_session *s, double loss, double norm);
void        weft_session__note_passed(const weft_session *s, int64_t step);
void        weft_session__note_held(const weft_session *s, int64_t step);
weft_status weft_session__continue(weft_session *s);
/* The same where ranks only save: do they hold all of the state? */
weft_status weft_session__prepare_save(weft_session *s);
/* May an earlier rank 0 be alive, on another host or of another run?  Of this host none is. */
bool weft_session__may_be_stale(const weft_session *s);
/* report.c: to the agent, where there is one; decided: "continue", "retry", "end". */
void weft_session__report(const weft_session *s, const char *cause, const char *decided,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Of an error: "disk", "numeric", "differs", "error". */
const char *weft_session__find_cause(const weft_session *s, weft_status st);
/* Who holds what, replicas too; when the program's state is there. */
weft_status weft_session__find_all_holders(weft_session *s, weft_state *state);
/* Fills the replicas that `to` has out of what ranks hold; all ranks, when their own state is
 * whole. */
weft_status weft_session__fill_standby(weft_session *s, weft_state *to);
/* This rank's sides of a move into the replicas, out of what slots hold; whole: its replicas stay
 * as they are.  All ranks. */
typedef struct weft_session__standby_sides {
    int             n;
    weft_state     *empty; /* where this rank has none; perhaps NULL */
    weft_mover_side side[WEFT_MAX_STANDBY];
} weft_session__standby_sides;

weft_status weft_session__list_standby(weft_session *s, weft_state *to, bool whole,
                                       weft_session__standby_sides *out);
void        weft_session__standby_sides_fini(weft_session__standby_sides *x);
/* Out of states that processes have, replicas too, by messages.  have NULL: this rank has none. */
weft_status weft_session__move_sent(weft_session *s, weft_state *have, weft_state *to);
/* copies.c: are all copies of each part of the state the same?  Nothing where nobody asks. */
weft_status weft_session__compare_copies(weft_session *s);
/* How many ranks, or hosts of several, hold each part of the state, and whose loss would cost the
 * steps since the newest checkpoint; where that is not as in the view before. */
void weft_session__say_copies(weft_session *s);
/* Of each rank the first one of its failure domain; again for holders of each further kind
 * (all_holders).  NULL: out of memory. */
int *weft_session__find_domains(const weft_generation *g);
/* "hosts a (ranks 0-1), b (ranks 2-3) and 6 more", "rank 1": those of which `of` is true, by first
 * rank. */
void weft_session__put_domains(const weft_generation *g, const int *domain,
                               const bool *of, weft_text *t);
int  weft_session__count_copies(const weft_session *s);
/* Before a generation is closed that has lost a rank, or that another one follows. */
weft_status weft_session__keep_for_next(weft_session *s);
/* All ranks have updated their state: those that are not in the next membership may end. */
weft_status weft_session__leave(weft_session *s);

/* ---- replay.c: nothing happens in these but record_plan without --replay ---- */

weft_status weft_session__read_replay(weft_session *s);
/* Of the ranks that there may be? */
weft_status weft_session__check_replay(const weft_session *s);
/* Begins a view with that step which has another number of ranks, or another plan?  Then the agent
 * is told. */
bool weft_session__leaves_for_replay(weft_session *s, int64_t next_step);
/* Has this view other ranks than the recorded run had from the next step on?  Then all leave again,
 * without a step. */
bool weft_session__is_late_for_replay(weft_session *s);
/* The plan that the recorded run had for the next step; NULL: none is known, or it is of other
 * ranks than there are. */
weft_status weft_session__find_replayed(const weft_session *s, weft_plan **out);
/* Has it one for the first step of this run?  Then that is taken in the place of a decision, and
 * checked against the job. */
bool        weft_session__begins_replayed(const weft_session *s);
weft_status weft_session__check_replayed(weft_session *s);
/* Where there is an agent: the plan of this view into output/plans, for a replay. */
void weft_session__record_plan(weft_session *s);
void weft_session__keep_program(weft_session *s);
void weft_session__forget_program(weft_session *s);

/* start.c: once per job, in its first generation, when the program has its memory. */
weft_status weft_session__open_source(weft_session *s);
weft_status weft_session__fill_state(weft_session *s);
weft_status weft_session__open_outputs(weft_session *s);
void        weft_session__log_start(weft_session *s);

/* steps.c: runs steps until one of the endings that are no error. */
/* While the device has the next step: what a step has put off. */
weft_status weft_session__work_meanwhile(void *session, int64_t step);
/* WEFT_GAPS=1: how long the device has nothing to do is measured, and said at the end. */
bool        weft_session__measures_gaps(void);
weft_status weft_generation_run(weft_session *s, weft_ending *ending);

/* experts.c: the loads of a step's experts, into the row. */
weft_status weft_session__read_loads(weft_session *s, weft_metrics_row *row);
/* The same of another executor. */
weft_status weft_session__read_loads_of(weft_session *s, const weft_exec *e,
                                        const weft_compiled *made, weft_metrics_row *row);

/* commit.c: what all ranks agree on once a step, before anything writes state (weft_exec_commit_fn;
 * value: loss, gradient norm); a step whose outcome is at fault is held back.  agree_skipped: the
 * same for a step that runs nothing. */
weft_status weft_session__commit(void *session, int64_t step, int n, const double *value,
                                 bool *hold);
weft_status weft_session__agree_skipped(weft_session *s, int64_t step);

/* again.c: a step that was held back was run again.  Tells which ranks computed other numbers than
 * before or than the others; WEFT_ERR_NUMERIC where it was held back again, with the state before
 * it saved.  All ranks together.  name_differing: at once, ranks whose norm is not that of the
 * most. */
weft_status weft_session__name_differing(weft_session *s, const weft_session__trial *t,
                                         int64_t step);
weft_status weft_session__compare_trials(weft_session             *s,
                                         const weft_session__trial trial[2],
                                         const weft_metrics_row   *row);

/* gpu_comm.c: all ranks together; nothing where a job has one. */
weft_status weft_session__open_gpu_comm(weft_session *s);
/* The backends to try, the preferred one first, NULL: no more; asked: $WEFT_GPU_COMM, or NULL. */
void weft_session__order_backends(const char *asked, int n_gpu, bool invariant,
                                  const char *backend[WEFT_EXEC_MAX_BACKEND]);
void weft_session__say_gpu_comm(weft_session *s);
void weft_session__close_gpu_comm(weft_generation *g);
/* After a step of so many seconds: how long calls of GPUs wait for a peer from now on, where an
 * agent replaces ranks. */
void weft_session__limit_gpu_waits(weft_session *s, double step_s);
/* ... of a generation that has run n steps, the longest in that time; 0: as the communicator. */
double weft_session__find_wait_limit(int n_step, double longest_s);

/* ranks.c: nothing happens in any of these where a job has one rank. */
weft_status weft_session__open_group(weft_session *s);
weft_status weft_session__meet(weft_session *s); /* returns when all ranks are here */
/* Rank 0 works, the others give it what it asks for. */
weft_status weft_session__lead(weft_session *s, weft_status (*work)(weft_session *s));
/* n bytes of each rank to all: out in the order of ranks. */
weft_status weft_session__gather(weft_session *s, const void *p, size_t n, void *out);
/* n bytes of rank 0's to all. */
weft_status weft_session__share(weft_session *s, void *p, size_t n);
bool        weft_session__writes(const weft_session *s); /* this rank writes files */
weft_status weft_session__threads(weft_session *s, int *out);
/* Cores that the ranks of this host may use together. */
weft_status weft_session__count_cores(weft_session *s, int *out);

/* devices.c: what ranks run on. */
weft_status weft_session__gather_devices(weft_session *s);
void        weft_session__count_devices(weft_session__devices *d); /* of its cards */
/* The same for ranks that are not there: local of them on each host. */
weft_status weft_session__expect_devices(const weft_job *j, int world, int local,
                                         weft_session__devices *out);
/* The job's reduction, where it is auto and its devices make it fixed; once a job. */
void weft_session__resolve_reduction(weft_session *s);
/* Ranks of one kind of device: WEFT_ERR_ARG at all of them where their kernels differ under
 * reduction: invariant. */
weft_status weft_session__compare_kernels(weft_session *s);
void        weft_session__say_reduction(weft_session *s);

/* compare.c: whether all ranks mean the same: WEFT_ERR_ARG at all of them where they do not.  The
 * job before anything is made of it, the plan before the program is, the program before memory is
 * taken for it. */
weft_status weft_session__compare_jobs(weft_session *s);
weft_status weft_session__compare_plans(weft_session *s);
weft_status weft_session__compare_programs(weft_session *s, const weft_compiled *made,
                                           const weft_data *data);
weft_status weft_session__compare_weights(weft_session *s); /* the model's own */
/* st of all ranks, in the same words. */
weft_status weft_session__refuse(weft_session *s, weft_status st);
/* Of something that every rank has tried: where it failed on all of them, no abort is sent. */
weft_status weft_session__outcome(weft_session *s, weft_status st);

/* open_data.c: the job's seq from its rows, where it gives none; data opened for the compiled
 * model; its log line. */
weft_status weft_session__find_seq(weft_job *j);
weft_status weft_session__open_data(weft_session *s, const char *path, bool shuffle,
                                    weft_data **out);
void        weft_session__say_data(weft_session *s, const char *path, const weft_data *d);
/* weft_data_content_id() of a path of the job. */
weft_status weft_session__content_id(const weft_job *j, const char *path, uint64_t *out);

/* links.c: with the ranks of a membership. */
weft_status weft_session__open_links(weft_session *s);
/* Before and after a vote. */
void weft_session__look_at_links(weft_session *s, weft_vote *mine);
void weft_session__note_link(weft_session *s, const weft_vote_sum *v);

/* memory.c: WEFT_ERR_NOFIT where a host has less free than its ranks will hold.  Before anything
 * is allocated. */
weft_status weft_session__check_memory(weft_session *s);
/* Bytes left of a control group's limit, which may be as good as none; files: pages that are
 * given back when asked for, read a moment after used. */
int64_t weft_session__left(int64_t limit, int64_t used, int64_t files);

/* What this process may still take of its host's memory. */
int64_t weft_session__free_bytes(void);

/* ... or did not get what it had found free: the same line; st: of what failed. */
weft_status weft_session__explain_memory(weft_session *s, weft_status st);

/* resume.c: the output folder's name, and the checkpoint of this job in it to resume from.
 * Writes nothing. */
weft_status weft_session__find_start(weft_session *s);
/* ... with the folder locked, if it is there. */
weft_status weft_session__place(weft_session *s);
/* The newest checkpoint of the job, the same at all ranks; s->resume stays NULL where there is
 * none. */
weft_status weft_session__open_newest(weft_session *s);
/* The folder is made and locked; when all ranks have decided. */
weft_status weft_session__take_place(weft_session *s);

/* fence.c: who writes the folder.  A run begins: the lock, which is waited for a moment; its name,
 * at all ranks; its number, before rank 0 opens the files. */
weft_status weft_session__claim(weft_session *s);
weft_status weft_session__name_run(weft_session *s);
weft_status weft_session__begin_epoch(weft_session *s);
/* A view that goes on: of a rank that is not rank 0; of rank 0, before it opens the files. */
void        weft_session__give_up_claim(weft_session *s);
weft_status weft_session__take_epoch(weft_session *s);
/* Rank 0, again and again: fails where another run, or a later view, has taken its place.  at_once:
 * also where it has just looked. */
weft_status weft_session__keep_place(weft_session *s, bool at_once);

/* The checkpoint against this model. */
weft_status weft_session__check_model(weft_session *s);
/* ... against this data */
weft_status weft_session__check_data(weft_session *s);
/* ... the same, then weights and optimizer state from it. */
weft_status weft_session__restore(weft_session *s);

/* output.c: do all ranks see the output folder?  All of them; where hosts are as they were, what
 * was found then.  probe_hosts: nothing on one host. */
weft_status weft_session__probe_output(weft_session *s);
weft_status weft_session__probe_hosts(weft_session *s);
/* checkpoint.c: all ranks together.  save returns when the checkpoint is there; start_save when the
 * state may be read by the next step, which may change it after wait_copied. */
weft_status weft_session__save(weft_session *s);
weft_status weft_session__start_save(weft_session *s);
/* After each step: a checkpoint that all ranks have written is finished. */
weft_status weft_session__poll_save(weft_session *s);
/* Waits for the one under way, if there is one; whether it succeeded is in the log. */
weft_status weft_session__settle_save(weft_session *s);
/* Before anything writes the state. */
void weft_session__wait_copied(weft_session *s);
/* What is under way is given up; what rank 0 already finishes is waited for. */
void weft_session__drop_save(weft_session *s);

/* state_copy.c: all ranks together: a state that takes a checkpoint's, NULL where host code reaches
 * the state itself; *all: every rank has what it needs, else none has a copy and training waits. */
weft_status weft_session__take_copy(weft_session *s, weft_state **out, bool *all);
void        weft_session__drop_copy(weft_session *s, weft_state *copy); /* accepts NULL */
/* What was dropped, where the device is at work on no step. */
void weft_session__free_spent(weft_session *s);
/* Do the copies of so many ranks fit, with something left? */
bool weft_session__has_room(int64_t bytes, int64_t n_rank, int64_t free_bytes,
                            int64_t total_bytes);

/* A second one on the device for as long as the caller wants; NULL: there is not enough free. */
void weft_session__make_device_copy(weft_session *s, weft_state **out);

/* save.c: rank 0 alone writes a checkpoint, asking the others for what it lacks. */
weft_status weft_session__save_alone(weft_session *s);
/* The numbers of state.json but for the weights' hash; fini is the caller's. */
weft_status weft_session__describe(weft_session *s, weft_ckpt_state *out);
weft_status weft_session__export(weft_session *s);
/* Can the files that export copies be read?  Asked before the training, not after it. */
weft_status weft_session__check_copies(const weft_session *s);
/* Warnings about checkpoints that were not shown yet; damaged ones into the result. */
void weft_session__show_findings(weft_session *s);

/* A state of the graph that goes into optimizer.safetensors. */
bool weft_session__is_saved(const weft_session *s, weft_vid v);
/* The kernels that the job runs with; of a list of devices the first one's. */
const char *weft_session__kernel_set(const weft_job *j);

/* status.c: status.json.  open: all ranks together, for each generation; end: how the job ended,
 * which keeps the error's text. */
weft_status weft_session__open_status(weft_session *s);
void        weft_session__write_status(weft_session *s, bool at_once);
/* After a step: ranks that have become slow are named. */
void weft_session__name_slow(weft_session *s);
void weft_session__end_status(weft_session *s, weft_status st);

/* trace.c: the timelines of all ranks as one file. */
weft_status weft_session__trace(weft_session *s);

/* eval.c: WEFT_ERR_ARG where evaluation is asked for and nothing would be evaluated: no step is
 * left. */
weft_status weft_session__eval_check(weft_session *s);
weft_status weft_session__eval_open_data(weft_session *s); /* and nothing else */
weft_status weft_session__eval_open(weft_session *s);
weft_status weft_session__eval_run(weft_session *s, double *loss);
void        weft_session__eval_close(weft_generation *g);
/* The evaluation after this step, if there was one, for the checkpoint: a key of a JSON map. */
void weft_session__eval_print(const weft_session *s, weft_text *t);

#endif
