/* A link by UCX, for networks that sockets do not do justice.
 *
 * Its library is found at run time.  Its options are environment variables that it reads when it
 * is loaded and when a context is made; what the user has set wins. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "base/clock.h"
#include "comm/net_priv.h"

enum {
    AM_ID = 7
};

typedef struct ucx_state {
    ucp_context_h  context;
    ucp_worker_h   worker;
    ucp_address_t *address;
} ucx_state;

static struct {
    ucs_status_t (*init_version)(unsigned, unsigned, const ucp_params_t *,
                                 const ucp_config_t *, ucp_context_h *);
    void (*cleanup)(ucp_context_h);
    ucs_status_t (*worker_create)(ucp_context_h, const ucp_worker_params_t *,
                                  ucp_worker_h *);
    void (*worker_destroy)(ucp_worker_h);
    ucs_status_t (*worker_get_address)(ucp_worker_h, ucp_address_t **, size_t *);
    void (*worker_release_address)(ucp_worker_h, ucp_address_t *);
    ucs_status_t (*worker_get_efd)(ucp_worker_h, int *);
    ucs_status_t (*worker_arm)(ucp_worker_h);
    unsigned (*worker_progress)(ucp_worker_h);
    ucs_status_t (*set_am_handler)(ucp_worker_h, const ucp_am_handler_param_t *);
    ucs_status_t (*ep_create)(ucp_worker_h, const ucp_ep_params_t *, ucp_ep_h *);
    ucs_status_ptr_t (*ep_close)(ucp_ep_h, const ucp_request_param_t *);
    ucs_status_ptr_t (*am_send)(ucp_ep_h, unsigned, const void *, size_t, const void *,
                                size_t, const ucp_request_param_t *);
    ucs_status_t (*request_check)(void *);
    void (*request_free)(void *);
    const char *(*status_string)(ucs_status_t);
} api;
static bool loaded;

static void set_options(const char *device)
{
    static const char *const env[][2] = {
        {"UCX_TLS", "tcp"},
        {"UCX_LOG_LEVEL", "fatal"}, /* we say what happened, once */
        {"UCX_HANDLE_ERRORS", "none"},
        {"UCX_WARN_UNUSED_ENV_VARS", "n"},
        {"UCX_MEM_EVENTS", "n"},
        {"UCX_MEM_MALLOC_HOOKS", "n"},
        {"UCX_ZCOPY_THRESH", "16384"},
        {"UCX_RNDV_THRESH", "inf"},
        {"UCX_TCP_RX_SEG_SIZE", "73728"}, /* a piece, and heads */
        {"UCX_TCP_TX_SEG_SIZE", "16384"},
        {"UCX_TCP_MAX_IOV", "16"},
        /* a cut cable: 1 s without a word, then three questions */
        {"UCX_KEEPALIVE_INTERVAL", "1s"},
        {"UCX_TCP_KEEPIDLE", "1s"},
        {"UCX_TCP_KEEPINTVL", "500ms"},
        {"UCX_TCP_KEEPCNT", "3"},
    };
    for (size_t i = 0; i < WEFT_COUNT(env); i++) setenv(env[i][0], env[i][1], 0);
    if (device) setenv("UCX_NET_DEVICES", device, 0);
}

static weft_status load(const char *device)
{
    static const char file[] = "libucp.so.0";
    const struct {
        const char *name;
        void       *to;
    } symbol[] = {
        {"ucp_init_version", &api.init_version},
        {"ucp_cleanup", &api.cleanup},
        {"ucp_worker_create", &api.worker_create},
        {"ucp_worker_destroy", &api.worker_destroy},
        {"ucp_worker_get_address", &api.worker_get_address},
        {"ucp_worker_release_address", &api.worker_release_address},
        {"ucp_worker_get_efd", &api.worker_get_efd},
        {"ucp_worker_arm", &api.worker_arm},
        {"ucp_worker_progress", &api.worker_progress},
        {"ucp_worker_set_am_recv_handler", &api.set_am_handler},
        {"ucp_ep_create", &api.ep_create},
        {"ucp_ep_close_nbx", &api.ep_close},
        {"ucp_am_send_nbx", &api.am_send},
        {"ucp_request_check_status", &api.request_check},
        {"ucp_request_free", &api.request_free},
        {"ucs_status_string", &api.status_string},
    };
    if (loaded) return WEFT_OK;
    set_options(device);
    void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "UCX was asked for, and %s cannot be loaded (Debian: libucx0); "
                         "WEFT_NET=tcp does without",
                         file);
    for (size_t i = 0; i < WEFT_COUNT(symbol); i++) {
        void *f = dlsym(lib, symbol[i].name);
        if (!f)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s has no %s: UCX 1.12 or later is needed",
                             file, symbol[i].name);
        *(void **)symbol[i].to = f;
    }
    loaded = true;
    return WEFT_OK;
}

static ucx_state *state_of(const net_end *e)
{
    return e->link_state;
}

/* ---- messages ---- */

static ucs_status_t arrive(void *arg, const void *header, size_t header_bytes, void *data,
                           size_t bytes, const ucp_am_recv_param_t *param)
{
    net_end *e = arg;
    net_head h = {0};
    bool     whole =
        header_bytes == sizeof h && !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
    if (whole) memcpy(&h, header, sizeof h);
    if (!whole || !weft_comm__net_is_ours(e, &h)) {
        e->n_refused++;
        return UCS_OK;
    }
    const char *wrong = h.bytes == bytes ? weft_comm__net_check_head(e, &h)
                                         : "a payload of another size than it says";
    if (wrong)
        weft_comm__net_refuse(e, h.source, wrong);
    else if (!e->peer[h.source].broken || !e->peer[h.source].wrong)
        weft_comm__net_arrive(e, &h, data);
    return UCS_OK;
}

