/* The secret of a user's runs on several hosts: a file with at least 32 random characters that
 * only its owner can read.
 *
 *     weft_comm_token_find(&(weft_comm_token_options){.file = option}, &token);
 *
 * The token itself is never sent, printed or passed on the command line; ranks are passed the
 * name of the file. */
#ifndef WEFT_COMM_TOKEN_H
#define WEFT_COMM_TOKEN_H

#include <stdbool.h>

#include "base/status.h"
#include "comm/auth.h"

/* What a rank proves that it belongs to the run with. */
typedef struct weft_comm_token {
    weft_comm_key key;
    bool          insecure; /* the key is public: --insecure-network */
} weft_comm_token;

typedef struct weft_comm_token_options {
    const char *file;     /* --token-file, or NULL */
    bool        insecure; /* --insecure-network */
    /* a folder that others may read: no token lies below it; or NULL */
    const char *output;
} weft_comm_token_options;

/* First match wins: the options; WEFT_TOKEN_FILE or WEFT_INSECURE_NETWORK=1; the default file
 * where it exists.
 * WEFT_ERR_ARG: none of these, two that contradict each other, or a file that is not as it must
 * be; the text names the remedy. */
weft_status weft_comm_token_find(const weft_comm_token_options *o, weft_comm_token *out);
void        weft_comm_token_wipe(weft_comm_token *t);
/* What the ranks of one membership prove: the token, and a key of that membership's own. */
weft_status weft_comm_token_bind(weft_comm_token *t,
                                 const uint8_t key[WEFT_COMM_KEY_BYTES], uint32_t epoch);

/* Reads a file: regular, of this user, closed to group and others, 32 to 4096 characters. */
weft_status weft_comm_token_read(const char *file, weft_comm_token *out);
/* Writes a new file with 64 random hexadecimal digits, mode 0600.  Never overwrites. */
weft_status weft_comm_token_create(const char *file);
/* $XDG_CONFIG_HOME/weft/token, or ~/.config/weft/token. */
weft_status weft_comm_token_default(char *file, size_t n);

#endif
