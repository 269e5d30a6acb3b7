/* A read-only HTTP server for one page, as metrics collectors ask for it: GET, one answer, closed.
 *
 *     weft_http *h;
 *     WEFT_TRY(weft_http_open("127.0.0.1:9400", write_page, arg, &h));
 *     ..poll weft_http_fd(h) with the rest, then weft_http_serve(h, now_s)
 *     weft_http_close(h);
 *
 * One thread's, nothing waits.  At most 64 connections of 2 s each are open: a further one takes
 * the place of the oldest, so idle ones keep nobody out and take no time. */
#ifndef WEFT_LAUNCH_HTTP_H
#define WEFT_LAUNCH_HTTP_H

#include "base/text.h"

typedef struct weft_http weft_http;

/* The page, when somebody asks for it. */
typedef void (*weft_http_page_fn)(void *arg, weft_text *out);

/* ADDR:PORT or [ADDR]:PORT in numbers; port 0: any that is free.  WEFT_ERR_ARG: it is no address,
 * or cannot be had here. */
weft_status weft_http_open(const char *at, weft_http_page_fn page, void *arg,
                           weft_http **out);
void        weft_http_close(weft_http *h); /* accepts NULL */
int         weft_http_fd(const weft_http *h);
int         weft_http_port(const weft_http *h);
void        weft_http_serve(weft_http *h, double now_s);

/* The status code that a request gets: 0, it is not whole yet; 200; 400, 404, 405. */
int weft_http_read_request(const char *text, size_t n);

#endif