static void on_sent(void *request, ucs_status_t st, void *arg)
{
    (void)st;
    net_parcel *p = arg;
    api.request_free(request);
    p->sent(p);
}

static void send_parcel(net_end *e, int to, net_parcel *p)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags     = UCP_AM_SEND_FLAG_EAGER,
                                 .cb.send   = on_sent,
                                 .user_data = p};
    ucs_status_ptr_t    r = api.am_send(e->peer[to].line, AM_ID, &p->head, sizeof p->head,
                                        p->data, p->head.bytes, &param);
    if (!UCS_PTR_IS_PTR(r)) p->sent(p);
}

/* ---- lines ---- */

static void on_broken(void *arg, ucp_ep_h ep, ucs_status_t how)
{
    net_end *e = arg;
    for (int r = 0; r < e->c.world; r++)
        if (e->peer[r].line == ep) weft_comm__net_broke(e, r, api.status_string(how));
}

static void connect_to(net_end *e, int to)
{
    net_peer       *p  = &e->peer[to];
    ucp_ep_h        ep = NULL;
    ucp_ep_params_t x  = {
         .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
         .address     = p->address,
         .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
         .err_handler = {.cb = on_broken, .arg = e},
    };
    ucs_status_t st = api.ep_create(state_of(e)->worker, &x, &ep);
    p->line         = st == UCS_OK ? ep : NULL;
    if (st != UCS_OK) weft_comm__net_broke(e, to, api.status_string(st));
}

static void cut(net_end *e, int to)
{
    ucp_request_param_t p  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                              .flags        = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_ep_h            ep = e->peer[to].line;
    e->peer[to].line       = NULL;
    if (!ep) return;
    ucs_status_ptr_t q = api.ep_close(ep, &p);
    if (UCS_PTR_IS_PTR(q)) api.request_free(q);
}

static void note_return(net_parcel *p)
{
    p->sent = NULL;
}

/* It lies in the connection's queue, from which nothing can be taken: the whole line is given up.
 */
static void withdraw(net_end *e, int to, net_parcel *p)
{
    double limit        = weft_clock_s() + 2;
    e->peer[to].dead    = true;
    e->peer[to].died_in = e->c.epoch;
    p->sent             = note_return;
    cut(e, to);
    while (p->sent && weft_clock_s() < limit) api.worker_progress(state_of(e)->worker);
}

static bool arm(net_end *e)
{
    return api.worker_arm(state_of(e)->worker) == UCS_OK;
}

static unsigned progress(net_end *e)
{
    unsigned n = 0;
    while (n < 32 && api.worker_progress(state_of(e)->worker)) n++;
    return n;
}

/* ---- opening ---- */

static weft_status fail_ucx(const char *what, ucs_status_t st)
{
    return WEFT_FAIL(WEFT_ERR_IO, "UCX: %s: %s", what, api.status_string(st));
}

static weft_status make_worker(net_end *e, ucx_state *s)
{
    ucp_params_t           cp = {.field_mask =
                                     UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                 .features          = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                                 .estimated_num_eps = (size_t)e->c.world};
    ucp_worker_params_t    wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                               UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT,
                                 .thread_mode  = UCS_THREAD_MODE_SERIALIZED,
                                 .am_alignment = 64};
    ucp_am_handler_param_t am = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id    = AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb    = arrive,
        .arg   = e};
    ucs_status_t st =
        api.init_version(UCP_API_MAJOR, UCP_API_MINOR, &cp, NULL, &s->context);
    if (st != UCS_OK) return fail_ucx("no network device can be used", st);
    st = api.worker_create(s->context, &wp, &s->worker);
    if (st != UCS_OK) return fail_ucx("worker", st);
    st = api.set_am_handler(s->worker, &am);
    if (st != UCS_OK) return fail_ucx("messages", st);
    st = api.worker_get_efd(s->worker, &e->efd);
    return st == UCS_OK ? WEFT_OK : fail_ucx("sleeping", st);
}

static weft_status open_link(net_end *e, const char *device)
{
    size_t bytes;
    WEFT_TRY(load(device));
    ucx_state *s = e->link_state = calloc(1, sizeof *s);
    if (!s) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    WEFT_TRY(make_worker(e, s));
    ucs_status_t st = api.worker_get_address(s->worker, &s->address, &bytes);
    if (st != UCS_OK) return fail_ucx("address", st);
    e->address = malloc(bytes);
    if (!e->address) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memcpy(e->address, s->address, bytes);
    e->address_bytes = (int64_t)bytes;
    return WEFT_OK;
}

static void close_link(net_end *e)
{
    ucx_state *s = state_of(e);
    for (int r = 0; e->peer && r < e->c.world; r++) cut(e, r);
    for (int i = 0; s->worker && i < 100; i++) api.worker_progress(s->worker);
    if (s->address) api.worker_release_address(s->worker, s->address);
    if (s->worker) api.worker_destroy(s->worker);
    if (s->context) api.cleanup(s->context);
    free(e->address);
    free(s);
}

const net_link weft_comm__net_ucx = {
    .name      = "ucx",
    .piece     = NET_SHORT,
    .overtakes = true,
    .open      = open_link,
    .arm       = arm,
    .progress  = progress,
    .connect   = connect_to,
    .send      = send_parcel,
    .withdraw  = withdraw,
    .cut       = cut,
    .close     = close_link,
};
