#include "session/replay.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/doc.h"
#include "base/hash.h"
#include "base/io.h"
#include "comm/membership.h"
#include "session/session_priv.h"

/* ---- the file ---- */

/* A view as a line names it, with the keys of its epoch and its first step.  epoch 0: the line has
 * none. */
static weft_status read_view(const weft_doc *d, const weft_node *map, const char *epoch,
                             const char *first, weft_arena *a, weft_replay_view *v)
{
    int64_t     number = 0, step = 0, ranks = 0;
    const char *plan = NULL, *file = weft_doc_file(d);
    *v = (weft_replay_view){0};
    WEFT_TRY(weft_doc_get_int(d, map, epoch, &number));
    WEFT_TRY(weft_doc_get_int(d, map, first, &step));
    WEFT_TRY(weft_doc_get_int(d, map, "ranks", &ranks));
    WEFT_TRY(weft_doc_get_string(d, map, "plan", &plan));
    if (number < 1 || step < 1) return WEFT_OK;
    if (ranks < 1 || ranks > WEFT_SESSION__MAX_RANK || number > UINT32_MAX)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: the view of epoch %lld has no number of ranks: written by "
                         "an older weft, whose runs cannot be replayed",
                         file, (long long)number);
    if (plan && (strncmp(plan, "plans/", 6) != 0 || strstr(plan, "..")))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: plan: '%.64s' is not a file in plans/", file,
                         plan);
    *v = (weft_replay_view){step, (int)ranks, (uint32_t)number,
                            plan ? weft_arena_strdup(a, plan) : NULL};
    return weft_arena_status(a);
}

/* What a line says: of incidents.jsonl the view that ended and the one that followed, of
 * views.jsonl one that has begun (begun: it is of that file). */
typedef struct replay_line {
    weft_replay_view was, next;
    bool             begun;
} replay_line;

static weft_status read_line(const char *file, const char *text, size_t n, weft_arena *a,
                             replay_line *out)
{
    weft_doc   *d  = NULL;
    weft_status st = WEFT_OK;
    *out           = (replay_line){0};
    WEFT_GO(weft_doc_parse_json(file, text, n, &d));
    const weft_node *root = weft_doc_root(d);
    if (root->kind != WEFT_NODE_MAP) {
        st = WEFT_FAIL(WEFT_ERR_ARG, "%s: not a line of incidents.jsonl", file);
        goto out;
    }
    const weft_node *view = weft_node_get(root, "view");
    out->begun            = weft_node_get(root, "first_step") != NULL;
    if (view && view->kind == WEFT_NODE_MAP)
        WEFT_GO(read_view(d, view, "epoch", "first_step", a, &out->was));
    WEFT_GO(out->begun ? read_view(d, root, "epoch", "first_step", a, &out->next)
                       : read_view(d, root, "next_epoch", "next_step", a, &out->next));
out:
    weft_doc_destroy(d);
    return st;
}

static int count_lines(const char *text, size_t n)
{
    int lines = 1;
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    return lines;
}

/* Lines of one view change follow each other, and all name the same two views. */
static void add_view(weft_replay *r, const weft_replay_view *v, uint32_t *newest)
{
    if (!v->epoch || v->epoch <= *newest) return;
    *newest = v->epoch;
    while (r->n && r->view[r->n - 1].first_step >= v->first_step) r->n--;
    r->view[r->n++] = *v;
}

static void add_line(weft_replay *r, const replay_line *x, uint32_t *newest)
{
    /* every view has one line in views.jsonl: a later run of the job counts them anew */
    if (x->begun && x->next.epoch <= *newest) *newest = 0;
    add_view(r, &x->was, newest);
    add_view(r, &x->next, newest);
}

/* The view that ended with this line, where r has the next one and not it: its host was lost before
 * it could write. */
