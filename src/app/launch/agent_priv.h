/* Inside the agent: its data, for the files that carry out what it decides. */
#ifndef WEFT_LAUNCH_AGENT_PRIV_H
#define WEFT_LAUNCH_AGENT_PRIV_H

#include "launch/incident.h"
#include "launch/launch_priv.h"
#include "launch/level.h"
#include "member/member.h"

enum {
    WEFT_AGENT_MAX_INCIDENT = 64, /* that wait for their outcome */
    WEFT_AGENT_MAX_CAUSE    = 32  /* that are counted */
};

struct weft_launch__agent {
    weft_member   *member;
    weft_comm_shm *epoch;     /* the memory of the newest view */
    bool           all_ready; /* its ranks have been, all at a time */
    int            first;     /* rank of slot 0 */
    bool           done;      /* rank 0 has ended with all written */
    bool           over;      /* the job was ended, why: */
    char           why[200];
    char           stop_why[200]; /* all are to save and stop; "": they are not */
    bool          *failed;  /* of each slot: its process reported an error of its own */
    bool          *begun;   /* of each slot: it had a process before */
    uint64_t      *word;    /* of each slot: its progress, when it was last looked at */
    int      scale_to;      /* ranks that were asked for and are not there yet; 0: none */
    int      scale_from;    /* ranks before; 0: the view is not decided yet */
    bool     leaves_itself; /* for scale_to: ranks leave without new ranks preparing */
    uint32_t scale_epoch;   /* in which that was asked for */
    double   asked_s;       /* when that was */
    double   prepare_s; /* new ranks prepare for it, until then at most; 0: they do not */
    bool     reported_end; /* by a rank, in incidents.jsonl */
    /* scale_to is for a slot that is cordoned, why; NULL: it is not */
    const char *cordon;
    int64_t     n_oom; /* processes that the kernel has killed for want of memory */
    char        folder[1024]; /* the job's output, once a rank has said so */
    int         n_cause;
    weft_exporter_cause   cause[WEFT_AGENT_MAX_CAUSE];
    char                  cause_name[WEFT_AGENT_MAX_CAUSE][16];
    int                   n_incident;
    weft_incident         incident[WEFT_AGENT_MAX_INCIDENT];
    weft_incident_outcome outcome; /* of the newest view, so far */
    weft_launch_levels    levels;
};

/* agent.c: an incident, r: of slot r or -1; to be written with the outcome of the next view, or at
 * once. */
weft_incident weft_launch__make_incident(const weft_launch__agent *a, int r,
                                         const char *cause, const char *what,
                                         const char *noticed);
void          weft_launch__add_incident(weft_launch__agent *a, const weft_incident *i);
void          weft_launch__publish(weft_launch__run *l, const weft_incident *i,
                                   const weft_incident_outcome *o);
/* Why a process ended without a request; how: the status of waitpid. */
const char *weft_launch__find_exit_cause(weft_launch__agent       *a,
                                         const weft_launch__child *c, int how);

/* agent_scale.c: more or fewer ranks.  begin: as soon as a view may be decided, and new ranks are
 * prepared.  put_off: updates that were broken off are ended first.  end: a step was committed in
 * a view that was decided after it. */
void weft_launch__begin_scale(weft_launch__run *l);
/* Ranks that replay another run leave by themselves: the view is decided as soon as it can be. */
void weft_launch__scale_for_ranks(weft_launch__run *l, int n);
void weft_launch__put_off_scale(weft_launch__run *l);
void weft_launch__end_scale(weft_launch__run *l);
void weft_launch__kill_slot(weft_launch__run *l, int r);
/* All ranks of the view have their state: what others have held is not needed any more. */
void weft_launch__release_slots(weft_launch__run *l);
/* A process that was just started beyond the view: it hears what to prepare for. */
void weft_launch__send_prepare(weft_launch__run *l, int r);
/* Those that prepare are not needed: the job goes on, or ends, as it is. */
void weft_launch__drop_preparing(weft_launch__run *l);
/* A process beyond the view has ended: was it one that prepares?  Then the growth has failed. */
void weft_launch__end_growth(weft_launch__run *l, int r, int pid, int how,
                             const char *what);

#endif
