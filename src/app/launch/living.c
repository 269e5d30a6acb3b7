#include "launch/living.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "control/client.h"
#include "kernel/kernel.h"
#include "launch/control.h"
#include "launch/launch_priv.h"

static const double ANSWER_S = 3; /* agents answer within milliseconds */

/* An agent of the view. */
typedef struct member {
    const char *host, *at;
    uint64_t    id; /* of its process; 0: the file does not say it */
    bool        lives;
} member;

/* ---- files ---- */

bool weft_launch_find_last_view(const char *dir, weft_doc **out)
{
    char   path[4352], *text = NULL;
    size_t n     = 0;
    bool   found = false;
    snprintf(path, sizeof path, "%s/views.jsonl", dir);
    if (!weft_io_exists(path) || weft_io_read_file(path, &text, &n) != WEFT_OK)
        return false;
    while (n && !found) { /* from the last whole line on */
        const char *end   = memrchr(text, '\n', n);
        size_t      last  = end ? (size_t)(end - text) : 0;
        const char *begin = last ? memrchr(text, '\n', last) : NULL;
        size_t      from  = begin ? (size_t)(begin - text) + 1 : 0;
        found             = last > from &&
                weft_doc_parse_json("view", text + from, last - from, out) == WEFT_OK;
        n = from;
    }
    free(text);
    return found;
}

static int64_t read_epoch(const char *dir)
{
    char      path[4352], *text = NULL;
    size_t    n = 0;
    long long x = 0;
    snprintf(path, sizeof path, "%s/epoch", dir);
    if (!weft_io_exists(path) || weft_io_read_file(path, &text, &n) != WEFT_OK) return 0;
    if (sscanf(text, "%lld", &x) != 1 || x < 0) x = 0;
    free(text);
    return x;
}

static int64_t read_int(const weft_doc *d, const weft_node *map, const char *key)
{
    int64_t x = -1;
    if (weft_node_get(map, key) && weft_doc_get_int(d, map, key, &x) != WEFT_OK) x = -1;
    return x;
}

int64_t weft_launch_newest_epoch(const char *dir)
{
    weft_doc *view   = NULL;
    int64_t   newest = read_epoch(dir), x = 0;
    if (weft_launch_find_last_view(dir, &view) &&
        weft_doc_root(view)->kind == WEFT_NODE_MAP)
        x = read_int(view, weft_doc_root(view), "epoch");
    weft_doc_destroy(view);
    return x > newest ? x : newest;
}

static const char *read_text(const weft_doc *d, const weft_node *map, const char *key)
{
    const char *s = NULL;
    if (!weft_node_get(map, key) || weft_doc_get_string(d, map, key, &s) != WEFT_OK || !s)
        return "";
    return s;
}

static uint64_t read_id(const weft_doc *d, const weft_node *map)
{
    return strtoull(read_text(d, map, "id"), NULL, 16);
}

static int list_members(const weft_doc *d, member *out, int most)
{
    const weft_node *list = weft_node_get(weft_doc_root(d), "agents");
    int              n    = 0;
    for (int i = 0;
         list && list->kind == WEFT_NODE_LIST && i < list->u.list.n && n < most; i++) {
        const weft_node *m = list->u.list.node[i];
        if (m->kind != WEFT_NODE_MAP) continue;
        member x = {.host = read_text(d, m, "host"),
                    .at   = read_text(d, m, "address"),
                    .id   = read_id(d, m)};
        if (*x.at && strlen(x.at) < WEFT_MEMBER_NAME) out[n++] = x;
    }
    return n;
}

/* ---- answers ---- */

/* Of the process that was in the view; another one at its address is another run's, or begins. */
static bool is_of_run(const weft_doc *d, const member *m, int64_t epoch,
                      weft_launch_living *out)
{
    const weft_node *root = weft_doc_root(d);
    if (root->kind != WEFT_NODE_MAP) return false;
    const char *state = read_text(d, root, "state");
    int64_t     view  = read_int(d, root, "view");
    uint64_t    id    = read_id(d, root);
    if (!*state || !strcmp(state, "left") || view < epoch) return false;
    if (m->id && id && m->id != id) return false;
    if (view > out->view) out->view = view;
    if (read_int(d, root, "step") > out->step) out->step = read_int(d, root, "step");
    return true;
}

static bool take_answer(const weft_text *t, const member *m, int64_t epoch,
                        weft_launch_living *out)
{
    weft_doc *d = NULL;
    if (!t->n || weft_doc_parse_json("answer", t->s, t->n, &d) != WEFT_OK) return false;
    bool fine = is_of_run(d, m, epoch, out);
    weft_doc_destroy(d);
    return fine;
}

static void ask_here(const char *dir, member *m, int64_t epoch, weft_launch_living *out)
{
    weft_launch_agent agent;
    weft_text         t = {0};
    weft_launch_agent_by_address(m->at, &agent);
    m->lives = weft_launch_ask_state(&agent, dir, ANSWER_S, &t) == WEFT_OK &&
               take_answer(&t, m, epoch, out);
    weft_text_fini(&t);
}

static void ask_others(const weft_launch_options *o, member *m, int n, int64_t epoch,
                       weft_launch_living *out)
{
    weft_control_reply   reply[WEFT_LAUNCH_LIVING] = {0};
    const char          *at[WEFT_LAUNCH_LIVING];
    int                  of[WEFT_LAUNCH_LIVING], n_at = 0;
    weft_comm_token      token = {0}, reader = {0};
    weft_control_options c = {0};
    weft_control_request q = {.ask = WEFT_CONTROL_STATE};
    for (int k = 0; k < n; k++) {
        if (m[k].lives) continue;
        of[n_at]   = k;
        at[n_at++] = m[k].at;
    }
    weft_status st =
        n_at ? weft_launch__find_proofs(o, &token, &reader, &c) : WEFT_ERR_ARG;
    if (st == WEFT_OK) st = weft_control_ask_agents(&c, n_at, at, &q, ANSWER_S, reply);
    for (int k = 0; st == WEFT_OK && k < n_at; k++)
        m[of[k]].lives =
            reply[k].answered && take_answer(&reply[k].text, &m[of[k]], epoch, out);
    for (int k = 0; k < n_at; k++) weft_text_fini(&reply[k].text);
    weft_comm_token_wipe(&token);
    weft_comm_token_wipe(&reader);
}

