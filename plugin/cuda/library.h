/* NVIDIA's libraries: found and opened at run time, used through rows of symbols with own
 * declarations.
 *
 *     WEFT_TRY(weft_cuda_libraries_open(13000));      once, with the driver's version
 *     blas = weft_cuda_blas_get();                     NULL: not opened
 *     weft_cuda_libraries_print(text, sizeof text);    "cublasLt 13.1.0 /usr/lib/..., cuDNN
 *     9.19.0 ..."
 *
 * Searched in this order: the folders of $WEFT_CUDA_LIBS (divided by ':'), ld.so,
 * /usr/local/cuda/lib64, site-packages/nvidia/ * /lib of the python3 in PATH;
 * only the first where $WEFT_CUDA_LIBS begins with "only:".  Without cublasLt
 * opening fails; without cuDNN it does not.  WEFT_CUDA_CUDNN=0: cuDNN is not opened. */
#ifndef WEFT_CUDA_LIBRARY_H
#define WEFT_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* ---- cublasLt 12 and 13 ---- */

/* ROW(name, symbol, parameters); handles and descriptors are void pointers, statuses int, 0
 * success. */
#define WEFT_CUDA_BLAS_ROWS                                                              \
    ROW(create, cublasLtCreate, (void **))                                               \
    ROW(destroy, cublasLtDestroy, (void *))                                              \
    ROW(desc_create, cublasLtMatmulDescCreate, (void **, int compute, int scale))        \
    ROW(desc_destroy, cublasLtMatmulDescDestroy, (void *))                               \
    ROW(desc_set, cublasLtMatmulDescSetAttribute, (void *, int, const void *, size_t))   \
    ROW(layout_create, cublasLtMatrixLayoutCreate,                                       \
        (void **, int type, uint64_t rows, uint64_t cols, int64_t ld))                   \
    ROW(layout_destroy, cublasLtMatrixLayoutDestroy, (void *))                           \
    ROW(layout_set, cublasLtMatrixLayoutSetAttribute,                                    \
        (void *, int, const void *, size_t))                                             \
    ROW(preference_create, cublasLtMatmulPreferenceCreate, (void **))                    \
    ROW(preference_destroy, cublasLtMatmulPreferenceDestroy, (void *))                   \
    ROW(preference_set, cublasLtMatmulPreferenceSetAttribute,                            \
        (void *, int, const void *, size_t))                                             \
    ROW(heuristic, cublasLtMatmulAlgoGetHeuristic,                                       \
        (void *, void *desc, void *a, void *b, void *c, void *d, void *preference,       \
         int most, weft_cuda_blas_offer *, int *n))                                      \
    ROW(check, cublasLtMatmulAlgoCheck,                                                  \
        (void *, void *desc, void *a, void *b, void *c, void *d,                         \
         const weft_cuda_blas_algo *, weft_cuda_blas_offer *))                           \
    ROW(config_set, cublasLtMatmulAlgoConfigSetAttribute,                                \
        (weft_cuda_blas_algo *, int, const void *, size_t))                              \
    ROW(matmul, cublasLtMatmul,                                                          \
        (void *, void *desc, const void *alpha, const void *a, void *la, const void *b,  \
         void *lb, const void *beta, const void *c, void *lc, void *d, void *ld,         \
         const weft_cuda_blas_algo *, void *workspace, size_t bytes, void *stream))

/* Opaque; may be stored and used again with the same version of the library. */
typedef struct weft_cuda_blas_algo {
    uint64_t word[8];
} weft_cuda_blas_algo;

typedef struct weft_cuda_blas_offer {
    weft_cuda_blas_algo algo;
    size_t              workspace_bytes;
    int                 status;
    float               waves;
    int                 reserved[4];
} weft_cuda_blas_offer;

typedef struct weft_cuda_blas {
#define ROW(name, symbol, parameters) int(*name) parameters;
    WEFT_CUDA_BLAS_ROWS
#undef ROW
} weft_cuda_blas;

enum { /* cudaDataType_t, cublasComputeType_t, cublasOperation_t */
    WEFT_BLAS_F32         = 0,
    WEFT_BLAS_BF16        = 14,
    WEFT_BLAS_F8_E4M3     = 28,
    WEFT_BLAS_F8_E5M2     = 29,
    WEFT_BLAS_COMPUTE_F32 = 68,
    WEFT_BLAS_N           = 0,
    WEFT_BLAS_T           = 1
};

