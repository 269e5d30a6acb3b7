/* Where it runs: nodes and devices, coloured by stage, tensor groups outlined, alike nodes
 * folded. */
#include <math.h>
#include <string.h>

#include "report/report_priv.h"

enum {
    MOST_DEVICES = 512, /* drawn */
    MOST_RUNS    = 64,
    FIRST_RUNS   = 12, /* at once; the rest on demand */
    CELL_W       = 32,
    CELL_H       = 26,
    GAP          = 7
};

typedef struct map {
    const weft_report__view *v;
    const int               *on;    /* rank + 1 of a device */
    int                      drawn; /* devices */
} map;

static int columns(int per)
{
    return per <= 4 ? per : per <= 8 ? 4 : per <= 32 ? 8 : 12;
}

/* ---- one node ---- */

static void health_of(const weft_cluster *c, int device, weft_device_run *out)
{
    for (int at = 0; weft_cluster_next_run(c, &at, out);)
        if (device < out->first + out->n) return;
}

static const char *reason(const weft_cluster *c, int device)
{
    for (int i = 0; i < c->n_health; i++)
        if (device >= c->health[i].first_rank &&
            device < c->health[i].first_rank + c->health[i].n_rank)
            return c->health[i].why;
    return "";
}

static void put_coordinates(const weft_place_job *j, int rank, weft_text *t)
{
    static const char *const name[] = {"stage", "replica", "experts", "context",
                                       "tensor"};
    int                      n      = weft_place_n_rank(j);
    const char              *glue   = "";
    for (int a = 0; a < j->n_axis; a++) {
        n /= j->axis[a].size;
        if (j->axis[a].size == 1 && a != WEFT_PLACE_PP && a != WEFT_PLACE_DP) continue;
        weft_text_add(t, "%s%s %d", glue, a < 5 ? name[a] : j->axis[a].name,
                      rank / n % j->axis[a].size);
        glue = ", ";
    }
}

static void put_ids(const weft_place_job *j, int rank, weft_text *t)
{
    int n = weft_place_n_rank(j);
    for (int a = 0; a < j->n_axis; a++) {
        n /= j->axis[a].size;
        weft_text_add(t, "%s%d", a ? "," : "", rank / n % j->axis[a].size);
    }
}

static int place_along(const weft_place_job *j, int rank, int axis)
{
    int n = 1;
    for (int a = j->n_axis - 1; a > axis; a--) n *= j->axis[a].size;
    return rank / n % j->axis[axis].size;
}

static void put_device(const map *m, int d, int node, int place, double x, double y)
{
    const weft_cluster   *c    = m->v->r->cluster;
    const weft_place_job *j    = &m->v->r->place->job;
    weft_text            *t    = m->v->t;
    int                   rank = m->on[d] - 1;
    weft_device_run       h;
    char                  color[8];
    health_of(c, d, &h);
    bool slow = h.speed < 1 || h.link < 1;
    weft_text_add(t, "<rect x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\" rx=\"5\" ", x, y,
                  CELL_W, CELL_H);
    if (rank >= 0) {
        weft_report__stage_color(place_along(j, rank, WEFT_PLACE_PP), j->axis[0].size,
                                 color);
        weft_text_add(t, "class=\"d\" fill=\"%s\" data-r=\"", color);
        put_ids(j, rank, t);
        weft_text_add(t, "\"");
    } else {
        weft_text_add(t, "class=\"%s\"", h.cordoned ? "gone" : "free");
    }
    weft_text_add(t, "><title>device %d: node %d, place %d, ", d, node, place);
    weft_report__put(t, h.device->name);
    if (rank >= 0) {
        weft_text_add(t, "\nrank %d: ", rank);
        put_coordinates(j, rank, t);
    } else {
        weft_text_add(t, h.cordoned ? "\ncordoned " : "\nidle");
    }
    if (slow) weft_text_add(t, "\nspeed %.3g, links %.3g of its kind's", h.speed, h.link);
    if (slow || h.cordoned) {
        const char *why = reason(c, d);
        if (*why) weft_text_add(t, ": ");
        weft_report__put(t, why);
    }
    weft_text_add(t, "</title></rect>");
    if (slow && !h.cordoned)
        weft_text_add(t,
                      "<path class=\"slow\" d=\"M%g %gh%d\"><title>degraded</title>"
                      "</path>",
                      x + 5, y + CELL_H - 3, CELL_W - 10);
    if (h.cordoned)
        weft_text_add(t, "<path class=\"x\" d=\"M%g %gl12 12m0 -12l-12 12\"/>", x + 10,
                      y + 7);
    if (rank >= 0)
        weft_text_add(t, "<text x=\"%g\" y=\"%g\">%d</text>", x + CELL_W / 2.0,
                      y + CELL_H / 2.0 + 3.5, place_along(j, rank, WEFT_PLACE_DP));
}

