/* Checkpoints that all ranks write, while the next steps compute.
 *
 *     main threads of all ranks                             threads of their own
 *     start_save   rank 0: empty files; all open them        copy blocks out of the state, sum and
 *     next step    ...                                       write them (state/snapshot.h); on GPUs
 *                                                            first all of it (state_copy.c)
 *     commit point wait_copied: the state may change         ...
 *     poll_save    all have written: rank 0 gets the sums    rank 0: state.json, manifest, pruning
 *     poll_save    rank 0 has finished: the log says so
 *
 * (1) Ranks communicate on their main threads alone, once after each step while a checkpoint is
 *     under way; threads that write files exchange nothing.
 * (2) The bytes are those of the step after which it was started, the same as if training waited.
 * (3) An error of any rank gives the checkpoint up, on all of them, with one line; training goes
 *     on.  A save that is waited for ends the job with that line, as an error.
 * (4) There is one at a time.  One that is due meanwhile waits for it until checkpoint.wait seconds
 *     after its begin, and is then left out; those of weft_session__save wait as long as it takes.
 * (5) Where a rank does not see the output folder, rank 0 writes alone (save.c). */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/progress.h"
#include "base/turns.h"
#include "session/keep_alive.h"
#include "session/session_priv.h"

enum {
    MAX_FILE = 4,
    CHUNK    = 1024 /* blocks whose sums are exchanged at a time */
};
static const double TICK_S = 0.25, LEAST_TICK_S = 1e-3; /* between two exchanges */
/* A device that takes longer for what an update waits for does not keep up. */
static const double STALL_S = 10;
/* Of buffers, where training waits: two blocks are written while two are copied. */
static const int64_t WAITING_BYTES = 4 * WEFT_STORE_BLOCK;

/* What a rank tells the others of its work. */
typedef enum stage {
    STAGE_WORKING,
    STAGE_DONE,
    STAGE_FAILED,
} stage;

typedef struct card {
    int32_t stage, status, committed;
    int32_t past;     /* of rank 0: who waits has waited for checkpoint.wait */
    int32_t doubtful; /* whether its calls on files come to an end is not known */
    double  waited_s; /* the longest that a step waited */
    double  write_s;  /* until its blocks were written and synced */
    char    text[512];
} card;

typedef struct weft_session__saving {
    weft_session        *session;
    weft_arena          *arena;
    int64_t              step;
    int                  n_file; /* tensor files, the first ones of ckpt */
    weft_store_writer   *writer[2];
    weft_snapshot_file   file[2];
    weft_ckpt_file       ckpt[MAX_FILE];
    int                  n_ckpt, state_file; /* which one state.json is */
    weft_ckpt_state      numbers;            /* rank 0 */
    weft_ckpt_draft     *draft;              /* rank 0 */
    weft_state          *copy;     /* that takes the state first; NULL: nothing does */
    weft_snapshot       *snapshot; /* NULL: it could not be started */
    double               begin_s, waited_s, write_s;
    double               moved_s;     /* when calls on files were seen to end */
    double               until_s;     /* who waits for it does so until then */
    bool                 over;        /* all ranks: they have waited so long */
    double               spent_s;     /* of checkpoint.wait, by those that were due */
    int                  n_left_out;  /* that were due meanwhile */
    uint64_t            *weight_hash; /* of each tensor of the first file */
    weft_snapshot_total *total;
    weft_store_sum       sum[2];

    /* rank 0, when all have written */
    bool            finishing; /* all ranks: they have */
    bool            running;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  moved;
    bool            finished; /* under lock */
    bool            committed;
    _Atomic bool    dropped; /* nobody waits for more than what is under way */
    weft_status     st;      /* of this rank, before or after */
    char            text[512];
} saving;

static int count_ranks(const weft_session *s)
{
    return s->now->comm ? s->now->comm->world : 1;
}

static void fail_saving(saving *v, weft_status st)
{
    if (v->st != WEFT_OK) return;
    v->st = st;
    snprintf(v->text, sizeof v->text, "%s", weft_error_text());
}

