#include "cli/find_agent.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launch/environment.h"
#include "launch/living.h"

static const double ANSWER_S = 3; /* agents answer within milliseconds */

void weft_cli_agents_fini(weft_cli_agents *a)
{
    weft_doc_destroy(a->doc);
    *a = (weft_cli_agents){0};
}

static const char *read_text(const weft_doc *d, const char *key)
{
    const char *s = NULL;
    if (!weft_node_get(weft_doc_root(d), key) ||
        weft_doc_get_string(d, weft_doc_root(d), key, &s) != WEFT_OK || !s)
        return "";
    return s;
}

/* least: the view that it has at least.  An agent that has left the job, or is another job's, says
 * nothing about it. */
static bool take_answer(const char *text, size_t n, int64_t least, weft_cli_agents *a)
{
    weft_doc *d    = NULL;
    int64_t   view = 0;
    if (weft_doc_parse_json("answer", text, n, &d) != WEFT_OK) return false;
    const weft_node *root = weft_doc_root(d);
    bool             fine = root->kind == WEFT_NODE_MAP && *read_text(d, "state") &&
                strcmp(read_text(d, "state"), "left") != 0 &&
                weft_doc_get_int(d, root, "view", &view) == WEFT_OK && view >= least;
    a->since_s = 0;
    if (fine && weft_node_get(root, "since"))
        fine = weft_doc_get_double(d, root, "since", &a->since_s) == WEFT_OK;
    if (!fine) {
        weft_doc_destroy(d);
        return false;
    }
    a->found     = true;
    a->doc       = d;
    a->state     = read_text(d, "state");
    a->why       = read_text(d, "why");
    a->lost      = read_text(d, "lost");
    a->joining   = read_text(d, "joining");
    a->leader    = read_text(d, "leader");
    a->leader_at = read_text(d, "leader_at");
    return true;
}

/* By its local socket, which knows the folder; NULL: it is that job's. */
static bool ask_local(const char *dir, weft_cli_agents *a)
{
    weft_text t = {0};
    a->here     = weft_launch_ask_state(&a->agent, dir, ANSWER_S, &t) == WEFT_OK &&
              take_answer(t.s, t.n, 0, a);
    weft_text_fini(&t);
    return a->here;
}

static bool ask_process(const char *dir, int64_t pid, weft_cli_agents *a)
{
    if (pid <= 0) return false;
    weft_launch_agent_by_pid(pid, &a->agent);
    return ask_local(dir, a);
}

/* ---- other hosts ---- */

static void collect_answer(void *arg, bool error, const void *text, size_t n)
{
    if (!error) weft_text_put(arg, text, n);
}

static bool ask_remote(const char *address, const weft_cli_remote *remote, int64_t view,
                       weft_cli_agents *a, char *why, size_t size)
{
    weft_comm_token      token = {0};
    weft_control_options o     = {.tls = remote->tls};
    weft_control_request q     = {.ask = WEFT_CONTROL_STATE};
    weft_text            t     = {0};
    int                  code  = 0;
    weft_status          st    = WEFT_OK;
    if (!o.tls.cert && !o.tls.key && !o.tls.ca) {
        st      = weft_comm_token_find(&remote->token, &token);
        o.token = &token;
    }
    if (st == WEFT_OK)
        st = weft_control_ask_agent(&o, address, &q, ANSWER_S, collect_answer, &t, &code);
    snprintf(why, size, "%s",
             st != WEFT_OK ? weft_error_text() : "that agent is not in the job");
    bool fine = st == WEFT_OK && !code && take_answer(t.s ? t.s : "", t.n, view, a);
    weft_comm_token_wipe(&token);
    weft_text_fini(&t);
    return fine;
}

static bool read_agent(const weft_doc *d, const weft_node *m, const char **host,
                       const char **address)
{
    *host = *address = NULL;
    return m->kind == WEFT_NODE_MAP &&
           weft_doc_get_string(d, m, "host", host) == WEFT_OK &&
           weft_doc_get_string(d, m, "address", address) == WEFT_OK && *host && *address;
}

/* Of the view in d; here: those that may be on this host, else the others. */
static bool ask_view(const char *dir, const weft_doc *d, const weft_cli_remote *remote,
                     bool here, weft_cli_agents *a)
{
    const weft_node *list = weft_node_get(weft_doc_root(d), "agents");
    const char      *host, *address;
    char             own[64], why[300];
    int64_t          epoch = 0;
    (void)weft_doc_get_int(d, weft_doc_root(d), "epoch", &epoch);
    weft_launch_host_name(own, sizeof own);
    for (int i = 0; list && list->kind == WEFT_NODE_LIST && i < list->u.list.n; i++) {
        if (!read_agent(d, list->u.list.node[i], &host, &address)) continue;
        weft_launch_agent_by_address(address, &a->agent);
        if (here && ask_local(dir, a)) return true;
        if (here || !strcmp(host, own)) continue;
        snprintf(why, sizeof why, "it was not asked");
        if (remote && ask_remote(address, remote, epoch, a, why, sizeof why)) return true;
        if (!*a->unreachable)
            snprintf(a->unreachable, sizeof a->unreachable,
                     "the agent of %.60s at %.60s: %.250s", host, address, why);
    }
    return false;
}

void weft_cli_ask_agents(const char *dir, int64_t pid, const weft_cli_remote *remote,
                         weft_cli_agents *out)
{
    weft_doc *view = NULL;
    *out           = (weft_cli_agents){0};
    if (ask_process(dir, pid, out)) return;
    bool known = weft_launch_find_last_view(dir, &view);
    if (known && ask_view(dir, view, NULL, true, out)) goto done;
    if (ask_process(dir, getppid(), out))
        goto done; /* that answers --at by this process */
    if (known) (void)ask_view(dir, view, remote, false, out);
done:
    if (out->found) *out->unreachable = 0;
    weft_doc_destroy(view);
}
