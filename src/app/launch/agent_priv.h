/* Inside the agent: its data, for the files that carry out what it decides. */
#ifndef WEFT_LAUNCH_AGENT_PRIV_H
#define WEFT_LAUNCH_AGENT_PRIV_H

#include "launch/incident.h"
#include "launch/launch_priv.h"
#include "launch/level.h"
#include "member/member.h"

enum {
    WEFT_AGENT_MAX_INCIDENT = 64 /* that wait for their outcome */
};

/* A process is to prepare for another number of ranks. */
typedef struct weft_launch__asked {
    uint32_t epoch;   /* since this view; 0: it is not */
    bool     ready;   /* one that stays: it has */
    int      learned; /* one that is new: percent of the state */
} weft_launch__asked;

struct weft_launch__agent {
    weft_member   *member;
    weft_comm_shm *epoch;     /* the memory of the newest view */
    bool           all_ready; /* its ranks have been, all at a time */
    int            first;     /* the first rank of this host in it */
    bool           done;      /* rank 0 has ended with all written */
    bool           finished;  /* all is written, as a rank has said */
    bool           over;      /* the job was ended, why: */
    char           why[200];
    char           stop_why[200]; /* all are to save and stop; "": they are not */
    bool          *failed;  /* of each slot: its process reported an error of its own */
    bool          *begun;   /* of each slot: it had a process before */
    uint64_t      *word;    /* of each slot: its progress, when it was last looked at */
    int      scale_to;      /* ranks that were asked for and are not there yet; 0: none */
    int      scale_from;    /* ranks before; 0: the view is not decided yet */
    bool     scale_noted;   /* of several hosts: ranks stop for it */
    bool     leaves_itself; /* for scale_to: ranks leave without new ranks preparing */
    uint32_t scale_epoch;   /* in which that was asked for */
    char     scale_why[200]; /* what may have come between; "": nothing */
    double   asked_s;        /* when that was */
    double   prepare_s; /* ranks prepare for it, until then at most; 0: they do not */
    weft_launch__asked *asked; /* of each slot: for that */
    int  brief; /* a file: what new ranks need to know, to prepare; -1: there is none */
    bool reported_end; /* by a rank, in incidents.jsonl */
    /* scale_to is without a slot that is cordoned, why, and which; NULL: it is not */
    const char *cordon;
    int         cordoned; /* of several hosts: its rank, once scale_from is there */
    int64_t     n_oom;    /* processes that the kernel has killed for want of memory */
    char        folder[1024]; /* the job's output, once a rank has said so */
    weft_exporter_counts  counts;
    int                   n_phase; /* of the last incident that is over */
    weft_incident_phase   phase[WEFT_INCIDENT_MAX_PHASE];
    int                   n_incident;
    weft_incident         incident[WEFT_AGENT_MAX_INCIDENT];
    weft_incident_outcome outcome; /* of the newest view, so far */
    weft_incident_left    left;
    weft_incident_view    trained; /* the newest one with a committed step */
    weft_launch_levels    levels;
};

/* agent_incident.c: an incident, r: of slot r or -1; to be written with the outcome of the next
 * view, or at once. */
weft_incident weft_launch__make_incident(const weft_launch__agent *a, int r,
                                         const char *cause, const char *what,
                                         const char *noticed);
void          weft_launch__add_incident(weft_launch__agent *a, const weft_incident *i);
void          weft_launch__publish(weft_launch__run *l, const weft_incident *i,
                                   const weft_incident_outcome *o);
/* All that wait for their outcome; decided NULL: the job goes on; "": this host does not see
 * how. */
void weft_launch__write_incidents(weft_launch__run *l, const char *decided,
                                  const char *why);
/* The pauses that end with the first step of a view. */
void weft_launch__note_pauses(weft_launch__agent *a);
/* The last step that rank 0 is known to have committed. */
int64_t weft_launch__find_step(const weft_launch__run *l);
/* Why a process ended without a request; how: the status of waitpid. */
const char *weft_launch__find_exit_cause(weft_launch__agent       *a,
                                         const weft_launch__child *c, int how);

/* agent_level.c: a rank was lost; by cost, and what follows from it besides the next view.  true:
 * the slot gets a process however often it was lost. */
bool weft_launch__choose_level(weft_launch__run *l, int r, int64_t step,
                               weft_level_choice *out);
/* What is done about a rank that was lost, for the log. */
const char *weft_launch__name_answer(const weft_launch__run *l, int rank);
/* Of several hosts: the slot that is to be left out is, with its rank or its host, once its rank
 * was replaced. */
void weft_launch__leave_slot_out(weft_launch__run *l);
/* A rank computed other bits when it ran a step again: the job goes on without its slot, of several
 * hosts without its host, where it may. */
void weft_launch__cordon_slot(weft_launch__run *l, int r, const weft_line_message *m);
/* Ranks that are to be left at least where one less is wanted; 0: their number is fixed.  alone: of
 * several hosts, without its host. */
int weft_launch__min_rank(const weft_launch__run *l, bool alone);

/* agent_scale.c: more or fewer ranks.  begin: as soon as a view may be decided, and new ranks are
 * prepared.  end: a step was committed in a view that was decided after it. */
void weft_launch__begin_scale(weft_launch__run *l);
/* Ranks that replay another run leave by themselves: the view is decided as soon as it can be. */
void weft_launch__scale_for_ranks(weft_launch__run *l, int n);
/* One rank less, without slot r, why: as soon as a view may be decided.  leave_rank_out: of several
 * hosts, without that rank, at once; lost: a rank of this host that has no process, so that a view
 * follows anyway.  drop_slot: of one host, the slot of leave_out, the same.  forget: nothing of it
 * any more. */
void weft_launch__leave_out(weft_launch__run *l, int r, const char *why);
void weft_launch__leave_rank_out(weft_launch__run *l, int rank, const char *why,
                                 bool lost);
void weft_launch__drop_slot(weft_launch__run *l);
void weft_launch__forget_scale(weft_launch__run *l);
/* A rank stays slow, and less work for it was not possible or does not pay: the job goes on without
 * its slot, or its host where all of that is slow, where that is predicted to be faster. */
void weft_launch__drop_slow(weft_launch__run *l, const weft_line_message *m);
/* Of several hosts: ranks stop after a step, perhaps for it, and its pause begins; or a view that
 * was needed for another reason has those ranks. */
void weft_launch__note_stop(weft_launch__run *l);
void weft_launch__note_enter(weft_launch__run *l);
void weft_launch__end_scale(weft_launch__run *l);
void weft_launch__kill_slot(weft_launch__run *l, int r);
/* All ranks of the view have their state: what others have held is not needed any more. */
void weft_launch__release_slots(weft_launch__run *l);
/* A process that was just started beyond the view: it hears what to prepare for. */
void weft_launch__send_prepare(weft_launch__run *l, int r);
/* A rank of the view has made what it needs for the next one. */
void weft_launch__note_prepared(weft_launch__run *l, int r);
/* A process beyond the view has ended: was it one that prepares?  Then the growth has failed. */
void weft_launch__end_growth(weft_launch__run *l, int r, int pid, int how,
                             const char *what);

#endif