/* ---- what is saved ---- */

static weft_status list_optimizer(weft_session *s, weft_arena *a, weft_store_item **item,
                                  weft_snapshot_item **region, int *n)
{
    const weft_graph *g = s->now->made.graph;
    *n                  = 0;
    *item               = WEFT_ARENA_ARRAY(a, weft_store_item, g->n_value + 1);
    *region             = WEFT_ARENA_ARRAY(a, weft_snapshot_item, g->n_value + 1);
    WEFT_TRY(weft_arena_status(a));
    for (weft_vid v = 0; v < g->n_value; v++) {
        const weft_type *t    = &g->value[v].type;
        const char      *name = g->value[v].name;
        if (!weft_session__is_saved(s, v)) continue;
        (*region)[*n] = (weft_snapshot_item){weft_state_find(s->state, name),
                                             weft_region_whole(&t->shape), t->dtype};
        (*item)[(*n)++] =
            (weft_store_item){.name = name, .dtype = t->dtype, .shape = t->shape};
    }
    return WEFT_OK;
}

/* A tensor file: its header from the items, its place when the folder has a name. */
static weft_status add_file(saving *v, const char *name, const weft_store_spec *spec,
                            const weft_snapshot_item *region)
{
    weft_snapshot_file *f = &v->file[v->n_file];
    size_t              n;
    WEFT_TRY(weft_store_writer_create(spec, &v->writer[v->n_file]));
    /* so that tensors can go to the file from where they are in memory */
    WEFT_TRY(weft_store_writer_align(v->writer[v->n_file], WEFT_IO_ALIGN));
    *f        = (weft_snapshot_file){.item = region, .n_item = spec->n_item};
    f->head   = weft_store_writer_header(v->writer[v->n_file++], &n);
    f->n_head = (int64_t)n;
    v->ckpt[v->n_ckpt++] =
        (weft_ckpt_file){.name = name, .block_bytes = weft_snapshot_file_bytes(f)};
    return WEFT_OK;
}

static weft_status list_files(weft_session *s, saving *v)
{
    static const weft_store_pair pt     = {"format", "pt"};
    const char                  *config = s->now->made.model->config;
    weft_store_item             *item;
    weft_snapshot_item          *region;
    weft_text                    state = {0};
    int                          n;
    WEFT_TRY(weft_weights_list(&s->now->weights, v->arena, &item, &region, &n));
    WEFT_TRY(add_file(v, "model.safetensors", &(weft_store_spec){item, n, &pt, 1, NULL},
                      region));
    v->weight_hash = WEFT_ARENA_ARRAY(v->arena, uint64_t, n + 1);
    WEFT_TRY(weft_arena_status(v->arena));
    WEFT_TRY(list_optimizer(s, v->arena, &item, &region, &n));
    if (n)
        WEFT_TRY(add_file(v, "optimizer.safetensors",
                          &(weft_store_spec){item, n, NULL, 0, NULL}, region));
    if (!weft_session__writes(s)) return WEFT_OK;
    WEFT_TRY(weft_session__describe(s, &v->numbers));
    weft_status st       = weft_ckpt_state_print(&v->numbers, &state);
    v->state_file        = v->n_ckpt;
    v->ckpt[v->n_ckpt++] = (weft_ckpt_file){.name = "state.json", .n_text = state.n};
    weft_text_fini(&state); /* it is as long with the weights' hash */
    if (config)
        v->ckpt[v->n_ckpt++] = (weft_ckpt_file){
            .name = "config.json", .text = config, .n_text = strlen(config)};
    return st;
}

/* ---- start ---- */

static void free_saving(saving *v)
{
    if (!v) return;
    weft_snapshot_close(v->snapshot);
    weft_session__drop_copy(v->session, v->copy);
    weft_ckpt_draft_close(v->draft);
    weft_ckpt_state_fini(&v->numbers);
    for (int i = 0; i < 2; i++) {
        weft_store_writer_destroy(v->writer[i]);
        weft_store_sum_fini(&v->sum[i]);
    }
    pthread_cond_destroy(&v->moved);
    pthread_mutex_destroy(&v->lock);
    weft_arena_destroy(v->arena);
    free(v);
}

