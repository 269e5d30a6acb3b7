/* A program with memory, threads and a reader: what train, eval, sample and bench run steps with. */
#ifndef WEFT_SESSION_RUNNER_H
#define WEFT_SESSION_RUNNER_H

#include "base/pool.h"
#include "data/data.h"
#include "model/model.h"
#include "program/program.h"

typedef struct weft_runner weft_runner;

typedef struct weft_runner_options {
    const weft_program *program; /* borrowed, as all of these */
    const weft_model   *model;   /* of one micro-batch: which inputs there are */
    weft_pool          *pool;
    uint64_t            seed;
    const weft_data    *data; /* NULL: random numbers that fit the model */
    weft_runner
        *state_of; /* parameters are shared with that one where both lay them out alike */
} weft_runner_options;

weft_status weft_runner_create(const weft_runner_options *o, weft_runner **out);
void        weft_runner_destroy(weft_runner *r); /* accepts NULL */

/* The memory of a binding; p == NULL: no such. */
weft_view weft_runner_view(const weft_runner *r, const char *name);
/* Scalars that go in and out once a step. */
void   weft_runner_put(weft_runner *r, const char *name, double x);
double weft_runner_get(const weft_runner *r, const char *name);

/* With state_of and another layout: copies the parameters over.  Before a step that must see them. */
weft_status weft_runner_take_state(weft_runner *r);

/* One step: step counts from 1, first is the number of its first sample. */
weft_status weft_runner_step(weft_runner *r, int64_t step, int64_t first);

/* Slabs it allocated, and scratch. */
int64_t weft_runner_bytes(const weft_runner *r);

/* The last step as a timeline for Perfetto. */
weft_status weft_runner_trace(weft_runner *r, const char *path);

#endif