/* Ranks of one tensor group: the same but for the last axis. */
static int group_of(const map *m, int d)
{
    const weft_place_job *j = &m->v->r->place->job;
    return m->on[d] ? (m->on[d] - 1) / j->axis[WEFT_PLACE_TP].size : -1;
}

static void put_outline(weft_text *t, int from, int to, int cols, double x, double y)
{
    int row = from / cols, rows = to / cols - row + 1, n = to - from + 1;
    if (rows > 1) n = cols;
    weft_text_add(t,
                  "<rect class=\"tp\" x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\" "
                  "rx=\"7\"/>",
                  x + from % cols * (CELL_W + GAP) - 2.5, y + row * (CELL_H + GAP) - 2.5,
                  n * (CELL_W + GAP) - GAP + 5, rows * (CELL_H + GAP) - GAP + 5);
}

/* Stretches of a tensor group: whole rows as one, else row by row. */
static void put_groups(const map *m, int first, int per, int cols, double x, double y)
{
    for (int i = 0, e; i < per; i = e) {
        int g = group_of(m, first + i);
        for (e = i + 1; e < per && group_of(m, first + e) == g;) e++;
        if (g < 0) continue;
        if (i % cols == 0 && e % cols == 0) {
            put_outline(m->v->t, i, e - 1, cols, x, y);
            continue;
        }
        for (int k = i; k < e;) {
            int end = (k / cols + 1) * cols;
            if (end > e) end = e;
            put_outline(m->v->t, k, end - 1, cols, x, y);
            k = end;
        }
    }
}

static void put_node(map *m, int node, int first, int per)
{
    int             cols = columns(per), rows = (per + cols - 1) / cols;
    int             w = cols * (CELL_W + GAP) + GAP + 6;
    int             h = rows * (CELL_H + GAP) + GAP + 24;
    double          x = GAP + 3, y = 22;
    weft_device_run r;
    bool            ill = false;
    weft_text      *t   = m->v->t;
    for (int i = 0; i < per; i++) {
        health_of(m->v->r->cluster, first + i, &r);
        ill = ill || r.cordoned || r.speed < 1 || r.link < 1;
    }
    weft_text_add(t,
                  "<svg class=\"node\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                  "role=\"img\" aria-label=\"node %d\"><rect class=\"box\" x=\".5\" "
                  "y=\".5\" width=\"%d\" height=\"%d\" rx=\"9\"/><text class=\"n%s\" "
                  "x=\"9\" y=\"15\">%s%d%s</text>",
                  w, h, w, h, node, w - 1, h - 1, ill ? " h" : "", w > 60 ? "node " : "",
                  node, ill && w > 60 ? " !" : "");
    for (int i = 0; i < per; i++)
        put_device(m, first + i, node, i, x + i % cols * (CELL_W + GAP),
                   y + i / cols * (CELL_H + GAP));
    if (m->v->x->variant.tp > 1) put_groups(m, first, per, cols, x, y);
    weft_text_add(t, "</svg>\n");
    m->drawn += per;
}

/* ---- runs of nodes ---- */

static void put_range(weft_text *t, const char *one, const char *many, int lo, int hi)
{
    if (lo == hi)
        weft_text_add(t, "%s %d", one, lo);
    else
        weft_text_add(t, "%s %d–%d", many, lo, hi);
}

static void put_caption(const map *m, const weft_place_run *r)
{
    weft_text            *t = m->v->t;
    const weft_place_job *j = &m->v->r->place->job;
    weft_text_add(t, "<p><b>");
    put_range(t, "node", "nodes", r->node, r->node + r->n_node - 1);
    if (r->n_node > 1) weft_text_add(t, "</b> %d × (%d × ", r->n_node, r->per);
    if (r->n_node == 1) weft_text_add(t, "</b> %d × ", r->per);
    weft_report__put(t, weft_cluster_device(m->v->r->cluster, r->first)->name);
    weft_text_add(t, r->n_node > 1 ? ")<br>" : "<br>");
    if (!r->n_rank) {
        weft_text_add(t, "not used</p>");
        return;
    }
    put_range(t, "stage", "stages", r->lo[0], r->hi[0]);
    weft_text_add(t, " · ");
    put_range(t, "replica", "replicas", r->lo[WEFT_PLACE_DP], r->hi[WEFT_PLACE_DP]);
    if (r->n_node > 1 && j->axis[WEFT_PLACE_DP].size > 1 &&
        r->hi[WEFT_PLACE_DP] - r->lo[WEFT_PLACE_DP] + 1 > r->wide[WEFT_PLACE_DP])
        weft_text_add(t, ", %d a node", r->wide[WEFT_PLACE_DP]);
    weft_text_add(t, "</p>");
}

