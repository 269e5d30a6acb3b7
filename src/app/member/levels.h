/* What to do about a fault, by predicted cost: of all levels that are possible and allowed, the one
 * that costs least until the horizon.
 *
 *     weft_level_case c = {.best_step_s = 0.2, .horizon_s = 3600, .allowed = WEFT_LEVEL_ALL};
 *     c.option[WEFT_LEVEL_REPLACE].pause_s = weft_level_pause(&history, WEFT_LEVEL_REPLACE);
 *     c.option[WEFT_LEVEL_WAIT].why_not    = "no rank is expected back";
 *     weft_level_choose(&c, &choice);
 *
 *     cost = pause + committed steps that are run again + horizon x (step / best step - 1)
 *
 * Pure: no clock, no process.  Pauses are those measured in this job, and priors until there are
 * some; the horizon is the time left, and at most the time to the next failure. */
#ifndef WEFT_MEMBER_LEVELS_H
#define WEFT_MEMBER_LEVELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum weft_level {
    WEFT_LEVEL_RETRY,   /* the same ranks run the step again */
    WEFT_LEVEL_REPLACE, /* another process in the slot, with the memory that is there */
    WEFT_LEVEL_HOST,    /* a host that waits takes the place of one that is lost */
    WEFT_LEVEL_SHRINK,  /* fewer ranks, with another plan */
    WEFT_LEVEL_WAIT,    /* until what is lost is back */
    WEFT_LEVEL_CHECKPOINT, /* all go back to the newest checkpoint */
    WEFT_LEVEL_STOP,       /* the state is saved and the job ends */
    WEFT_N_LEVEL
} weft_level;

enum {
    WEFT_LEVEL_ALL     = (1 << WEFT_N_LEVEL) - 1,
    WEFT_LEVEL_HISTORY = 8 /* pauses of a level that are remembered */
};

const char *weft_level_name(weft_level l);
/* "on": all; or names with commas between: those, and stop, which is always possible. */
weft_status weft_levels_parse(const char *text, unsigned *allowed);

/* ---- what is known ---- */

typedef struct weft_level_history {
    double pause_s[WEFT_N_LEVEL][WEFT_LEVEL_HISTORY]; /* rings */
    int    n_pause[WEFT_N_LEVEL];
    int    n_failure;
} weft_level_history;

void weft_level_note_pause(weft_level_history *h, weft_level l, double pause_s);
/* The median of those remembered; a prior where there is none. */
double weft_level_pause(const weft_level_history *h, weft_level l);
/* For how long a decision is expected to hold: left_s (0: not known), and the mean time between
 * failures, of those seen in up_s and a prior of one in 8,000 hours of a device. */
double weft_level_horizon(const weft_level_history *h, double up_s, int n_device,
                          double left_s);

/* ---- the choice ---- */

typedef struct weft_level_option {
    const char *why_not;  /* NULL: it is possible */
    double      pause_s;  /* from the fault to the next committed step */
    double      repeat_s; /* committed steps that are run again */
    double      step_s;   /* of a step from then on; 0: the best */
} weft_level_option;

typedef struct weft_level_case {
    weft_level_option option[WEFT_N_LEVEL];
    double   best_step_s; /* of an undisturbed step of the ranks that were there */
    double   horizon_s;
    unsigned allowed; /* bit l: level l */
} weft_level_case;

typedef struct weft_level_rejected {
    weft_level  level;
    double      cost_s;  /* negative: it has none */
    const char *why_not; /* NULL: it costs more */
} weft_level_rejected;

typedef struct weft_level_choice {
    weft_level          level;
    double              cost_s;
    int                 n_rejected;
    weft_level_rejected rejected[WEFT_N_LEVEL];
} weft_level_choice;

/* Stop is chosen where nothing else can be: what it costs is the job, however soon the next failure
 * is expected.  Of equal costs the level that changes least. */
void weft_level_choose(const weft_level_case *c, weft_level_choice *out);

#endif
