/* When the ranks of a membership are connected: does it go on from an earlier one, and from which
 * step?
 *
 * Every rank tells how far its slot is, by words that outlive processes, and how far slots of its
 * host are that have no rank now: they hold state and updates that the next plan needs.  New ranks
 * take over what the job has decided from the card of a rank that knows. */
#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "comm/hosts.h"
#include "session/cut.h"
#include "session/snapshots_priv.h"

/* How far a rank is, by the words of its slot. */
typedef struct progress_words {
    int64_t state_step; /* its updates are made up to that one; -1: some are broken off */
    /* Where state goes with its process: that it has of this step what it computes itself. */
    int64_t  computed_step;
    int64_t  arrived, passed;
    uint32_t norm;    /* of step `arrived` */
    int32_t  known;   /* a rank that had started is there, or what it has left */
    int32_t  skipped; /* step `arrived` has no update */
    int32_t  absent;  /* there is no such slot, or nothing was ever in it */
} progress_words;

/* What a rank tells of its slot, and of slots of its host that are not in this view: all of those
 * that are its to tell of as one, which has arrived where each of them has. */
typedef struct progress_of {
    progress_words own, beyond;
} progress_of;

typedef struct progress_card {
    weft_kept_card card;
    int32_t        unfinished; /* updates of a slot beyond the view are to be ended */
} progress_card;

static void take_newer(weft_comm_shm_held *h, int64_t *newest)
{
    int64_t step = atomic_load(&h->step), computed = atomic_load(&h->computed_step);
    if (step > *newest) *newest = step;
    if (computed > *newest) *newest = computed;
}

/* Of all that the slot holds; what its rank has computed of a step is enough, others have the rest.
 */
static int64_t find_newest(weft_comm_shm_slot *slot)
{
    int64_t newest = -1;
    take_newer(&slot->state, &newest);
    for (int k = 0; k < WEFT_COMM_SHM_OLDER; k++) take_newer(&slot->older[k], &newest);
    return newest;
}

static void fill_slot_words(const weft_session *s, int number, progress_words *w)
{
    weft_comm            *end  = weft_comm_shared_end(s->now->comm);
    weft_comm_shm_slot   *slot = weft_comm_shm_kept_slot_of(end, number);
    const weft_kept      *kept = weft_kept_find_of(s->now->comm, number);
    const weft_kept_card *card;
    w->known = kept != NULL;
    if (weft_session__state_stays(s)) w->state_step = find_newest(slot);
    w->arrived = atomic_load(&slot->arrived);
    w->passed  = atomic_load(&slot->passed);
    w->norm    = atomic_load(&slot->norm);
    card       = weft_kept_find_card(kept, w->arrived);
    if (card) w->skipped = card->row.skipped;
}

static void fill_words(const weft_session *s, progress_words *w)
{
    weft_comm *end = weft_comm_shared_end(s->now->comm);
    memset(w, 0, sizeof *w);
    w->state_step    = s->started && s->state ? weft_state_step(s->state) : -1;
    w->computed_step = s->computed ? weft_state_step(s->computed) : -1;
    w->arrived = w->passed = w->state_step;
    if (weft_session__slot(s)) fill_slot_words(s, weft_comm_shm_own_slot(end), w);
    w->known = w->known || s->started;
}

/* The k-th of the slots of this host that are not in the view, of which this rank tells: every n-th
 * of them.  -1: there is none. */
static int find_beyond(const weft_session *s, int k)
{
    weft_comm *end  = weft_comm_shared_end(s->now->comm);
    int        n    = s->now->local > 0 ? s->now->local : 1;
    int        slot = weft_comm_shm_slot_at(end, end->rank + (k + 1) * n);
    return slot >= 0 && weft_comm_shm_kept_slot_of(end, slot) ? slot : -1;
}

static void fill_beyond(const weft_session *s, progress_words *all)
{
    *all = (progress_words){.absent = 1, .state_step = -1, .arrived = -1, .passed = -1};
    if (!weft_session__slot(s)) return;
    for (int k = 0, slot; (slot = find_beyond(s, k)) >= 0; k++) {
        progress_words w = {.state_step = -1};
        fill_slot_words(s, slot, &w);
        if (!w.known) continue;
        if (all->absent) {
            *all = w;
            continue;
        }
        if (w.passed > all->passed) all->passed = w.passed;
        if (w.arrived < all->arrived || w.norm != all->norm)
            all->arrived = w.arrived < all->arrived ? w.arrived : all->arrived - 1;
    }
}