static void fill_gap(weft_replay *r, const replay_line *x)
{
    const weft_replay_view *was = &x->was, *next = &x->next;
    int                     k = r->n - 1;
    while (k > 0 && r->view[k].first_step > next->first_step) k--;
    if (!was->epoch || k < 1 || r->view[k].epoch != next->epoch ||
        r->view[k].first_step != next->first_step)
        return;
    const weft_replay_view *before = &r->view[k - 1];
    if (was->epoch <= before->epoch || was->first_step <= before->first_step ||
        was->first_step >= next->first_step)
        return;
    memmove(&r->view[k + 1], &r->view[k], sizeof *r->view * (size_t)(r->n++ - k));
    r->view[k] = *was;
}

weft_status weft_replay_parse(const char *file, const char *text, size_t n, weft_arena *a,
                              weft_replay *r)
{
    weft_replay all    = {0};
    bool        fills  = r->n > 0;
    uint32_t    newest = 0;
    int         line   = 0;
    all.view = WEFT_ARENA_ARRAY(a, weft_replay_view, r->n + 2 * count_lines(text, n));
    WEFT_TRY(weft_arena_status(a));
    while (all.n < r->n) {
        all.view[all.n] = r->view[all.n];
        all.n++;
    }
    for (size_t at = 0; at < n; line++) {
        char        name[1100];
        const char *end   = memchr(text + at, '\n', n - at);
        size_t      bytes = end ? (size_t)(end - text) - at : n - at;
        replay_line x     = {0};
        snprintf(name, sizeof name, "%.1024s:%d", file, line + 1);
        if (bytes) WEFT_TRY(read_line(name, text + at, bytes, a, &x));
        at += bytes + 1;
        if (fills)
            fill_gap(&all, &x);
        else
            add_line(&all, &x, &newest);
    }
    *r = all;
    return WEFT_OK;
}

static weft_status read_file(const char *path, weft_arena *a, weft_replay *r)
{
    char  *text = NULL;
    size_t n    = 0;
    WEFT_TRY(weft_io_read_file(path, &text, &n));
    weft_status st = weft_replay_parse(path, text, n, a, r);
    free(text);
    return st;
}

/* A file in the folder of another one. */
static void find_beside(const char *path, const char *name, char *out, size_t size)
{
    const char *last = strrchr(path, '/');
    int         n    = last ? (int)(last - path) : 1;
    snprintf(out, size, "%.*s/%s", n, last ? path : ".", name);
}

weft_status weft_replay_load(const char *path, weft_arena *a, weft_replay *out)
{
    char        views[4400];
    weft_replay r = {0};
    find_beside(path, "views.jsonl", views, sizeof views);
    if (weft_io_exists(views)) WEFT_TRY(read_file(views, a, &r));
    WEFT_TRY(read_file(path, a, &r));
    *out = r;
    return WEFT_OK;
}

const weft_replay_view *weft_replay_find(const weft_replay *r, int64_t step)
{
    for (int k = r->n - 1; k >= 0; k--)
        if (r->view[k].first_step <= step) return &r->view[k];
    return NULL;
}

void weft_replay_count(const weft_replay *r, int *least, int *most)
{
    *least = *most = 0;
    for (int k = 0; k < r->n; k++) {
        int n = r->view[k].n_rank;
        if (!k || n < *least) *least = n;
        if (n > *most) *most = n;
    }
}

/* ---- a run that takes them ---- */

weft_status weft_session__read_replay(weft_session *s)
{
    return s->o->replay ? weft_replay_load(s->o->replay, s->arena, &s->replay) : WEFT_OK;
}

/* The view of the next step. */
static const weft_replay_view *find_view(const weft_session *s)
{
    return weft_replay_find(&s->replay, s->r.steps + 1);
}

weft_status weft_session__check_replay(const weft_session *s)
{
    int most = s->now->max_rank, least = s->o->min_rank ? s->o->min_rank : s->now->n_rank;
    if (s->replay.n && !weft_session__has_agent(s))
        return WEFT_FAIL(WEFT_ERR_ARG, "--replay: needs a job with recover=on, on CPUs");
    if (s->replay.n && !find_view(s)) {
        long long first = (long long)s->replay.view[0].first_step;
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: no view before step %lld; views.jsonl of that run belongs "
                         "beside it, or its checkpoint of step %lld into output",
                         s->o->replay, first, first - 1);
    }
    for (int k = 0; k < s->replay.n; k++) {
        const weft_replay_view *v = &s->replay.view[k];
        if (v->n_rank >= least && v->n_rank <= most) continue;
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: %d ranks from step %lld on, but this run may have %d to %d; "
            "leave --nproc-per-node out: the views say it",
            s->o->replay, v->n_rank, (long long)v->first_step, least, most);
    }
    return WEFT_OK;
}

