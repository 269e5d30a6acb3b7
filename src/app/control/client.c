#include "control/client.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

static weft_status send_request(weft_control *c, int64_t peer,
                                const weft_control_request *r)
{
    weft_text   text = {0};
    weft_status st   = WEFT_OK;
    weft_control_request_print(r, &text);
    WEFT_GO(weft_text_status(&text));
    st = weft_control_send(c, peer, WEFT_CONTROL_REQUEST, text.s, text.n);
out:
    weft_text_fini(&text);
    return st;
}

typedef struct conversation {
    weft_control               *control;
    const char                 *at;
    const weft_control_request *request;
    weft_control_answer_fn      answer;
    void                       *arg;
    int                         code;
    bool                        ended;
} conversation;

static weft_status take_event(conversation *v, const weft_control_event *e)
{
    if (e->kind == WEFT_CONTROL_OPENED)
        return send_request(v->control, e->peer, v->request);
    if (e->kind != WEFT_CONTROL_FRAME)
        return WEFT_FAIL(WEFT_ERR_PEER, "%s: %s", v->at, e->text);
    if (e->frame == WEFT_CONTROL_OUT || e->frame == WEFT_CONTROL_ERR)
        v->answer(v->arg, e->frame == WEFT_CONTROL_ERR, e->data, e->bytes);
    if (e->frame == WEFT_CONTROL_END) {
        v->code  = e->bytes == 1 ? *(const uint8_t *)e->data : 1;
        v->ended = true;
    }
    return WEFT_OK;
}

static weft_status converse(conversation *v, double end_s)
{
    weft_control_event e;
    while (!v->ended) {
        double        now_s  = weft_clock_s();
        double        wake_s = fmin(end_s, weft_control_wake_s(v->control)) - now_s;
        struct pollfd p      = {.fd = weft_control_fd(v->control), .events = POLLIN};
        if (now_s >= end_s)
            return WEFT_FAIL(WEFT_ERR_PEER, "%s: no answer in time", v->at);
        (void)poll(&p, 1, wake_s > 10 ? 10000 : (int)(1e3 * fmax(wake_s, 0)) + 1);
        weft_control_serve(v->control, weft_clock_s());
        while (!v->ended && weft_control_next(v->control, &e))
            WEFT_TRY(take_event(v, &e));
    }
    return WEFT_OK;
}

static weft_status open_tool(const weft_control_options *o, weft_control **out)
{
    weft_control_options own = *o;
    own.listen               = NULL;
    own.self                 = (weft_control_hello){.role = WEFT_CONTROL_TOOL};
    if (gethostname(own.self.host, sizeof own.self.host - 1)) *own.self.host = 0;
    snprintf(own.self.build, sizeof own.self.build, "%s", WEFT_VERSION);
    return weft_control_open(&own, out);
}

weft_status weft_control_ask_agent(const weft_control_options *o, const char *at,
                                   const weft_control_request *r, double timeout_s,
                                   weft_control_answer_fn answer, void *arg, int *code)
{
    conversation v     = {.at = at, .request = r, .answer = answer, .arg = arg};
    double       now_s = weft_clock_s();
    int64_t      peer;
    weft_status  st = WEFT_OK;
    WEFT_TRY(open_tool(o, &v.control));
    WEFT_GO(weft_control_connect(v.control, at, now_s, &peer));
    WEFT_GO(converse(&v, timeout_s > 0 ? now_s + timeout_s : INFINITY));
    *code = v.code;
out:
    weft_control_close(v.control);
    return st;
}

/* ---- several at once ---- */

static void hear_one(weft_control *c, const weft_control_event *e,
                     const weft_control_request *r, weft_control_reply *x, bool *open)
{
    if (e->hello) x->hello = *e->hello;
    if (e->kind == WEFT_CONTROL_OPENED) {
        if (send_request(c, e->peer, r) == WEFT_OK) return;
        snprintf(x->why, sizeof x->why, "%s", weft_error_text());
        *open = false;
    } else if (e->kind == WEFT_CONTROL_CLOSED) {
        snprintf(x->why, sizeof x->why, "%s", e->text);
        *open = false;
    } else if (e->kind == WEFT_CONTROL_FRAME && e->frame == WEFT_CONTROL_OUT) {
        weft_text_put(&x->text, e->data, e->bytes);
    } else if (e->kind == WEFT_CONTROL_FRAME && e->frame == WEFT_CONTROL_ERR) {
        snprintf(x->why, sizeof x->why, "%.*s", (int)e->bytes, (const char *)e->data);
    } else if (e->kind == WEFT_CONTROL_FRAME && e->frame == WEFT_CONTROL_END) {
        x->answered = e->bytes == 1 && !*(const uint8_t *)e->data &&
                      weft_text_status(&x->text) == WEFT_OK;
        *open = false;
    }
}

static int count_open(const bool *open, int n)
{
    int count = 0;
    for (int k = 0; k < n; k++) count += open[k];
    return count;
}

weft_status weft_control_ask_agents(const weft_control_options *o, int n,
                                    const char *const *at, const weft_control_request *r,
                                    double timeout_s, weft_control_reply *reply)
{
    weft_control      *c     = NULL;
    weft_control_event e     = {0};
    int64_t           *peer  = calloc((size_t)n + 1, sizeof *peer);
    bool              *open  = calloc((size_t)n + 1, sizeof *open);
    double             now_s = weft_clock_s(), end_s = now_s + timeout_s;
    weft_status        st = WEFT_OK;
    if (!peer || !open) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    WEFT_GO(open_tool(o, &c));
    for (int k = 0; k < n; k++) {
        open[k] = weft_control_connect(c, at[k], now_s, &peer[k]) == WEFT_OK;
        if (!open[k])
            snprintf(reply[k].why, sizeof reply[k].why, "%s", weft_error_text());
    }
    while (count_open(open, n) && (now_s = weft_clock_s()) < end_s) {
        double        wake_s = fmin(end_s, weft_control_wake_s(c)) - now_s;
        struct pollfd p      = {.fd = weft_control_fd(c), .events = POLLIN};
        (void)poll(&p, 1, (int)(1e3 * fmin(fmax(wake_s, 0), 10)) + 1);
        weft_control_serve(c, weft_clock_s());
        while (weft_control_next(c, &e))
            for (int k = 0; k < n; k++)
                if (open[k] && peer[k] == e.peer) hear_one(c, &e, r, &reply[k], &open[k]);
    }
    for (int k = 0; k < n; k++)
        if (open[k]) snprintf(reply[k].why, sizeof reply[k].why, "no answer in time");
out:
    weft_control_close(c);
    free(open);
    free(peer);
    return st;
}