static weft_status create_saving(weft_session *s, saving **out)
{
    pthread_condattr_t a;
    saving            *v = calloc(1, sizeof *v);
    if (!v) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to save a checkpoint");
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&v->lock, NULL);
    pthread_cond_init(&v->moved, &a);
    pthread_condattr_destroy(&a);
    v->session = s;
    v->step    = s->r.steps;
    v->begin_s = v->moved_s = weft_clock_s();
    v->until_s              = INFINITY;
    weft_status st          = weft_arena_create(&v->arena);
    if (st == WEFT_OK) st = list_files(s, v);
    v->total = WEFT_ARENA_ARRAY(v->arena, weft_snapshot_total,
                                weft_snapshot_count(v->file, v->n_file) + 1);
    if (st == WEFT_OK) st = weft_arena_status(v->arena);
    if (st == WEFT_OK)
        *out = v;
    else
        free_saving(v);
    return st;
}

/* Rank 0: the folder and its files. */
static weft_status begin_draft(weft_session *s, saving *v)
{
    WEFT_TRY(weft_io_mkdirs(s->out.checkpoints));
    return weft_ckpt_begin(s->out.checkpoints, v->step, v->ckpt, v->n_ckpt, &s->out.found,
                           &v->draft);
}

static weft_status reserve_files(void *arg)
{
    return weft_ckpt_reserve(arg);
}

/* waits: training does, so that few buffers suffice. */
static weft_status start_snapshot(weft_session *s, saving *v, const char *folder,
                                  bool waits)
{
    weft_snapshot_source  source = {.state   = s->state,
                                    .holders = s->now->holders,
                                    .rank    = s->now->comm ? s->now->comm->rank : 0};
    weft_snapshot_options o      = {.staging_bytes = waits ? WAITING_BYTES : 0,
                                    .copy          = v->copy,
                                    .expect_s      = waits ? -1 : s->out.commit_s,
                                    .n_writer      = v->copy && !s->out.late ? 1 : 0,
                                    .item_hash     = v->weight_hash,
                                    .before        = v->draft ? reserve_files : NULL,
                                    .arg           = v->draft};
    for (int i = 0; i < v->n_file; i++)
        v->file[i].path = weft_arena_printf(v->arena, "%s/%s/%s", s->out.checkpoints,
                                            folder, v->ckpt[i].name);
    WEFT_TRY(weft_arena_status(v->arena));
    return weft_snapshot_start(&source, v->file, v->n_file, &o, &v->snapshot);
}

/* The name of step-N.tmp, of a path in it. */
static void find_folder(const weft_ckpt_draft *d, char *out, size_t n)
{
    const char *path = weft_ckpt_draft_path(d, 0), *end = strrchr(path, '/'), *at = end;
    while (at > path && at[-1] != '/') at--;
    snprintf(out, n, "%.*s", (int)(end - at), at);
}

/* *waits: training is to; or it has to, as the state cannot be copied on all ranks. */
static weft_status begin_save(weft_session *s, bool *waits)
{
    saving *v           = NULL;
    char    folder[128] = "";
    bool    all;
    weft_failpoint("save.begin");
    WEFT_TRY(create_saving(s, &v));
    s->out.saving = v;
    if (!*waits) {
        WEFT_TRY(weft_session__take_copy(s, &v->copy, &all));
        if (v->copy) v->waited_s = weft_clock_s() - v->begin_s;
        *waits = !all;
    }
    if (weft_session__writes(s)) {
        fail_saving(v, begin_draft(s, v));
        if (v->draft) find_folder(v->draft, folder, sizeof folder);
    }
    weft_failpoint("save.drafted");
    WEFT_TRY(weft_session__share(s, folder, sizeof folder));
    if (*folder) fail_saving(v, start_snapshot(s, v, folder, *waits));
    weft_failpoint("save.started");
    return WEFT_OK;
}

/* ---- the end of it, at rank 0 ---- */

