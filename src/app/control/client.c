#include "control/client.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
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

weft_status weft_control_ask_agent(const weft_control_options *o, const char *at,
                                   const weft_control_request *r, double timeout_s,
                                   weft_control_answer_fn answer, void *arg, int *code)
{
    weft_control_options own   = *o;
    conversation         v     = {.at = at, .request = r, .answer = answer, .arg = arg};
    double               now_s = weft_clock_s();
    int64_t              peer;
    weft_status          st = WEFT_OK;
    own.listen              = NULL;
    own.self                = (weft_control_hello){.role = WEFT_CONTROL_TOOL};
    if (gethostname(own.self.host, sizeof own.self.host - 1)) *own.self.host = 0;
    snprintf(own.self.build, sizeof own.self.build, "%s", WEFT_VERSION);
    WEFT_TRY(weft_control_open(&own, &v.control));
    WEFT_GO(weft_control_connect(v.control, at, now_s, &peer));
    WEFT_GO(converse(&v, timeout_s > 0 ? now_s + timeout_s : INFINITY));
    *code = v.code;
out:
    weft_control_close(v.control);
    return st;
}
