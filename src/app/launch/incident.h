/* output/incidents.jsonl: one line for each rank that was lost, written when the job goes on (a
 * step was committed in a later view) or ends; and for what a rank reports, at once. */
#ifndef WEFT_LAUNCH_INCIDENT_H
#define WEFT_LAUNCH_INCIDENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "launch/line.h"
#include "member/levels.h"

typedef struct weft_incident {
    int      rank; /* -1: of the job, whose number of ranks was changed */
    int      pid;
    uint32_t epoch; /* in which it was lost */
    int64_t  step;  /* the last that was committed before; -1: not known */
    /* "kill", "oom", "exit", "crash", "bus", "stop", "silence", "hang", "garbage", "late"; what
     * ranks report: "disk", "numeric", "differs", "slow", "error" */
    char cause[16];
    char host[64];
    char what[400]; /* "killed by signal 9 (SIGKILL)" */
    /* "waitpid", "no answer", "stop", "silence", "hang", "garbage" */
    const char *noticed;
    double      wall_s;    /* when, in seconds since 1970, */
    double      noticed_s; /* and on the monotonic clock */
    double      seen_s;    /* its last sign of life before that; 0: not known */
    bool counted; /* in metrics, as it was published when what is waited for began */
    /* What was to be done about it; n_rejected 0: there was no choice. */
    weft_level_choice choice;
} weft_incident;

/* Why ranks have left an epoch: what the first of them said, as others may have heard it from that
 * one.  All zero: none has. */
typedef struct weft_incident_left {
    uint32_t epoch;
    char     why[300];
} weft_incident_left;

/* A view whose ranks have trained. */
typedef struct weft_incident_view {
    uint32_t epoch; /* 0: none is known */
    int64_t  step;  /* its first committed one */
    int      n_rank;
    char     plan[64]; /* a file under the folder; "": there is none */
} weft_incident_view;

/* How the job went on. */
typedef struct weft_incident_outcome {
    const char *decided;   /* a level (member/levels.h), "resize", "continue", "end" */
    const char *why;       /* of the end; "": it went on */
    uint32_t    epoch;     /* that went on */
    int64_t     step;      /* its first committed one; -1: not known */
    int         n_rank;    /* of that epoch, on all hosts; 0: not known */
    char        plan[64];  /* of that epoch, as in weft_incident_view */
    double      decided_s; /* when the view was sent */
    /* when the last rank was there; 0: unknown */
    double               at_s[WEFT_N_LINE_PHASE];
    double               committed_s; /* 0: it did not go on */
    weft_membership_move move;        /* of the state; no bytes: it stayed where it was */
    weft_incident_view   was;         /* the last one before that has trained */
} weft_incident_outcome;

/* A part of the time that an incident took. */
typedef struct weft_incident_phase {
    const char *name;
    double      seconds;
} weft_incident_phase;

enum {
    WEFT_INCIDENT_MAX_PHASE = 9
};

/* Those that are known, in their order; gives how many.  `notice` is before the others, which add
 * up to the last one, `total`. */
int weft_incident_find_phases(const weft_incident *i, const weft_incident_outcome *o,
                              weft_incident_phase out[WEFT_INCIDENT_MAX_PHASE]);

/* Of a process that ended by a signal, or 0; oom: the kernel has killed one for want of memory. */
const char *weft_incident_find_cause(int signal, bool oom);

/* Of a status of waitpid: by its own fault, so that its memory is not trusted? */
bool weft_incident_is_crash(int how);
/* What was seen on this host, now. */
void weft_incident_begin(weft_incident *i, const char *cause, const char *what,
                         const char *noticed);

void weft_incident_note_left(weft_incident_left *l, uint32_t epoch, const char *why);
/* To what is known of one that did not come to the next view: why others have left. */
void weft_incident_add_left(const weft_incident_left *l, char *what, size_t bytes);

/* One line of JSON with its newline. */
void weft_incident_print(const weft_incident *i, const weft_incident_outcome *o,
                         weft_text *t);
/* Lines into a file of the folder, behind what is there; a warning where that fails. */
void weft_incident_append(const char *folder, const char *file, const weft_text *lines);
/* Runs `sh -c command` with the line on its standard input, and does not wait for it. */
void weft_incident_notify(const char *command, const weft_text *line);

#endif
