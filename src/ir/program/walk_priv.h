/* The walk's state, shared by walk.c (running) and walk_link.c (who meets whom). */
#ifndef WEFT_PROGRAM_WALK_PRIV_H
#define WEFT_PROGRAM_WALK_PRIV_H

#include "program/order.h"
#include "program/walk.h"

/* Messages from one rank to another with one tag. */
typedef struct weft_program__channel {
    int32_t from, to, tag, credits; /* ranks */
    int     side[2]; /* the stream (index into walk) of sends, of receives; -1 none yet */
    int64_t n_msg;   /* sends a step */
    int64_t n_done[2]; /* sends, receives so far */
    int     cap;       /* of the rings below */
    double *arrive, *freed;
    double *bytes;
    bool    here[2]; /* credits = 0: who has come to the meeting, when, for how long */
    double  ready[2], seconds[2];
    const weft_instr *instr[2];
} weft_program__channel;

/* A collective over some ranks with one tag. */
typedef struct weft_program__meeting {
    const weft_group *group;
    int32_t           tag;
    int              *side; /* the stream of each member; -1 none yet */
    int               n_here;
    bool             *here;
    double            ready, seconds;
    const weft_instr *first;
    int32_t           first_rank;
} weft_program__meeting;

typedef struct weft_program__edge {
    int64_t count[2]; /* given, taken */
    double *at[2];    /* when, for each count of the walk */
    int     side[2];  /* the stream that waits for given (the consumer's), for taken */
} weft_program__edge;

typedef struct weft_program__stream {
    int    program, number;
    int    step, firing, instr; /* where it is */
    bool   inside;              /* the firing has begun */
    bool   queued, done;
    double now;
    bool   running;     /* on a shared host: an instruction that has begun */
    bool   talks;       /* with other ranks */
    double begun, left; /* when, and how many seconds of it are left to do */
} weft_program__stream;

typedef struct weft_program__walk {
    weft_arena                *arena;
    const weft_walk_options   *o;
    int                        n_program;
    const weft_program *const *program;
    int                       *of_rank; /* rank -> program */
    weft_order                *order;   /* of each program */
    weft_program__edge       **edge;    /* of each program */
    int                      **link;    /* [program][instruction]: channel or meeting */
    int **place;    /* [program][instruction]: of a collective, the rank's position */
    int **instr_at; /* [program][actor]: number of its first instruction */
    int   n_channel, cap_channel;
    weft_program__channel *channel;
    int                    n_meeting, cap_meeting;
    weft_program__meeting *meeting;
    int                    n_stream;
    weft_program__stream  *stream;
    int                   *queue, head, n_queue;
    int                   *stream_at; /* [program * WEFT_MAX_STREAM + stream]; -1 none */
    double                 clock;     /* of shared hosts */
    int                   *n_active;  /* [host] */
} weft_program__walk;

/* What walk.c and walk_share.c ask each other: x's instruction runs from start on for some
 * seconds, it has ended. */
weft_status weft_program__begin(weft_program__walk *w, weft_program__stream *x,
                                double start, double seconds);
weft_status weft_program__end(weft_program__walk *w, weft_program__stream *x,
                              double start, double end);
/* Shared hosts: time goes on to the next end of an instruction; *more: there was one. */
weft_status weft_program__pass_time(weft_program__walk *w, bool *more);

/* Finds channels and meetings; checks that every peer exists and that each side keeps to one
 * stream. */
weft_status weft_program__link(weft_program__walk *w);

#endif
