/* Inside the launcher: its ranks, and the agent that replaces them. */
#ifndef WEFT_LAUNCH_PRIV_H
#define WEFT_LAUNCH_PRIV_H

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/text.h"
#include "comm/shm.h"
#include "control/control.h"
#include "launch/exporter.h"
#include "launch/launch.h"
#include "launch/line.h"
#include "member/view.h"

typedef struct weft_launch__agent    weft_launch__agent;
typedef struct weft_launch__control  weft_launch__control;
typedef struct weft_launch__hosts    weft_launch__hosts;
typedef struct weft_launch__watch    weft_launch__watch;
typedef struct weft_launch__export   weft_launch__export;
typedef struct weft_launch__recorder weft_launch__recorder;
typedef struct weft_launch__remote   weft_launch__remote;
typedef struct weft_launch__restart  weft_launch__restart;
typedef struct weft_launch__reaper   weft_launch__reaper;

/* Of a rank of a program (hang.c). */
typedef struct weft_launch__quiet {
    double since_s;           /* it has shown nothing since then, */
    double from_cpu_s, cpu_s; /* when its group had used so much; now */
    bool   heard;             /* it has written since it was last looked at */
} weft_launch__quiet;

typedef struct weft_launch__child {
    pid_t     pid;        /* 0: ended */
    int       out, err;   /* pipes, or -1 */
    int       line;       /* control connection, or -1 */
    weft_text partial[2]; /* what came without a newline yet */
    weft_text error;      /* lines with errors, kept for the end */
    bool      reported;   /* with the same error of another rank */
    FILE     *log;
    int       code;  /* once ended */
    int       order; /* the how-many-th to fail, from 1; 0: it did not */
    /* its progress, once somebody is to end */
    uint64_t           word;     /* its own, in shared memory */
    double             moved_s;  /* when that last moved */
    double             cpu_s;    /* that it has used */
    char               state;    /* as in /proc: T is stopped */
    double             killed_s; /* when the launcher killed it; 0: it did not */
    bool               stopped;  /* by SIGSTOP, as waitpid says */
    weft_launch__quiet quiet;
    /* how the launcher has noticed that it is lost, and what it saw; NULL: it has not */
    const char *noticed;
    char        what[160];
    double      seen_s; /* its last sign of life before that; 0: not known */
} weft_launch__child;

/* A process without a slot (spare.h); pid 0: there is none. */
typedef struct weft_launch__spare {
    pid_t pid;
    int   out, err, line, wake; /* wake: where it hears which rank it is */
    int   n_lost;               /* that ended by themselves */
} weft_launch__spare;

typedef struct weft_launch__run {
    int                        n, first; /* first: rank of this host's first one */
    int                        n_running, n_failed, n_done; /* done: ended with 0 */
    weft_launch__child        *c;                           /* by slots */
    const weft_launch_options *o;
    char *const               *argv;
    weft_launch__spare         spare;
    weft_launch__agent        *agent; /* NULL: a rank that ends is not replaced */
    weft_launch__hosts        *hosts; /* agents of several hosts; NULL: there is one */
    /* instead of agent: ranks of a program on several hosts */
    weft_launch__restart *restart;
    weft_launch__watch   *watch; /* of the agent; NULL as well */
    weft_launch__export *export; /* metrics; NULL: not asked for */
    weft_launch__recorder *recorder;
    weft_launch__reaper   *reaper;
    weft_comm_shm         *shm;
    int                    request; /* descriptor of what ranks are to do, or -1 */
    weft_launch__control  *control; /* requests of this host; NULL: there is no agent */
    weft_launch__remote   *remote;  /* requests over TCP; NULL: not asked for */
    int                    signals; /* signalfd */
    sigset_t               mask, old_mask;
    int                    stopped_by; /* signal that we passed on */
    double                 signal_s;   /* when it came */
    bool                   early;      /* it was SIGUSR1: one of the others may follow */
    bool                   signalled;  /* a signal has come to this launcher itself */
    bool                   late;       /* what ranks have after a signal is over */
    double                 kill_at_s;  /* 0: not yet */
    bool                   at_once;    /* a second signal: all ranks are killed */
    double                 looked_s;   /* when ranks were last looked at */
    double                 hang_s;     /* the same, for hangs of a program */
    double                 moved_s;    /* of the last progress of one of them */
} weft_launch__run;