weft_status weft_session__find_replayed(const weft_session *s, weft_plan **out)
{
    char                    path[4400];
    const weft_replay_view *v = find_view(s);
    *out                      = NULL;
    if (!v || !v->plan) return WEFT_OK;
    /* more ranks than it had, before the first step: the rest is of no use */
    if (s->now->continues && v->n_rank != s->now->n_rank) return WEFT_OK;
    find_beside(s->o->replay, v->plan, path, sizeof path);
    return weft_plan_load(path, out);
}

bool weft_session__begins_replayed(const weft_session *s)
{
    const weft_replay_view *v = find_view(s);
    return v && v->plan;
}

/* It was made for this job? */
weft_status weft_session__check_replayed(weft_session *s)
{
    weft_plan_of of;
    WEFT_TRY(weft_session__make_training(s));
    weft_compile_plan_of(&s->training, &of);
    of.kernels = weft_session__kernel_set(&s->job);
    return weft_plan_check(s->now->plan, s->o->replay, &of, s->now->n_rank);
}

bool weft_session__leaves_for_replay(weft_session *s, int64_t next_step)
{
    const weft_membership_source *m = s->o->member;
    const weft_replay_view       *v = weft_replay_find(&s->replay, next_step);
    if (!v || next_step > s->job.steps || !weft_session__has_agent(s)) return false;
    bool same   = v->n_rank == s->now->n_rank;
    bool begins = v->first_step == next_step && v->plan;
    if (same && (!begins || !strcmp(v->plan, s->now->plan_name))) return false;
    if (weft_session__writes(s) && same)
        m->tell(m->arg, WEFT_MEMBERSHIP_REPLAN, next_step - 1, "the plan of --replay");
    else if (weft_session__writes(s))
        m->tell(m->arg, WEFT_MEMBERSHIP_SCALE, v->n_rank, NULL);
    return true;
}

bool weft_session__is_late_for_replay(weft_session *s)
{
    const weft_replay_view *v = find_view(s);
    return v && v->n_rank != s->now->n_rank &&
           weft_session__leaves_for_replay(s, s->r.steps + 1);
}

/* ---- plans ---- */

/* No more than a warning where it cannot be written. */
static void write_plan(weft_session *s, const weft_text *t)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/plans", s->out.folder);
    (void)mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s", s->out.folder, s->now->plan_name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || weft_io_write(fd, path, t->s, t->n) != WEFT_OK)
        weft_say_warn(&s->say, "%s: the plan of this view is not recorded", path);
    if (fd >= 0) close(fd);
}

/* Of one rank, which has none: how its batch is cut is not in the job's keys where a resume changed
 * it. */
static weft_status make_plan_alone(const weft_session *s, weft_plan **out)
{
    weft_strategy y = s->job.strategy;
    y.dp            = 1;
    return weft_compile_plan(&s->training, &y, 1, out);
}

void weft_session__record_plan(weft_session *s)
{
    weft_generation *g     = s->now;
    weft_plan       *alone = NULL;
    weft_text        t     = {0};
    if (!weft_session__has_agent(s)) return;
    weft_status st = g->plan ? WEFT_OK : make_plan_alone(s, &alone);
    if (st == WEFT_OK) st = weft_plan_print(g->plan ? g->plan : alone, &t);
    if (st == WEFT_OK) {
        snprintf(g->plan_name, sizeof g->plan_name, "plans/%016llx.json",
                 (unsigned long long)weft_hash_xxh64(t.s, t.n, 0));
        if (weft_session__writes(s)) write_plan(s, &t);
    }
    weft_plan_destroy(alone);
    weft_text_fini(&t);
}
