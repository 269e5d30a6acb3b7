/* Launchers tell ranks by the environment, each in its own words.  A table says which. */
#include "launch/environment.h"

#include <netdb.h>
#include <stdbool.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"

typedef struct dialect {
    const char *by;
    const char *rank, *world; /* both there: it was this launcher */
    const char *local_rank, *local_world;
    const char *key[2]; /* what tells jobs of one user on one host apart */
    const char *node;   /* ... and nodes that are on one host */
} dialect;

/* PMIx alone (a launcher that sets none of these) would need its library. */
static const dialect table[] = {
    {"weft run",
     "WEFT_RANK",
     "WEFT_WORLD_SIZE",
     "WEFT_LOCAL_RANK",
     "WEFT_LOCAL_WORLD_SIZE",
     {"WEFT_JOB_ID", NULL},
     "WEFT_NODE_RANK"},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"MASTER_PORT", "TORCHELASTIC_RUN_ID"},
     "GROUP_RANK"},
    {"slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     NULL,
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     "SLURM_NODEID"},
    {"openmpi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", NULL},
     NULL},
    {"pmi",
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     {"PMI_FD", "PMI_PORT"},
     NULL},
};

static weft_status number(const char *name, int lo, int hi, int *out)
{
    const char *s = getenv(name);
    char       *end;
    long        x = s ? strtol(s, &end, 10) : 0;
    if (!s || end == s || *end || x < lo || x > hi)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s is '%s', expected a number from %d to %d",
                         name, s ? s : "", lo, hi);
    *out = (int)x;
    return WEFT_OK;
}

/* "2(x3),1": ranks of each node, in order; gives those of node. */
static int tasks_of_node(const char *s, int node)
{
    while (s && *s) {
        char *end;
        long  n = strtol(s, &end, 10), times = 1;
        if (end == s) return 0;
        if (end[0] == '(' && end[1] == 'x') times = strtol(end + 2, &end, 10);
        if (node < times) return (int)n;
        node -= (int)times;
        s = strchr(end, ',');
        if (s) s++;
    }
    return 0;
}

static weft_status local_world(const dialect *d, weft_launch_environment *p)
{
    p->local_world = p->world;
    if (d->local_world && getenv(d->local_world))
        return number(d->local_world, 1, p->world, &p->local_world);
    if (!strcmp(d->by, "slurm")) {
        const char *s = getenv("SLURM_STEP_TASKS_PER_NODE");
        const char *n = getenv("SLURM_NODEID");
        if (!s) s = getenv("SLURM_TASKS_PER_NODE");
        int tasks = tasks_of_node(s, n ? atoi(n) : 0);
        if (tasks > 0 && tasks <= p->world) p->local_world = tasks;
    }
    return WEFT_OK;
}

static void make_key(const dialect *d, weft_launch_environment *p)
{
    const char *a    = d->key[0] ? getenv(d->key[0]) : NULL;
    const char *b    = d->key[1] ? getenv(d->key[1]) : NULL;
    const char *node = d->node ? getenv(d->node) : NULL;
    if (!strcmp(d->by, "pmi")) a = b = NULL; /* differ from rank to rank */
    if (a || b)
        snprintf(p->key, sizeof p->key, "%s-%s-%s-%s", d->by, a ? a : "", b ? b : "",
                 node ? node : "");
    else /* ranks of one host have one parent */
        snprintf(p->key, sizeof p->key, "%s-parent-%ld", d->by, (long)getppid());
}

/* ---- where ranks of several hosts meet ---- */

enum {
    FIRST_PORT = 20000,
    N_PORT     = 12000, /* below those that systems give out */
};

/* "n[3-5,8],m1" -> "n3": the first of Slurm's list. */
static bool first_host(const char *list, char *out, size_t n)
{
    size_t      k    = strcspn(list, "[,");
    const char *rest = list + k;
    if (*rest == '[') {
        size_t digits = strcspn(rest + 1, "-,]");
        snprintf(out, n, "%.*s%.*s", (int)k, list, (int)digits, rest + 1);
    } else {
        snprintf(out, n, "%.*s", (int)k, list);
    }
    struct addrinfo *found;
    if (!*out || getaddrinfo(out, NULL, NULL, &found)) return false;
    freeaddrinfo(found);
    return true;
}

/* "3171221504.0;tcp://10.0.0.1,172.17.0.1:41023" -> "10.0.0.1": who runs mpirun. */
static bool mpirun_host(const char *uri, char *out, size_t n)
{
    const char *at = strstr(uri, "tcp://");
    if (!at) return false;
    snprintf(out, n, "%.*s", (int)strcspn(at + 6, ",:"), at + 6);
    return *out != 0;
}

/* The same on all hosts of the job. */
static int draw_port(const char *const *name, int n)
{
    uint32_t h = 0;
    for (int i = 0; i < n; i++) {
        const char *s = name[i] ? getenv(name[i]) : NULL;
        if (s) h = weft_hash_crc32c(h, s, strlen(s));
    }
    return FIRST_PORT + (int)(h % N_PORT);
}