/* The newest step that is committed (tests/model/vote.pml): a rank has passed it.  Where one has
 * left nothing, it may have passed the next one, if all others have arrived there. */
static int64_t find_committed(const progress_of *of, int n)
{
    const progress_words *w = &of[0].own, *any = NULL;
    int64_t               c    = -1;
    bool                  lost = false, next = true;
    _Static_assert(sizeof *of == 2 * sizeof *w, "words one after another");
    for (int k = 0; k < 2 * n; k++)
        if (!w[k].absent && w[k].passed > c) c = w[k].passed;
    for (int k = 0; k < 2 * n; k++) {
        lost = lost || !(w[k].known || w[k].absent);
        if (!w[k].known) continue;
        if (!any) any = &w[k];
        next = next && w[k].arrived == c + 1 && w[k].norm == any->norm;
    }
    return lost && any && next ? c + 1 : c;
}

/* Where state goes with its process: the newest step that a rank that is left holds the state of.
 * Ranks that have passed a vote have ended their updates, and so have those that have arrived where
 * another one has passed (weft_session__end_alone). */
static int64_t find_held(const progress_of *w, int n)
{
    int64_t newest = -1;
    for (int r = 0; r < n; r++) {
        if (w[r].own.state_step > newest) newest = w[r].own.state_step;
        if (w[r].own.computed_step > newest) newest = w[r].own.computed_step;
    }
    return newest;
}

/* Of that step, where this rank has it; else of the newest that it has. */
static void find_card(const weft_session *s, int64_t step, weft_kept_card *out)
{
    const weft_kept      *kept = weft_kept_find(s->now->comm);
    const weft_kept_card *card = weft_kept_find_card(kept, step);
    *out                       = (weft_kept_card){0};
    if (s->started && (s->r.steps == step || !card))
        weft_session__fill_card(s, &s->row, s->r.steps, out);
    else if (card || (card = weft_kept_newest(kept)))
        *out = *card;
}

static bool is_history(const weft_kept_card *c)
{
    int n = c->n_change < WEFT_KEPT_MAX_CHANGE ? c->n_change : WEFT_KEPT_MAX_CHANGE;
    for (int i = 0; i < n; i++) {
        const weft_ckpt_change *x = &c->change[i];
        if (!memchr(x->key, 0, sizeof x->key) || !*x->key || x->step < 0 || x->from < 0 ||
            x->to < 0)
            return false;
    }
    return c->n_change >= 0;
}

/* What peers say is checked like the bytes of a file. */
static weft_status check_card(const weft_kept_card *c, int rank)
{
    if (memchr(c->folder, 0, sizeof c->folder) &&
        memchr(c->reduction, 0, sizeof c->reduction) && c->row.n_load >= 0 &&
        c->row.n_load <= WEFT_KEPT_MAX_LOAD && c->first_step >= 0 && is_history(c) &&
        c->steps >= c->first_step && c->snapshot_every >= 0 &&
        (!c->started || (c->micro_batch > 0 && c->lanes > 0)))
        return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_PEER, "rank %d sent a progress record that is out of range",
                     rank);
}

/* The row of the newest step, with its loads, in memory of the session. */
static weft_status take_row(weft_session *s, const weft_kept_card *c)
{
    s->row      = c->row;
    s->row.load = NULL;
    if (!c->row.n_load) return WEFT_OK;
    float *load = WEFT_ARENA_ARRAY(s->arena, float, c->row.n_load);
    WEFT_TRY(weft_arena_status(s->arena));
    memcpy(load, c->load, sizeof *load * (size_t)c->row.n_load);
    s->row.load = load;
    return WEFT_OK;
}

static weft_status take_over(weft_session *s, const weft_kept_card *c)
{
    s->r.first_step          = c->first_step;
    s->out.run               = c->run;
    s->kept.predicted_s      = c->predicted_s > 0 ? c->predicted_s : 0;
    s->job.micro_batch       = c->micro_batch;
    s->job.lanes             = c->lanes;
    s->job.given_micro_batch = s->job.given_lanes = true;
    s->job.reduction   = weft_arena_strdup(s->arena, c->reduction);
    s->out.folder      = weft_arena_strdup(s->arena, c->folder);
    s->out.checkpoints = weft_arena_printf(s->arena, "%s/checkpoints", c->folder);
    WEFT_TRY(weft_arena_status(s->arena));
    snprintf(s->r.output, sizeof s->r.output, "%s", c->folder);
    return weft_session__take_history(s, c);
}