/* Of the bytes that went to the file, where they all passed here; else the file is read. */
static weft_status hash_weights(saving *v, uint64_t *out)
{
    const weft_weights *w = &v->session->now->weights;
    weft_store_file    *f = NULL;
    if (weft_snapshot_hashed(v->snapshot))
        return weft_weights_hash_items(w, v->weight_hash, out);
    WEFT_TRY(weft_store_open(v->file[0].path, &f));
    weft_status st = weft_weights_hash_file(w, f, out);
    weft_store_close(f);
    return st;
}

static weft_status finish_files(saving *v)
{
    weft_session *s    = v->session;
    weft_text     text = {0};
    weft_status   st   = WEFT_OK;
    WEFT_GO(weft_snapshot_sum(v->file, v->n_file, v->total, v->sum));
    for (int i = 0; i < v->n_file; i++)
        WEFT_GO(weft_ckpt_set_sum(v->draft, i, &v->sum[i]));
    WEFT_GO(hash_weights(v, &v->numbers.weights_xxh64));
    if (v->dropped) WEFT_GO(WEFT_FAIL(WEFT_ERR_PEER, "a rank was lost"));
    WEFT_GO(weft_ckpt_state_print(&v->numbers, &text));
    WEFT_GO(weft_ckpt_set_text(v->draft, v->state_file, text.s, text.n));
    weft_failpoint("save.commit");
    WEFT_GO(weft_ckpt_commit(v->draft, &s->out.found));
    v->committed = true;
    weft_failpoint("save.committed");
    if (!v->dropped)
        WEFT_GO(weft_ckpt_prune(s->out.checkpoints, v->step, (int)s->job.checkpoint.keep,
                                &s->out.found));
out:
    weft_text_fini(&text);
    return st;
}

static void finish_saving(saving *v)
{
    weft_status st = finish_files(v);
    pthread_mutex_lock(&v->lock);
    fail_saving(v, st);
    v->finished = true;
    pthread_cond_broadcast(&v->moved);
    pthread_mutex_unlock(&v->lock);
}

static void *finish_main(void *arg)
{
    weft_turns_shorten();
    finish_saving(arg);
    return NULL;
}

static void start_finishing(saving *v)
{
    sigset_t all, before;
    v->finishing = true;
    if (!v->draft) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    v->running = pthread_create(&v->thread, NULL, finish_main, v) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!v->running) finish_saving(v);
}

static bool wait_finished(saving *v, double seconds)
{
    double          until = weft_clock_s() + seconds;
    struct timespec t     = {.tv_sec = (time_t)until};
    t.tv_nsec             = (long)((until - (double)t.tv_sec) * 1e9);
    pthread_mutex_lock(&v->lock);
    while (!v->finished && weft_clock_s() < until)
        pthread_cond_timedwait(&v->moved, &v->lock, &t);
    bool done = v->finished;
    pthread_mutex_unlock(&v->lock);
    return done;
}

/* ---- ranks ---- */

/* Is the work of this rank done, as far as it has got any? */
static bool is_done(saving *v, double seconds)
{
    if (v->finishing) return !v->draft || wait_finished(v, seconds);
    if (!v->snapshot) return true;
    return weft_snapshot_wait(v->snapshot, WEFT_SNAPSHOT_WRITTEN, seconds);
}

/* Whether calls on files come to an end. */
typedef struct progress {
    double   limit_s, moved_s;
    uint64_t seen;
} progress;

static progress watch_progress(const weft_session *s)
{
    return (progress){.limit_s = s->o->io_timeout_s > 0 ? s->o->io_timeout_s
                                                        : WEFT_KEEP_ALIVE_LIMIT_S,
                      .moved_s = weft_clock_s(),
                      .seen    = weft_progress_count()};
}

/* idle: this rank waits for none. */
static bool is_stuck(progress *p, bool idle)
{
    uint64_t count = weft_progress_count();
    double   now   = weft_clock_s();
    if (idle || count != p->seen) p->moved_s = now;
    p->seen = count;
    return now - p->moved_s > p->limit_s;
}