enum { /* cublasLtMatmulDescAttributes_t */
    WEFT_BLAS_DESC_TRANS_A      = 3,
    WEFT_BLAS_DESC_TRANS_B      = 4,
    WEFT_BLAS_DESC_EPILOGUE     = 7,
    WEFT_BLAS_DESC_BIAS         = 8,
    WEFT_BLAS_DESC_AUX          = 11,
    WEFT_BLAS_DESC_AUX_LD       = 12,
    WEFT_BLAS_DESC_SCALE_A      = 17, /* B follows; and for modes */
    WEFT_BLAS_DESC_FAST_SUM     = 25, /* 8 bits */
    WEFT_BLAS_DESC_SCALE_MODE_A = 31
};

/* cublasLtMatmulMatrixScale_t: A times a number for each of its rows, B for each of its columns.
 * cublasLt 12.9 and later, on sm_90. */
enum {
    WEFT_BLAS_SCALE_ROWS = 3
};

enum { /* cublasLtEpilogue_t */
    WEFT_BLAS_EPILOGUE_NONE          = 1,
    WEFT_BLAS_EPILOGUE_BIAS          = 4,
    WEFT_BLAS_EPILOGUE_GELU          = 32,
    WEFT_BLAS_EPILOGUE_GELU_BIAS     = 36,
    WEFT_BLAS_EPILOGUE_GELU_AUX      = 160,
    WEFT_BLAS_EPILOGUE_GELU_AUX_BIAS = 164,
    WEFT_BLAS_EPILOGUE_DGELU         = 192
};

/* cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t, reduction schemes */
enum {
    WEFT_BLAS_LAYOUT_BATCH        = 5,
    WEFT_BLAS_LAYOUT_BATCH_STRIDE = 6,
    WEFT_BLAS_PREFER_WORKSPACE    = 1,
    WEFT_BLAS_PREFER_REDUCTIONS   = 3,
    WEFT_BLAS_PREFER_ALIGN_A      = 5, /* B, C, D follow */
    /* through the workspace, in f32; none is always allowed */
    WEFT_BLAS_REDUCTION_IN_ORDER_F32 = 2
};

/* cublasLtMatmulAlgoConfigAttributes_t: 32 bits but for clusters, which have 16;
 * cublasLtClusterShape_t */
enum {
    WEFT_BLAS_CONFIG_SWIZZLE = 4,
    WEFT_BLAS_CONFIG_OPTION  = 5,
    WEFT_BLAS_CONFIG_CLUSTER = 8,
    WEFT_BLAS_CLUSTER_1x1    = 2,
    WEFT_BLAS_CLUSTER_2x1    = 3,
    WEFT_BLAS_CLUSTER_4x1    = 4,
    WEFT_BLAS_CLUSTER_1x2    = 5,
    WEFT_BLAS_CLUSTER_2x2    = 6,
    WEFT_BLAS_CLUSTER_1x4    = 8
};

/* ---- cuDNN 9, its backend interface ---- */

#define WEFT_CUDA_DNN_ROWS                                                               \
    ROW(create, cudnnCreate, (void **))                                                  \
    ROW(destroy, cudnnDestroy, (void *))                                                 \
    ROW(set_stream, cudnnSetStream, (void *, void *stream))                              \
    ROW(desc_create, cudnnBackendCreateDescriptor, (int type, void **))                  \
    ROW(desc_destroy, cudnnBackendDestroyDescriptor, (void *))                           \
    ROW(desc_finalize, cudnnBackendFinalize, (void *))                                   \
    ROW(desc_set, cudnnBackendSetAttribute,                                              \
        (void *, int name, int type, int64_t n, const void *))                           \
    ROW(desc_get, cudnnBackendGetAttribute,                                              \
        (void *, int name, int type, int64_t most, int64_t *n, void *))                  \
    ROW(execute, cudnnBackendExecute, (void *, void *plan, void *pack))

typedef struct weft_cuda_dnn {
#define ROW(name, symbol, parameters) int(*name) parameters;
    WEFT_CUDA_DNN_ROWS
#undef ROW
    void (*last_error)(char *, size_t);
} weft_cuda_dnn;

/* ---- NCCL 2 ---- */

typedef struct weft_cuda_nccl_id {
    char bytes[128];
} weft_cuda_nccl_id;

/* The first fields of ncclConfig_t, those of 2.14; later ones have their defaults. */
typedef struct weft_cuda_nccl_config {
    size_t   size;
    unsigned magic, version;
    int      blocking;
} weft_cuda_nccl_config;