static void put_run(map *m, const weft_place_run *r, int most)
{
    int n = r->n_node < most ? r->n_node : most;
    if (n == r->n_node - 1) n++; /* "1 more" takes as much room as itself */
    weft_text_add(m->v->t, "<div class=\"run\">");
    put_caption(m, r);
    weft_text_add(m->v->t, "<div class=\"nodes\">\n");
    for (int i = 0; i < n; i++) put_node(m, r->node + i, r->first + i * r->per, r->per);
    if (n < r->n_node) {
        weft_text_add(m->v->t, "<div class=\"more\"><b>× ");
        weft_report__count(m->v->t, r->n_node - n);
        weft_text_add(m->v->t, "</b> more like %s</div>\n", n > 1 ? "these" : "this");
    }
    weft_text_add(m->v->t, "</div></div>\n");
}

/* ---- links and traffic ---- */

static void put_speed(weft_text *t, const weft_link_kind *l, int n)
{
    weft_text_add(t, " <b>");
    weft_report__put(t, l->name);
    weft_text_add(t, "</b> ");
    if (n > 1) weft_text_add(t, "%d × ", n);
    weft_text_add(t, "%.3g GB/s", l->Bps / 1e9);
}

static void put_net(const weft_report__view *v)
{
    const weft_cluster *c = v->r->cluster;
    weft_text          *t = v->t;
    if (weft_cluster_count(c) == 1) return;
    weft_text_add(t, "<div class=\"net\">");
    for (int i = 0; i < c->n_node; i++) {
        const weft_host_kind *h = &c->node[i];
        weft_text_add(t, "%s", i ? "<br>" : "");
        if (c->n_node > 1) {
            weft_report__put(t, c->device[h->device].name);
            weft_text_add(t, ": ");
        }
        if (h->link < 0 && h->net < 0) weft_text_add(t, "one device, no links");
        if (h->link >= 0) {
            weft_text_add(t, "in a node");
            put_speed(t, &c->link[h->link], 1);
        }
        if (h->net >= 0 && weft_cluster_n_node(c) > 1) {
            weft_text_add(t, "%sbetween nodes", h->link >= 0 ? " · " : "");
            put_speed(t, &c->link[h->net], h->n_port);
        }
    }
    for (int i = 0; i < c->n_switch; i++) {
        weft_text_add(t, " · switch <b>");
        weft_report__put(t, c->sw[i].name);
        weft_text_add(t, c->sw[i].span ? "</b> of %d nodes" : "</b> of all nodes",
                      c->sw[i].span);
        if (c->sw[i].taper < 1)
            weft_text_add(t, ", carries %.0f %%", 100 * c->sw[i].taper);
    }
    weft_text_add(t, "</div>\n");
}

/* How many groups of an axis stay in one node. */
static void count_inside(const weft_report__view *v, int axis, int *n_in, int *n_all)
{
    const weft_place_job *j = &v->r->place->job;
    const int            *d = v->r->place->p.device;
    int                   n = weft_place_n_rank(j), stride = 1, size = j->axis[axis].size;
    for (int a = j->n_axis - 1; a > axis; a--) stride *= j->axis[a].size;
    *n_in = *n_all = 0;
    for (int r = 0; r < n; r++) {
        if (r / stride % size) continue;
        bool in   = true;
        int  node = weft_cluster_node(v->r->cluster, d[r], NULL);
        for (int k = 1; k < size && in; k++)
            in = weft_cluster_node(v->r->cluster, d[r + k * stride], NULL) == node;
        *n_in += in;
        ++*n_all;
    }
}