/* The first node of a list, by its name, else where srun runs. */
static bool slurm_host(const char *list, char *out, size_t n)
{
    const char *ip = getenv("SLURM_LAUNCH_NODE_IPADDR");
    if (list && first_host(list, out, n)) return true;
    if (ip) snprintf(out, n, "%s", ip);
    return ip != NULL;
}

static void find_rdzv(const dialect *d, weft_launch_environment *p)
{
    const char *own = getenv("WEFT_RDZV"), *addr = getenv("MASTER_ADDR"),
               *port = getenv("MASTER_PORT");
    char host[256];
    int  drawn = draw_port(d->key, 2);
    if (own) {
        snprintf(p->rdzv, sizeof p->rdzv, "%s", own);
    } else if (addr) {
        snprintf(p->rdzv, sizeof p->rdzv, "%s:%d", addr, port ? atoi(port) + 1 : drawn);
    } else if (!strcmp(d->by, "slurm")) {
        if (slurm_host(getenv("SLURM_STEP_NODELIST"), host, sizeof host))
            snprintf(p->rdzv, sizeof p->rdzv, "%s:%d", host, drawn);
    } else if (!strcmp(d->by, "openmpi")) {
        const char *uri = getenv("OMPI_MCA_orte_hnp_uri");
        if (uri && mpirun_host(uri, host, sizeof host))
            snprintf(p->rdzv, sizeof p->rdzv, "%s:%d", host, drawn);
    }
}

static weft_status read_dialect(const dialect *d, weft_launch_environment *p)
{
    WEFT_TRY(number(d->world, 1, 1 << 24, &p->world));
    WEFT_TRY(number(d->rank, 0, p->world - 1, &p->rank));
    WEFT_TRY(local_world(d, p));
    p->local_rank = p->rank % p->local_world;
    if (getenv(d->local_rank))
        WEFT_TRY(number(d->local_rank, 0, p->local_world - 1, &p->local_rank));
    p->slot = p->local_rank;
    if (!strcmp(d->by, "weft run") && getenv("WEFT_SLOT"))
        WEFT_TRY(number("WEFT_SLOT", 0, 1 << 24, &p->slot));
    if (!strcmp(d->by, "weft run") && getenv("WEFT_SHM_FD"))
        WEFT_TRY(number("WEFT_SHM_FD", 0, 1 << 24, &p->shm_fd));
    if (!strcmp(d->by, "weft run") && getenv("WEFT_LINE_FD"))
        WEFT_TRY(number("WEFT_LINE_FD", 0, 1 << 24, &p->line_fd));
    if (p->line_fd >= 0 && getenv("WEFT_AGENT_STOPPED_MS"))
        WEFT_TRY(number("WEFT_AGENT_STOPPED_MS", 0, INT_MAX, &p->agent_stopped_ms));
    if (!strcmp(d->by, "weft run") && getenv("WEFT_RDZV_FD"))
        WEFT_TRY(number("WEFT_RDZV_FD", 0, 1 << 24, &p->rdzv_fd));
    if (getenv("WEFT_FLIGHT_FD"))
        WEFT_TRY(number("WEFT_FLIGHT_FD", 0, 1 << 24, &p->flight_fd));
    p->by = d->by;
    make_key(d, p);
    if (p->local_world != p->world) find_rdzv(d, p);
    return WEFT_OK;
}

bool weft_launch_detect_hosts(char *rdzv, size_t n, int *node)
{
    static const char *const key[] = {"SLURM_JOB_ID", "SLURM_CLUSTER_NAME"};
    const char *own = getenv("WEFT_RDZV"), *list = getenv("SLURM_JOB_NODELIST"),
               *id = getenv("SLURM_NODEID");
    char host[256];
    *node = -1;
    if (!own && (!getenv(key[0]) || !list || !slurm_host(list, host, sizeof host)))
        return false;
    if (own)
        snprintf(rdzv, n, "%s", own);
    else
        snprintf(rdzv, n, "%s:%d", host, draw_port(key, 2));
    if (!own && id && getenv("SLURM_PROCID")) *node = atoi(id);
    return true;
}

void weft_launch_host_name(char *out, size_t n)
{
    const char *name = getenv("SLURMD_NODENAME");
    memset(out, 0, n);
    if (name && *name)
        snprintf(out, n, "%s", name);
    else
        gethostname(out, n - 1);
}

weft_status weft_launch_detect(weft_launch_environment *out)
{
    *out = (weft_launch_environment){.world       = 1,
                                     .local_world = 1,
                                     .shm_fd      = -1,
                                     .line_fd     = -1,
                                     .rdzv_fd     = -1,
                                     .flight_fd   = -1,
                                     .by          = "alone"};
    for (size_t i = 0; i < WEFT_COUNT(table); i++) {
        bool rank = getenv(table[i].rank), world = getenv(table[i].world);
        if (rank && world) return read_dialect(&table[i], out);
        if (rank && i < 2) /* a rank without a world is a mistake, not another launcher */
            return WEFT_FAIL(WEFT_ERR_ARG, "%s is set and %s is not", table[i].rank,
                             table[i].world);
    }
    return WEFT_OK;
}
