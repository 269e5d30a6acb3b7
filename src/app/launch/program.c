/* Ranks that are another engine's program: what torchrun would tell them. */
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

weft_status weft_launch_program_variables(const weft_launch_options *o, int n, int r,
                                          weft_launch_variable v[WEFT_LAUNCH_N_VARIABLE])
{
    variable_list list   = {.of = v};
    const char   *colon  = o->rdzv ? strrchr(o->rdzv, ':') : NULL;
    int           n_node = o->n_node > 1 ? o->n_node : 1, rank = o->node * n + r;
    char          host[64];
    memset(v, 0, sizeof *v * WEFT_LAUNCH_N_VARIABLE);
    if (!colon || (size_t)(colon - o->rdzv) >= sizeof host)
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s' is not host:port", o->rdzv ? o->rdzv : "");
    snprintf(host, sizeof host, "%.*s", (int)(colon - o->rdzv), o->rdzv);
    add_number(&list, "RANK", rank);
    add_number(&list, "WORLD_SIZE", n * n_node);
    add_number(&list, "LOCAL_RANK", r);
    add_number(&list, "LOCAL_WORLD_SIZE", n);
    add_number(&list, "GROUP_RANK", o->node);
    add_number(&list, "GROUP_WORLD_SIZE", n_node);
    add_text(&list, "ROLE_NAME", "default");
    add_number(&list, "ROLE_RANK", rank);
    add_number(&list, "ROLE_WORLD_SIZE", n * n_node);
    add_text(&list, "MASTER_ADDR", host);
    add_text(&list, "MASTER_PORT", colon + 1);
    add_number(&list, "TORCHELASTIC_RESTART_COUNT", o->restart);
    add_number(&list, "TORCHELASTIC_MAX_RESTARTS", o->max_restarts);
    add_text(&list, "TORCHELASTIC_RUN_ID", "weft");
    /* rank 0 opens the store at MASTER_PORT: there is none of torchrun's agent */
    add_text(&list, "TORCHELASTIC_USE_AGENT_STORE", "False");
    return WEFT_OK;
}

_Noreturn void weft_launch__be_program(const weft_launch__run *l, int r)
{
    weft_launch_variable v[WEFT_LAUNCH_N_VARIABLE];
    if (weft_launch_program_variables(l->o, l->n, r, v) == WEFT_OK)
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
