#include "support/op_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/status.h"

#define C(ID, attr, in, n_out) WEFT_TEST_CASE(ID, attr, in, n_out)

#define ADAM_IN(d) "f32" d " f32" d " f32" d " f32" d "+ f32[]=0.01 f32[]=0.7 f32[]=3"

const weft_test_case weft_test_cases[] = {
    /* products */
    C(MATMUL, "spec=mk,kn->mn", "f32[3,5] f32[5,7]", 1),
    C(MATMUL, "spec=mk,nk->mn", "f32[1,1] f32[1,1]", 1),
    C(MATMUL, "spec=bsd,dn->bsn", "f32[2,3,5] f32[5,4]", 1),
    C(MATMUL, "spec=bsd,dche->bsche", "f32[2,3,5] f32[5,3,2,4]", 1),
    C(MATMUL, "spec=bshe,hed->bsd", "f32[2,3,2,4] f32[2,4,5]", 1),
    C(MATMUL, "spec=bsn,dn->bsd", "f32[2,3,4] f32[5,4]", 1),
    C(MATMUL, "spec=bsd,bsn->dn dtype=f32", "f32[2,3,5] f32[2,3,4]", 1),
    C(MATMUL, "spec=bhse,bhte->bhst", "f32[2,3,4,5] f32[2,3,6,5]", 1),
    C(MATMUL, "spec=bij,bjk->bik", "f32[3,1,2] f32[3,2,5]", 1),
    C(MATMUL, "spec=md,dn->mn", "f32[33,17] f32[17,65]", 1),
    C(MATMUL, "spec=bsd,dn->bsn fp8=e4m3,e4m3,e4m3", "f32[2,3,5] f32[5,4]", 1),
    C(MATMUL, "spec=bsd,dche->bsche fp8=e4m3,e4m3", "f32[2,3,5] f32[5,3,2,4]", 1),
    C(MATMUL, "spec=bshe,hed->bsd fp8=e5m2,e4m3", "f32[2,3,2,4] f32[2,4,5]", 1),
    C(MATMUL, "spec=bsd,bsn->dn dtype=f32 fp8=e4m3,e5m2", "f32[2,3,5] f32[2,3,4]", 1),
    C(MATMUL, "spec=md,nd->mn fp8=e4m3,e4m3", "f32[33,40] f32[48,40]", 1),
    C(MATMUL, "spec=md,dn->mn fp8=e5m2,e4m3", "f32[16,72] f32[72,64]", 1),
    C(MATMUL, "spec=md,mn->dn dtype=f32 fp8=e4m3,e5m2", "f32[70,24] f32[70,32]", 1),
    C(GROUPED_MATMUL, "trans=1", "f32[7,3] f32[3,5,3] i32[4]:7", 1),
    C(GROUPED_MATMUL, "trans=0", "f32[7,3] f32[3,3,5] i32[4]:6", 1),
    C(GROUPED_MATMUL, "", "f32[1,1] f32[1,1,1] i32[2]:1", 1),
    C(GROUPED_MATMUL_WGRAD, "trans=1", "f32[7,3] f32[7,5] i32[4]:7", 1),
    C(GROUPED_MATMUL_WGRAD, "trans=0", "f32[7,3] f32[7,5] i32[4]:5", 1),

    /* element by element */
    C(ADD, "", "f32[2,3,5] f32[2,3,5]", 1),
    C(ADD, "", "f32[2,3,5] f32[5]", 1),
    C(ADD, "", "f32[2,3,5] f32[3,5]", 1),
    C(ADD, "", "f32[2,3,5] f32[2,1,5]", 1),
    C(ADD, "", "f32[2,1,5] f32[3,1]", 1),
    C(ADD, "", "f32[4] f32[]", 1),
    C(ADD, "", "f32[1,1] f32[1]", 1),
    C(MUL, "", "f32[2,3,5] f32[2,3,5]", 1),
    C(MUL, "", "f32[2,3,5] f32[3,1]", 1),
    C(MUL, "", "f32[3,1] f32[2,1,5]", 1),
    C(MUL, "", "f32[7] f32[]", 1),
    C(SCALE, "alpha=-0.75", "f32[3,17]", 1),
    C(SCALE, "alpha=2", "f32[1]", 1),
    C(CAST, "dtype=f32", "f32[3,5]", 1),
    C(GELU, "approx=tanh", "f32[3,17]", 1),
    C(GELU, "approx=erf", "f32[3,17]", 1),
    C(GELU_GRAD, "approx=tanh", "f32[3,17] f32[3,17]", 1),
    C(GELU_GRAD, "approx=erf", "f32[1,5] f32[1,5]", 1),
    C(SILU, "", "f32[3,17]", 1),
    C(SILU_GRAD, "", "f32[3,17] f32[3,17]", 1),
    C(RELU, "", "f32[3,17]", 1),
    C(RELU_GRAD, "", "f32[3,17] f32[3,17]", 1),
    C(TANH, "", "f32[3,17]", 1),
    C(TANH_GRAD, "", "f32[3,17] f32[3,17]", 1),
    C(GATE, "", "f32[3,17] f32[3,17]", 1),
    C(GATE, "act=gelu", "f32[2,3,5] f32[2,3,5]", 1),
    C(GATE, "act=gelu_erf", "f32[3,17] f32[3,17]", 1),
    C(GATE, "act=relu", "f32[1,5] f32[1,5]", 1),
    C(GATE_GRAD, "", "f32[3,17] f32[3,17] f32[3,17]", 2),
    C(GATE_GRAD, "act=gelu", "f32[2,3,5] f32[2,3,5] f32[2,3,5]", 2),
    C(GATE_GRAD, "act=gelu_erf", "f32[3,17] f32[3,17] f32[3,17]", 2),
    C(GATE_GRAD, "act=relu", "f32[1,5] f32[1,5] f32[1,5]", 2),
    C(DROPOUT, "p=0.3 id=5", "f32[4,3,7]", 1),
    C(DROPOUT, "p=0", "f32[3,5]", 1),
    C(DROPOUT, "p=0.5 id=1", "f32[1,1]", 1),
    C(DROPOUT, "p=0.4 id=2 at=[1,2,3] whole=[5,9,11]", "f32[3,4,5]", 1),
    C(DROPOUT, "p=0.4 id=2 at=[0,3,0] whole=[2,9,7]", "f32[2,5,7]", 1),

    /* norms and softmax */
    C(LAYER_NORM, "", "f32[2,3,5] f32[5] f32[5]", 3),
    C(LAYER_NORM, "eps=1e-12", "f32[3,33] f32[33] f32[33]", 3),
    C(LAYER_NORM, "eps=0.1", "f32[4,1] f32[1] f32[1]", 3),
    C(LAYER_NORM_GRAD, "", "f32[2,3,5] f32[2,3,5] f32[5] f32[2,3] f32[2,3]+", 3),
    C(LAYER_NORM_GRAD, "", "f32[3,33] f32[3,33] f32[33] f32[3] f32[3]+", 3),
    C(RMS_NORM, "", "f32[2,3,5] f32[5]", 2),
    C(RMS_NORM, "eps=0.01", "f32[7,1] f32[1]", 2),
    C(RMS_NORM, "", "f32[3,33] f32[33]", 2),
    C(RMS_NORM_GRAD, "", "f32[2,3,5] f32[2,3,5] f32[5] f32[2,3]+", 2),
    C(RMS_NORM_GRAD, "", "f32[3,33] f32[3,33] f32[33] f32[3]+", 2),
    C(SOFTMAX, "", "f32[2,3,5]", 1),
    C(SOFTMAX, "", "f32[3,1]", 1),
    C(SOFTMAX_GRAD, "", "f32[2,3,5] f32[2,3,5]", 1),

    /* attention */
    C(ROTARY, "", "f32[2,3,2,4]", 1),
    C(ROTARY, "theta=500 kind=linear factor=2", "f32[1,7,1,6]", 1),
    C(ROTARY, "theta=500000 kind=llama3 factor=8 orig=16", "f32[2,5,3,16]", 1),
    C(ROTARY, "inverse=1", "f32[2,3,2,4]", 1),
    C(ROTARY, "first=100", "f32[2,3,2,4]", 1),
    C(ATTENTION, "", "f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2,4]", 2),
    C(ATTENTION, "causal=0", "f32[2,3,4,5] f32[2,7,2,5] f32[2,7,2,3]", 2),
    C(ATTENTION, "causal=1 window=2", "f32[1,5,4,3] f32[1,5,1,3] f32[1,5,1,3]", 2),
    C(ATTENTION, "causal=1", "f32[1,2,2,3] f32[1,5,2,3] f32[1,5,2,3]", 2),
    C(ATTENTION, "causal=0 scale=1", "f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2,4] f32[2,3,3]",
      2),
    C(ATTENTION, "", "f32[1,1,1,1] f32[1,1,1,1] f32[1,1,1,1]", 2),
    C(ATTENTION, "q_first=3 k_first=5", "f32[2,7,2,4] f32[2,3,2,4] f32[2,3,2,4]", 2),
    C(ATTENTION, "q_first=6 window=4 k_first=1", "f32[1,5,2,4] f32[1,6,1,4] f32[1,6,1,4]",
      2),
    C(ATTENTION, "q_first=2 k_first=9", "f32[1,3,2,4] f32[1,3,1,4] f32[1,3,1,4]", 2),
    C(ATTENTION_MERGE, "", "f32[2,3,2,5] f32[2,3,2] f32[2,3,2,5] f32[2,3,2]", 2),
    C(ATTENTION, "", "f32[1,70,2,8] f32[1,70,1,8] f32[1,70,1,8]", 2),
    C(ATTENTION_GRAD, "",
      "f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2]", 3),
    C(ATTENTION_GRAD, "causal=0",
      "f32[2,3,4,3] f32[2,3,4,5] f32[2,7,2,5] f32[2,7,2,3] f32[2,3,4,3] f32[2,3,4]", 3),
    C(ATTENTION_GRAD, "causal=1 window=2",
      "f32[1,5,4,3] f32[1,5,4,3] f32[1,5,1,3] f32[1,5,1,3] f32[1,5,4,3] f32[1,5,4]", 3),
    C(ATTENTION_GRAD, "causal=0 scale=1",
      "f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2,4] f32[2,3,2] "
      "f32[2,3,3]",
      4),
    C(ATTENTION_GRAD, "",
      "f32[1,70,2,8] f32[1,70,2,8] f32[1,70,1,8] f32[1,70,1,8] f32[1,70,2,8] "
      "f32[1,70,2]+",
      3),
    C(ATTENTION_GRAD, "q_first=3 k_first=5",
      "f32[2,7,2,4] f32[2,7,2,4] f32[2,3,2,4] f32[2,3,2,4] f32[2,7,2,4] f32[2,7,2]+", 3),
    C(ATTENTION_GRAD, "q_first=6 window=4 k_first=1",
      "f32[1,5,2,4] f32[1,5,2,4] f32[1,6,1,4] f32[1,6,1,4] f32[1,5,2,4] f32[1,5,2]+", 3),
    C(REL_BUCKET, "s=7 t=9 buckets=8 max_distance=6", "", 1),
    C(REL_BUCKET, "s=7 t=9 buckets=8 max_distance=6 s_first=5 t_first=3", "", 1),
    C(REL_BUCKET, "s=40 t=40 bidirectional=0", "", 1),

    /* tables and losses */
    C(EMBEDDING, "", "f32[7,5] i32[2,3]<7", 1),
    C(EMBEDDING, "", "f32[1,1] i32[4]<1", 1),
    C(EMBEDDING, "", "f32[9,4] i32[]<9", 1),
    C(EMBEDDING, "first=3", "f32[4,5] i32[2,9]<11", 1),
    C(EMBEDDING, "first=0", "f32[4,5] i32[7]<11", 1),
    C(EMBEDDING_GRAD, "rows=7", "f32[2,3,5] i32[2,3]<7", 1),
    C(EMBEDDING_GRAD, "rows=3", "f32[17,2] i32[17]<3", 1),
    C(EMBEDDING_GRAD, "rows=4 pad=2", "f32[9,3] i32[9]<4", 1),
    C(EMBEDDING_GRAD, "rows=4 first=3 pad=5", "f32[31,3] i32[31]<11", 1),
    C(CROSS_ENTROPY, "", "f32[2,3,7] i32[2,3]<7", 2),
    C(CROSS_ENTROPY, "", "f32[9,33] i32[9]<33?", 2),
    C(CROSS_ENTROPY, "", "f32[3,1] i32[3]<1?", 2),
    C(CROSS_ENTROPY, "first=5", "f32[19,4] i32[19]<13?", 2),
    C(CROSS_ENTROPY, "first=0", "f32[2,9,4] i32[2,9]<13?", 2),
    C(CROSS_ENTROPY_MERGE, "", "f32[3,2,5] f32[3,2,5]+ i32[2,5]<9?", 2),
    C(CROSS_ENTROPY_MERGE, "ignore=2", "f32[1,7] f32[1,7] i32[7]<3", 2),
    C(CROSS_ENTROPY_GRAD, "first=5", "f32[19,4] i32[19]<13? f32[19]+ f32[19]", 1),
    C(CROSS_ENTROPY_GRAD, "", "f32[2,3,7] i32[2,3]<7 f32[2,3]+ f32[2,3]", 1),
    C(CROSS_ENTROPY_GRAD, "", "f32[9,33] i32[9]<33? f32[9]+ f32[9]", 1),
    C(GATHER, "axis=0", "f32[5,3] i32[4]<5", 1),
    C(GATHER, "axis=1", "f32[2,5,3] i32[7]<5", 1),
    C(GATHER, "axis=1 first=2", "f32[2,3,3] i32[7]<7", 1),
    C(SCATTER_ADD, "axis=0 size=3 first=2", "f32[9,3] i32[9]<7", 1),
    C(GATHER, "axis=0", "f32[1] i32[1]<1", 1),
    C(SCATTER_ADD, "axis=0 size=5", "f32[4,3] i32[4]<5", 1),
    C(SCATTER_ADD, "axis=1 size=5", "f32[2,7,3] i32[7]<5", 1),

    /* shapes */
    C(REDUCE, "axes=[0]", "f32[3,5]", 1),
    C(REDUCE, "axes=[1,2] keep=1", "f32[2,3,5]", 1),
    C(REDUCE, "axes=[-1] kind=mean", "f32[2,3,5]", 1),
    C(REDUCE, "axes=[0,1]", "f32[3,5]", 1),
    C(REDUCE, "axes=[0] kind=max", "f32[3,5]", 1),
    C(REDUCE, "axes=[0] dtype=f32", "f32[1,4]", 1),
    C(BROADCAST, "shape=[2,3,5]", "f32[3,1]", 1),
    C(BROADCAST, "shape=[4,1]", "f32[]", 1),
    C(RESHAPE, "shape=[2,12]", "f32[2,3,4]", 1),
    C(RESHAPE, "shape=[6,2,2]", "f32[2,3,4]", 1),
    C(RESHAPE, "shape=[8,3]", "f32[4,6]", 1),
    C(RESHAPE, "shape=[3,1,2]", "f32[2,3]", 1),
    C(RESHAPE, "shape=[1,5,1]", "f32[5]", 1),
    C(TRANSPOSE, "perm=[0,2,1]", "f32[2,3,5]", 1),
    C(TRANSPOSE, "perm=[2,0,3,1]", "f32[2,3,5,1]", 1),
    C(CONCAT, "axis=0", "f32[2,3] f32[1,3] f32[4,3]", 1),
    C(CONCAT, "axis=-1", "f32[2,3] f32[2,1]", 1),
    C(CONCAT, "axis=1", "f32[2,3,2]", 1),
    C(SPLIT, "axis=0 sizes=[1,2]", "f32[3,5]", 2),
    C(SPLIT, "axis=1 sizes=[2,2,1]", "f32[3,5,2]", 3),
    C(SLICE, "axis=0 start=1 stop=3", "f32[4,3]", 1),
    C(SLICE, "axis=1 start=0 stop=1", "f32[2,3,5]", 1),
    C(SLICE, "axis=-1 start=2 stop=5", "f32[2,5]", 1),
    C(SLICE_GRAD, "axis=0 start=1 size=4", "f32[2,3]", 1),
    C(SLICE_GRAD, "axis=1 start=2 size=5", "f32[2,3,2]", 1),
    C(FILL, "shape=[2,3] value=0.5", "", 1),
    C(FILL, "value=-1", "", 1),

    /* experts */
    C(ROUTE, "k=2", "f32[5,4]", 2),
    C(ROUTE, "k=2 norm=0", "f32[2,3,4]", 2),
    C(ROUTE, "k=2", "f32[5,4] f32[4]", 2),
    C(ROUTE, "k=3 norm=0", "f32[2,3,7] f32[7]", 2),
    C(ROUTE, "k=1", "f32[3,1]", 2),
    C(ROUTE, "k=3", "f32[7,3]", 2),
    C(ROUTE_GRAD, "k=2", "f32[5,4] f32[5,2] i32[5,2]!4 f32[5,2]", 1),
    C(ROUTE_GRAD, "k=2 norm=0", "f32[5,4] f32[5,2] i32[5,2]!4 f32[5,2]", 1),
    C(DISPATCH, "experts=4", "f32[5,3] i32[5,2]!4", 3),
    C(DISPATCH, "experts=4 first_expert=1 own=2", "f32[9,3] i32[9,2]!4", 3),
    C(DISPATCH, "experts=1", "f32[3,1] i32[3,1]!1", 3),
    C(OWN_OFFSETS, "", "i32[3,5]!9", 1),
    C(OWN_OFFSETS, "first_expert=1 own=2", "i32[2,5]!9", 1),
    C(OWN_OFFSETS, "first_expert=4 own=0", "i32[2,5]!9", 1),
    C(DISPATCH_GRAD, "k=2", "f32[10,3] i32[10]%", 1),
    C(DISPATCH_GRAD, "k=1", "f32[3,5] i32[3]%", 1),
    C(COMBINE, "", "f32[10,3] f32[5,2] i32[10]%", 1),
    C(COMBINE, "", "f32[3,1] f32[3,1] i32[3]%", 1),
    C(COMBINE_GRAD, "", "f32[5,3] f32[10,3] f32[5,2] i32[10]%", 2),

    /* vision */
    C(CONV2D, "stride=[1,1] pad=[1,1]", "f32[2,3,5,4] f32[4,3,3,3]", 1),
    C(CONV2D, "stride=[2,2] pad=[0,1]", "f32[1,2,7,6] f32[3,2,3,2]", 1),
    C(CONV2D, "stride=[1,2] pad=[0,0]", "f32[2,1,3,3] f32[2,1,1,1]", 1),
    C(CONV2D_GRAD_X, "stride=[1,1] pad=[1,1] size=[5,4]", "f32[2,4,5,4] f32[4,3,3,3]", 1),
    C(CONV2D_GRAD_X, "stride=[2,2] pad=[0,1] size=[7,6]", "f32[1,3,3,4] f32[3,2,3,2]", 1),
    C(CONV2D_GRAD_W, "stride=[1,1] pad=[1,1] size=[3,3]", "f32[2,4,5,4] f32[2,3,5,4]", 1),
    C(CONV2D_GRAD_W, "stride=[2,2] pad=[0,1] size=[3,2]", "f32[1,3,3,4] f32[1,2,7,6]", 1),
    C(MAX_POOL, "kernel=[2,2] stride=[2,2] pad=[0,0]", "f32[2,3,4,6]", 2),
    C(MAX_POOL, "kernel=[3,3] stride=[2,2] pad=[1,1]", "f32[1,2,5,7]", 2),
    C(MAX_POOL_GRAD, "size=[4,6]", "f32[2,3,2,3] i32[2,3,2,3]<24", 1),
    C(AVG_POOL, "kernel=[2,2] stride=[2,2] pad=[0,0]", "f32[2,3,4,6]", 1),
    C(AVG_POOL, "kernel=[3,2] stride=[1,2] pad=[1,0]", "f32[1,2,5,7]", 1),
    C(AVG_POOL_GRAD, "kernel=[2,2] stride=[2,2] pad=[0,0] size=[4,6]", "f32[2,3,2,3]", 1),
    C(AVG_POOL_GRAD, "kernel=[3,2] stride=[1,2] pad=[1,0] size=[5,7]", "f32[1,2,5,3]", 1),
    C(BATCH_NORM, "", "f32[2,3,2,3] f32[3] f32[3]", 3),
    C(BATCH_NORM, "eps=0.1", "f32[5,1,1,1] f32[1] f32[1]", 3),
    C(BATCH_NORM_GRAD, "", "f32[2,3,2,3] f32[2,3,2,3] f32[3] f32[3] f32[3]+", 3),
    C(BATCH_NORM_INFER, "", "f32[2,3,2,3] f32[3] f32[3] f32[3] f32[3]+", 1),

    /* once a step */
    C(ACCUMULATE, "", "f32[3,5]", 1),
    C(ACCUMULATE, "", "f32[]", 1),
    C(SUMSQ, "", "f32[3,5]", 1),
    C(SUMSQ, "", "f32[300]", 1),
    C(SUMSQ, "", "f32[1]", 1),
    C(SUMSQ_PARTS, "", "f32[3,5]", 1),
    C(SUMSQ_PARTS, "", "f32[300]", 1),
    C(SUMSQ_TREE, "", "f64[7]", 1),
    C(CLIP, "max_norm=1", "f64[]+ f64[]+ f64[]+", 2),
    C(CLIP, "max_norm=100", "f64[]+", 2),
    C(CLIP, "", "f64[]+ f64[]+", 2),
    C(EMA, "momentum=0.1 count=4 unbias=1.25", "f32[5] f32[5]", 1),
    C(SGD, "weight_decay=0.1", "f32[3,5] f32[3,5] f32[]=0.01 f32[]=0.7", 1),
    C(SGD, "", "f32[1] f32[1] f32[]=0.01 f32[]=1", 1),
    C(SGD_MOMENTUM, "momentum=0.9 weight_decay=0.1",
      "f32[3,5] f32[3,5] f32[3,5] f32[]=0.01 f32[]=0.7", 2),
    C(ADAM, "weight_decay=0.1", ADAM_IN("[3,5]"), 3),
    C(ADAM, "beta1=0.8 beta2=0.99", ADAM_IN("[1]"), 3),
    C(ADAMW, "weight_decay=0.1", ADAM_IN("[3,5]"), 3),
    C(ADAMW, "weight_decay=0 eps=1e-05", ADAM_IN("[1031]"), 3),
    C(ADAMW, "", ADAM_IN("[]"), 3),
    C(ADAGRAD, "weight_decay=0.1", "f32[3,5] f32[3,5] f32[3,5]+ f32[]=0.01 f32[]=0.7", 2),
    C(LAMB_DIR, "", "f32[3,5] f32[3,5] f32[3,5] f32[3,5]+ f32[]=0.7 f32[]=3", 1),
    C(LAMB, "",
      "f32[3,5] f32[3,5] f32[3,5] f32[3,5]+ f64[]=4 f64[]=9 f32[]=0.01 f32[]=0.7 f32[]=3",
      3),
    C(LAMB, "",
      "f32[3] f32[3] f32[3] f32[3]+ f64[]=0 f64[]=9 f32[]=0.01 f32[]=0.7 f32[]=3", 3),
};
const int weft_n_test_case = (int)WEFT_COUNT(weft_test_cases);

