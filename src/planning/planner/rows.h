/* Rows from the graph: what a layer costs one device, asked of its program.
 *
 *     weft_compile_spec s = weft_compile_spec_default("resnet50", 256, 0);
 *     WEFT_TRY(weft_planner_machines(cluster, arena, &machines));
 *     WEFT_TRY(weft_planner_rows(&s, model, cluster, &limits, 0, arena, &problem.model));
 *     WEFT_TRY(weft_search_run(&problem, &result));
 *     weft_planner_rows_fini(&problem.model);
 *
 * A model is cut into layers where its graph repeats, or else where a single value passes
 * (weft_graph_find_runs).  For each way to cut a layer over devices (shard/expand.c), each
 * micro-batch and each recomputation, the step of a model with few of its layers is made as for a
 * run, lowered, and its instructions are priced (cost/cost.h). Nothing here knows what is in a
 * layer.
 *
 * (1) Rows are sums of the prices of instructions: those of a stage's layers add up to those of
 *     its program.
 * (2) Ranks along ep are replicas with other experts: they share the sequences of one
 *     micro-batch, which has ep times as many as a variant says.  Where the job fixed its
 *     micro-batch they share that one, and each has ep times as many: a row counts ep times. */
#ifndef WEFT_PLANNER_ROWS_H
#define WEFT_PLANNER_ROWS_H

#include "cluster/cluster.h"
#include "compile/compile.h"
#include "search/search.h"

/* s: model or graph, seq, dtype, optimizer, dropout count, and layers where it is not 0: of each
 * run as many are looked at, from 3 on; batch, lanes, recomputation do not; micro-batch
 * where it is not 0: it is the job's.  bucket_bytes: of the plans, 0: not given.  The strings of
 * s, c and a are borrowed as long as *out is used.  m: the model of s with all its layers, of any
 * batch; read during the call only. */
weft_status weft_planner_rows(const weft_compile_spec *s, const weft_model *m,
                              const weft_cluster *c, const weft_search_limits *l,
                              int64_t bucket_bytes, weft_arena *a,
                              weft_search_model *out);
void        weft_planner_rows_fini(weft_search_model *m); /* of weft_planner_rows */

/* Devices and wires as programs are priced on them: the cluster's own numbers. */
weft_status weft_planner_machines(const weft_cluster *c, weft_arena *a,
                                  weft_search_machines *out);

#endif