static void put_traffic(const weft_report__view *v)
{
    static const char *const about[] = {
        "stages: activations on, gradients back", "replicas: gradients and weights",
        "experts: tokens to experts and back", "context: keys and values",
        "tensor groups: partial results"};
    const weft_place_job *j    = &v->r->place->job;
    weft_text            *t    = v->t;
    double                most = 0;
    for (int a = 0; a < WEFT_PLACE_N_MESH; a++)
        if (j->axis[a].size > 1) most = fmax(most, j->axis[a].bytes);
    if (!(most > 0)) return;
    weft_text_add(
        t, "<h3>Who talks over what</h3>\n<div class=\"tablewrap\"><table "
           "class=\"list stacked\"><thead><tr><th>between</th><th>of</th><th>a device "
           "sends in a step</th><th></th><th>over</th></tr></thead><tbody>\n");
    for (int a = WEFT_PLACE_N_MESH - 1; a >= 0; a--) {
        int in, all;
        if (j->axis[a].size == 1) continue;
        count_inside(v, a, &in, &all);
        weft_text_add(t, "<tr><td>%s</td><td class=\"r\">%d</td><td class=\"r\">",
                      about[a], j->axis[a].size);
        weft_report__bytes(t, j->axis[a].bytes);
        weft_text_add(t,
                      "</td><td style=\"width:34%%\"><div class=\"bar\"><i "
                      "style=\"width:%.2f%%\"></i></div></td><td>",
                      100 * j->axis[a].bytes / most);
        if (in == all)
            weft_text_add(t, "links inside a node");
        else if (!in)
            weft_text_add(t, "the network");
        else
            weft_text_add(t, "the network; %d of %d groups stay inside a node", in, all);
        weft_text_add(t, "</td></tr>\n");
    }
    weft_text_add(t, "</tbody></table></div>\n");
}

/* ---- the section ---- */

static void put_legend(const weft_report__view *v)
{
    int        pp = v->x->point.pp, most = 24;
    weft_text *t = v->t;
    weft_text_add(t, "<div class=\"legend\">");
    for (int i = 0; i < (pp < most ? pp : most); i++) {
        char color[8];
        int  s = weft_report__pick(pp, most, i);
        weft_report__stage_color(s, pp, color);
        weft_text_add(t, "<span><i style=\"background:%s\"></i>stage %d</span>", color,
                      s);
    }
    weft_text_add(t, "<span><b>3</b> the replica</span>");
    if (v->x->variant.tp > 1)
        weft_text_add(t, "<span><i class=\"ring\"></i>a tensor group of %d</span>",
                      v->x->variant.tp);
    if (v->n_used < weft_cluster_usable(v->r->cluster))
        weft_text_add(t, "<span><i class=\"hollow\"></i>idle</span>");
    weft_text_add(t, "</div>\n");
}

static void put_moved(const weft_report__view *v)
{
    const weft_planner_placement *p = v->r->place;
    if (!p->kept) return;
    weft_text_add(v->t,
                  "<p><b>%d of %d ranks move</b>; the others stay where the plan "
                  "before had them.</p>\n",
                  p->n_moved, p->p.n_rank);
}

void weft_report__topology(const weft_report__view *v, const weft_place_run *run,
                           int n_run)
{
    int  n    = weft_cluster_count(v->r->cluster);
    int *on   = WEFT_ARENA_ARRAY(v->a, int, n + 1);
    map  m    = {.v = v, .on = on};
    int  show = n_run < MOST_RUNS ? n_run : MOST_RUNS;
    if (!on) return;
    for (int i = 0; i < v->n_used; i++) on[v->r->place->p.device[i]] = i + 1;
    weft_text_add(v->t,
                  "<section id=\"topology\">\n<h2>Where it runs</h2>\n<p "
                  "class=\"note\">Each square is a device. Point at one to see its rank, "
                  "and lit up those that it talks to.</p>\n");
    put_moved(v);
    put_net(v);
    put_legend(v);
    weft_text_add(v->t, "<div class=\"runs\">\n");
    for (int i = 0; i < show; i++) {
        if (i == FIRST_RUNS && show > FIRST_RUNS + 4)
            weft_text_add(v->t,
                          "</div>\n<details><summary>%d more stretches of nodes"
                          "</summary><div class=\"runs\">\n",
                          show - i);
        int left = (MOST_DEVICES - m.drawn) / (show - i) / run[i].per;
        put_run(&m, &run[i],
                n <= MOST_DEVICES ? run[i].n_node
                : left < 1        ? 1
                : left > 4        ? 4
                                  : left);
    }
    weft_text_add(v->t, show > FIRST_RUNS + 4 ? "</div></details>\n" : "</div>\n");
    if (show < n_run) {
        int left = 0;
        for (int i = show; i < n_run; i++) left += run[i].n_node;
        weft_text_add(v->t, "<p class=\"note\">and ");
        weft_report__count(v->t, left);
        weft_text_add(v->t,
                      " more nodes; <code>weft plan --json</code> has the device of "
                      "every rank</p>\n");
    }
    put_traffic(v);
    weft_text_add(v->t, "</section>\n");
}