/* Ranks that have nothing of a dimension: sums over it are 0, attention sees no keys. */
const weft_test_case weft_empty_cases[] = {
    C(MATMUL, "spec=bsd,bsf->df", "f32[0,8,5] f32[0,8,7]", 1),
    C(MATMUL, "spec=bsd,df->bsf", "f32[0,8,5] f32[5,7]", 1),
    C(MATMUL, "spec=bshe,hed->bsd", "f32[2,3,0,4] f32[0,4,5]", 1),
    C(GROUPED_MATMUL_WGRAD, "", "f32[0,3] f32[0,5] i32[4]:0", 1),
    C(LAYER_NORM_GRAD, "", "f32[0,3,5] f32[0,3,5] f32[5] f32[0,3] f32[0,3]+", 3),
    C(RMS_NORM_GRAD, "", "f32[2,0,5] f32[2,0,5] f32[5] f32[2,0]+", 2),
    C(ATTENTION, "", "f32[2,0,4,8] f32[2,0,2,8] f32[2,0,2,8]", 2),
    C(ATTENTION, "", "f32[0,3,4,8] f32[0,3,2,8] f32[0,3,2,8]", 2),
    C(EMBEDDING, "first=3", "f32[0,5] i32[2,9]<11", 1),
    C(EMBEDDING_GRAD, "rows=7", "f32[0,3,5] i32[0,3]<7", 1),
    C(CROSS_ENTROPY, "", "f32[0,3,7] i32[0,3]<7", 2),
    C(CROSS_ENTROPY_GRAD, "", "f32[0,33] i32[0]<33? f32[0]+ f32[0]", 1),
    C(REDUCE, "axes=[0]", "f32[0,5]", 1),
    C(REDUCE, "axes=[0,2]", "f32[3,5,0]", 1),
    C(CONCAT, "axis=0", "f32[2,3] f32[0,3] f32[4,3]", 1),
    C(ROUTE, "k=2", "f32[0,4]", 2),
    C(DISPATCH, "experts=4", "f32[0,3] i32[0,2]!4", 3),
    C(COMBINE_GRAD, "", "f32[0,3] f32[0,3] f32[0,2] i32[0]%", 2),
    C(SUMSQ, "", "f32[0]", 1),
    C(SUMSQ_PARTS, "", "f32[0,5]", 1),
};
const int weft_n_empty_case = (int)WEFT_COUNT(weft_empty_cases);