static void fill_card(saving *v, card *c)
{
    double limit_s = watch_progress(v->session).limit_s, now = weft_clock_s();
    *c = (card){.waited_s = v->waited_s,
                .past     = now >= v->until_s,
                .doubtful = now - v->moved_s > limit_s};
    if (!is_done(v, 0)) return;
    c->doubtful = false;
    if (!v->finishing && v->snapshot) fail_saving(v, weft_snapshot_status(v->snapshot));
    if (v->snapshot) c->write_s = weft_snapshot_seconds(v->snapshot);
    c->stage     = v->st == WEFT_OK ? STAGE_DONE : STAGE_FAILED;
    c->status    = (int32_t)v->st;
    c->committed = v->committed;
    snprintf(c->text, sizeof c->text, "%s", v->text);
}

/* The sums of what each rank wrote, to all of them. */
static weft_status exchange_sums(weft_session *s, saving *v)
{
    int                        n, world = count_ranks(s);
    const weft_snapshot_block *own  = weft_snapshot_blocks(v->snapshot, &n);
    size_t                     size = sizeof *own;
    weft_snapshot_block       *all  = malloc(size * CHUNK * (size_t)world);
    weft_status                st   = WEFT_OK;
    if (!all) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for checksums");
    for (int at = 0, k; at < n && st == WEFT_OK; at += k) {
        k  = n - at < CHUNK ? n - at : CHUNK;
        st = weft_session__gather(s, own + at, size * (size_t)k, all);
        for (int r = 0; r < world && st == WEFT_OK; r++)
            weft_snapshot_add(v->total + at, all + (int64_t)r * k, k);
    }
    free(all);
    return st;
}

static void log_saved(weft_session *s, const saving *v)
{
    int64_t bytes = 0;
    for (int i = 0; i < v->n_file; i++) bytes += weft_snapshot_file_bytes(&v->file[i]);
    weft_say_info(
        &s->say,
        "checkpoint of step %lld in %s: %.4g MB written in %.2f s, verified after "
        "%.2f s, a step waited %.1f ms for it",
        (long long)v->step, s->out.checkpoints, 1e-6 * (double)bytes, v->write_s,
        weft_clock_s() - v->begin_s, 1e3 * v->waited_s);
}

/* What the disk does not take, once as a warning. */
static void log_left_out(weft_session *s, const saving *v)
{
    char text[256];
    if (!v->n_left_out) return;
    snprintf(text, sizeof text,
             "the checkpoint of step %lld took %.1f s, %lld steps: %d that %s due "
             "meanwhile left out (checkpoint.every=%lld)",
             (long long)v->step, weft_clock_s() - v->begin_s,
             (long long)(s->r.steps - v->step), v->n_left_out,
             v->n_left_out == 1 ? "was" : "were", (long long)s->job.checkpoint.every);
    if (s->out.left_out)
        weft_say_info(&s->say, "%s", text);
    else
        weft_say_warn(&s->say, "%s", text);
    s->out.left_out = true;
}

static void end_saving(weft_session *s, saving *v, bool committed, const card *failed)
{
    weft_failpoint("save.end");
    if (v->running) pthread_join(v->thread, NULL);
    weft_session__show_findings(s);
    if (committed) s->out.saved_step = v->step;
    s->out.save_st = WEFT_OK;
    if (failed) {
        s->out.save_st = (weft_status)failed->status;
        snprintf(s->out.save_text, sizeof s->out.save_text, "%s", failed->text);
    } else {
        log_saved(s, v);
        log_left_out(s, v);
    }
    s->out.saving = NULL;
    free_saving(v);
}

