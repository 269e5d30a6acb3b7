/* A rank finds the others: addresses and key by a rendezvous, memory of its host's ranks. */
#include "launch/join.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/flight.h"
#include "base/progress.h"
#include "comm/net.h"
#include "comm/rdzv.h"
#include "comm/shm.h"
#include "launch/launch.h"
#include "launch/line.h"
#include "member/view.h"

/* Of the timeout: for the ranks of a lesson to meet.  Who does not learn joins as it is, in the
 * rest of it. */
#define LESSON_WAIT 0.5

struct weft_launch_member {
    weft_launch_environment  e;
    weft_launch_join_options o;
    weft_comm_rdzv_table     table; /* of a rendezvous: what the membership borrows */
    int                      shm_fd;
    bool                     given; /* the membership, once */
    weft_comm_shm_slot      *slot;  /* this rank's, where the launcher is ours */
    /* Where an agent replaces ranks; NULL: it does not. */
    weft_line *line;
    uint32_t   epoch;     /* of the newest membership that was given */
    int        n_rank;    /* of this host in it; 0: none was given */
    int        mine;      /* this one among them */
    int64_t    committed; /* a step of that epoch: the agent knows; -1: it does not */
    double     at_s[WEFT_N_LINE_PHASE];
    weft_membership_move   move; /* into the state of that epoch, to tell of */
    int                    host_ranks[WEFT_MEMBER_MAX_HOST]; /* of the view to come */
    weft_membership_source source;
};

/* The memory of this host's ranks; where the launcher is not ours, they make it themselves. */
static weft_status find_memory(weft_launch_member *m)
{
    const weft_launch_environment *e = &m->e;
    m->shm_fd                        = e->shm_fd;
    if (m->shm_fd >= 0 || (e->local_world == 1 && e->world > 1)) return WEFT_OK;
    return weft_comm_shm_meet(e->key, e->local_rank, e->local_world, m->o.timeout_s,
                              &m->shm_fd);
}

/* The token is read before anything is opened. */
static weft_status find_token(const weft_launch_member *m, weft_comm_token *out)
{
    WEFT_TRY(weft_comm_token_find(&m->o.token, out));
    if (out->insecure && !m->e.local_rank && m->o.log)
        m->o.log(true,
                 "--insecure-network: everybody who can reach the ports of this run can "
                 "join it");
    return WEFT_OK;
}

static bool has_newer(void *arg);

/* Which rank this is, where all meet. */
typedef struct rank_meeting {
    int            rank, world, local_world;
    uint32_t       epoch;
    const char    *at;
    const uint8_t *key; /* of the view; NULL: the token alone is proven */
} rank_meeting;

/* Everybody's address. */
static weft_status meet_all(weft_launch_member *m, const rank_meeting *w,
                            const weft_comm_token *token, const weft_comm *listener)
{
    const void            *mine;
    int64_t                bytes;
    weft_comm_rdzv_options rdzv = {.at        = w->at,
                                   .rank      = w->rank,
                                   .world     = w->world,
                                   .epoch     = w->epoch,
                                   .timeout_s = m->o.timeout_s,
                                   .token     = token,
                                   .check     = weft_comm_net_check_address,
                                   .arg       = m};
    if (!m->e.local_rank) rdzv.log = m->o.log;
    if (m->line) rdzv.is_over = has_newer;
    if (m->line && m->e.rdzv_fd > 0) rdzv.listen_fd = m->e.rdzv_fd;
    weft_comm_net_address(listener, &mine, &bytes);
    weft_comm_rdzv_table_fini(&m->table);
    return weft_comm_rdzv_run(&rdzv, mine, bytes, &m->table);
}

/* over: as of weft_comm_net_options. */
static weft_status open_listener(const weft_launch_member *m, const rank_meeting *w,
                                 const _Atomic uint32_t *over, weft_comm **out)
{
    char                  device[64];
    weft_comm_net_options o = {.rank        = w->rank,
                               .world       = w->world,
                               .local_world = w->local_world,
                               .timeout_s   = m->o.timeout_s,
                               .epoch       = w->epoch};
    weft_comm_rdzv_device(w->at, device, sizeof device);
    if (*device) o.device = device;
    o.over = over;
    return weft_comm_net_open(&o, out);
}

