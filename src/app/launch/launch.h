/* Starting ranks on this host and seeing them to their end.
 *
 *     weft_launch(4, argv, &(weft_launch_options){.request = &q}, &code);
 *
 * A rank is this program again: WEFT_RANK, WEFT_WORLD_SIZE, WEFT_LOCAL_RANK, WEFT_LOCAL_WORLD_SIZE
 * and WEFT_SHM_FD tell it what it is, WEFT_REQUEST_FD what to do.  It has cores of its own where
 * there are enough; what it writes to standard error comes out with "[rank 3] " in front; rank 0's
 * standard output is ours.
 *
 * (1) on_rank_exit says what a rank that fails means.  END_ALL: the others see it in shared memory,
 *     have grace_s to leave, and are killed; who is writing files may finish as long as that makes
 *     progress.  REPORT: the others see it in shared memory, and go on for as long as they like.
 *     REPLACE: another process takes its place (agent.c); after a signal, where a rank reports an
 *     error of its own, and where losses go on (member/member.h), as END_ALL.
 * (2) Errors come last, the first cause on top.  The exit code is that of the first rank that
 *     failed by itself, 128 + N if signal N ended it, or if N stopped the launcher; with REPORT, 0
 *     where a rank ended with 0.
 * (3) SIGINT, SIGTERM, SIGHUP and SIGUSR1 go to all ranks once (they save and stop); a second one
 *     kills, but for SIGUSR1, a SIGTERM after it, and SIGTERMs within 2 s, as batch systems send
 *     them.  SIGUSR1 counts as SIGTERM in the exit code.
 *     After the first, when for timeout_s and 5 s no rank here computes, reads or writes files or
 *     hears that another one does, what is left (stopped, stuck) is killed and named.
 *     SIGTSTP stops all ranks and the launcher, SIGCONT lets them go on.
 *     Each host's launcher has its own ranks to report on; those of other hosts are named in what
 *     its ranks say.
 * (4) No rank outlives the launcher, however that ends, and no shared memory outlives the ranks.
 * (5) With program, ranks are processes of another engine, which knows nothing of ours: they get
 *     the variables of weft_launch_program_variables and all cores; a rank that fails ends the
 *     others by SIGTERM and, after grace_s, SIGKILL; processes that a rank started and left behind
 *     are killed with it. */
#ifndef WEFT_LAUNCH_LAUNCH_H
#define WEFT_LAUNCH_LAUNCH_H

#include <signal.h>

#include "base/status.h"
#include "comm/token.h"
#include "control/control.h"
#include "launch/request.h"
#include "launch/sizes.h"
#include "member/detect.h"

typedef enum weft_launch_policy {
    WEFT_LAUNCH_END_ALL, /* a rank that fails ends all */
    WEFT_LAUNCH_REPORT,  /* report is called, the others go on */
    /* One host: another process takes its place, all ranks get the next membership; a rank whose
     * error is its own ends all (weft_launch_member_fail). */
    WEFT_LAUNCH_REPLACE,
    /* Of a program, with rdzv: agents of all hosts start all ranks anew (restart.c). */
    WEFT_LAUNCH_RESTART,
} weft_launch_policy;

/* How a rank ended. */
typedef struct weft_launch_exit {
    int  rank;
    int  code;     /* its exit code; 128 + signal where one ended it */
    int  signal;   /* 0: it ended by itself */
    bool killed;   /* by the launcher */
    bool stopping; /* a signal had told the launcher to end all */
    int  pid;
    /* how the launcher noticed, before it killed the rank: "hang"; NULL: by its end */
    const char *noticed;
    char        what[160]; /* "exit code 3", "killed by signal 9 (SIGKILL)" */
} weft_launch_exit;