static void ask_members(const weft_launch_options *o, member *m, int n, int64_t epoch,
                        weft_launch_living *out)
{
    for (int k = 0; k < n && o->output && *o->output; k++)
        ask_here(o->output, &m[k], epoch, out);
    ask_others(o, m, n, epoch, out);
    for (int k = 0; k < n; k++) {
        size_t used = strlen(out->names);
        if (!m[k].lives) continue;
        snprintf(out->at[out->n], sizeof out->at[0], "%s", m[k].at);
        snprintf(out->names + used, sizeof out->names - used, "%s%s%s%s",
                 out->n ? ", " : "", m[k].host, *m[k].host ? " at " : "", m[k].at);
        out->n++;
    }
}

static bool is_among(const member *m, int n, const char *at)
{
    for (int k = 0; k < n; k++)
        if (!strcmp(m[k].at, at)) return true;
    return false;
}

void weft_launch_find_living(const weft_launch_options *o, int                     n,
                             char (*listed)[WEFT_MEMBER_NAME], weft_launch_living *out)
{
    weft_doc *view = NULL;
    member    m[WEFT_LAUNCH_LIVING];
    int       n_member = 0;
    int64_t   epoch    = 0;
    *out               = (weft_launch_living){.step = -1};
    bool known         = o->output && *o->output &&
                 weft_launch_find_last_view(o->output, &view) &&
                 weft_doc_root(view)->kind == WEFT_NODE_MAP;
    if (known) epoch = read_int(view, weft_doc_root(view), "epoch");
    if (known) n_member = list_members(view, m, WEFT_LAUNCH_LIVING);
    ask_members(o, m, n_member, epoch > 0 ? epoch : 1, out);
    int n_more = 0;
    for (int k = 0; k < n && !out->n && n_more < WEFT_LAUNCH_LIVING; k++)
        if (!is_among(m, n_member, listed[k]))
            m[n_more++] = (member){.host = "", .at = listed[k]};
    ask_members(o, m, n_more, 1, out);
    weft_doc_destroy(view);
}

void weft_launch__describe_living(const weft_launch_living *x, const char *output,
                                  char *text, size_t size)
{
    char step[32] = "";
    bool known    = *output;
    if (x->step >= 0) snprintf(step, sizeof step, ", step %" PRId64, x->step);
    snprintf(text, size, "%s%sa run of %d host%s %s there (%s; view %" PRId64 "%s)",
             output, known ? ": " : "", x->n, x->n == 1 ? "" : "s",
             known ? "writes" : "is", x->names, x->view, step);
}

weft_status weft_launch_refuse_living(const weft_launch_options *o)
{
    weft_launch_living x;
    char               text[900];
    if (o->request && o->request->fresh) return WEFT_OK;
    weft_launch_find_living(o, 0, NULL, &x);
    if (!x.n) return WEFT_OK;
    weft_launch__describe_living(&x, o->output, text, sizeof text);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s; wait for it, join it with --nnodes MIN:MAX, choose another "
                     "output, or --fresh to start beside it",
                     text);
}

/* ---- one address ---- */

static void read_state(const weft_text *t, weft_launch_listener *out)
{
    weft_doc *d = NULL;
    if (!t->n || weft_doc_parse_json("answer", t->s, t->n, &d) != WEFT_OK) return;
    const weft_node *root = weft_doc_root(d);
    if (root->kind == WEFT_NODE_MAP && *read_text(d, root, "state")) {
        out->is_job = true;
        snprintf(out->state, sizeof out->state, "%s", read_text(d, root, "state"));
        snprintf(out->output, sizeof out->output, "%s", read_text(d, root, "output"));
        out->view = read_int(d, root, "view");
        out->step = read_int(d, root, "step");
    }
    weft_doc_destroy(d);
}

weft_status weft_launch_ask_listener(const char *at, const weft_comm_token_options *token,
                                     const char *build, weft_launch_listener *out)
{
    weft_control_reply   reply = {0};
    weft_comm_token      proof = {0};
    weft_control_options c     = {.token = &proof};
    weft_control_request q     = {.ask = WEFT_CONTROL_STATE};
    *out                       = (weft_launch_listener){.view = -1, .step = -1};
    WEFT_TRY(weft_comm_token_find(token, &proof));
    weft_status st = weft_control_ask_agents(&c, 1, &at, &q, ANSWER_S, &reply);
    weft_comm_token_wipe(&proof);
    out->hello    = reply.hello;
    out->is_agent = st == WEFT_OK && reply.hello.wire;
    snprintf(out->why, sizeof out->why, "%s",
             st == WEFT_OK ? reply.why : weft_error_text());
    if (out->is_agent && reply.answered) read_state(&reply.text, out);
    weft_text_fini(&reply.text);
    const char *kernels = weft_kernel_set_id("cpu");
    if (out->is_agent && *out->hello.build && strcmp(out->hello.build, build) != 0)
        snprintf(out->build, sizeof out->build, "%s", build);
    if (out->is_agent && *out->hello.kernels && strcmp(out->hello.kernels, kernels) != 0)
        snprintf(out->kernels, sizeof out->kernels, "%s", kernels);
    return st;
}