/* ---- launch.c ---- */

/* A process for slot r, which has none. */
weft_status weft_launch__start(weft_launch__run *l, int r);
/* The process alone, of slot r, or of none (-1) with a descriptor that it is to wait at: its id and
 * our ends of its pipes and of its control connection. */
weft_status weft_launch__fork(weft_launch__run *l, int r, int wake, pid_t *pid, int *out,
                              int *err, int *line);
/* What its last process said is read to its end, and its pipes are closed. */
void weft_launch__close_pipes(weft_launch__run *l, int r);
/* CPU time and state of a process, which stay as they are where it is gone. */
void weft_launch__read_stat(pid_t pid, double *cpu_s, char *state);
/* After a signal, with all saved? */
bool weft_launch__is_ended_by_request(int how);
/* Why a process ended, as text. */
void weft_launch__describe_exit(int how, char *why, size_t n);
/* As if SIGTERM had come: all save and stop. */
void weft_launch__request_stop(weft_launch__run *l);
/* Those that are left are killed after grace_s. */
void weft_launch__end_all(weft_launch__run *l, double grace_s);
/* As after a signal: all ranks here save and end. */
void weft_launch__save_all(weft_launch__run *l, int sig);

/* ---- reap.c ---- */

weft_status weft_launch__reaper_open(weft_launch__run *l);
void weft_launch__reaper_close(weft_launch__run *l); /* all that have ended are gone */
/* Has the process ended, stopped or gone on?  how: the status of waitpid.  It returns at once; a
 * process that has ended is waited for elsewhere. */
bool weft_launch__reap(weft_launch__run *l, pid_t pid, int *how);

/* ---- report.c ---- */

/* Errors, the first cause on top; returns the exit code. */
int weft_launch__report(weft_launch__run *l);

/* ---- spare.c: nothing happens in any of these where no spare is wanted ---- */

/* Starts one, where there is none. */
void weft_launch__spare_start(weft_launch__run *l);
/* It becomes the process of slot r, which has none.  false: there is none, or not for that one. */
bool weft_launch__spare_take(weft_launch__run *l, int r);
/* Was it the spare that ended? */
bool weft_launch__spare_ended(weft_launch__run *l, pid_t pid);
void weft_launch__spare_close(weft_launch__run *l);

/* ---- program.c ---- */

/* This process becomes rank r of another engine's program; does not return. */
_Noreturn void weft_launch__be_program(const weft_launch__run *l, int r);

/* ---- hang.c: nothing happens without --hang-timeout ---- */

void weft_launch__hang_begin(weft_launch__child *c); /* it was started */
void weft_launch__hang_tick(weft_launch__run *l);
int  weft_launch__hang_wait_ms(const weft_launch__run *l); /* -1: no look is due */

/* ---- log.c ---- */

