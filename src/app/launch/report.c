/* What the launcher says at the end, and its exit code. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "launch/launch_priv.h"

/* Who failed of itself comes before who failed because of others, and the earlier before the
 * later. */
static int next_error(const weft_launch__run *l, int after)
{
    int best = -1, at = 0;
    for (int r = 0; r < l->n; r++) {
        const weft_launch__child *c = &l->c[r];
        int rank                    = c->order + (c->code == WEFT_LAUNCH_PEER ? l->n : 0);
        if (!c->order || rank <= after) continue;
        if (best < 0 || rank < at) best = r, at = rank;
    }
    return best;
}

/* Ranks with the same error as r: reported once, with it. */
static int tell_same(weft_launch__run *l, int r)
{
    const weft_launch__child *c = &l->c[r];
    int                       n = 0;
    for (int i = 0; i < l->n; i++) {
        weft_launch__child *x = &l->c[i];
        if (i == r || !x->order || x->reported || !x->error.n || x->code != c->code)
            continue;
        if (c->code == WEFT_LAUNCH_PEER || x->error.n != c->error.n) continue;
        x->reported = !memcmp(x->error.s, c->error.s, c->error.n);
        n += x->reported;
    }
    return n;
}

/* Ranks that had to be killed: all of them after a signal, else those that were stopped. */
static void report_killed(const weft_launch__run *l)
{
    for (int r = 0; r < l->n; r++) {
        const weft_launch__child *c = &l->c[r];
        if (c->killed_s <= 0 || l->at_once || (!l->stopped_by && c->state != 'T'))
            continue;
        weft_launch__say(l, weft_launch__rank(l, r), "error",
                         "error: %s, and was killed%s",
                         c->state == 'T'   ? "it was stopped (SIGSTOP)"
                         : l->n_failed > 0 ? "it did not end when others failed"
                                           : "it did not end after the signal",
                         c->pid ? "; it still waits in the kernel" : "");
    }
}

static int find_code(const weft_launch__run *l, int code)
{
    for (int r = 0; r < l->n && !code; r++)
        if (l->c[r].code || l->c[r].killed_s > 0) code = l->c[r].code ? l->c[r].code : 1;
    return code;
}

int weft_launch__report(weft_launch__run *l)
{
    int code = l->stopped_by ? 128 + l->stopped_by : 0, after = 0, r;
    int hosts = weft_launch__hosts_code(l);
    if (l->restart) return weft_launch__restart_code(l, hosts);
    if (hosts >= 0) return hosts;
    if (weft_launch__agent_is_done(l)) return code;
    if (l->o->program) return find_code(l, code); /* what to say is supervise's */
    const char *why = weft_launch__agent_reason(l);
    if (why && *why) weft_launch__say(l, -1, "error", "%s", why);
    while ((r = next_error(l, after)) >= 0) {
        weft_launch__child *c = &l->c[r];
        after                 = c->order + (c->code == WEFT_LAUNCH_PEER ? l->n : 0);
        if (!code) code = c->code == WEFT_LAUNCH_PEER ? 1 : c->code;
        char *s = c->error.s, *save = NULL, more[32] = "";
        if (c->reported) continue;
        if (l->stopped_by && (c->code == 128 + SIGTERM || c->code == 128 + SIGINT ||
                              c->code == WEFT_LAUNCH_PEER))
            continue; /* it ended on request, or because others did */
        int same = tell_same(l, r);
        if (same) snprintf(more, sizeof more, " and %d more", same);
        if (!s || !*s)
            weft_launch__say(l, weft_launch__rank(l, r), "error", "error: exit code %d",
                             c->code);
        for (s = s ? strtok_r(s, "\n", &save) : NULL; s; s = strtok_r(NULL, "\n", &save))
            if (*more && !l->o->log_json)
                fprintf(stderr, "[rank %d%s] %s\n", weft_launch__rank(l, r), more, s);
            else
                weft_launch__say_line(l, weft_launch__rank(l, r), s, strlen(s));
    }
    report_killed(l);
    if (l->stopped_by && why && *why) code = 1; /* not by a signal from outside */
    for (r = 0; r < l->n && !code; r++)
        if (l->c[r].killed_s > 0 || why) code = 1;
    for (r = 0; r < l->n; r++) /* errors of ranks that went on all the same */
        if (!l->c[r].order && l->c[r].error.s)
            weft_launch__say_line(l, weft_launch__rank(l, r), l->c[r].error.s,
                                  l->c[r].error.n - 1);
    if (l->o->on_rank_exit == WEFT_LAUNCH_REPORT && !l->stopped_by && l->n_done) return 0;
    return code;
}