/* What ranks say of themselves, into what they do next. */
static weft_status decide_next(weft_session *s, saving *v, const card *all)
{
    const card *failed = NULL;
    int         n_done = 0;
    v->over            = all[0].past;
    for (int r = 0; r < count_ranks(s); r++) {
        if (all[r].doubtful) v->over = false;
        if (all[r].stage == STAGE_FAILED && !failed) failed = &all[r];
        n_done += all[r].stage != STAGE_WORKING;
        if (all[r].waited_s > v->waited_s) v->waited_s = all[r].waited_s;
        if (all[r].write_s > v->write_s) v->write_s = all[r].write_s;
    }
    if (n_done < count_ranks(s)) return WEFT_OK;
    if (failed || v->finishing) {
        end_saving(s, v, all[0].committed, failed);
        return WEFT_OK;
    }
    weft_failpoint("save.written");
    WEFT_TRY(exchange_sums(s, v));
    weft_failpoint("save.summed");
    start_finishing(v);
    return WEFT_OK;
}

static weft_status poll_once(weft_session *s)
{
    saving *v = s->out.saving;
    card    own, *all;
    if (!v) return WEFT_OK;
    all = calloc((size_t)count_ranks(s), sizeof *all);
    if (!all) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to save a checkpoint");
    fill_card(v, &own);
    weft_status st = weft_session__gather(s, &own, sizeof own, all);
    if (st == WEFT_OK) st = decide_next(s, v, all);
    free(all);
    return st;
}

static void warn_given_up(weft_session *s, int64_t step)
{
    if (s->out.save_st == WEFT_OK) return;
    if (s->out.saved_step == step)
        weft_say_warn(&s->say,
                      "checkpoint of step %lld is there, but older ones stay: %s",
                      (long long)step, s->out.save_text);
    else
        weft_say_warn(&s->say,
                      "checkpoint of step %lld was given up: %s; training goes on",
                      (long long)step, s->out.save_text);
    if (weft_session__writes(s))
        weft_session__report(s, weft_session__find_cause(s, s->out.save_st), "continue",
                             "checkpoint of step %lld: %s", (long long)step,
                             s->out.save_text);
    s->out.save_st = WEFT_OK;
}

weft_status weft_session__poll_save(weft_session *s)
{
    int64_t step = s->out.saving ? s->out.saving->step : 0;
    WEFT_TRY(poll_once(s));
    if (!s->out.saving) warn_given_up(s, step);
    return WEFT_OK;
}

/* Seconds until the next exchange: none before the first one of a wait that is over already. */
static double find_tick(const weft_session *s, double until_s, int i)
{
    double left = until_s - weft_clock_s(), tick = TICK_S;
    if (left <= 0 && !i) return 0;
    if (left > 0) tick = fmin(tick, fmax(left / 8, LEAST_TICK_S));
    return s->now->comm ? fmin(tick, s->now->comm->timeout_s / 8) : tick;
}

/* Until none is under way, or until_s at rank 0; *left: one still is.  Ranks exchange where they
 * are more often than any of them times out, however long a file takes. */
static weft_status wait_for_save(weft_session *s, double until_s, bool *left)
{
    saving  *v     = s->out.saving;
    progress p     = watch_progress(s);
    double   begin = weft_clock_s();
    if (v) v->until_s = until_s;
    if (v) v->over = false;
    for (int i = 0; s->out.saving && !v->over; i++) {
        if (is_stuck(&p, is_done(v, find_tick(s, until_s, i))))
            return WEFT_FAIL(
                WEFT_ERR_IO,
                "one call on its files has taken longer than %g s (--io-timeout)",
                p.limit_s);
        if (p.moved_s > begin) v->moved_s = p.moved_s;
        weft_progress_alive();
        WEFT_TRY(poll_once(s));
    }
    *left = s->out.saving != NULL;
    if (*left) v->until_s = INFINITY;
    return WEFT_OK;
}

static weft_status wait_until_saved(weft_session *s)
{
    bool left;
    return wait_for_save(s, INFINITY, &left);
}

weft_status weft_session__settle_save(weft_session *s)
{
    int64_t step = s->out.saving ? s->out.saving->step : 0;
    WEFT_TRY(wait_until_saved(s));
    warn_given_up(s, step);
    return WEFT_OK;
}