/* A line of the launcher; rank -1: about none.  level: "info", "warn", "error". */
void weft_launch__say(const weft_launch__run *l, int rank, const char *level,
                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void weft_launch__say_line(const weft_launch__run *l, int rank, const char *s, size_t n);

/* ---- recorder.c: what ranks did last ---- */

weft_status weft_launch__recorder_open(weft_launch__run *l);
void        weft_launch__recorder_close(weft_launch__run *l);
int         weft_launch__recorder_fd(const weft_launch__run *l); /* -1: none */
/* Of all ranks, into the job's folder, where it is there.  slot: whose process is gone, and another
 * one may take it from now on; -1: none.  It is only noted: the next view does not wait for it. */
void weft_launch__recorder_dump(weft_launch__run *l, const char *output, uint32_t epoch,
                                int slot);
/* What was noted is written, by a child. */
void weft_launch__recorder_flush(weft_launch__run *l);

/* ---- export.c: nothing happens where no metrics are asked for ---- */

weft_status weft_launch__export_open(weft_launch__run *l);
void        weft_launch__export_close(weft_launch__run *l);
int         weft_launch__export_fd(const weft_launch__run *l); /* -1: none */
int         weft_launch__export_wait_ms(const weft_launch__run *l);
void        weft_launch__export_tick(weft_launch__run *l);

/* ---- agent.c: nothing happens in any of these where there is no agent ---- */

weft_status weft_launch__agent_open(weft_launch__run *l);
void        weft_launch__agent_close(weft_launch__run *l);
/* Carries out what was decided. */
weft_status weft_launch__agent_act(weft_launch__run *l);
/* The rank's end is the agent's: it is replaced, or the job is over. */
bool weft_launch__agent_lost(weft_launch__run *l, int r, int pid, int how);
void weft_launch__agent_hear(weft_launch__run *l, int r); /* its line can be read */
void weft_launch__agent_stop(weft_launch__run *l);        /* a signal: save and end */
void weft_launch__agent_tick(weft_launch__run *l);
/* Milliseconds until the next tick; -1: none is due. */
int weft_launch__agent_wait_ms(const weft_launch__run *l);
/* All is done, whatever became of ranks that had nothing left to do. */
bool weft_launch__agent_is_done(const weft_launch__run *l);
/* Does the rank run in the newest view? */
bool weft_launch__agent_is_running(const weft_launch__run *l, int r);
/* It is waited for: stopped on purpose.  hold: no rank's wait times out. */
void weft_launch__agent_keep(weft_launch__run *l, int r, double now_s);
void weft_launch__agent_hold(weft_launch__run *l, bool on);
/* Epoch, causes, folder. */
void weft_launch__agent_export(const weft_launch__run *l, weft_exporter_job *j);
/* Ranks of the newest view; all that there may be where there is no agent. */
int weft_launch__agent_count(const weft_launch__run *l);
/* Those of the view that slot r is in, or prepares for. */
int weft_launch__agent_count_for(const weft_launch__run *l, int r);
/* The position of slot r among the ranks of this host, beyond them where it is not in the view; its
 * rank; and the slot at a position. */
int weft_launch__position(const weft_launch__run *l, int r);
int weft_launch__rank(const weft_launch__run *l, int r);
int weft_launch__slot_at(const weft_launch__run *l, int position);
/* How long new ranks may prepare. */
double weft_launch__prepare_limit_s(const weft_launch__run *l);
/* Slots up to n prepare to be in the first view of this host, with that brief. */
void weft_launch__agent_prepare(weft_launch__run *l, int n, const weft_text *brief);
bool weft_launch__agent_is_prepared(const weft_launch__run *l, int n);
/* A rank that prepares has learned so much; the least of the first n ranks, -1: nothing. */
void weft_launch__note_learned(weft_launch__run *l, int r, int64_t percent);
int  weft_launch__agent_learned(const weft_launch__run *l, int n);
/* Have slots that stay among n made what they will need, and new ones prepared?  Those that do not
 * know of it are asked.  forget: all are to be asked again. */
bool weft_launch__have_prepared(weft_launch__run *l, int n);
void weft_launch__forget_asked(weft_launch__run *l);
/* The same of a host that is in a view, with the brief of its own first rank.  may: all ranks are
 * ready, and no process beyond them is left. */
void weft_launch__agent_grow(weft_launch__run *l, int n);
bool weft_launch__agent_may_grow(const weft_launch__run *l);
/* Of several hosts: a new rank failed, so n ranks go on; or this host is not in the newest view.
 * weft scale is answered. */
void weft_launch__agent_stay(weft_launch__run *l, int n);
void weft_launch__leave_scale(weft_launch__run *l);
bool weft_launch__agent_has_processes(const weft_launch__run *l);
/* Of several hosts: the next view of this one has a rank less, that at the position. */
void weft_launch__agent_leave_out(weft_launch__run *l, int position);
/* Those that prepare are not needed: the job goes on, or ends, as it is. */
void weft_launch__drop_preparing(weft_launch__run *l);
/* What ranks of the newest view have left for those that prepare: appended, most bytes at most. */
void weft_launch__agent_read_brief(const weft_launch__run *l, size_t most,
                                   weft_text *out);
/* The job is to go on with n ranks: weft_launch__control_answer() says what became of it.  false:
 * it cannot be, and why. */
bool weft_launch__agent_scale(weft_launch__run *l, int n, char *why, size_t size);
/* Views of several hosts: n ranks here are in the one that was decided. */
void weft_launch__agent_enter(weft_launch__run *l, uint32_t epoch, int n);
/* Ranks are to leave an epoch: at once, or after the step under way; drains: a host will take its
 * memory with it. */
void weft_launch__agent_leave(weft_launch__run *l, uint32_t epoch, bool at_once,
                              bool drains);
/* When something was noticed, and its last sign of life before that. */
typedef struct weft_launch__noticed {
    double wall_s, at_s, seen_s;
} weft_launch__noticed;

/* An incident of a host; loss: how it was lost, NULL: it was not.  when NULL: now. */
struct weft_launch_host_loss;
void weft_launch__agent_note(weft_launch__run *l, const char *host, const char *cause,
                             const char *what, const struct weft_launch_host_loss *loss,
                             const weft_launch__noticed *when);
bool weft_launch__agent_is_stopped(const weft_launch__run *l); /* no rank is in it */
bool weft_launch__agent_is_ready(const weft_launch__run *l, uint32_t epoch);
bool weft_launch__agent_is_over(const weft_launch__run *l); /* done, ended or to end */
void weft_launch__agent_end(weft_launch__run *l); /* this host goes, others may go on */
/* Why the job was ended; NULL: it was not, by the agent. */
const char *weft_launch__agent_reason(const weft_launch__run *l);

/* ---- restart.c: what agent.c does, for ranks of another engine's program ---- */

weft_status weft_launch__restart_open(weft_launch__run *l);
void        weft_launch__restart_close(weft_launch__run *l);
/* Starts and kills what is due. */
weft_status weft_launch__restart_act(weft_launch__run *l);
/* A rank has ended.  false: there are none of these. */
bool weft_launch__restart_lost(weft_launch__run *l, int r, int pid, int how);
void weft_launch__restart_enter(weft_launch__run *l, uint32_t epoch, int n);
void weft_launch__restart_leave(weft_launch__run *l, uint32_t epoch, bool is_loss);
void weft_launch__restart_note(const weft_launch__run *l, const char *host,
                               const char *cause, const char *what,
                               const weft_launch__noticed *when);
/* Restarts that the next view has to count: of earlier views, and of this one's failure. */
int64_t weft_launch__restart_steps(const weft_launch__run *l);
bool    weft_launch__restart_is_ready(const weft_launch__run *l, uint32_t epoch);
bool    weft_launch__restart_has_run(const weft_launch__run *l); /* for a while */
bool    weft_launch__restart_is_over(const weft_launch__run *l);
bool    weft_launch__restart_is_done(const weft_launch__run *l);
void    weft_launch__restart_end(weft_launch__run *l);
int     weft_launch__restart_count(const weft_launch__run *l); /* ranks here */
/* Ranks of the view that run, and hosts that have some of them. */
int weft_launch__restart_world(const weft_launch__run *l);
int weft_launch__restart_hosts(const weft_launch__run *l);
int weft_launch__restart_number(const weft_launch__run *l); /* restarts so far */
const weft_exporter_counts *weft_launch__restart_counts(const weft_launch__run *l);
/* The exit code; code: the agreement's, or -1. */
int weft_launch__restart_code(const weft_launch__run *l, int code);

/* ---- hosts.c: nothing happens in any of these where there is one host ---- */

weft_status weft_launch__hosts_open(weft_launch__run *l);
void        weft_launch__hosts_close(weft_launch__run *l);
int         weft_launch__hosts_fd(const weft_launch__run *l); /* -1: none */
int         weft_launch__hosts_wait_ms(const weft_launch__run *l);
void        weft_launch__hosts_serve(weft_launch__run *l);
void        weft_launch__hosts_act(weft_launch__run *l);
/* The launcher has something to do though no rank runs. */
bool weft_launch__hosts_is_waiting(const weft_launch__run *l);
/* This host needs another view. */
void weft_launch__hosts_want(weft_launch__run *l, const char *why);
/* A rank of a host that would join has found that the next plan has n_rank. */
void weft_launch__prepare_unused(weft_launch__run *l, int n_rank);
/* This host has left, as the plan has no rank for it: it is to wait as one that joins, at the
 * address of an agent of the job; n_host: of the view that it was of no use in. */
bool weft_launch__hosts_idles(const weft_launch__run *l, char *at, size_t size,
                              int *n_host);
void weft_launch__hosts_done(weft_launch__run *l); /* its ranks have done their work */
/* Have those of the first n hosts of the view done theirs? */
bool weft_launch__hosts_have_done(const weft_launch__run *l, int n);
/* A host by its name or address: weft_launch__control_answer() says what became of it.  false: it
 * cannot be, and why. */
bool weft_launch__hosts_drain(weft_launch__run *l, const char *host, char *why,
                              size_t size);
/* The host of the view that has a rank, and how many it has; "": none has.  release: that host
 * leaves.  leave_out: that rank alone; lost: it is of this host and has no process. */
const char *weft_launch__hosts_name_of(const weft_launch__run *l, int rank, int *n_rank);
void        weft_launch__hosts_release(weft_launch__run *l, int rank);
void        weft_launch__hosts_leave_out(weft_launch__run *l, int rank, bool lost);
/* hosts_crash.c: a process here was ended by what it ran; the others hear of it. */
void weft_launch__hosts_crashed(weft_launch__run *l);
/* May the job go on with a host less?  cordon: this one leaves, and ends with that line. */
bool weft_launch__hosts_may_leave(const weft_launch__run *l);
void weft_launch__hosts_cordon(weft_launch__run *l, const char *why);
bool weft_launch__hosts_is_cordoned(const weft_launch__run *l);
/* The job is to have n ranks; why: "", or that it cannot be. */
void weft_launch__hosts_scale(weft_launch__run *l, int n, char *why, size_t size);
/* hosts_prepare.c: ranks of the view that slot r prepares for or is in, of this host (prepares
 * for) and of all. */
int weft_launch__hosts_local_for(const weft_launch__run *l);
int weft_launch__hosts_world_for(const weft_launch__run *l, int r);
/* The message that says what to prepare for. */
void weft_launch__hosts_fill_prepare(const weft_launch__run *l, weft_line_message *m);
/* A rank that prepares to join with this host has ended. */
void weft_launch__hosts_end_prepare(weft_launch__run *l, int r, bool failed,
                                    const char *what);
/* Of the ranks of an epoch, n are of use. */
void weft_launch__hosts_use(weft_launch__run *l, uint32_t epoch, int n);
/* Ranks of all hosts, of this one, and where they meet. */
void weft_launch__hosts_fill_view(weft_launch__run *l, weft_line_message *m);
int  weft_launch__hosts_world(const weft_launch__run *l);
/* The newest view; me: this host's position. */
const weft_member_view *weft_launch__hosts_view(const weft_launch__run *l);
int                     weft_launch__hosts_position(const weft_launch__run *l);
int                     weft_launch__hosts_rdzv_fd(const weft_launch__run *l);
const char *weft_launch__hosts_address(const weft_launch__run *l); /* of this agent */
/* false: this host's ranks are to save and end. */
bool weft_launch__hosts_take_signal(weft_launch__run *l, int sig);
/* All hosts are to save and end, why; false: this host's ranks alone. */
bool weft_launch__hosts_save(weft_launch__run *l, const char *why);
bool weft_launch__hosts_is_out(const weft_launch__run *l); /* it goes, others may go on */
bool weft_launch__hosts_saves(const weft_launch__run *l); /* its ranks save before that */
/* The launcher ends with this code: is the job over, for all hosts? */
void weft_launch__hosts_note_end(weft_launch__run *l, int code);
/* The exit code, where the agreement has ended this host, with a line; -1: it has not. */
int weft_launch__hosts_code(const weft_launch__run *l);

/* ---- hosts_log.c ---- */

/* Of the next view: a host goes; a rank or host was lost.  Without a loss ranks finish the step
 * under way; those of hosts that are not told why hear it from the others. */
bool weft_launch__reason_leaves(const char *why);
bool weft_launch__reason_is_loss(const char *why);
void weft_launch__log_view(const weft_launch__run *l, const weft_member_view *v);
/* The first host of a view reports which hosts came, were lost and left; what was decided about
 * lost ones follows from the view. */
void weft_launch__note_hosts(weft_launch__run *l, const weft_member_view *was,
                             const weft_member_view *v);
/* Agents of the view, as keys of a JSON object. */
void weft_launch__hosts_print(const weft_launch__run *l, weft_text *t);

/* ---- control.c: as those ---- */

/* What became of a request that changes the job. */
typedef enum weft_launch__answer {
    WEFT_LAUNCH__REFUSED,
    WEFT_LAUNCH__DONE,
    WEFT_LAUNCH__MISSED, /* the job goes on, but not as it was asked for */
} weft_launch__answer;

void weft_launch__control_open(weft_launch__run *l);
void weft_launch__control_close(weft_launch__run *l);
int  weft_launch__control_fd(const weft_launch__run *l); /* -1: none */
/* ready: the descriptor is. */
void weft_launch__control_hear(weft_launch__run *l, bool ready);
/* A request of that command came over the control plane: its client is answered.  false: another
 * one is. */
bool weft_launch__control_begin(weft_launch__run *l, weft_control *c, int64_t peer,
                                const char *command);
void weft_launch__control_forget(weft_launch__run *l, const weft_control *c,
                                 int64_t peer);
/* To the client that sent the request. */
void weft_launch__control_answer(weft_launch__run *l, weft_launch__answer answer,
                                 const char *text);

/* ---- agent_state.c ---- */

/* What this agent sees of the job, as a JSON object. */
void weft_launch__print_state(const weft_launch__run *l, weft_text *t);
/* What a job waits for that has fewer hosts than it needs. */
void weft_launch__describe_wait(int here, int least, char *why, size_t size);

/* ---- remote.c: nothing happens without --control, on one host ---- */

weft_status weft_launch__remote_open(weft_launch__run *l);
void        weft_launch__remote_close(weft_launch__run *l);
int         weft_launch__remote_fd(const weft_launch__run *l); /* -1: none */
int         weft_launch__remote_wait_ms(const weft_launch__run *l);
void        weft_launch__remote_tick(weft_launch__run *l);
/* A process that is no rank has ended. */
void weft_launch__remote_ended(weft_launch__run *l, pid_t pid, int how);
/* Tokens or certificates of control connections. */
weft_status weft_launch__find_proofs(const weft_launch_options *o, weft_comm_token *full,
                                     weft_comm_token *reader, weft_control_options *out);
/* An event of a tool, or a refusal, of any control plane of this agent. */
void weft_launch__remote_hear(weft_launch__run *l, weft_control *c,
                              const weft_control_event *e);
void weft_launch__remote_answer(weft_control *c, int64_t peer, const char *command,
                                weft_launch__answer answer, const char *text);

/* ---- watch.c: as those ---- */

weft_status weft_launch__watch_open(weft_launch__run *l);
void        weft_launch__watch_close(weft_launch__run *l);
/* Ranks that are stopped, silent or stuck are killed. */
void weft_launch__watch_tick(weft_launch__run *l);
int  weft_launch__watch_wait_ms(const weft_launch__run *l); /* -1: none is due */
/* A rank that is waited for, about each second: has it used a core meanwhile, used_s of it, or
 * waited for one or for a device?  false also where it is too early to say. */
bool weft_launch__watch_works(weft_launch__run *l, int r, double now_s, double *used_s);
/* The agent itself was stopped: all times begin anew. */
void weft_launch__watch_forgive(weft_launch__run *l);

#endif
