/* The tensors of a job that outlive its programs: parameters, optimizer states, running statistics.
 *
 *     weft_state *s;
 *     WEFT_TRY(weft_state_create(NULL, bytes, &s));                 zeroed memory of the device
 *     WEFT_TRY(weft_state_add(s, &(weft_state_tensor){"wte.weight", WEFT_DTYPE_F32, shape,
 *                                                     &part, offset, false}));
 *     WEFT_TRY(weft_state_write(s, 0, &region, numbers));           numbers: the region, row-major
 *     weft_state_destroy(s);
 *
 * A state is one layout: a block of memory and what lies where in it, perhaps with a second block
 * in host memory, for what the host updates.  An executor adopts the blocks (weft_state_memory,
 * weft_state_host_memory) and frees none of them.  A new plan is a new state, which
 * weft_mover_run() fills out of the old one.
 * (1) Every rank names the same tensors in the same order, also those it holds nothing of.
 * (2) Tensors are read and written through the device; host code has an address of them only where
 *     weft_memory_host gives one. */
#ifndef WEFT_STATE_STATE_H
#define WEFT_STATE_STATE_H

#include "base/arena.h"
#include "device/device.h"
#include "tensor/part.h"

typedef struct weft_state weft_state;

typedef struct weft_state_tensor {
    const char      *name;
    weft_dtype       dtype;
    weft_shape       shape;   /* of the whole tensor */
    const weft_part *part;    /* what is held here; NULL: nothing */
    int64_t          offset;  /* bytes; the part's memory is dense from there on */
    bool             on_host; /* it is in the block of host memory */
} weft_state_tensor;

typedef void (*weft_state_free_fn)(void *arg, weft_memory *m);

/* device NULL: cpu. */
weft_status weft_state_create(weft_device *device, int64_t bytes, weft_state **out);
/* Over memory of another origin, which release frees at last; also where creating fails. */
weft_status weft_state_create_over(const weft_memory *memory, weft_state_free_fn release,
                                   void *arg, weft_state **out);
/* Once, before tensors are added: a second block of so many zeroed bytes, of space PINNED of the
 * same device. */
weft_status weft_state_add_host_memory(weft_state *s, int64_t bytes);
/* The same tensors in zeroed memory of its own of the same device, its first block in that space;
 * then all numbers of one into the other.  stream NULL: done on return, else in its order. */
weft_status weft_state_create_like(const weft_state *s, weft_space space,
                                   weft_state **out);
/* The same over memory of another origin, as large as the first block: create_over. */
weft_status weft_state_create_like_over(const weft_state *s, const weft_memory *memory,
                                        weft_state_free_fn release, void *arg,
                                        weft_state **out);
/* The tensors of another state, which outlives this one, in other memory that is as large and is
 * borrowed.  No tensor is added to it.  Without host memory. */
weft_status weft_state_create_alias(const weft_state *of, const weft_memory *memory,
                                    weft_state **out);
weft_status weft_state_copy(const weft_state *from, weft_state *to, weft_stream *stream);
/* Both, in space DEVICE. */
weft_status weft_state_clone(const weft_state *s, weft_state **out);
/* The same tensors, and nothing of them is here. */
weft_status weft_state_make_empty(const weft_state *like, weft_state **out);
void        weft_state_destroy(weft_state *s); /* accepts NULL */
/* Of the tables, without the tensors; 0 for NULL. */
int64_t weft_state_bytes(const weft_state *s);

/* What is held here for one more rank, in the same memory: a state of its own, with the same
 * tensors in the same order, which s owns.  The caller adds the tensors. */
weft_status weft_state_add_standby(weft_state *s, weft_state **out);
int         weft_state_n_standby(const weft_state *s);
/* The k-th of them; NULL: there are fewer. */
weft_state *weft_state_standby(const weft_state *s, int k);

/* Copies all it is given.  WEFT_ERR_INTERNAL: the part is not inside the memory. */
weft_status weft_state_add(weft_state *s, const weft_state_tensor *t);
/* How many, which, and the number of a name; -1: no such. */
int                      weft_state_count(const weft_state *s);
const weft_state_tensor *weft_state_at(const weft_state *s, int tensor);
int                      weft_state_find(const weft_state *s, const char *name);
const weft_memory       *weft_state_memory(const weft_state *s);
/* An address of NULL: there is none. */
const weft_memory *weft_state_host_memory(const weft_state *s);
/* The block that a tensor is in. */
const weft_memory *weft_state_memory_of(const weft_state *s, int tensor);

/* All of its memory is 0, as after create. */
weft_status weft_state_zero(weft_state *s);

/* The step after which the tensors have these values; -1 until it is set. */
int64_t weft_state_step(const weft_state *s);
void    weft_state_set_step(weft_state *s, int64_t step);

/* Elements of a region that are held here, between the device and host memory that has all of the
 * region, row-major in the tensor's type; what is not held is left as it is, on both sides. */
weft_status weft_state_read(const weft_state *s, int tensor, const weft_region *r,
                            void *host);
weft_status weft_state_write(weft_state *s, int tensor, const weft_region *r,
                             const void *host);
/* Reads in the order of a stream: host is there when the stream has got so far.  NULL: as read. */
weft_status weft_state_read_in(const weft_state *s, weft_stream *stream, int tensor,
                               const weft_region *r, void *host);

#endif