static weft_status meet_ranks(weft_launch_member *m, const rank_meeting *w,
                              weft_comm **listener)
{
    weft_comm      *open = NULL;
    weft_comm_token token;
    WEFT_TRY(find_token(m, &token));
    weft_status st = WEFT_OK;
    if (w->key) st = weft_comm_token_bind(&token, w->key, w->epoch);
    if (st == WEFT_OK)
        st = open_listener(m, w, m->line ? weft_line_over(m->line) : NULL, &open);
    if (st == WEFT_OK) st = meet_all(m, w, &token, open);
    weft_comm_token_wipe(&token);
    if (st == WEFT_OK)
        *listener = open;
    else
        weft_comm_destroy(open);
    return st;
}

static weft_status meet_hosts(weft_launch_member *m, weft_comm **listener)
{
    const weft_launch_environment *e = &m->e;
    rank_meeting                   w = {.rank = e->rank, .world = e->world};
    w.local_world                    = e->local_world;
    w.at                             = e->rdzv;
    if (!*e->rdzv)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%d of %d ranks are on this host, and %s does not say where to "
                         "meet the others: set WEFT_RDZV=host:port, rank 0's host",
                         e->local_world, e->world, e->by);
    WEFT_TRY(weft_comm_rdzv_check(e->rdzv));
    WEFT_TRY(meet_ranks(m, &w, listener));
    weft_status st = find_memory(m);
    if (st == WEFT_OK) return WEFT_OK;
    weft_comm_destroy(*listener);
    *listener = NULL;
    return st;
}

/* The launcher, where it is ours, sees the progress of this rank. */
static void share_progress(weft_launch_member *m)
{
    if (!m->slot && m->e.shm_fd >= 0 &&
        weft_comm_shm_map_slot(m->e.shm_fd, m->e.slot, &m->slot) == WEFT_OK)
        weft_progress_share(&m->slot->progress);
    weft_flight_ring *ring;
    if (!weft_flight_is_on() && m->e.flight_fd >= 0 &&
        weft_flight_map(m->e.flight_fd, m->e.slot, &ring) == WEFT_OK)
        weft_flight_share(ring, m->e.rank);
}

/* ---- with an agent ---- */

static bool has_newer(void *arg)
{
    weft_launch_member *m = arg;
    return weft_line_has_newer(m->line, m->epoch);
}

static bool has_drain(void *arg)
{
    weft_launch_member *m = arg;
    return weft_line_drains(m->line, m->epoch);
}

static bool has_fewer(void *arg)
{
    weft_launch_member *m = arg;
    return weft_line_shrinks(m->line, m->epoch, m->n_rank);
}

static void send_news(weft_launch_member *m, weft_line_kind kind, int64_t step,
                      const char *text)
{
    weft_line_message x = {.kind = (int32_t)kind, .epoch = m->epoch, .step = step};
    if (text) snprintf(x.text, sizeof x.text, "%s", text);
    for (int k = 0; k < WEFT_N_LINE_PHASE; k++) x.at_s[k] = m->at_s[k];
    if (kind == WEFT_LINE_READY) {
        x.move  = m->move;
        m->move = (weft_membership_move){0};
    }
    weft_line_send(m->line, &x);
}

/* A rank reports steps in a word of shared memory, the first of an epoch also by a message. */
static void tell_step(weft_launch_member *m, int64_t step, const char *plan)
{
    if (m->slot) atomic_store(&m->slot->step, step);
    if (m->committed < 0) send_news(m, WEFT_LINE_COMMITTED, step, plan);
    m->committed = step;
}

static void send_wish(weft_launch_member *m, weft_line_kind kind, int n_rank,
                      const char *why)
{
    weft_line_message x = {.kind = (int32_t)kind, .epoch = m->epoch, .world = n_rank};
    if (why) snprintf(x.text, sizeof x.text, "%s", why);
    weft_line_send(m->line, &x);
}

