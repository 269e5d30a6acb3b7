#include "session/links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "comm/hosts.h"
#include "session/plans_priv.h"

enum {
    STEPS = 20 /* between two looks, at least */
};
static const double EVERY_S = 5;

void weft_links_fini(weft_links *x)
{
    weft_slow_links_fini(&x->slow);
    free(x->link);
    *x = (weft_links){0};
}

weft_status weft_session__open_links(weft_session *s)
{
    weft_links *x = &s->links;
    int         n = s->now->comm ? s->now->comm->world : 1;
    weft_links_fini(x);
    x->link = calloc((size_t)n, sizeof *x->link);
    if (!x->link) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    x->since = weft_clock_s();
    return weft_slow_links_begin(&x->slow, n, weft_comm_hosts_of(s->now->comm));
}

void weft_session__look_at_links(weft_session *s, weft_vote *mine)
{
    weft_links *x   = &s->links;
    double      now = weft_clock_s();
    if (x->slow.n < 2) return;
    if (++x->n_step >= STEPS &&
        (now >= x->since + EVERY_S || weft_failpoint_flips("links.look"))) {
        int    n        = weft_comm_list_links(s->now->comm, x->link, x->slow.n);
        double crowding = weft_session__find_crowding();
        if (weft_failpoint_flips("links.crowding")) crowding = 1;
        weft_slow_links_add(&x->slow, x->link, n, crowding);
        x->n_step = 0;
        x->since  = now;
    }
    if (!(x->next.usual_rate > 0) && !weft_slow_links_next(&x->slow, &x->next)) return;
    mine->link = x->next;
    if (weft_vote_link_turn(mine->step, x->slow.n) == mine->rank)
        x->next = (weft_slow_link){0};
}

/* Ranks of one host send over the same cable. */
static bool is_reported(const weft_links *x, int from, int to)
{
    const int32_t *host = x->slow.host;
    for (int k = 0; k < x->n_reported; k++) {
        const int *t = x->reported[k];
        if (host ? host[t[0]] == host[from] && host[t[1]] == host[to]
                 : t[0] == from && t[1] == to)
            return true;
    }
    return x->n_reported == WEFT_LINKS_MAX_REPORTED;
}

void weft_session__note_link(weft_session *s, const weft_vote_sum *v)
{
    weft_links *x = &s->links;
    int         a = v->link_from, b = v->link.to;
    if (a < 0 || b < 0 || b >= x->slow.n || !weft_session__writes(s) ||
        is_reported(x, a, b))
        return;
    x->reported[x->n_reported][0]   = a;
    x->reported[x->n_reported++][1] = b;
    const char **host               = s->now->host_name;
    char         text[300];
    snprintf(
        text, sizeof text,
        "the link from %s (rank %d) to %s (rank %d) is slow: %.3g MB/s, %.3g before or "
        "to other hosts",
        host[a], a, host[b], b, 1e-6 * v->link.rate, 1e-6 * v->link.usual_rate);
    weft_say_warn(&s->say, "%s", text);
    weft_session__report(s, "slow_link", "continue", "%s", text);
}
