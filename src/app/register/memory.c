/* The register in the memory of a host's only agent.  It keeps the newest epochs and answers for
 * older ones with the newest: who asks has been overtaken. */
#include <stdlib.h>
#include <string.h>

#include "register/register_priv.h"

enum {
    KEPT = 4
};

typedef struct memory_value {
    uint32_t epoch; /* 0: none */
    uint8_t *bytes;
    size_t   n;
} memory_value;

typedef struct memory_register {
    weft_register base;
    uint32_t      newest;
    uint64_t      beat;
    memory_value  kept[KEPT]; /* of epoch e at e % KEPT */
    int           n_answer, first;
    uint32_t      answer[WEFT_REGISTER_QUEUE]; /* epochs that were asked for, in order */
} memory_register;

static memory_register *memory_of(weft_register *r)
{
    return (memory_register *)(void *)r;
}

static weft_status keep_value(memory_register *m, uint32_t epoch, const void *bytes,
                              size_t n)
{
    uint8_t *copy = malloc(n + 1);
    if (!copy) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (n) memcpy(copy, bytes, n);
    memory_value *v = &m->kept[epoch % KEPT];
    free(v->bytes);
    *v        = (memory_value){.epoch = epoch, .bytes = copy, .n = n};
    m->newest = epoch;
    return WEFT_OK;
}

static weft_status ask_memory(weft_register *r, uint32_t epoch, const void *bytes,
                              int64_t n)
{
    memory_register *m = memory_of(r);
    if (m->n_answer == WEFT_REGISTER_QUEUE)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d calls of a register are under way",
                         WEFT_REGISTER_QUEUE);
    if (n < 0 && bytes) memcpy(&m->beat, bytes, sizeof m->beat);
    if (n >= 0 && epoch > m->newest) WEFT_TRY(keep_value(m, epoch, bytes, (size_t)n));
    m->answer[(m->first + m->n_answer++) % WEFT_REGISTER_QUEUE] = epoch;
    return WEFT_OK;
}

static bool next_of_memory(weft_register *r, weft_register_outcome *out)
{
    memory_register *m = memory_of(r);
    if (!m->n_answer) return false;
    uint32_t epoch = m->answer[m->first];
    m->first       = (m->first + 1) % WEFT_REGISTER_QUEUE;
    m->n_answer--;
    const memory_value *v = &m->kept[epoch % KEPT];
    if (epoch == WEFT_REGISTER_NEWEST || (epoch < m->newest && v->epoch != epoch))
        v = &m->kept[m->newest % KEPT];
    bool stands = v->epoch && (v->epoch == epoch || v->epoch == m->newest) &&
                  (epoch <= m->newest || epoch == WEFT_REGISTER_NEWEST);
    *out = (weft_register_outcome){.result = stands ? WEFT_REGISTER_STANDS
                                                    : WEFT_REGISTER_EMPTY,
                                   .epoch  = stands ? v->epoch : epoch,
                                   .beat   = m->beat,
                                   .bytes  = stands ? v->bytes : NULL,
                                   .n      = stands ? v->n : 0};
    if (!stands && epoch == WEFT_REGISTER_NEWEST) out->epoch = 0;
    return true;
}

static int fd_of_memory(const weft_register *r)
{
    (void)r;
    return -1;
}

static void close_memory(weft_register *r)
{
    memory_register *m = memory_of(r);
    for (int k = 0; k < KEPT; k++) free(m->kept[k].bytes);
    free(m);
}

weft_status weft_register_open_memory(weft_register **out)
{
    static const register_ops ops = {.ask   = ask_memory,
                                     .next  = next_of_memory,
                                     .fd    = fd_of_memory,
                                     .close = close_memory};
    memory_register          *m   = calloc(1, sizeof *m);
    if (!m) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    m->base.op = &ops;
    *out       = &m->base;
    return WEFT_OK;
}
