/* A group of a device's communication, watched by its rank: which call is under way, for how long,
 * and who is not in it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/flight.h"
#include "comm/device_comm.h"

static const double LATE_LOOK_S = 0.1;
static const char   SEND[] = "send", RECV[] = "recv";
enum {
    MOST_LISTED = 8 /* ranks in a line */
};

/* ---- names ---- */

static weft_status add_name(weft_device_names *names, const char *op, const char *name,
                            uint32_t *number)
{
    if (names->n == names->cap) {
        int   cap  = names->cap ? 2 * names->cap : 16;
        void *more = realloc(names->of, sizeof *names->of * (size_t)cap);
        if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        names->of  = more;
        names->cap = cap;
    }
    *number               = (uint32_t)names->n;
    names->of[names->n++] = (struct weft_device_name){op, name};
    return WEFT_OK;
}

weft_status weft_device_names_add(weft_device_names *names, weft_collective kind,
                                  const char *name, uint32_t *number)
{
    return add_name(names, weft_collective_name(kind), name, number);
}

weft_status weft_device_names_add_message(weft_device_names *names, weft_comm_side side,
                                          const char *name, uint32_t *number)
{
    return add_name(names, side == WEFT_COMM_SEND ? SEND : RECV, name, number);
}

static struct weft_device_name name_of(const weft_device_names *names, uint32_t word)
{
    int k = word ? (int)((word - 1) / 2) : -1;
    return k >= 0 && k < names->n ? names->of[k]
                                  : (struct weft_device_name){"a call", "?"};
}

/* ---- who is there ---- */

/* The same at all members, another one for other ranks or another tag; never 0. */
static uint32_t key_of(const weft_device_watched *w)
{
    uint32_t key = 2166136261u ^ (uint32_t)w->tag;
    for (int k = 0; k < w->n; k++) key = (key ^ (uint32_t)w->rank[k]) * 16777619u;
    return key ? key : 1;
}

static bool is_here(weft_device_comm *dc, const weft_device_watched *w, int k)
{
    return k == w->me ||
           (w->is_here ? w->is_here(w->group, k)
                       : weft_comm_is_noted(dc->comm, w->rank[k], key_of(w)));
}

static void list_ranks(const weft_device_comm *dc, const weft_device_watched *w,
                       const bool *listed, char *text, size_t bytes)
{
    int    n_listed = 0;
    size_t n        = 0;
    text[0]         = 0;
    for (int k = 0; k < w->n && n < bytes; k++) {
        if (listed && !listed[k]) continue;
        if (n_listed++ == MOST_LISTED) {
            snprintf(text + n, bytes - n, ", ...");
            return;
        }
        n += (size_t)snprintf(text + n, bytes - n, "%s%d", n_listed > 1 ? ", " : "",
                              weft_comm_name(dc->comm, w->rank[k]));
    }
}

/* ---- late calls ---- */

/* The others learn that this member is in it, and a dump shows it as what runs.  Where dumps are
 * compared a call has the number of its step: ranks record only those that are late. */
static void note_late(weft_device_comm *dc, weft_device_watched *w, double ago_s)
{
    struct weft_device_name call = name_of(w->names, w->seen);
    int64_t                 step = atomic_load(&dc->step);
    if (!w->is_here) weft_comm_note(dc->comm, w->n, w->rank, key_of(w), true);
    w->record = weft_flight_begin(
        &(weft_flight_event){.kind   = call.op == SEND   ? WEFT_FLIGHT_SEND
                                       : call.op == RECV ? WEFT_FLIGHT_RECV
                                                         : WEFT_FLIGHT_COLLECTIVE,
                             .op     = call.op,
                             .name   = call.name,
                             .step   = step,
                             .seq    = step,
                             .ago_s  = ago_s,
                             .tag    = w->tag,
                             .n_rank = w->n,
                             .rank   = w->rank});
    w->noted = true;
}

static void take_back(weft_device_comm *dc, weft_device_watched *w)
{
    if (!w->is_here) weft_comm_note(dc->comm, w->n, w->rank, key_of(w), false);
    weft_flight_end(w->record);
    w->noted = false;
}

static weft_status fail_late(weft_device_comm *dc, const weft_device_watched *w,
                             double limit_s)
{
    struct weft_device_name call    = name_of(w->names, w->seen);
    bool                   *missing = calloc((size_t)w->n, sizeof *missing);
    char                    ranks[64], absent[64] = "", who[100] = "";
    int                     n = 0, first = -1;
    bool                    knows = w->is_here || weft_comm_can_note(dc->comm);
    for (int k = 0; missing && knows && k < w->n; k++) {
        missing[k] = !is_here(dc, w, k);
        if (missing[k] && n++ == 0) first = k;
    }
    if (n) list_ranks(dc, w, missing, absent, sizeof absent);
    free(missing);
    list_ranks(dc, w, NULL, ranks, sizeof ranks);
    if (first >= 0)
        snprintf(who, sizeof who,
                 "rank %d is silent: ", weft_comm_name(dc->comm, w->rank[first]));
    return WEFT_FAIL(
        WEFT_ERR_PEER,
        "%srank %d waited %.3g s in %s '%.40s' of step %lld by %s (tag %d, ranks "
        "%s) on %s; %s%s",
        who, weft_comm_name(dc->comm, dc->comm->rank), limit_s, call.op, call.name,
        (long long)atomic_load(&dc->step), dc->backend->name, w->tag, ranks,
        dc->device->name,
        n       ? "missing: "
        : knows ? "all of them are in it"
                : "who is missing is not known",
        absent);
}

weft_status weft_device_comm_watch(weft_device_comm *dc, weft_device_watched *w,
                                   uint32_t word, bool waits)
{
    double now = weft_clock_s(), since = w->looked_s > 0 ? now - w->looked_s : 0;
    w->looked_s = now;
    if (word != w->seen || !waits) {
        if (w->noted) take_back(dc, w);
        w->seen    = word;
        w->since_s = now;
        return WEFT_OK;
    }
    /* Time in which this process did not look, as it was stopped or short of a core, or its peers
     * were stopped on purpose, does not count. */
    double limit_s = weft_device_comm_limit_s(dc);
    if (since > LATE_LOOK_S) w->since_s += since;
    if (!w->noted && now - w->since_s >= 0.5 * limit_s)
        note_late(dc, w, now - w->since_s);
    return now - w->since_s < limit_s ? WEFT_OK : fail_late(dc, w, limit_s);
}