static void tell_agent(void *arg, weft_membership_news news, int64_t step,
                       const char *text)
{
    weft_launch_member *m     = arg;
    double              now_s = weft_clock_s();
    switch (news) {
    case WEFT_MEMBERSHIP_LEFT:
        m->at_s[WEFT_LINE_AT_LEFT] = now_s;
        send_news(m, WEFT_LINE_LEFT, step, text);
        break;
    case WEFT_MEMBERSHIP_CONNECTED: m->at_s[WEFT_LINE_AT_CONNECTED] = now_s; break;
    case WEFT_MEMBERSHIP_BUILT: m->at_s[WEFT_LINE_AT_BUILT] = now_s; break;
    case WEFT_MEMBERSHIP_READY:
        m->at_s[WEFT_LINE_AT_READY] = now_s;
        send_news(m, WEFT_LINE_READY, step, text);
        break;
    case WEFT_MEMBERSHIP_COMMITTED: tell_step(m, step, text); break;
    case WEFT_MEMBERSHIP_WANTS: send_wish(m, WEFT_LINE_WANTS, (int)step, text); break;
    case WEFT_MEMBERSHIP_BACK: m->move.back = true; break;
    case WEFT_MEMBERSHIP_LEARNS: send_news(m, WEFT_LINE_LEARNS, step, NULL); break;
    case WEFT_MEMBERSHIP_PREPARED: send_wish(m, WEFT_LINE_PREPARED, 0, NULL); break;
    case WEFT_MEMBERSHIP_REPLAN: send_news(m, WEFT_LINE_REPLAN, step, text); break;
    case WEFT_MEMBERSHIP_STEPS: send_news(m, WEFT_LINE_STEPS, step, text); break;
    case WEFT_MEMBERSHIP_SLOW: send_news(m, WEFT_LINE_SLOW, step, text); break;
    case WEFT_MEMBERSHIP_CORDON: send_news(m, WEFT_LINE_CORDON, step, text); break;
    case WEFT_MEMBERSHIP_SCALE: send_wish(m, WEFT_LINE_SCALE, (int)step, NULL); break;
    case WEFT_MEMBERSHIP_FINISHED: send_news(m, WEFT_LINE_FINISHED, step, NULL); break;
    case WEFT_N_MEMBERSHIP_NEWS: break;
    }
}

static void note_move(void *arg, const weft_membership_move *move)
{
    weft_launch_member  *m   = arg;
    weft_membership_move was = m->move;
    m->move                  = *move;
    m->move.back             = was.back;
    m->move.made_bytes       = was.made_bytes;
}

/* Ranks of several hosts meet in each view anew, at the agent of its first host. */
static weft_status meet_in_view(weft_launch_member *m, const weft_line_view *v,
                                weft_comm **listener)
{
    rank_meeting w = {.rank        = v->first + v->mine,
                      .world       = v->world,
                      .local_world = v->local,
                      .epoch       = v->epoch,
                      .at          = v->rdzv,
                      .key         = v->key};
    return *v->rdzv ? meet_ranks(m, &w, listener) : WEFT_OK;
}

static weft_status take_view(weft_launch_member *m, weft_line_view *v,
                             weft_comm **listener)
{
    WEFT_TRY(weft_line_await(m->line, m->epoch, v));
    m->at_s[WEFT_LINE_AT_VIEW] = weft_clock_s();
    m->epoch                   = v->epoch;
    m->committed               = -1;
    m->mine                    = v->mine;
    weft_flight_begin_view(v->epoch, v->first + v->mine, v->world);
    if (v->mine >= v->local) return WEFT_OK;
    weft_status st = meet_in_view(m, v, listener);
    if (st != WEFT_ERR_PEER) return st;
    tell_agent(m, WEFT_MEMBERSHIP_LEFT, m->slot ? atomic_load(&m->slot->step) : -1, NULL);
    return WEFT_AGAIN;
}

/* Ranks of each host, from text; 0: it says nothing. */
static int read_hosts(const char *text, int *count)
{
    int n = 0;
    for (char *end; n < WEFT_MEMBER_MAX_HOST; text = end) {
        long x = strtol(text, &end, 10);
        if (end == text || x < 1 || x > INT_MAX) break;
        count[n++] = (int)x;
    }
    return n;
}

static weft_membership_expected expect_view(weft_launch_member   *m,
                                            const weft_line_next *v)
{
    return (weft_membership_expected){.rank        = v->first + v->mine,
                                      .world       = v->world,
                                      .local_rank  = v->mine,
                                      .local_world = v->local,
                                      .slot        = m->e.slot,
                                      .n_host      = read_hosts(v->hosts, m->host_ranks),
                                      .host_ranks  = m->host_ranks,
                                      .brief_fd    = v->brief_fd,
                                      .lesson      = v->lesson,
                                      .kept_fd     = m->e.shm_fd};
}

