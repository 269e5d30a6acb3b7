/* A job: what to train, on what, how long.  Read from a YAML or JSON file and key=value words.
 *
 *     weft_job *j;
 *     WEFT_TRY(weft_job_load("job.yaml", 1, (const char *[]){"optimizer.lr=0.0003"}, &j));
 *     ...
 *     weft_job_destroy(j);
 *
 * A job that loads is complete: every key has a value in range, micro_batch divides batch, lanes
 * is a power of two.  Read-only afterwards.  The keys are the rows of job.def; docs/job.md
 * explains them. */
#ifndef WEFT_JOB_JOB_H
#define WEFT_JOB_JOB_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/doc.h"
#include "base/text.h"
#include "compile/compile.h"
#include "weft/job.h"

typedef struct weft_job_schedule {
    const char *name;
    int64_t     warmup, decay_steps; /* decay_steps 0: the job's steps */
    double      min_lr;
} weft_job_schedule;

typedef struct weft_job_checkpoint {
    int64_t every, keep;
    bool    async;
    double  wait; /* seconds */
} weft_job_checkpoint;

typedef struct weft_job_eval {
    const char *data; /* NULL: no evaluation */
    int64_t     every, batches;
} weft_job_eval;

struct weft_job {
    weft_arena *arena;
    const char *file; /* for messages */
    const char *model, *data, *data_format, *tokenizer, *reduction, *dtype, *fp8_format,
        *init, *output, *memory, *device, *recover;
    int64_t seq, batch, micro_batch, lanes, steps, seed, threads, snapshot_every;
    bool    given_micro_batch, given_lanes; /* else chosen here, at step 0 */
    bool    shuffle, dropout, labels_shifted, share_gpu, learn;
    weft_compile_optimizer optimizer;
    weft_job_schedule      lr_schedule;
    weft_job_checkpoint    checkpoint;
    weft_job_eval          eval;
    weft_strategy          strategy; /* of its keys: how ranks share the work */
    const char            *plan; /* a plan file instead of a strategy, "off", or NULL */
    const char            *plan_file; /* plan, unless it is off */
    const char            *cluster;   /* to plan for; NULL: this host */
    /* what model names, once it was read, borrowed; else NULL */
    const weft_model_source *source;
};

/* The same from text in memory; file gives the format by its ending and stands in messages. */
weft_status weft_job_parse(const char *file, const char *text, size_t n, int n_assign,
                           const char *const *assign, weft_job **out);

/* All keys with their values as one line of JSON that weft_job_parse() reads back. */
void weft_job_print(const weft_job *j, weft_text *t);

/* The keys as a table for people, and as rows of Markdown. */
void weft_job_print_keys(weft_text *t);
void weft_job_print_keys_md(weft_text *t);

/* What a checkpoint remembers of its job: the keys that decide the numbers, as one line of JSON.
 * weft_job_same() compares it with a job and says which key differs (WEFT_ERR_ARG); micro_batch
 * and lanes, which --allow may change, are compared where the plan is decided. */
void        weft_job_print_identity(const weft_job *j, weft_text *t);
weft_status weft_job_same(const weft_job *j, const char *identity, const char *where);
/* reduction auto is what the checkpoint's job has. */
weft_status weft_job_keep_reduction(weft_job *j, const char *identity, const char *where);

/* Keys that --allow lets a resume change. */
enum {
    WEFT_JOB_ALLOW_LANES       = 1,
    WEFT_JOB_ALLOW_MICRO_BATCH = 2,
    WEFT_JOB_ALLOW_ALL         = 3
};
/* "lanes,micro_batch" (NULL: none) as those bits.  WEFT_ERR_ARG: an unknown name; the known ones
 * are named. */
weft_status weft_job_parse_allow(const char *text, unsigned *out);

/* Are sums to be the same bits for any number of ranks?  auto: yes, on CPUs. */
bool weft_job_is_invariant(const weft_job *j);
/* Are all its ranks on CPUs, however many there are?  auto may be a GPU. */
bool weft_job_is_on_cpus(const weft_job *j);
/* Does it leave to us how ranks share the work? */
bool weft_job_is_open(const weft_job *j);
/* micro_batch where it was not given: the whole batch, or as much of it as a lane has. */
void weft_job_default_cut(weft_job *j);
/* micro_batch and lanes against batch; lanes is chosen for dp ranks when it was not given. */
weft_status weft_job_check_cut(weft_job *j, int dp);

/* Of several hosts each has one copy at most. */
weft_status weft_job_check_copies(int copies, int n_host);

/* The keys as all ranks of a job must have them, a line each: "batch is 8". */
void weft_job_print_common(const weft_job *j, weft_text *t);

/* What to compile. */
weft_compile_spec weft_job_spec(const weft_job *j);

/* What `device` means for one rank of a host: the kernels it runs, and its number. */
typedef struct weft_job_device {
    char name[16]; /* "cpu", "cuda", "auto" */
    int  number;   /* of cuda:N; -1: by the local rank */
} weft_job_device;

/* Entry local_rank of the list, or its only one.  WEFT_ERR_ARG: not a device, or a list of another
 * length; `where` stands in front of the message. */
weft_status weft_job_parse_device(const char *where, const char *list, int local_rank,
                                  int local_world, weft_job_device *out);

/* The learning rate of step s, counted from 1. */
double weft_job_lr(const weft_job *j, int64_t s);

#endif
