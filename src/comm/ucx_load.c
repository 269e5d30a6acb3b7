/* libucp, found at run time.  Its options are environment variables that it reads when it is loaded and when a
 * context is made; what the user has set wins. */
#include <dlfcn.h>
#include <stdlib.h>

#include "comm/ucx_priv.h"

const ucx_api *weft_comm__ucx;

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

weft_status weft_comm__ucx_load(const char *device, const ucx_api **out)
{
    static ucx_api    api;
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
    *out = weft_comm__ucx;
    if (weft_comm__ucx) return WEFT_OK;
    set_options(device);
    void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "ranks on several hosts need UCX, and %s cannot be loaded "
                         "(Debian: libucx0)",
                         file);
    for (size_t i = 0; i < WEFT_COUNT(symbol); i++) {
        void *f = dlsym(lib, symbol[i].name);
        if (!f)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s has no %s: UCX 1.12 or later is needed",
                             file, symbol[i].name);
        *(void **)symbol[i].to = f;
    }
    *out = weft_comm__ucx = &api;
    return WEFT_OK;
}
