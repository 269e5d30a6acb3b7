/* Pinned algorithms of cublasLt: one line a product, measured once for a kind of device and a
 * version of the library, so that a job's bits depend on neither timing nor luck.
 *
 *     a b d  ta tb  m n k batch  epilogue  align of a b c d  eight words of the algorithm, in
 *     hexadecimal
 *
 * where a and b are cublasLt's and m, n, k those of the row-major product.  Whether a result is
 * added to what is there is no part of it: one micro-batch writes a gradient, the next adds to it,
 * and both must have the bits that ranks with a micro-batch each have.
 * data/cuda/<kind>-<version>.tsv */
#ifndef WEFT_CUDA_PINNED_H
#define WEFT_CUDA_PINNED_H

#include <stdbool.h>
#include <stdint.h>

#include "library.h"

typedef struct weft_cuda_pinned_key {
    int      type[3];  /* of A, B, D, as cublasLt has them */
    int      trans[2]; /* of A, B */
    int64_t  m, n, k, batch;
    int      epilogue;
    uint32_t align[4];
} weft_cuda_pinned_key;

/* Reads a table; the one before is dropped.  text NULL: none.  WEFT_ERR_ARG: the line that is
 * none. */
weft_status weft_cuda_pinned_read(const char *text, const char *name);
/* Adds a row; the hash stays that of the text. */
weft_status weft_cuda_pinned_add(const weft_cuda_pinned_key *key,
                                 const weft_cuda_blas_algo  *algo);
bool weft_cuda_pinned_find(const weft_cuda_pinned_key *key, weft_cuda_blas_algo *out);
/* Of the table's text; 0: there is none. */
uint64_t weft_cuda_pinned_hash(void);

/* A line of the table, as tuning writes it. */
int weft_cuda_pinned_print(const weft_cuda_pinned_key *key,
                           const weft_cuda_blas_algo *algo, char *text, size_t bytes);

/* ---- measuring: tune.c, where there is a GPU ---- */

/* What is multiplied or made, in device memory. */
typedef struct weft_cuda_factor {
    const void *p;
    int64_t     bytes;
    int         type; /* cublasLt's */
} weft_cuda_factor;

typedef struct weft_cuda_trial {
    int (*issue)(void *arg, const weft_cuda_blas_algo *algo); /* 0: it is on the stream */
    /* 0: it can run; *offer: with which workspace */
    int (*check)(void *arg, const weft_cuda_blas_algo *algo, weft_cuda_blas_offer *offer);
    void                       *arg, *stream;
    const weft_cuda_blas       *blas;
    const weft_cuda_pinned_key *key;
    weft_cuda_factor            factor[2], result; /* overwritten */
} weft_cuda_trial;

/* The fastest algorithm, an offer or a variant of one, which is pinned from then on.  NULL: nothing
 * is measured, and the first offer is taken. */
extern void (*weft_cuda_tuner)(const weft_cuda_trial      *t,
                               const weft_cuda_blas_offer *offer, int n_offer,
                               weft_cuda_blas_algo *out);

#endif