void weft_session__wait_copied(weft_session *s)
{
    saving *v = s->out.saving;
    double  begin;
    if (!v || !v->snapshot || weft_snapshot_wait(v->snapshot, WEFT_SNAPSHOT_COPIED, 0))
        return;
    begin = weft_clock_s();
    if (!weft_snapshot_wait(v->snapshot, WEFT_SNAPSHOT_COPIED, STALL_S))
        weft_snapshot_cancel(v->snapshot, "the device takes too long to write it");
    if (weft_clock_s() - begin > v->waited_s) v->waited_s = weft_clock_s() - begin;
}

/* Rank 0 has all it needs: the launcher hears that it is at work, unless one call does not end. */
static void wait_for_rank_0(weft_session *s, saving *v)
{
    progress p = watch_progress(s);
    while (v->running && !wait_finished(v, TICK_S) && !is_stuck(&p, false))
        weft_progress_alive();
    if (v->running) pthread_join(v->thread, NULL);
}

void weft_session__drop_save(weft_session *s)
{
    saving *v = s->out.saving;
    char    text[1024]; /* of what ended the steps: closing files may fail, too */
    if (!v) return;
    snprintf(text, sizeof text, "%s", weft_error_text());
    v->dropped = weft_session__has_agent(s); /* the next generation waits */
    wait_for_rank_0(s, v);
    if (v->committed) s->out.saved_step = v->step;
    s->out.saving = NULL;
    free_saving(v);
    (void)WEFT_FAIL(WEFT_ERR_PEER, "%s", text);
}

/* ---- the two ways to save ---- */

/* Nothing is saved where another run writes. */
static weft_status choose_way(weft_session *s, bool *alone)
{
    weft_status st = weft_session__keep_place(s, true);
    if (st == WEFT_ERR_PEER) return st;
    WEFT_TRY(weft_session__outcome(s, st));
    if (count_ranks(s) > 1 && !s->now->sees_output)
        WEFT_TRY(weft_session__probe_output(s));
    *alone = s->now->sees_output < 0;
    return WEFT_OK;
}

static weft_status save_alone(weft_session *s)
{
    WEFT_TRY(weft_session__lead(s, weft_session__save_alone));
    s->out.saved_step = s->r.steps;
    return WEFT_OK;
}

weft_status weft_session__save(weft_session *s)
{
    bool alone, waits = true;
    WEFT_TRY(weft_session__settle_save(s));
    if (s->out.saved_step == s->r.steps) return WEFT_OK;
    WEFT_TRY(choose_way(s, &alone));
    if (alone) return save_alone(s);
    WEFT_TRY(begin_save(s, &waits));
    WEFT_TRY(wait_until_saved(s));
    if (s->out.save_st == WEFT_OK) return WEFT_OK;
    return weft_session__refuse(s, WEFT_FAIL(s->out.save_st, "%s", s->out.save_text));
}

/* Waits until checkpoint.wait after the begin of the one under way; *left: the one that is due is
 * left out. */
static weft_status wait_where_due(weft_session *s, bool *left)
{
    saving *v = s->out.saving;
    *left     = false;
    if (!v) return WEFT_OK;
    s->out.late = true;
    WEFT_TRY(wait_for_save(s, v->begin_s + s->job.checkpoint.wait, left));
    if (*left && !v->n_left_out++ && !s->out.left_out)
        weft_say_warn(&s->say,
                      "checkpoint of step %lld is left out: that of step %lld is still "
                      "being written (checkpoint.wait=%g)",
                      (long long)s->r.steps, (long long)v->step, s->job.checkpoint.wait);
    return WEFT_OK;
}

weft_status weft_session__start_save(weft_session *s)
{
    bool    alone, left, waits = !s->job.checkpoint.async;
    int64_t step = s->out.saving ? s->out.saving->step : 0;
    WEFT_TRY(wait_where_due(s, &left));
    if (left) return WEFT_OK;
    warn_given_up(s, step);
    if (s->out.saved_step == s->r.steps) return WEFT_OK;
    WEFT_TRY(choose_way(s, &alone));
    if (alone) return save_alone(s);
    WEFT_TRY(begin_save(s, &waits));
    return waits ? weft_session__settle_save(s) : WEFT_OK;
}