#define WEFT_CUDA_NCCL_ROWS                                                              \
    ROW(get_unique_id, ncclGetUniqueId, (weft_cuda_nccl_id *))                           \
    ROW(init, ncclCommInitRankConfig,                                                    \
        (void **, int n, weft_cuda_nccl_id, int rank, weft_cuda_nccl_config *))          \
    ROW(finalize, ncclCommFinalize, (void *))                                            \
    ROW(destroy, ncclCommDestroy, (void *))                                              \
    ROW(abort, ncclCommAbort, (void *))                                                  \
    ROW(async_error, ncclCommGetAsyncError, (void *, int *))                             \
    ROW(group_start, ncclGroupStart, (void))                                             \
    ROW(group_end, ncclGroupEnd, (void))                                                 \
    ROW(send, ncclSend,                                                                  \
        (const void *, size_t n, int type, int peer, void *comm, void *stream))          \
    ROW(recv, ncclRecv,                                                                  \
        (void *, size_t n, int type, int peer, void *comm, void *stream))                \
    ROW(all_gather, ncclAllGather,                                                       \
        (const void *, void *, size_t n, int type, void *comm, void *stream))            \
    ROW(reduce_scatter, ncclReduceScatter,                                               \
        (const void *, void *, size_t n, int type, int op, void *comm, void *stream))    \
    ROW(all_reduce, ncclAllReduce,                                                       \
        (const void *, void *, size_t n, int type, int op, void *comm, void *stream))    \
    ROW(broadcast, ncclBroadcast,                                                        \
        (const void *, void *, size_t n, int type, int root, void *comm, void *stream))

typedef struct weft_cuda_nccl {
#define ROW(name, symbol, parameters) int(*name) parameters;
    WEFT_CUDA_NCCL_ROWS
#undef ROW
    const char *(*error_string)(int);
    const char *(*last_error)(void *comm);
} weft_cuda_nccl;

enum { /* ncclResult_t, ncclDataType_t, ncclRedOp_t */
    WEFT_NCCL_OK          = 0,
    WEFT_NCCL_REMOTE      = 6, /* another rank's process is gone, or its connection */
    WEFT_NCCL_IN_PROGRESS = 7,
    WEFT_NCCL_U8          = 1,
    WEFT_NCCL_I32         = 2,
    WEFT_NCCL_I64         = 4,
    WEFT_NCCL_F32         = 7,
    WEFT_NCCL_BF16        = 9,
    WEFT_NCCL_SUM         = 0
};

/* ---- what was found ---- */

typedef enum weft_cuda_library_kind {
    WEFT_CUDA_BLAS,
    WEFT_CUDA_DNN,
    WEFT_CUDA_NCCL,
    WEFT_N_CUDA_LIBRARY
} weft_cuda_library_kind;

typedef struct weft_cuda_library {
    const char *name;       /* "cublasLt" */
    void       *handle;     /* NULL: not opened */
    int         version[3]; /* as the library itself says */
    char        path[512];  /* of the file */
    char        why[512];   /* one line, where it was not opened */
} weft_cuda_library;

/* NCCL, when ranks communicate by it; once.  WEFT_ERR_ARG: it is missing, or no NCCL 2. */
weft_status           weft_cuda_nccl_open(void);
const weft_cuda_nccl *weft_cuda_nccl_get(void); /* NULL: not opened */

/* Opens cublasLt and cuDNN, where they are not open yet.  driver: as cuDriverGetVersion gives
 * it (13000); a library built for a later CUDA is passed over.  WEFT_ERR_ARG: no cublasLt; the
 * line names what was tried. */
weft_status weft_cuda_libraries_open(int driver);

const weft_cuda_library *weft_cuda_library_get(weft_cuda_library_kind k);
const weft_cuda_blas    *weft_cuda_blas_get(void); /* NULL: not opened */
const weft_cuda_dnn     *weft_cuda_dnn_get(void);  /* NULL: not opened */

/* Handles are made in the context that use(gpu) makes current, one for the process at its first
 * call; bound once, before the first.  Unbinding the same gpu destroys them. */
/* kind: "sm_90 NVIDIA H200". */
void weft_cuda_libraries_bind(weft_status (*use)(void *gpu), void *gpu, const char *kind);
void weft_cuda_libraries_unbind(const void *gpu);
weft_status weft_cuda_blas_handle(void **out);
weft_status weft_cuda_dnn_handle(void **out);

/* WEFT_CUDA_FP8_FAST_ACCUM=1: sums of products in fp8 in fewer bits than f32 has. */
bool weft_cuda_fp8_sums_fast(void);

/* "cublasLt 13.1.0, cuDNN 9.19.0", or "cublasLt 13.1.0, no cuDNN: own attention". */
const char *weft_cuda_libraries_name(char *text, size_t bytes);
/* What is open, "cublasLt 13.1.0 PATH, cuDNN 9.19.0 PATH", into text; gives text. */
const char *weft_cuda_libraries_print(char *text, size_t bytes);
/* Our version and kernels, device kind, versions of cublasLt and cuDNN, pinned algorithms: equal
 * where the bits of kernels are. */
const char *weft_cuda_libraries_id(char *text, size_t bytes);
/* Of the sources of all kernels and of what chooses them (tools/kernels_id.sh). */
extern const char weft_cuda_kernels_id[];

#endif
