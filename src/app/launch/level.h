/* What the agent does about a lost rank: what it knows of the job, as a case of member/levels.h.
 *
 *     weft_launch_levels v;
 *     WEFT_TRY(weft_launch_levels_init(&v, "on", n, now_s));
 *     weft_launch_levels_choose(&v, &(weft_launch_loss){.n_rank = 4, ..}, &choice);
 *     weft_launch_levels_fini(&v); */
#ifndef WEFT_LAUNCH_LEVEL_H
#define WEFT_LAUNCH_LEVEL_H

#include "base/text.h"
#include "member/levels.h"

typedef struct weft_launch_levels {
    unsigned allowed;
    int      n; /* ranks at most */
    double   begun_s;
    double  *step_s; /* [n]: of a step of n ranks, as measured; 0: not yet */
    double  *ratio; /* [n]: of a step of n ranks, as predicted, to one of n_now; 0: not */
    double  *move_s; /* [n]: the same: to get there, added to what any view takes */
    int      n_now;
    weft_level_history history;
} weft_launch_levels;

/* text: as the key recover has it; NULL: on. */
weft_status weft_launch_levels_init(weft_launch_levels *v, const char *text, int n,
                                    double now_s);
void        weft_launch_levels_fini(weft_launch_levels *v); /* a zeroed one is fine */

/* n_step steps of n_rank ranks took so long; fewer than two say nothing. */
void weft_launch_levels_note_steps(weft_launch_levels *v, int n_rank, int64_t n_step,
                                   double seconds);

/* "3:1.33:0.5 5:0.8": predicted steps of so many ranks as parts of those of n_now, and seconds that
 * the move of the state there takes (pages, copies, messages).  What is none of these is left
 * out. */
void weft_launch_levels_note_predicted(weft_launch_levels *v, int n_now,
                                       const char *text);

typedef struct weft_launch_loss {
    int  n_rank, min_rank; /* min_rank 0: the number of ranks is fixed */
    bool too_often;        /* its slot gets no other process */
    bool other_bits;  /* it is there, and computed other bits when it ran a step again */
    bool is_stopping; /* the job is about to save and stop for an earlier loss */
    bool is_resizing; /* another number of ranks follows in any case */
    /* it is one of several hosts, and leaves alone or with its host; ranks are counted on all of
     * them, and steps that were noted here are of others */
    bool   of_host;
    double now_s;
} weft_launch_loss;

void weft_launch_levels_choose(weft_launch_levels *v, const weft_launch_loss *loss,
                               weft_level_choice *out);

/* A rank that stays slow, as rank 0 reports it. */
typedef struct weft_launch_slow {
    int rank;
    int n_rank; /* that would be left out with it: 1, or all of its host, which all are slow */
    double without; /* a step if it was not slow, as a part of one now */
    /* of n_rank less, none of them slow, to that; where nothing is measured or predicted */
    double fewer;
    double left_s; /* of the job */
} weft_launch_slow;

/* "RANK N_RANK WITHOUT FEWER LEFT WHAT"; *what: the rest of the text.  false: it is none. */
bool weft_launch_slow_parse(const char *text, weft_launch_slow *out, const char **what);
/* RETRY: all ranks stay; SHRINK: the job goes on without it. */
void weft_launch_levels_choose_slow(weft_launch_levels *v, const weft_launch_slow *slow,
                                    const weft_launch_loss *loss, weft_level_choice *out);

/* Hosts that are lost: what the agents have agreed on, as the same case. */
typedef struct weft_launch_host_loss {
    int n_host, n_lost; /* in the view before, and of these */
    int n_joined;       /* that waited and are in the next one */
    int min_host;
    int least; /* that the next view needs, where recover does not allow fewer; 0: min_host */
} weft_launch_host_loss;

void weft_launch_levels_choose_host(weft_launch_levels          *v,
                                    const weft_launch_host_loss *loss, double now_s,
                                    weft_level_choice *out);

/* ", "rejected": [..]", for incidents.jsonl. */
void weft_launch_levels_print(const weft_level_choice *c, weft_text *t);

#endif