/* A rank that has the card of that step, if one has it; else the newest.  -1: all ranks are new. */
static int find_leader(const progress_card *of, int n, int64_t step)
{
    int best = -1;
    for (int r = 0; r < n; r++) {
        if (!of[r].card.started) continue;
        if (of[r].card.steps == step) return r;
        if (best < 0 || of[r].card.steps > of[best].card.steps) best = r;
    }
    return best;
}

static weft_status compare_cards(weft_session *s, const progress_card *of, int64_t step)
{
    weft_generation *g = s->now;
    int              n = g->comm->world;
    for (int r = 0; r < n; r++) WEFT_TRY(check_card(&of[r].card, r));
    g->leader = find_leader(of, n, step);
    if (g->leader < 0) return WEFT_OK;
    const weft_kept_card *c = &of[g->leader].card;
    g->continues            = true;
    g->step                 = c->steps == step ? step : -1;
    for (int r = 0; r < n; r++)
        if (of[r].card.started && of[r].card.saved_step > s->out.saved_step)
            s->out.saved_step = of[r].card.saved_step;
    if (!s->started) WEFT_TRY(take_over(s, c));
    /* the state went back in a view that was broken off: so do rows */
    if (s->started) WEFT_TRY(weft_session__go_back(s, c->steps));
    s->snapshot_every = c->snapshot_every;
    bool same         = s->row.step == c->row.step && s->r.steps == c->steps;
    s->r.steps        = c->steps;
    s->r.loss         = c->row.step ? c->row.loss : s->r.loss;
    s->r.grad_norm    = c->row.step ? c->row.grad_norm : s->r.grad_norm;
    s->r.stopped      = 0;
    if (same) return WEFT_OK;
    s->row_written = false;
    return take_row(s, c);
}

/* Is its memory as after the step?  One without an update leaves it as it was. */
static bool is_whole(const progress_words *w, int64_t step)
{
    return w->state_step == step ||
           (w->skipped && w->arrived == step && w->state_step == step - 1);
}

int weft_session__find_unfinished(const weft_session *s, int64_t step)
{
    if (!weft_session__state_stays(s) || step < 0) return -1;
    for (int k = 0, slot; (slot = find_beyond(s, k)) >= 0; k++) {
        progress_words w = {.state_step = -1};
        fill_slot_words(s, slot, &w);
        if (w.known && w.arrived == step && !is_whole(&w, step)) return slot;
    }
    return -1;
}

static void compare_own(weft_session *s, const progress_of *w, const progress_card *of)
{
    weft_generation      *g    = s->now;
    weft_comm_shm_slot   *slot = weft_session__slot(s);
    const progress_words *mine = &w[g->comm->rank].own;
    if (!slot || g->step < 0) return;
    if (!weft_session__state_stays(s)) {
        if (mine->state_step >= 0 && is_whole(mine, g->step))
            weft_state_set_step(s->state, g->step);
        return;
    }
    for (int r = 0; r < g->comm->world; r++)
        if (of[r].unfinished ||
            (w[r].own.arrived == g->step && !is_whole(&w[r].own, g->step)))
            g->unfinished = true;
    g->resumes = mine->arrived == g->step && !is_whole(mine, g->step);
    if (mine->state_step != g->step && is_whole(mine, g->step))
        atomic_store(&slot->state.step, g->step);
}

weft_status weft_session__catch_up(weft_session *s)
{
    weft_generation *g = s->now;
    progress_of      mine, *words;
    progress_card    own, *card;
    if (!weft_session__has_agent(s) || !g->comm) return WEFT_OK;
    fill_words(s, &mine.own);
    fill_beyond(s, &mine.beyond);
    words = WEFT_ARENA_ARRAY(g->arena, progress_of, g->comm->world);
    card  = WEFT_ARENA_ARRAY(g->arena, progress_card, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    weft_failpoint("view.words");
    WEFT_TRY(weft_session__gather(s, &mine, sizeof mine, words));
    int64_t step = weft_session__has_snapshots(s) ? find_held(words, g->comm->world)
                                                  : find_committed(words, g->comm->world);
    find_card(s, step, &own.card);
    own.unfinished = weft_session__find_unfinished(s, step) >= 0;
    WEFT_TRY(weft_session__gather(s, &own, sizeof own, card));
    WEFT_TRY(compare_cards(s, card, step));
    compare_own(s, words, card);
    weft_session__tell_agent(s, WEFT_MEMBERSHIP_CONNECTED);
    weft_failpoint("view.caught_up");
    return WEFT_OK;
}
