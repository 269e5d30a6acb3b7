/* Commands that ask a running job over its control port: --at HOST:PORT. */
#ifndef WEFT_CLI_REMOTE_H
#define WEFT_CLI_REMOTE_H

#include "cli/cli.h"
#include "control/client.h"

enum {
    WEFT_CLI_ANSWER_S = 30 /* for an answer that takes no time */
};

typedef struct weft_cli_remote {
    const char               *at; /* NULL: not asked for */
    weft_comm_token_options   token;
    weft_control_certificates tls;
} weft_cli_remote;

/* Rows of a command's options. */
#define WEFT_CLI_TLS_OPTIONS(tls)                                                        \
    {"tls-cert",    0,                                                                   \
     WEFT_CLI_TEXT, &(tls).cert,                                                         \
     "FILE",        "certificate (PEM) for control connections, instead of the token"},  \
        {"tls-key", 0, WEFT_CLI_TEXT, &(tls).key, "FILE", "its private key"},            \
    {                                                                                    \
        "tls-ca", 0, WEFT_CLI_TEXT, &(tls).ca, "FILE",                                   \
            "the CA that the other side's certificate is of"                             \
    }

#define WEFT_CLI_REMOTE_OPTIONS(r)                                                       \
    {"at",          0,                                                                   \
     WEFT_CLI_TEXT, &(r).at,                                                             \
     "HOST:PORT",   "a job on another host: the address of its weft run --control"},     \
        {"token-file",    0,      WEFT_CLI_TEXT,                                         \
         &(r).token.file, "FILE", "--at: the job's token, or the one that only reads"},  \
        {"insecure-network",  0,    WEFT_CLI_FLAG,                                       \
         &(r).token.insecure, NULL, "--at: the job runs without a token"},               \
        WEFT_CLI_TLS_OPTIONS((r).tls)

/* Asks and prints the answer as it comes; gives the exit code.  timeout_s 0: no limit. */
int weft_cli_ask(const weft_cli_command *c, const weft_cli_remote *remote,
                 const weft_control_request *request, double timeout_s);

#endif
