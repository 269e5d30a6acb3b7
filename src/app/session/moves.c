/* The move of the state into a generation: is the list right, what should it take, what did it
 * take?  Log and incident have both. */
#include <stdio.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "comm/hosts.h"
#include "comm/shm.h"
#include "session/plans_priv.h"

/* 0.5 to 1 GB a second: bench/results/scale-2026-11-19.csv */
#define USUAL_PAGE_BPS 0.75e9

enum {
    ENOUGH     = 16 << 20, /* bytes of pages by which their speed is known */
    LEFT_SHARE = 8 /* of free memory, which old and new states together leave to others */
};

weft_status weft_session__find_complete(const weft_holders *from, const weft_holders *to,
                                        bool *out)
{
    weft_move_list l  = {0};
    weft_status    st = WEFT_OK;
    *out              = from && weft_move_is_none(from, to);
    if (*out) return WEFT_OK; /* nothing to list */
    *out = from && weft_move_plan(from, to, -1, &l) == WEFT_OK;
    if (*out) st = weft_move_verify(&l, from, to);
    weft_move_list_fini(&l);
    return st;
}

bool weft_session__is_short(const weft_session__room *of, const int32_t *host, int world)
{
    for (int r = 0; r < world; r++) {
        int64_t need = 0;
        for (int k = 0; k < world; k++)
            if (!host || host[k] == host[r]) need += of[k].need;
        if (of[r].have < 0 || need > of[r].have - of[r].have / LEFT_SHARE) return true;
    }
    return false;
}

weft_status weft_session__compare_room(weft_session *s)
{
    weft_generation    *g     = s->now;
    int                 world = g->comm->world;
    weft_session__room  mine  = {.have = INT64_MAX};
    weft_session__room *of    = WEFT_ARENA_ARRAY(g->arena, weft_session__room, world);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(weft_program_state_count_missing(&g->made, g->comm, s->device, g->resumes,
                                              &mine.need));
    if (mine.need) mine.have = weft_session__free_bytes(); /* else nothing is made */
    if (weft_failpoint_flips("move.room")) mine.have = -1; /* as if there were none */
    WEFT_TRY(weft_session__gather(s, &mine, sizeof mine, of));
    g->in_batches = weft_session__is_short(of, weft_comm_hosts_of(g->comm), world);
    return WEFT_OK;
}

weft_status weft_session__run_move(weft_session *s, weft_mover *m)
{
    weft_session__moved *moved = &s->now->moved;
    double               begin = weft_clock_s();
    weft_status          st    = weft_mover_run(m);
    *moved = (weft_session__moved){.load    = {.copied   = weft_mover_copied(m),
                                               .sent     = weft_mover_sent(m),
                                               .received = weft_mover_received(m)},
                                   .seconds = weft_clock_s() - begin};
    weft_mover_close(m);
    return st;
}

double weft_session__page_Bps(const weft_session *s)
{
    if (s->page_bytes < ENOUGH || s->page_s <= 0) return USUAL_PAGE_BPS;
    return (double)s->page_bytes / s->page_s;
}

/* A rank of another host than rank 0; -1: there is none. */
static int find_far(const weft_move_routes *routes)
{
    for (int r = 1; routes->host && r < routes->world; r++)
        if (routes->host[r] != routes->host[0]) return r;
    return -1;
}

/* From the numbers that plans are priced with: a copy reads and writes memory. */
static weft_status find_speed(weft_session *s, const weft_move_routes *routes,
                              weft_move_speed *out)
{
    weft_cluster *machines = NULL;
    weft_job      host     = s->job;
    weft_path     way;
    double        one_Bps;
    int           count[WEFT_SESSION__MAX_RANK];
    int           far = find_far(routes);
    *out              = (weft_move_speed){0};
    int n_host        = weft_session__count_by_host(s, count);
    host.device = "cpu"; /* states go by way of the hosts' memory, those of GPUs too */
    WEFT_TRY(weft_session__machines_of(&host, n_host, count, s->now->n_core, &machines));
    const weft_device_kind *d = weft_cluster_device(machines, 0);
    if (d) out->copy_Bps = d->mem_Bps / 2;
    if (far >= 0 && weft_cluster_path(machines, 0, far, &way) == WEFT_OK) {
        out->alpha_s = way.alpha_s;
        if (!weft_cluster_ports(machines, 0, way.level, &one_Bps, &out->port_Bps))
            out->port_Bps = way.Bps;
    }
    weft_cluster_destroy(machines);
    return WEFT_OK;
}

static void report_move(weft_session *s, const weft_session__moved *of)
{
    const weft_membership_source *source = s->o->member;
    weft_membership_move          move   = {0};
    weft_move_speed               speed;
    weft_move_routes              routes = {.world = s->now->comm->world,
                                            .host  = weft_comm_hosts_of(s->now->comm)};
    char bytes[32], sent[32], peak[32], learned[32], batches[96] = "";
    bool has_far = find_far(&routes) >= 0; /* on one host a GPU's state is sent, too */
    weft_move_load *load = WEFT_ARENA_ARRAY(s->now->arena, weft_move_load, routes.world);
    for (int r = 0; load && r < routes.world; r++) {
        load[r] = of[r].load;
        move.bytes += load[r].copied + load[r].received;
        move.learned += of[r].learned;
        if (has_far) move.sent += load[r].sent;
        if (of[r].seconds > move.seconds) move.seconds = of[r].seconds;
        if (of[r].n_batch > move.n_batch) move.n_batch = (int)of[r].n_batch;
        if (of[r].peak_bytes > move.peak_bytes) move.peak_bytes = of[r].peak_bytes;
    }
    if (!load || !(move.bytes || move.learned) ||
        find_speed(s, &routes, &speed) != WEFT_OK)
        return;
    move.predicted_s = weft_move_simulate(load, &routes, &speed);
    if (s->now->in_batches)
        snprintf(batches, sizeof batches,
                 ", in %d batches with at most %s of memory of a host", move.n_batch,
                 weft_session__print_size((double)move.peak_bytes, peak, sizeof peak));
    weft_say_info(&s->say,
                  "%s of the state moved, %s of it between hosts, in %.3g s (%.3g s "
                  "expected)%s%s%s",
                  weft_session__print_size((double)move.bytes, bytes, sizeof bytes),
                  weft_session__print_size((double)move.sent, sent, sizeof sent),
                  move.seconds, move.predicted_s, batches,
                  move.learned ? "; learned before: " : "",
                  move.learned ? weft_session__print_size((double)move.learned, learned,
                                                          sizeof learned)
                               : "");
    if (source->moved) source->moved(source->arg, &move);
}

weft_status weft_session__account_move(weft_session *s)
{
    weft_generation     *g = s->now;
    weft_session__moved *of =
        WEFT_ARENA_ARRAY(g->arena, weft_session__moved, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(weft_session__gather(s, &g->moved, sizeof g->moved, of));
    if (!g->comm->rank) report_move(s, of);
    return WEFT_OK;
}
