/* Do all ranks see the output folder?  Rank 0 makes a file under a temporary name that the others
 * look for: in the first view of several hosts, in each later one of other hosts, and, where none
 * has asked, before a checkpoint. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "session/session_priv.h"

/* From rank 0: a file to look for; or what it knows, as sees_output. */
typedef struct probe {
    char    name[64];
    int32_t known;
} probe;

/* Of the ranks, by hosts. */
static uint64_t hash_hosts(const weft_generation *g, const int *domain)
{
    weft_hash_state h;
    weft_hash_init(&h, 1);
    weft_hash_add(&h, domain, sizeof *domain * (size_t)g->n_rank);
    for (int r = 0; g->host_name && r < g->n_rank; r++)
        weft_hash_add(&h, g->host_name[r], strlen(g->host_name[r]) + 1);
    return weft_hash_value(&h) | 1;
}

static int make_file(const weft_session *s, probe *p)
{
    char path[4500];
    snprintf(p->name, sizeof p->name, "probe-%d-%llx.tmp", (int)getpid(),
             (unsigned long long)(weft_clock_s() * 1e9));
    snprintf(path, sizeof path, "%s/%s", s->out.checkpoints, p->name);
    if (weft_io_mkdirs(s->out.checkpoints) != WEFT_OK) return -1;
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

/* sees: of each rank. */
static void warn_of_blind(weft_session *s, const int *domain, const int32_t *sees)
{
    weft_generation *g     = s->now;
    weft_text        t     = {0};
    bool            *blind = WEFT_ARENA_ARRAY(g->arena, bool, g->n_rank);
    int              n     = 0;
    if (!blind) return;
    for (int r = 0; r < g->n_rank; r++)
        if (!sees[r]) blind[domain[r]] = true;
    for (int r = 0; r < g->n_rank; r++) n += blind[r];
    weft_session__put_domains(g, domain, blind, &t);
    weft_say_warn(&s->say,
                  "%s %s not see %s: rank 0 writes checkpoints alone, training waits for "
                  "it, and they are lost with its host; let output be a folder that all "
                  "hosts see",
                  t.s ? t.s : "a rank", n > 1 ? "do" : "does", s->out.checkpoints);
    weft_text_fini(&t);
}

weft_status weft_session__probe_output(weft_session *s)
{
    char             path[4500];
    probe            p      = {0};
    weft_generation *g      = s->now;
    int             *domain = weft_session__find_domains(g), fd = -1;
    int32_t          sees = 0, *all = WEFT_ARENA_ARRAY(g->arena, int32_t, g->n_rank);
    WEFT_TRY(weft_arena_status(g->arena));
    uint64_t hosts = hash_hosts(g, domain);
    if (weft_session__writes(s)) {
        if (hosts == s->out.probed_hosts)
            p.known = s->out.sees_output;
        else
            fd = make_file(s, &p);
    }
    snprintf(path, sizeof path, "%s/%s", s->out.checkpoints, p.name);
    weft_status st = weft_session__share(s, &p, sizeof p);
    if (st == WEFT_OK && !p.known) {
        snprintf(path, sizeof path, "%s/%s", s->out.checkpoints, p.name);
        sees = weft_io_exists(path) && access(s->out.checkpoints, W_OK) == 0;
        st   = weft_session__gather(s, &sees, sizeof sees, all);
    }
    if (fd >= 0) close(fd), (void)unlink(path);
    WEFT_TRY(st);
    g->sees_output = p.known ? p.known : 1;
    for (int r = 0; !p.known && r < g->n_rank; r++)
        if (!all[r] && all[0]) g->sees_output = -1;
    if (!p.known && g->sees_output < 0) warn_of_blind(s, domain, all);
    s->out.probed_hosts = hosts;
    s->out.sees_output  = g->sees_output;
    return WEFT_OK;
}

weft_status weft_session__probe_hosts(weft_session *s)
{
    const weft_generation *g = s->now;
    if (g->local > 0 && g->local < g->n_rank) return weft_session__probe_output(s);
    s->out.probed_hosts = 0; /* who joins later is new */
    return WEFT_OK;
}