typedef struct weft_launch_options {
    weft_launch_policy on_rank_exit;
    /* Called for each rank that ends, on the launcher's thread, soon after; may be NULL. */
    void (*report)(void *arg, const weft_launch_exit *e);
    void                      *arg;
    const weft_launch_request *request; /* handed to the ranks; NULL: argv says it all */
    double                     grace_s; /* after a failure; 0: 2 s */
    double timeout_s; /* of the ranks' waiting for each other; 0: 60 s */
    /* REPLACE: of a rank that shows no progress (member/detect.h); 0: 10 s */
    double              failure_timeout_s;
    weft_detect_on_stop on_stop; /* what a rank that is stopped alone means */
    double stop_s; /* after a signal, for ranks to end; 0: while they make progress */
    const char *output; /* the job's folder, where it has one; for metrics */
    /* Prometheus text at ADDR:PORT, and in a file; NULL: not */
    const char *metrics, *metrics_file;
    /* HOST:PORT for weft status, events and scale of other hosts, or NULL: not */
    const char *control;
    /* the token that only reads, or NULL */
    const char               *reader_file;
    weft_control_certificates tls; /* for control, instead of tokens */
    /* a command of sh that gets each incident as JSON, or NULL */
    const char *on_incident;
    bool log_json;       /* lines on standard error are objects; WEFT_LOG=json in ranks */
    const char *log_dir; /* a file rank<r>.log for each, or NULL */
    /* REPLACE: the number of ranks may be set to min_rank up to n while they run; 0: it stays */
    int min_rank;
    /* REPLACE: what may be done about lost ranks (member/levels.h), as the key recover; NULL: on */
    const char *levels;
    /* of an agent, by slots: whose places a process waits for that is there before they are lost
     * (spare.h); NULL: no slot has one */
    const bool *spares;
    int n_node; /* hosts on which n ranks each are started, by a launcher each; 0: 1 */
    int node;   /* which of them this is: ranks from node * n on */
    /* REPLACE with rdzv: so many hosts have to be there, and n_node may be; 0: n_node.  The agent
     * of node 0 listens at rdzv; node -1: the first that can. */
    int  min_node;
    bool invariant; /* the job's bits are the same on every host */
    /* The job's keys as all hosts must have them, a line each ("batch is 8"); NULL: its words are
     * compared. */
    const char *keys;
    /* which build of weft this is, as other hosts compare it; NULL: the version alone */
    const char *build;
    /* host:port where the ranks of all hosts meet, rank 0's host; REPLACE: or the register of
     * their agents, file:DIR or etcd://.. */
    const char *rdzv;
    int         unused_of;  /* as in weft_hosts_options: it joins, and begins no job; 0 */
    const char *local_addr; /* of this host, for other hosts; NULL: found by rdzv */
    /* passed on to the ranks by WEFT_TOKEN_FILE or WEFT_INSECURE_NETWORK */
    weft_comm_token_options token;
    /* Another engine's program and its arguments, up to NULL, found by PATH; NULL: this one. */
    char *const *program;
    int restart, max_restarts; /* of it: how often it was started again, and may be */
    /* Its parallel sizes: so many ranks run as they need; NULL: all, and no sizes are given. */
    const weft_launch_sizes *sizes;
    /* A rank of it that writes nothing and uses no CPU time for so long hangs; 0: none does. */
    double hang_timeout_s;
    /* Its incidents so far, for metrics; NULL: they are not counted. */
    const struct weft_exporter_counts *counts;
} weft_launch_options;

typedef struct weft_launch_variable {
    char name[32], value[64];
} weft_launch_variable;

enum {
    WEFT_LAUNCH_N_VARIABLE = 24
};

/* Variables that torchrun sets for local rank r of n: rank, world, where they meet, restarts; and
 * those of sizes. */
weft_status weft_launch_program_variables(const weft_launch_options *o, int n, int r,
                                          weft_launch_variable v[WEFT_LAUNCH_N_VARIABLE]);

enum {
    WEFT_LAUNCH_MAX_RDZV = 16, /* addresses of --rdzv */
    WEFT_LAUNCH_PEER = 76, /* the exit code of a rank that ended because of another one */
    WEFT_LAUNCH_FAILURE_TIMEOUT_S = 10
};

/* Is it a register (file:DIR, etcd://.., etcds://..), not host:port? */
bool weft_launch_is_register(const char *rdzv);
/* host:port,host:port,..: how many addresses; 0: one is empty or too long, or they are too many. */
int weft_launch_split_rdzv(const char *rdzv, char at[WEFT_LAUNCH_MAX_RDZV][64]);

/* The signal by which an agent passes signals on to its ranks, which ignore those of others; its
 * value is the signal's number.  Unlike those it is queued, so one is not lost behind another. */
#define WEFT_LAUNCH_ORDER SIGRTMIN

/* Gives this process the share of rank r of n of the cores that process `of` may use (0: this one),
 * where each rank can have one, else all of them; how many. */
int weft_launch_pin(int r, int n, int of);
/* Takes the share of rank r of n from this process, where each rank has cores of its own: ranks
 * that are pinned later have none of them.  How many; 0: they share all, and nothing is done. */
int weft_launch_leave_cores(int r, int n);

/* argv: the arguments that a rank shows, argv[0] being the name.  *code: the exit code. */
weft_status weft_launch(int n, char *const *argv, const weft_launch_options *o,
                        int *code);

#endif