static bool is_expected(void *arg, weft_membership_expected *out)
{
    weft_launch_member *m = arg;
    weft_line_next      v;
    if (m->e.shm_fd < 0 || !weft_line_is_to_prepare(m->line, &v)) return false;
    share_progress(m);
    *out = expect_view(m, &v);
    return true;
}

static int is_invited(void *arg)
{
    weft_launch_member *m = arg;
    return weft_line_has_view(m->line, m->epoch);
}

static bool is_resized(void *arg, weft_membership_expected *out)
{
    weft_launch_member *m = arg;
    weft_line_next      v;
    if (m->e.shm_fd < 0 || !weft_line_take_next(m->line, &v)) return false;
    *out = expect_view(m, &v);
    return true;
}

/* Of the lesson of which epoch, and whether that is over. */
typedef struct lesson_end {
    const _Atomic uint32_t *over;
    uint32_t                epoch;
} lesson_end;

static bool is_lesson_over(void *end)
{
    const lesson_end *x = end;
    return atomic_load(x->over) >= x->epoch;
}

/* Nothing of the member changes, as memberships come and go meanwhile. */
static weft_status meet_lesson(void *arg, const weft_membership_lesson *l, int rank,
                               int world, const _Atomic uint32_t *over, weft_comm **out)
{
    const weft_launch_member *m   = arg;
    lesson_end                end = {over, l->epoch};
    rank_meeting    w = {.rank = rank, .world = world, .epoch = l->epoch, .at = l->at};
    weft_comm_token token;
    weft_comm_rdzv_table   table = {0};
    weft_comm             *open  = NULL;
    const void            *mine;
    int64_t                bytes;
    weft_comm_rdzv_options rdzv = {.at        = l->at,
                                   .rank      = rank,
                                   .world     = world,
                                   .epoch     = l->epoch,
                                   .timeout_s = LESSON_WAIT * m->o.timeout_s,
                                   .token     = &token,
                                   .check     = weft_comm_net_check_address,
                                   .is_over   = is_lesson_over,
                                   .arg       = &end};
    weft_status            st   = WEFT_OK;
    if (m->e.rdzv_fd > 0) rdzv.listen_fd = m->e.rdzv_fd;
    w.local_world = m->e.local_world;
    WEFT_TRY(weft_comm_token_find(&m->o.token, &token));
    WEFT_GO(weft_comm_token_bind(&token, l->key.byte, l->epoch));
    WEFT_GO(open_listener(m, &w, over, &open));
    weft_comm_net_address(open, &mine, &bytes);
    WEFT_GO(weft_comm_rdzv_run(&rdzv, mine, bytes, &table));
    WEFT_GO(weft_comm_net_connect(open, &table.membership, table.part, table.bytes));
    *out = open;
    open = NULL;
out:
    weft_comm_token_wipe(&token);
    weft_comm_rdzv_table_fini(&table);
    weft_comm_destroy(open);
    return st;
}

/* The first rank of each host tells its agent: any of them may be the one that others ask. */
static void send_brief(void *arg, const void *bytes, size_t n)
{
    weft_launch_member *m  = arg;
    int                 fd = m->mine ? -1 : memfd_create("weft-brief", MFD_CLOEXEC);
    if (fd < 0) return;
    if (write(fd, bytes, n) == (ssize_t)n)
        weft_line_send_fd(
            m->line, &(weft_line_message){.kind = WEFT_LINE_BRIEF, .epoch = m->epoch},
            fd);
    close(fd);
}

static weft_status await_view(void *arg, weft_membership *out, weft_comm **listener)
{
    weft_launch_member *m = arg;
    weft_line_view      v;
    weft_status         st;
    *listener = NULL;
    share_progress(m);
    do st = take_view(m, &v, listener);
    while (st == WEFT_AGAIN);
    WEFT_TRY(st);
    if (v.mine >= v.local) {
        *out = (weft_membership){.epoch = v.epoch};
        return WEFT_OK;
    }
    if (m->n_rank && v.local != m->n_rank) weft_launch_pin(v.mine, v.local, getppid());
    m->n_rank = v.local;
    *out      = (weft_membership){.epoch         = v.epoch,
                                  .rank          = v.first + v.mine,
                                  .world         = v.world,
                                  .local_rank    = v.mine,
                                  .slot          = m->e.slot,
                                  .local_world   = v.local,
                                  .max_world     = v.most,
                                  .max_local     = v.most_local,
                                  .saves_only    = v.saves,
                                  .takes_over    = v.restarts,
                                  .shm_fd        = v.shm_fd,
                                  .has_kept      = m->e.shm_fd >= 0,
                                  .kept_fd       = m->e.shm_fd,
                                  .key           = m->table.membership,
                                  .address       = m->table.part,
                                  .address_bytes = m->table.bytes};
    return WEFT_OK;
}