/* Forms that only kernels meet; shapes with more than one task, and tails of every kind. */
const weft_test_case weft_kernel_cases[] = {
    C(CAST, "dtype=bf16", "f32[3,5]", 1),
    C(CAST, "dtype=f32", "bf16[7,1]", 1),
    C(EMBEDDING_GRAD, "rows=7 dtype=f32 pad=2", "f32[19,5] i32[19]<7 f32[7,5]", 1),
    C(COMBINE, "", "f32[10,3] f32[5,2] i32[10]%?", 1),
    C(DISPATCH_GRAD, "k=2", "f32[10,3] i32[10]%?", 1),
    C(COMBINE_GRAD, "", "f32[5,3] f32[10,3] f32[5,2] i32[10]%?", 2),
    C(MATMUL, "spec=mk,kn->mn", "f32[70,800] f32[800,65]", 1),
    C(MATMUL, "spec=bsche,dche->bsd", "f32[2,20,3,2,8] f32[48,3,2,8]", 1),
    C(MATMUL, "spec=abcd,dbe->aceb", "f32[3,4,5,6] f32[6,4,7]", 1),
    C(MATMUL, "spec=ab,cb->ac", "f32[3,4] f32[5,4]", 1),
    C(MATMUL, "spec=abk,k->a", "f32[35,4,9] f32[9]", 1),
    C(GROUPED_MATMUL, "", "f32[150,40] f32[4,70,40] i32[5]:150", 1),
    C(GROUPED_MATMUL_WGRAD, "", "f32[150,40] f32[150,70] i32[5]:150", 1),
    C(ADD, "", "f32[7,130,129] f32[130,1]", 1),
    C(MUL, "", "f32[90,1000] f32[90,1000]", 1),
    C(GELU, "", "f32[33,1033]", 1),
    C(DROPOUT, "p=0.1 id=3", "f32[3,2050]", 1),
    C(LAYER_NORM, "", "f32[90,771] f32[771] f32[771]", 3),
    C(LAYER_NORM_GRAD, "", "f32[90,771] f32[90,771] f32[771] f32[90] f32[90]+", 3),
    C(RMS_NORM, "", "f32[90,771] f32[771]", 2),
    C(RMS_NORM_GRAD, "", "f32[90,771] f32[90,771] f32[771] f32[90]+", 2),
    C(SOFTMAX, "", "f32[20,3001]", 1),
    C(SOFTMAX_GRAD, "", "f32[20,3001] f32[20,3001]+", 1),
    C(ROTARY, "", "f32[2,70,3,64]", 1),
    C(ATTENTION, "", "f32[2,130,4,64] f32[2,130,2,64] f32[2,130,2,64]", 2),
    C(ATTENTION, "", "f32[3,67,22,8] f32[3,67,11,8] f32[3,67,11,8]", 2),
    C(ATTENTION, "causal=0", "f32[1,65,2,20] f32[1,150,1,20] f32[1,150,1,33]", 2),
    C(ATTENTION, "window=40", "f32[1,200,2,16] f32[1,200,1,16] f32[1,200,1,16]", 2),
    C(ATTENTION, "", "f32[1,70,2,16] f32[1,150,1,16] f32[1,150,1,16]", 2),
    C(ATTENTION, "q_first=90 k_first=30",
      "f32[1,70,2,16] f32[1,150,1,16] f32[1,150,1,16]", 2),
    C(ATTENTION, "q_first=30 k_first=90 window=20",
      "f32[1,150,2,16] f32[1,100,1,16] f32[1,100,1,16]", 2),
    C(ATTENTION, "q_first=500 window=50", "f32[1,70,2,16] f32[1,70,1,16] f32[1,70,1,16]",
      2),
    C(ATTENTION_MERGE, "", "f32[2,130,4,64] f32[2,130,4] f32[2,130,4,64] f32[2,130,4]",
      2),
    C(ATTENTION_GRAD, "q_first=30 k_first=90 window=20",
      "f32[1,150,2,16] f32[1,150,2,16] f32[1,100,1,16] f32[1,100,1,16] f32[1,150,2,16] "
      "f32[1,150,2]+",
      3),
    C(DROPOUT, "p=0.3 id=2 at=[1,70,33] whole=[5,150,1033]", "f32[2,60,701]", 1),
    C(ATTENTION, "causal=0 scale=1",
      "f32[2,70,2,16] f32[2,80,2,16] f32[2,80,2,16] f32[2,70,80]", 2),
    C(ATTENTION_GRAD, "",
      "f32[2,130,4,64] f32[2,130,4,64] f32[2,130,2,64] f32[2,130,2,64] f32[2,130,4,64] "
      "f32[2,130,4]+",
      3),
    C(ATTENTION_GRAD, "window=40",
      "f32[1,200,2,16] f32[1,200,2,16] f32[1,200,1,16] f32[1,200,1,16] f32[1,200,2,16] "
      "f32[1,200,2]+",
      3),
    C(ATTENTION_GRAD, "causal=0 scale=0.1",
      "f32[2,70,2,9] f32[2,70,2,16] f32[2,80,2,16] f32[2,80,2,9] f32[2,70,2,9] "
      "f32[2,70,2]+ "
      "f32[2,70,80]",
      4),
    C(ATTENTION, "", "f32[1,70,1,20] f32[1,70,1,20] f32[1,70,1,130]", 2),
    C(ATTENTION_GRAD, "",
      "f32[1,66,1,70] f32[1,66,1,66] f32[1,66,1,66] f32[1,66,1,70] f32[1,66,1,70] "
      "f32[1,66,1]+",
      3),
    C(EMBEDDING, "", "f32[300,200] i32[5,70]<300", 1),
    C(EMBEDDING_GRAD, "rows=300", "f32[5,70,200] i32[5,70]<300", 1),
    C(EMBEDDING_GRAD, "rows=2 pad=1", "f32[300,16] i32[300]<3", 1),
    C(EMBEDDING_GRAD, "rows=600", "f32[2100,8] i32[2100]<600", 1),
    C(SCATTER_ADD, "axis=1 size=3", "f32[2,200,8] i32[200]<3", 1),
    C(CROSS_ENTROPY, "", "f32[20,5003] i32[20]<5003?", 2),
    /* rows that the CUDA kernel holds in registers and shared memory, and that it reads twice */
    C(CROSS_ENTROPY, "", "f32[3,17001] i32[3]<17001", 2),
    C(CROSS_ENTROPY, "", "f32[2,73003] i32[2]<73003", 2),
    C(CROSS_ENTROPY_GRAD, "", "f32[20,5003] i32[20]<5003? f32[20]+ f32[20]", 1),
    C(REDUCE, "axes=[0]", "f32[2100,70]", 1),
    C(REDUCE, "axes=[0,1]", "f32[6,70,1300]", 1),
    C(REDUCE, "axes=[1]", "f32[6,70,13]", 1),
    C(REDUCE, "axes=[1] kind=mean", "f32[60,2300]", 1),
    C(REDUCE, "axes=[1] kind=max", "f32[60,2300]", 1),
    C(TRANSPOSE, "perm=[0,2,1]", "f32[3,70,133]", 1),
    C(CONCAT, "axis=1", "f32[70,300] f32[70,1300]", 1),
    C(ROUTE, "k=2", "f32[700,8]", 2),
    C(DISPATCH, "experts=8", "f32[100,300] i32[100,2]!8", 3),
    C(OWN_OFFSETS, "first_expert=2 own=3", "i32[4,9]!100", 1),
    C(COMBINE, "", "f32[200,1300] f32[100,2] i32[200]%", 1),
    C(COMBINE_GRAD, "", "f32[100,1300] f32[200,1300] f32[100,2] i32[200]%", 2),
    C(CONV2D, "stride=[1,1] pad=[1,1]", "f32[2,8,15,14] f32[17,8,3,3]", 1),
    C(CONV2D, "stride=[1,1] pad=[0,0]", "f32[2,8,15,14] f32[17,8,1,1]", 1),
    C(CONV2D_GRAD_X, "stride=[2,2] pad=[1,1] size=[15,14]", "f32[2,17,8,7] f32[17,8,3,3]",
      1),
    C(CONV2D_GRAD_X, "stride=[1,1] pad=[0,0] size=[15,14]",
      "f32[2,17,15,14] f32[17,8,1,1]", 1),
    C(CONV2D_GRAD_W, "stride=[2,2] pad=[1,1] size=[3,3]", "f32[2,17,8,7] f32[2,8,15,14]",
      1),
    C(CONV2D_GRAD_W, "stride=[1,1] pad=[1,1] size=[3,3]", "f32[3,2,40,40] f32[3,1,40,40]",
      1),
    C(BATCH_NORM, "", "f32[6,3,40,40] f32[3] f32[3]", 3),
    C(BATCH_NORM_GRAD, "", "f32[6,3,40,40] f32[6,3,40,40] f32[3] f32[3] f32[3]+", 3),
    C(SUMSQ, "", "f32[301,700]", 1),
    C(SUMSQ, "", "f32[70001]", 1),
    C(SGD, "", "f32[70001] f32[70001] f32[]=0.01 f32[]=0.7", 1),
    C(ADAMW, "",
      "f32[70001] f32[70001] f32[70001] f32[70001]+ f32[]=0.01 f32[]=0.7 f32[]=3", 3),

    /* rows of whole vectors: as wide as a warp, a part of one, several */
    C(ADD, "", "f32[64,136] f32[136]", 1),
    C(ADD, "", "f32[64,136] f32[64,1]", 1),
    C(MUL, "", "f32[64,136] f32[64,136]", 1),
    C(GELU_GRAD, "", "f32[64,136] f32[64,136]", 1),
    C(GELU_GRAD, "approx=erf", "f32[64,136] f32[64,136]", 1),
    C(SILU_GRAD, "", "f32[64,136] f32[64,136]", 1),
    C(GATE, "", "f32[64,136] f32[64,136]", 1),
    C(GATE_GRAD, "", "f32[64,136] f32[64,136] f32[64,136]", 2),
    C(DROPOUT, "p=0.1 id=3", "f32[3,64]", 1),
    C(DROPOUT, "p=0.3 id=2 at=[1,7,32] whole=[5,15,104]", "f32[2,6,64]", 1),
    C(GROUPED_MATMUL, "", "f32[150,40] f32[4,136,40] i32[5]:140", 1),
    C(GROUPED_MATMUL, "trans=0", "f32[150,72] f32[4,72,40] i32[5]:150", 1),
    C(GROUPED_MATMUL_WGRAD, "", "f32[150,40] f32[150,136] i32[5]:140", 1),
    C(GROUPED_MATMUL_WGRAD, "trans=0", "f32[150,136] f32[150,24] i32[5]:150", 1),
    C(LAYER_NORM, "", "f32[30,768] f32[768] f32[768]", 3),
    C(LAYER_NORM, "", "f32[7,2048] f32[2048] f32[2048]", 3),
    C(LAYER_NORM, "", "f32[9,8] f32[8] f32[8]", 3),
    C(LAYER_NORM, "", "f32[5,408] f32[408] f32[408]", 3),
    C(LAYER_NORM_GRAD, "", "f32[70,768] f32[70,768] f32[768] f32[70] f32[70]+", 3),
    C(LAYER_NORM_GRAD, "", "f32[9,2048] f32[9,2048] f32[2048] f32[9] f32[9]+", 3),
    C(LAYER_NORM_GRAD, "", "f32[333,16] f32[333,16] f32[16] f32[333] f32[333]+", 3),
    C(LAYER_NORM_GRAD, "", "f32[2,35,408] f32[2,35,408] f32[408] f32[2,35] f32[2,35]+",
      3),
    C(RMS_NORM, "", "f32[20,1024] f32[1024]", 2),
    C(RMS_NORM_GRAD, "", "f32[20,1024] f32[20,1024] f32[1024] f32[20]+", 2),
    C(RMS_NORM_GRAD, "", "f32[11,4096] f32[11,4096] f32[4096] f32[11]+", 2),
    C(REDUCE, "axes=[0,1]", "f32[4,100,256]", 1),
    C(REDUCE, "axes=[0] kind=max", "f32[1000,24]", 1),
    C(REDUCE, "axes=[0] kind=mean", "f32[32768]", 1),
    C(REDUCE, "axes=[1] kind=max", "f32[3,5000,2]", 1),
    C(SUMSQ, "", "f32[5,20000]", 1),
    C(SUMSQ, "", "f32[3000,40]", 1),
    C(SUMSQ_PARTS, "", "f32[5,20000]", 1),
    C(SUMSQ_TREE, "", "f64[3000]", 1),
    C(ADAM, "weight_decay=0.1",
      "f32[4000] f32[4000] f32[4000] f32[4000]+ f32[]=0.01 f32[]=0.7 f32[]=1000", 3),
};
const int weft_n_kernel_case = (int)WEFT_COUNT(weft_kernel_cases);

