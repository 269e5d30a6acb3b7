/* Plans for the next views of a job, made ahead: what is asked and what is answered, as text.
 *
 *     weft_ahead_request q = {.job = json, .plan = text, .n_core = 8};
 *     weft_ahead_add_view(&q, 3, (int[]){2, 2, 2});
 *     weft_ahead_print_request(&q, &t);                in a rank, for the helper process
 *     weft_ahead_parse_request(t.s, t.n, &q);          in the helper
 *     weft_ahead_print_answer(&a, &t);                 one behind the other, as they are found
 *     weft_ahead_find(t.s, t.n, 3, counts, &a);        in the rank, when a view is there
 *
 * (1) An answer that is not whole, or was altered, is none; those before it count.
 * (2) parse(print(q)) == q. */
#ifndef WEFT_SESSION_AHEAD_H
#define WEFT_SESSION_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

enum {
    WEFT_AHEAD_MAX_VIEW = 12,
    WEFT_AHEAD_MAX_HOST = 1024
};

/* Ranks of each host. */
typedef struct weft_ahead_view {
    int  n_host;
    int *count; /* of malloc */
} weft_ahead_view;

typedef struct weft_ahead_request {
    char  *job, *plan; /* of malloc once parsed; plan "": one rank without a plan */
    size_t job_bytes, plan_bytes;
    int    n_core;             /* of a host's ranks together; 0: not known */
    int    min_host, min_rank; /* that the job may have; 0: any */
    double horizon_s, pause_s; /* planner/replan.h; the pause counts for the first view */
    int    n_view;
    weft_ahead_view view[WEFT_AHEAD_MAX_VIEW]; /* the first one is as it is now */
} weft_ahead_request;

/* false: it is there already, or there are too many. */
bool weft_ahead_add_view(weft_ahead_request *q, int n_host, const int *count);
/* The views that are likely after one with these counts: a host less, a rank less on one, a host of
 * most_local ranks more where there may be most_rank; one_host: a rank more or less. */
void        weft_ahead_add_likely(weft_ahead_request *q, int n_host, const int *count,
                                  int most_rank, int most_local, bool one_host);
void        weft_ahead_print_request(const weft_ahead_request *q, weft_text *t);
weft_status weft_ahead_parse_request(const char *text, size_t n, weft_ahead_request *out);
void        weft_ahead_request_fini(weft_ahead_request *q); /* of add and parse */

typedef struct weft_ahead_answer {
    int         n_host;
    const int  *count;
    bool        changes; /* it is not the running plan */
    double      step_s, was_step_s;
    double      move_s; /* of the state to it, without its pages */
    double      pages;  /* bytes that each rank lacks */
    const char *plan;   /* found: inside the text */
    size_t      plan_bytes;
} weft_ahead_answer;

void weft_ahead_print_answer(const weft_ahead_answer *a, weft_text *t);
/* false: there is none for these.  out->count is the caller's. */
bool weft_ahead_find(const char *text, size_t n, int n_host, const int *count,
                     weft_ahead_answer *out);
/* Answers one after another, the counts of each as their sum: *at from 0; false: no more. */
bool weft_ahead_next(const char *text, size_t n, size_t *at, int *n_rank,
                     weft_ahead_answer *out);

#endif
