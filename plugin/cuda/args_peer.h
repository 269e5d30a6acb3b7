/* Arguments of communication between ranks that reach each other's device memory. */
#ifndef WEFT_CUDA_ARGS_PEER_H
#define WEFT_CUDA_ARGS_PEER_H

enum {
    WEFT_CUDA_PEER_MAX_RANK = 16,
    WEFT_CUDA_PEER_MAX_SLAB = 16,
    WEFT_CUDA_PEER_MAX_TERM = 256, /* of one sum, of all ranks */
    /* bytes, or elements of a sum, that a block works on */
    WEFT_CUDA_PEER_COPY_BLOCK = 1 << 17,
    WEFT_CUDA_PEER_SUM_BLOCK  = 1 << 14,
    WEFT_CUDA_PEER_ROW_BLOCKS = 16 /* of one run of rows */
};

/* Where a tensor of a call lies in its rank's slabs, in bytes.  In the rank's board, read by
 * all. */
typedef struct weft_cuda_peer_part {
    int64_t in, out;
    int64_t stride; /* from term to term; of rows: how many out has room for */
    int32_t in_slab, out_slab;
} weft_cuda_peer_part;

/* What this rank does of a call: a run of a tensor, of one position or of everybody's, to one or to
 * all. */
typedef struct weft_cuda_peer_work {
    int64_t first_block;
    /* where the run begins in each in and out: bytes; of sums: elements */
    int64_t in, out;
    int64_t count; /* the same */
    int32_t part;
    int32_t from; /* of bytes: the position whose they are */
    int32_t to;   /* a position; -1: all */
} weft_cuda_peer_work;

/* How this rank reaches the members of a group; lies in device memory. */
typedef struct weft_cuda_peer_map {
    const char *board[WEFT_CUDA_PEER_MAX_RANK];
    /* in each board: where the table of the running call begins */
    int64_t slot[WEFT_CUDA_PEER_MAX_RANK];
    char   *slab[WEFT_CUDA_PEER_MAX_RANK][WEFT_CUDA_PEER_MAX_SLAB];
} weft_cuda_peer_map;

typedef struct weft_cuda_peer_args {
    const uint32_t            *aborted; /* 1: nothing is written any more */
    const weft_cuda_peer_map  *map;
    const weft_cuda_peer_work *work;
    int32_t                    n_work, n, me, dtype;
    /* sums: the terms in order; after each so many pairs of partial sums are added */
    int32_t n_term;
    uint8_t who[WEFT_CUDA_PEER_MAX_TERM], which[WEFT_CUDA_PEER_MAX_TERM],
        adds[WEFT_CUDA_PEER_MAX_TERM];
} weft_cuda_peer_args;

/* Rows in bins (weft_comm_rows): those that this rank has in the call's tensor. */
typedef struct weft_cuda_peer_rows_args {
    const uint32_t           *aborted;
    const weft_cuda_peer_map *map;
    uint32_t                 *bad;   /* becomes 1: a table that does not fit */
    const int32_t            *table; /* (n, n_bin + 1) */
    int32_t                   n, me, n_bin, sends;
    int64_t                   row_bytes, in_rows;
} weft_cuda_peer_rows_args;

/* A message of one end of a channel. */
typedef struct weft_cuda_peer_message_args {
    const uint32_t *aborted;
    const char     *from;
    char           *to;
    int64_t         bytes;
} weft_cuda_peer_message_args;

/* Flags that streams wait for: first these become 0, then those 1. */
typedef struct weft_cuda_peer_signal_args {
    const uint32_t *aborted;
    uint32_t       *count; /* becomes progress */
    uint32_t       *slot;  /* becomes value; NULL: none */
    uint32_t        value, progress;
    int32_t         n_reset, n_set;
    uint32_t       *reset[WEFT_CUDA_PEER_MAX_RANK], *set[WEFT_CUDA_PEER_MAX_RANK];
} weft_cuda_peer_signal_args;

#endif
