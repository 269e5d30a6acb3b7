/* Any bytes as the config.json of a model.  What is accepted gives a graph that verifies.
 * A model is read from a folder, so each input goes through a file (in memory where there is
 * one). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "weft/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char dir[64], path[80];

static void remove_folder(void)
{
    unlink(path);
    rmdir(dir);
}

static void make_folder(void)
{
    snprintf(dir, sizeof dir, "%s/weft-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(dir)) abort();
    snprintf(path, sizeof path, "%s/config.json", dir);
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    weft_model_options o = {.batch = 2, .seq = 4, .with_loss = true};
    weft_model        *m;
    if (!*dir) make_folder();
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) abort();
    if (weft_model_load(dir, &o, &m) != WEFT_OK) return 0;
    if (weft_graph_verify(weft_model_graph(m)) != WEFT_OK) abort();
    weft_model_destroy(m);
    return 0;
}
