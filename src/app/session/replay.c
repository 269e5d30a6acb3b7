#include "session/replay.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/doc.h"
#include "base/io.h"
#include "comm/membership.h"
#include "session/session_priv.h"

/* ---- the file ---- */

/* has: the job went on in another view. */
static weft_status read_line(const char *file, const char *text, size_t n,
                             weft_replay_view *v, bool *has)
{
    weft_doc   *d     = NULL;
    int64_t     epoch = 0, step = 0, ranks = 0;
    weft_status st = WEFT_OK;
    WEFT_GO(weft_doc_parse_json(file, text, n, &d));
    const weft_node *root = weft_doc_root(d);
    if (root->kind != WEFT_NODE_MAP) {
        st = WEFT_FAIL(WEFT_ERR_ARG, "%s: not a line of incidents.jsonl", file);
        goto out;
    }
    WEFT_GO(weft_doc_get_int(d, root, "next_epoch", &epoch));
    WEFT_GO(weft_doc_get_int(d, root, "next_step", &step));
    WEFT_GO(weft_doc_get_int(d, root, "ranks", &ranks));
    *has = epoch > 0 && step > 0;
    if (*has && (ranks < 1 || ranks > WEFT_SESSION__MAX_RANK || epoch > UINT32_MAX))
        st = WEFT_FAIL(WEFT_ERR_ARG,
                       "%s: the view of epoch %lld has no number of ranks: written by an "
                       "older weft, whose runs cannot be replayed",
                       file, (long long)epoch);
    *v = (weft_replay_view){step, (int)ranks, (uint32_t)epoch};
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

weft_status weft_replay_parse(const char *file, const char *text, size_t n, weft_arena *a,
                              weft_replay *out)
{
    weft_replay r = {.view = WEFT_ARENA_ARRAY(a, weft_replay_view, count_lines(text, n))};
    int         line = 0;
    WEFT_TRY(weft_arena_status(a));
    for (size_t at = 0; at < n; line++) {
        char             name[1100];
        const char      *end   = memchr(text + at, '\n', n - at);
        size_t           bytes = end ? (size_t)(end - text) - at : n - at;
        weft_replay_view v     = {0};
        bool             has   = false;
        snprintf(name, sizeof name, "%.1024s:%d", file, line + 1);
        if (bytes) WEFT_TRY(read_line(name, text + at, bytes, &v, &has));
        at += bytes + 1;
        if (!has) continue;
        while (r.n && r.view[r.n - 1].first_step >= v.first_step) r.n--;
        r.view[r.n++] = v;
    }
    *out = r;
    return WEFT_OK;
}

const weft_replay_view *weft_replay_find(const weft_replay *r, int64_t step)
{
    for (int k = 0; k < r->n; k++)
        if (r->view[k].first_step == step) return &r->view[k];
    return NULL;
}

/* ---- a run that takes them ---- */

weft_status weft_session__read_replay(weft_session *s)
{
    char       *text = NULL;
    size_t      n    = 0;
    const char *path = s->o->replay;
    if (!path) return WEFT_OK;
    WEFT_TRY(weft_io_read_file(path, &text, &n));
    weft_status st = weft_replay_parse(path, text, n, s->arena, &s->replay);
    free(text);
    return st;
}

weft_status weft_session__check_replay(const weft_session *s)
{
    int most = s->now->max_rank, least = s->o->min_rank ? s->o->min_rank : s->now->n_rank;
    for (int k = 0; k < s->replay.n; k++) {
        const weft_replay_view *v = &s->replay.view[k];
        if (v->n_rank >= least && v->n_rank <= most) continue;
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: %d ranks from step %lld on, but this run may have %d to %d; "
            "set --nproc-per-node MIN:MAX",
            s->o->replay, v->n_rank, (long long)v->first_step, least, most);
    }
    return WEFT_OK;
}

/* ---- plans ---- */

static void name_plan(const char *folder, int n, uint32_t epoch, char *path, size_t size)
{
    snprintf(path, size, "%.*s/plans/view-%u.json", n, folder, epoch);
}

/* Of a view of the recorded run; only those with another plan than the view before have one. */
static void name_replayed(const weft_session *s, const weft_replay_view *v, char *path,
                          size_t size)
{
    const char *last = strrchr(s->o->replay, '/');
    if (last)
        name_plan(s->o->replay, (int)(last - s->o->replay), v->epoch, path, size);
    else
        name_plan(".", 1, v->epoch, path, size);
}

weft_status weft_session__find_replayed(const weft_session *s, bool needed,
                                        weft_plan **out)
{
    char                    path[4400];
    const weft_replay_view *v = weft_replay_find(&s->replay, s->r.steps + 1);
    *out                      = NULL;
    if (!v || v->n_rank != s->now->n_rank) return WEFT_OK;
    name_replayed(s, v, path, sizeof path);
    if (!needed && access(path, F_OK) != 0) return WEFT_OK;
    return weft_plan_load(path, out);
}

bool weft_session__leaves_for_replay(weft_session *s, int64_t next_step)
{
    char                          path[4400];
    const weft_membership_source *m = s->o->member;
    const weft_replay_view       *v = weft_replay_find(&s->replay, next_step);
    if (!v || !weft_session__has_agent(s)) return false;
    name_replayed(s, v, path, sizeof path);
    bool same = v->n_rank == s->now->n_rank;
    if (same && access(path, F_OK) != 0) return false;
    if (weft_session__writes(s) && same)
        m->tell(m->arg, WEFT_MEMBERSHIP_REPLAN, next_step - 1, "the plan of --replay");
    else if (weft_session__writes(s))
        m->tell(m->arg, WEFT_MEMBERSHIP_SCALE, v->n_rank, NULL);
    return true;
}

bool weft_session__is_late_for_replay(weft_session *s)
{
    const weft_replay_view *v = weft_replay_find(&s->replay, s->r.steps + 1);
    return v && v->n_rank != s->now->n_rank &&
           weft_session__leaves_for_replay(s, s->r.steps + 1);
}

/* For a replay; no more than a warning where it cannot be written. */
void weft_session__record_plan(weft_session *s)
{
    char             path[4400];
    weft_generation *g = s->now;
    weft_text        t = {0};
    if (!weft_session__has_agent(s) || !weft_session__writes(s) || !g->plan ||
        (g->continues && !g->has_new_plan))
        return;
    snprintf(path, sizeof path, "%s/plans", s->out.folder);
    (void)mkdir(path, 0777);
    name_plan(s->out.folder, (int)strlen(s->out.folder), s->out.found.epoch, path,
              sizeof path);
    weft_status st = weft_plan_print(g->plan, &t);
    int         fd =
        st == WEFT_OK ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (fd < 0 || weft_io_write(fd, path, t.s, t.n) != WEFT_OK)
        weft_say_warn(&s->say, "%s: the plan of this view is not recorded", path);
    if (fd >= 0) close(fd);
    weft_text_fini(&t);
}
