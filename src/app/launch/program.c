/* Ranks that are another engine's program: what torchrun would tell them, and their parallel
 * sizes where the command gives those. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/rdzv.h"
#include "launch/launch_priv.h"

typedef struct variable_list {
    weft_launch_variable *of;
    int                   n;
} variable_list;

static void add_text(variable_list *list, const char *name, const char *value)
{
    weft_launch_variable *v = &list->of[list->n++];
    snprintf(v->name, sizeof v->name, "%s", name);
    snprintf(v->value, sizeof v->value, "%s", value);
}

static void add_number(variable_list *list, const char *name, int x)
{
    char s[16];
    snprintf(s, sizeof s, "%d", x);
    add_text(list, name, s);
}

/* Where a rank is. */
typedef struct program_rank {
    int         rank, world, local, n_local, group, n_group, restart, max_restarts;
    const char *master;             /* host:port */
    const weft_launch_sizes *sizes; /* NULL: none are given */
} program_rank;

static void add_sizes(variable_list *list, const weft_launch_sizes *s, int world)
{
    int     dp    = weft_launch_sizes_dp(s, world);
    int64_t steps = weft_launch_sizes_accumulation(s, dp);
    add_number(list, "WEFT_DP", dp);
    add_number(list, "WEFT_TP", s->tp);
    add_number(list, "WEFT_CP", s->cp);
    add_number(list, "WEFT_EP", s->ep);
    add_number(list, "WEFT_PP", s->pp);
    if (steps) add_number(list, "WEFT_ACCUMULATION_STEPS", (int)steps);
}

static weft_status fill_variables(const program_rank  *p,
                                  weft_launch_variable v[WEFT_LAUNCH_N_VARIABLE])
{
    variable_list list  = {.of = v};
    const char   *colon = p->master ? strrchr(p->master, ':') : NULL;
    char          host[64];
    memset(v, 0, sizeof *v * WEFT_LAUNCH_N_VARIABLE);
    if (!colon || (size_t)(colon - p->master) >= sizeof host)
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s' is not host:port",
                         p->master ? p->master : "");
    snprintf(host, sizeof host, "%.*s", (int)(colon - p->master), p->master);
    add_number(&list, "RANK", p->rank);
    add_number(&list, "WORLD_SIZE", p->world);
    add_number(&list, "LOCAL_RANK", p->local);
    add_number(&list, "LOCAL_WORLD_SIZE", p->n_local);
    add_number(&list, "GROUP_RANK", p->group);
    add_number(&list, "GROUP_WORLD_SIZE", p->n_group);
    add_text(&list, "ROLE_NAME", "default");
    add_number(&list, "ROLE_RANK", p->rank);
    add_number(&list, "ROLE_WORLD_SIZE", p->world);
    add_text(&list, "MASTER_ADDR", host);
    add_text(&list, "MASTER_PORT", colon + 1);
    add_number(&list, "TORCHELASTIC_RESTART_COUNT", p->restart);
    add_number(&list, "TORCHELASTIC_MAX_RESTARTS", p->max_restarts);
    add_text(&list, "TORCHELASTIC_RUN_ID", "weft");
    /* rank 0 opens the store at MASTER_PORT: there is none of torchrun's agent */
    add_text(&list, "TORCHELASTIC_USE_AGENT_STORE", "False");
    if (p->sizes) add_sizes(&list, p->sizes, p->world);
    return WEFT_OK;
}

weft_status weft_launch_program_variables(const weft_launch_options *o, int n, int r,
                                          weft_launch_variable v[WEFT_LAUNCH_N_VARIABLE])
{
    int n_node = o->n_node > 1 ? o->n_node : 1;
    return fill_variables(&(program_rank){.rank         = o->node * n + r,
                                          .world        = n * n_node,
                                          .local        = r,
                                          .n_local      = n,
                                          .group        = o->node,
                                          .n_group      = n_node,
                                          .restart      = o->restart,
                                          .max_restarts = o->max_restarts,
                                          .master       = o->rdzv,
                                          .sizes        = o->sizes},
                          v);
}

/* Of a view of several hosts. */
static weft_status fill_from_view(const weft_launch__run *l, int r,
                                  weft_launch_variable v[WEFT_LAUNCH_N_VARIABLE])
{
    const weft_member_view *view = weft_launch__hosts_view(l);
    return fill_variables(&(program_rank){.rank         = l->first + r,
                                          .world        = weft_launch__restart_world(l),
                                          .local        = r,
                                          .n_local      = weft_launch__restart_count(l),
                                          .group        = weft_launch__hosts_position(l),
                                          .n_group      = weft_launch__restart_hosts(l),
                                          .restart      = weft_launch__restart_number(l),
                                          .max_restarts = l->o->max_restarts,
                                          .master       = view->host[0].data,
                                          .sizes        = l->o->sizes},
                          v);
}

_Noreturn void weft_launch__be_program(const weft_launch__run *l, int r)
{
    weft_launch_variable v[WEFT_LAUNCH_N_VARIABLE];
    weft_status          st = l->restart ? fill_from_view(l, r, v)
                                         : weft_launch_program_variables(l->o, l->n, r, v);
    if (st == WEFT_OK)
        for (int k = 0; k < WEFT_LAUNCH_N_VARIABLE && *v[k].name; k++)
            setenv(v[k].name, v[k].value, 1);
    if (l->n > 1) setenv("OMP_NUM_THREADS", "1", 0);
    setenv("PYTHONUNBUFFERED", "1", 0); /* it writes to a pipe */
    execvp(l->o->program[0], l->o->program);
    int why = errno;
    fprintf(stderr, "weft run: error: cannot start %s: %s\n", l->o->program[0],
            strerror(why));
    _exit(why == ENOENT ? 127 : 126);
}
