/* NVIDIA GPUs of this host as driver and NVML describe them: nothing is measured or allocated.
 *
 *     weft_probe_found f;
 *     weft_probe_find_gpus(&f);                       f.n 0: f.why says what is missing
 *     weft_probe_print_gpus(&f, &text); */
#ifndef WEFT_PROBE_FOUND_H
#define WEFT_PROBE_FOUND_H

#include <stdbool.h>

#include "base/text.h"

enum {
    WEFT_PROBE_FOUND_MOST = 32
};

typedef struct weft_probe_found_gpu {
    char     name[96];
    int      capability, n_sm;        /* 90 is 9.0 */
    int64_t  total_bytes, free_bytes; /* -1: NVML does not say */
    int      n_nvlink;                /* active ones; -1: NVML does not say */
    uint32_t peers;                   /* GPUs whose memory it reaches, by bits */
} weft_probe_found_gpu;

typedef struct weft_probe_found {
    int  n;
    int  cuda;       /* the driver's: 13000 is 13.0 */
    char driver[80]; /* "580.159.04"; "": NVML does not say */
    char nccl[600];  /* version and path, as ld.so finds it; "": it does not */
    char why[256];
    weft_probe_found_gpu gpu[WEFT_PROBE_FOUND_MOST];
} weft_probe_found;

void weft_probe_find_gpus(weft_probe_found *out);
/* GPUs that a driver counts, whatever else it can do; 0: none, or no driver. */
int weft_probe_count_gpus(void);
/* Nothing where there is none. */
void weft_probe_print_gpus(const weft_probe_found *f, weft_text *t);

#endif