static void note_made(void *arg, int64_t bytes)
{
    ((weft_launch_member *)arg)->move.made_bytes = bytes;
}

static void report_incident(void *arg, const weft_membership_incident *i)
{
    weft_launch_member *m = arg;
    weft_line_message   x = {
          .kind = WEFT_LINE_INCIDENT, .epoch = m->epoch, .step = i->step};
    snprintf(x.text, sizeof x.text, "%s", i->text);
    snprintf(x.cause, sizeof x.cause, "%s", i->cause);
    snprintf(x.decided, sizeof x.decided, "%s", i->decided);
    weft_line_send(m->line, &x);
}

void weft_launch_member_fail(weft_launch_member *m)
{
    if (m->line) send_news(m, WEFT_LINE_FAILED, -1, NULL);
}

/* ---- the membership of an environment ---- */

static weft_status await_membership(void *arg, weft_membership *out, weft_comm **listener)
{
    weft_launch_member            *m = arg;
    const weft_launch_environment *e = &m->e;
    if (m->given)
        return WEFT_FAIL(WEFT_ERR_PEER, "%s gives a rank one membership only", e->by);
    *listener = NULL;
    share_progress(m);
    WEFT_TRY(e->local_world < e->world ? meet_hosts(m, listener) : find_memory(m));
    m->given = true;
    weft_flight_begin_view(0, e->rank, e->world);
    *out = (weft_membership){.rank          = e->rank,
                             .world         = e->world,
                             .local_rank    = e->local_rank,
                             .slot          = e->local_rank,
                             .local_world   = e->local_world,
                             .shm_fd        = m->shm_fd,
                             .key           = m->table.membership,
                             .address       = m->table.part,
                             .address_bytes = m->table.bytes};
    return WEFT_OK;
}

weft_status weft_launch_member_create(const weft_launch_environment  *e,
                                      const weft_launch_join_options *o,
                                      weft_launch_member            **out)
{
    weft_launch_member *m = calloc(1, sizeof *m);
    if (!m) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    m->e      = *e;
    m->o      = *o;
    m->shm_fd = -1;
    m->source = (weft_membership_source){.await = await_membership, .arg = m};
    if (e->line_fd >= 0) {
        weft_status st = weft_line_open(e->line_fd, e->agent_stopped_ms / 1e3, &m->line);
        m->source      = (weft_membership_source){.await    = await_view,
                                                  .expected = is_expected,
                                                  .resizes  = is_resized,
                                                  .meet     = meet_lesson,
                                                  .invited  = is_invited,
                                                  .changed  = has_newer,
                                                  .drains   = has_drain,
                                                  .shrinks  = has_fewer,
                                                  .tell     = tell_agent,
                                                  .report   = report_incident,
                                                  .moved    = note_move,
                                                  .made     = note_made,
                                                  .brief    = send_brief,
                                                  .arg      = m};
        if (st != WEFT_OK) {
            free(m);
            return st;
        }
    }
    *out = m;
    return WEFT_OK;
}

void weft_launch_member_destroy(weft_launch_member *m)
{
    if (!m) return;
    weft_line_close(m->line);
    if (m->shm_fd >= 0 && m->shm_fd != m->e.shm_fd) close(m->shm_fd);
    weft_comm_rdzv_table_fini(&m->table);
    free(m);
}

const weft_membership_source *weft_launch_member_source(const weft_launch_member *m)
{
    return &m->source;
}

weft_status weft_launch_join(const weft_launch_environment  *e,
                             const weft_launch_join_options *o, weft_comm **out)
{
    weft_launch_member *m        = NULL;
    weft_comm          *listener = NULL;
    weft_membership     s        = {0};
    WEFT_TRY(weft_launch_member_create(e, o, &m));
    weft_status st = await_membership(m, &s, &listener);
    if (st == WEFT_OK) st = weft_comm_create(&s, listener, o->timeout_s, out);
    weft_comm_key_wipe(&s.key);
    weft_launch_member_destroy(m);
    return st;
}