/* The k-th word of the operands; NULL past the end. */
static const char *word(const weft_test_case *c, int k)
{
    const char *p = c->in;
    for (; *p; k--) {
        p += strspn(p, " ");
        if (k == 0) return p;
        p += strcspn(p, " ");
    }
    return NULL;
}

static weft_status parse_type(const char *p, weft_type *t)
{
    char name[8] = {0};
    strncpy(name, p, strcspn(p, "[") < 7 ? strcspn(p, "[") : 7);
    if (!weft_dtype_parse(name, &t->dtype))
        return WEFT_FAIL(WEFT_ERR_ARG, "case: dtype in '%s'", p);
    t->shape.n = 0;
    for (p = strchr(p, '[') + 1; *p != ']';) {
        char *end;
        t->shape.d[t->shape.n++] = strtoll(p, &end, 10);
        p                        = *end == ',' ? end + 1 : end;
    }
    return WEFT_OK;
}

weft_status weft_test_case_make(const weft_test_case *c, weft_arena *a, weft_op_use *u)
{
    int n_in = 0;
    while (word(c, n_in)) n_in++;
    weft_attr *attr = WEFT_ARENA_ARRAY(a, weft_attr, WEFT_MAX_ATTR);
    weft_type *in   = WEFT_ARENA_ARRAY(a, weft_type, n_in + 1);
    weft_type *out  = WEFT_ARENA_ARRAY(a, weft_type, c->n_out);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(weft_op_parse_attr(c->op, c->attr, a, attr));
    for (int k = 0; k < n_in; k++) WEFT_TRY(parse_type(word(c, k), &in[k]));
    *u = (weft_op_use){c->op, attr, n_in, c->n_out, in, out};
    return weft_op_infer(u, out);
}

