/* Timelines of all ranks in one file, on rank 0's clock.
 *
 * A rank's clock against rank 0's: rank 0 sends, the rank answers with its own time; of several
 * exchanges the shortest tells most, and the answer was given in its middle.  Ranks of one host
 * share a clock and find about 0. */
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "session/session_priv.h"

enum {
    ROUNDS = 16,
    PIECE  = 1 << 16 /* bytes of text in a message */
};
#define MOST_EVENTS (INT64_C(4) << 30) /* bytes of text of one rank */

typedef struct link {
    weft_comm         *c;
    weft_comm_channel *to, *from;
} link;

static weft_status open_link(weft_comm *c, int peer, link *out)
{
    int down = WEFT_SESSION__TAG_TRACE, up = down + 1;
    out->c = c;
    WEFT_TRY(weft_comm_open_channel(c, peer, WEFT_COMM_SEND, c->rank ? up : down, PIECE,
                                    1, &out->to));
    return weft_comm_open_channel(c, peer, WEFT_COMM_RECV, c->rank ? down : up, PIECE, 1,
                                  &out->from);
}

/* On rank 0: how far the other's clock is ahead. */
static weft_status measure(link *l, double *ahead_s)
{
    double best = 1e300;
    for (int i = 0; i < ROUNDS; i++) {
        double begin = weft_clock_s(), there;
        WEFT_TRY(weft_comm_send(l->c, l->to, &begin, sizeof begin));
        WEFT_TRY(weft_comm_recv(l->c, l->from, &there, sizeof there));
        double end = weft_clock_s();
        if (end - begin >= best) continue;
        best     = end - begin;
        *ahead_s = there - (begin + end) / 2;
    }
    return WEFT_OK;
}

static weft_status answer(link *l)
{
    for (int i = 0; i < ROUNDS; i++) {
        double there, now;
        WEFT_TRY(weft_comm_recv(l->c, l->from, &there, sizeof there));
        now = weft_clock_s();
        WEFT_TRY(weft_comm_send(l->c, l->to, &now, sizeof now));
    }
    return WEFT_OK;
}

static weft_status send_text(link *l, const weft_text *t)
{
    int64_t n = (int64_t)t->n;
    WEFT_TRY(weft_comm_send(l->c, l->to, &n, sizeof n));
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < PIECE ? n - at : PIECE;
        WEFT_TRY(weft_comm_send(l->c, l->to, t->s + at, k));
    }
    return WEFT_OK;
}

static weft_status recv_text(link *l, char *piece, weft_text *t)
{
    int64_t n;
    WEFT_TRY(weft_comm_recv(l->c, l->from, &n, sizeof n));
    if (n < 0 || n > MOST_EVENTS)
        return WEFT_FAIL(WEFT_ERR_PEER, "a rank failed: it sent %lld bytes of events",
                         (long long)n);
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < PIECE ? n - at : PIECE;
        WEFT_TRY(weft_comm_recv(l->c, l->from, piece, k));
        weft_text_put(t, piece, (size_t)k);
    }
    return weft_text_status(t);
}

/* A rank's side: its clock is asked for, then its events go over on rank 0's clock, from rank 0's
 * beginning. */
static weft_status give(weft_session *s, const weft_timeline *t)
{
    link        l;
    double      shift[2]; /* how far this clock is ahead; rank 0's zero */
    weft_text   text = {0};
    weft_status st   = WEFT_OK;
    WEFT_GO(open_link(s->now->comm, 0, &l));
    WEFT_GO(answer(&l));
    WEFT_GO(weft_comm_recv(l.c, l.from, shift, sizeof shift));
    weft_timeline_json_events(t, t->origin_s - shift[0] - shift[1], &text);
    WEFT_GO(weft_text_status(&text));
    WEFT_GO(send_text(&l, &text));
out:
    weft_text_fini(&text);
    return st;
}

static weft_status take(weft_session *s, const weft_timeline *t, weft_text *text)
{
    char *piece = WEFT_ARENA_ARRAY(s->now->arena, char, PIECE);
    /* others may have begun a little earlier: nothing may come before zero */
    double zero = t->origin_s - 1;
    WEFT_TRY(weft_arena_status(s->now->arena));
    weft_timeline_json_events(t, t->origin_s - zero, text);
    for (int r = 1; r < s->now->comm->world; r++) {
        link   l;
        double shift[2] = {0, zero};
        WEFT_TRY(open_link(s->now->comm, r, &l));
        WEFT_TRY(measure(&l, &shift[0]));
        WEFT_TRY(weft_comm_send(l.c, l.to, shift, sizeof shift));
        WEFT_TRY(recv_text(&l, piece, text));
    }
    return WEFT_OK;
}

weft_status weft_session__trace(weft_session *s)
{
    weft_timeline *t    = NULL;
    weft_text      text = {0};
    weft_status    st   = WEFT_OK;
    if (!s->now->comm) return weft_runner_trace(s->now->runner, s->o->trace);
    WEFT_GO(weft_runner_timeline(s->now->runner, &t));
    if (!weft_session__writes(s)) {
        WEFT_GO(give(s, t));
    } else {
        weft_timeline_json_begin(&text);
        WEFT_GO(take(s, t, &text));
        weft_timeline_json_end(&text);
        WEFT_GO(weft_text_status(&text));
        WEFT_GO(weft_io_replace_file(s->o->trace, text.s, text.n));
    }
out:
    weft_timeline_destroy(t);
    weft_text_fini(&text);
    return st;
}
