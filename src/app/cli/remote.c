/* --at HOST:PORT of weft status, events and scale. */
#include "cli/remote.h"

#include <stdio.h>

static void put_answer(void *arg, bool error, const void *text, size_t n)
{
    FILE *to     = error ? stderr : stdout;
    bool *failed = arg;
    if (fwrite(text, 1, n, to) != n || fflush(to)) *failed = !error || *failed;
}

int weft_cli_ask(const weft_cli_command *c, const weft_cli_remote *remote,
                 const weft_control_request *request, double timeout_s)
{
    weft_comm_token      token  = {0};
    weft_control_options o      = {.tls = remote->tls};
    int                  code   = WEFT_EXIT_FAILED;
    bool                 failed = false;
    weft_status          st     = WEFT_OK;
    if (!o.tls.cert && !o.tls.key && !o.tls.ca) {
        st      = weft_comm_token_find(&remote->token, &token);
        o.token = &token;
    }
    if (st == WEFT_OK)
        st = weft_control_ask_agent(&o, remote->at, request, timeout_s, put_answer,
                                    &failed, &code);
    weft_comm_token_wipe(&token);
    if (st != WEFT_OK) return weft_cli_fail(c, st);
    return failed ? WEFT_EXIT_FAILED : code;
}