/* ---- numbers ---- */

typedef struct source {
    uint32_t key[2], ctr[4];
} source;

static uint32_t draw(source *s)
{
    uint32_t w[4];
    s->ctr[0]++;
    weft_random_philox(s->key, s->ctr, w);
    return w[0];
}
static int64_t below(source *s, int64_t n)
{
    return (int64_t)(draw(s) % (uint32_t)n);
}

static double normal(source *s)
{
    float z[2];
    weft_random_normal2(draw(s), draw(s), z);
    return (double)z[0];
}

/* n offsets: 0, ascending, the last one `rows` */
static void fill_offsets(source *s, double *x, int64_t n, int64_t rows)
{
    for (int64_t i = 0; i < n; i++) {
        double  v = i == 0 ? 0 : i == n - 1 ? (double)rows : (double)below(s, rows + 1);
        int64_t k = i;
        for (; k > 0 && x[k - 1] > v; k--) x[k] = x[k - 1];
        x[k] = v;
    }
}

/* each of `rows` rows of k: distinct numbers below n */
static void fill_distinct(source *s, double *x, int64_t rows, int64_t k, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < k; i++) {
            bool again = true;
            while (again) {
                x[r * k + i] = (double)below(s, n);
                again        = false;
                for (int64_t j = 0; j < i; j++)
                    again = again || x[r * k + j] == x[r * k + i];
            }
        }
}

