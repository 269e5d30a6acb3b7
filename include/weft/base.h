/* Status codes and the last error's words: what every weft function returns.
 *
 *     if (weft_graph_verify(g) != WEFT_OK)
 *         fprintf(stderr, "%s\n", weft_error_text());
 *
 * An error's text is written once, where the error is first known, into memory of the
 * calling thread; callers pass the status on in silence. */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0
#define WEFT_VERSION       "0.1.0"

typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_AGAIN,        /* in progress, not an error */
    WEFT_ERR_ARG,      /* bad input: a file, a key, a shape, an option (exit code 2) */
    WEFT_ERR_MEM,      /* no memory */
    WEFT_ERR_IO,       /* the system said no: read, write, sync */
    WEFT_ERR_FULL,     /* no space left on a device */
    WEFT_ERR_PEER,     /* a peer died or is silent: weather, not a bug */
    WEFT_ERR_NOFIT,    /* no plan fits the memory there is */
    WEFT_ERR_NUMERIC,  /* a loss or gradient is not finite */
    WEFT_ERR_INTERNAL, /* our own mistake, caught */
} weft_status;

/* The words of this thread's last error; "" if there was none.  One line, no newline. */
const char *weft_error_text(void);

/* "ok", "bad argument", ... */
const char *weft_status_name(weft_status st);

#ifdef __cplusplus
}
#endif
#endif
