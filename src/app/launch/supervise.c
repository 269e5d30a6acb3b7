#include "launch/supervise.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/exporter.h"
#include "launch/incident.h"
#include "launch/oom.h"

enum {
    GRACE_S = 30 /* as torchrun's, between SIGTERM and SIGKILL */
};

typedef struct supervisor {
    weft_launch_options o; /* of the ranks that run now */
    weft_incident failure; /* the first of them that failed; what: "" so far none did */
    bool          stopping, unable;
    int64_t       n_oom; /* before the ranks were started */
    weft_exporter_counts counts;
    char                 at[32];
} supervisor;

/* The first failure is the cause; what follows it is our own doing. */
static void note_exit(void *arg, const weft_launch_exit *e)
{
    supervisor    *s = arg;
    weft_incident *i = &s->failure;
    s->stopping |= e->stopping;
    if (!e->code || e->killed || e->stopping || *i->what) return;
    *i = (weft_incident){.rank      = e->rank,
                         .pid       = e->pid,
                         .epoch     = (uint32_t)s->o.restart,
                         .step      = -1,
                         .noticed   = e->noticed ? e->noticed : "waitpid",
                         .wall_s    = weft_clock_wall_s(),
                         .noticed_s = weft_clock_s()};
    snprintf(i->what, sizeof i->what, "%s", e->what);
    snprintf(i->cause, sizeof i->cause, "%s",
             e->noticed
                 ? e->noticed
                 : weft_incident_find_cause(e->signal, weft_oom_count("") > s->n_oom));
    gethostname(i->host, sizeof i->host - 1);
    s->unable = e->code == 126 || e->code == 127;
}

/* As many ranks as the sizes need. */
static weft_status count_ranks(const weft_launch_options *o, int *n)
{
    weft_text t  = {0};
    int       dp = o->sizes ? weft_launch_sizes_dp(o->sizes, *n) : 1;
    if (!dp)
        return WEFT_FAIL(WEFT_ERR_ARG, "--nproc-per-node %d: the sizes need at least %d",
                         *n, weft_launch_sizes_least(o->sizes));
    if (!o->sizes) return WEFT_OK;
    weft_launch_sizes_print(o->sizes, dp, &t);
    int world = weft_launch_sizes_world(o->sizes, dp);
    fprintf(stderr, "weft run: %s: %d of %d ranks run\n", t.s ? t.s : "", world, *n);
    weft_text_fini(&t);
    *n = world;
    return WEFT_OK;
}

/* A free port of this host. */
static weft_status find_port(char *at, size_t n)
{
    struct sockaddr_in a    = {.sin_family = AF_INET};
    socklen_t          size = sizeof a;
    a.sin_addr.s_addr       = htonl(INADDR_LOOPBACK);
    int fd                  = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, size) ||
        getsockname(fd, (struct sockaddr *)&a, &size)) {
        int why = errno;
        if (fd >= 0) close(fd);
        return WEFT_FAIL(WEFT_ERR_IO, "no free port: %s", strerror(why));
    }
    close(fd);
    snprintf(at, n, "127.0.0.1:%d", ntohs(a.sin_port));
    return WEFT_OK;
}

static void write_incident(supervisor *s, bool again)
{
    weft_text             t = {0};
    weft_incident_outcome o = {.decided   = again ? "restart" : "end",
                               .why       = again       ? ""
                                            : s->unable ? "the program cannot be started"
                                            : s->o.max_restarts ? "no restart is left"
                                                                : "--max-restarts is 0",
                               .epoch     = (uint32_t)s->o.restart + 1,
                               .step      = -1,
                               .decided_s = weft_clock_s()};
    fprintf(stderr, "weft run: rank %d: %s: %s", s->failure.rank, s->failure.what,
            again ? "all ranks start again" : o.why);
    if (again) fprintf(stderr, " (%d of %d)", s->o.restart + 1, s->o.max_restarts);
    fputc('\n', stderr);
    weft_incident_print(&s->failure, &o, &t);
    if (s->o.log_dir) weft_incident_append(s->o.log_dir, "incidents.jsonl", &t);
    if (s->o.on_incident) weft_incident_notify(s->o.on_incident, &t);
    weft_text_fini(&t);
    weft_exporter_count(&s->counts, s->failure.cause, o.decided);
}

weft_status weft_launch_supervise(int n, const weft_launch_options *o, int *code)
{
    supervisor s     = {.o = *o};
    s.o.on_rank_exit = WEFT_LAUNCH_END_ALL;
    s.o.report       = note_exit;
    s.o.arg          = &s;
    s.o.counts       = &s.counts;
    if (s.o.grace_s <= 0) s.o.grace_s = GRACE_S;
    if (s.o.stop_s <= 0) s.o.stop_s = GRACE_S;
    if (o->n_node > 1 && (o->min_node != o->n_node || o->max_restarts || o->sizes)) {
        s.o.on_rank_exit = WEFT_LAUNCH_RESTART;
        s.o.report       = NULL;
        return weft_launch(n, o->program, &s.o, code);
    }
    WEFT_TRY(count_ranks(o, &n));
    for (bool again = true; again; s.o.restart++) {
        s.failure = (weft_incident){0};
        s.n_oom   = weft_oom_count("");
        if (!o->rdzv) {
            WEFT_TRY(find_port(s.at, sizeof s.at));
            s.o.rdzv = s.at;
        }
        WEFT_TRY(weft_launch(n, o->program, &s.o, code));
        again = *code && !s.stopping && !s.unable && s.o.restart < s.o.max_restarts;
        if (*s.failure.what && !s.stopping) write_incident(&s, again);
    }
    if (*code && !s.stopping) *code = 1;
    return WEFT_OK;
}