void weft_test_case_fill(const weft_test_case *c, const weft_op_use *u, int k,
                         uint64_t seed, double *data)
{
    source s = {.key = {(uint32_t)seed, (uint32_t)(seed >> 32)}, .ctr = {0, (uint32_t)k}};
    const char *kind   = strchr(word(c, k), ']') + 1;
    double      arg    = *kind && *kind != ' ' ? strtod(kind + 1, NULL) : 0;
    int64_t     n      = weft_shape_count(&u->in[k].shape);
    int64_t     last   = u->in[k].shape.n ? u->in[k].shape.d[u->in[k].shape.n - 1] : 1;
    bool        ignore = strcspn(kind, "?") < strcspn(kind, " ");
    switch (*kind) {
    case ':': fill_offsets(&s, data, n, (int64_t)arg); return;
    case '%':
        fill_distinct(&s, data, 1, n, n);
        for (int64_t i = 0; ignore && i < n; i++)
            if (below(&s, 4) == 0) data[i] = -1;
        return;
    case '!': fill_distinct(&s, data, n / last, last, (int64_t)arg); return;
    default: break;
    }
    for (int64_t i = 0; i < n; i++) switch (*kind) {
        case '=': data[i] = arg; break;
        case '+': data[i] = 0.2 + 1.8 * (double)weft_random_uniform(draw(&s)); break;
        case '<':
            data[i] =
                ignore && below(&s, 4) == 0 ? -100 : (double)below(&s, (int64_t)arg);
            break;
        default: data[i] = normal(&s); break;
        }
}

const char *weft_test_case_text(const weft_test_case *c, char *buf, size_t n)
{
    snprintf(buf, n, "%s %s (%s)", weft_op_get(c->op)->name, c->attr, c->in);
    return buf;
}

void weft_test_put(void *p, weft_dtype t, int64_t i, double x)
{
    union {
        float    f;
        uint32_t u;
    } v = {(float)x};
    switch (t) {
    case WEFT_DTYPE_F32: ((float *)p)[i] = v.f; break;
    case WEFT_DTYPE_BF16:
        ((uint16_t *)p)[i] = (uint16_t)((v.u + 0x7fffu + (v.u >> 16 & 1u)) >> 16);
        break;
    case WEFT_DTYPE_F64: ((double *)p)[i] = x; break;
    default: ((int32_t *)p)[i] = (int32_t)x; break;
    }
}
