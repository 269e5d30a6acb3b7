/* Groups on two levels of links, by the formulas of collective.c. */
#include "cost/fabric.h"

#include <math.h>

#include "cost/cost.h"
#include "cost/cost_priv.h"
#include "cost/ports.h"

/* Members of g that share a domain. */
static int inside(const weft_cost_fabric *f, weft_cost_group g)
{
    if ((int64_t)(g.n - 1) * g.stride < f->domain) return g.n;
    int n = f->domain / g.stride;
    return n < 1 ? 1 : n > g.n ? g.n : n;
}

/* What a group of n inside one domain gets. */
static double inner_Bps(const weft_cost_wire *w, int n)
{
    if (n <= 2 && w->Bps_2 > 0) return w->Bps_2;
    return n <= 4 && w->Bps_4 > 0 ? w->Bps_4 : w->Bps;
}

static double inner_alpha(const weft_cost_wire *w, int n)
{
    if (n <= 2 && w->alpha_2_s > 0) return w->alpha_2_s;
    return n <= 4 && w->alpha_4_s > 0 ? w->alpha_4_s : w->alpha_s;
}

int weft_cost_group_domains(const weft_cost_fabric *f, weft_cost_group g)
{
    int n = inside(f, g);
    return (g.n + n - 1) / n;
}

static double outer_Bps(const weft_cost_fabric *f, int n_domain)
{
    return f->out.decay > 0 && n_domain > 2
               ? f->out.Bps * exp(-f->out.decay * log(n_domain / 2.0))
               : f->out.Bps;
}

/* m members a domain, n domains; see link.c. */
static double two_levels(const weft_cost_fabric *f, weft_collective k, int all, int m,
                         int n, double bytes)
{
    double in = 1 / inner_Bps(&f->in, m), out = 1 / outer_Bps(f, n);
    double a = inner_alpha(&f->in, m), b = f->out.alpha_s;
    double up = weft_cost__collective(WEFT_REDUCE_SCATTER, m, bytes, a, in);
    switch (k) {
    case WEFT_REDUCE_SCATTER: return up + weft_cost__collective(k, n, bytes / m, b, out);
    case WEFT_ALL_REDUCE:
    case WEFT_BROADCAST: return 2 * up + weft_cost__collective(k, n, bytes / m, b, out);
    case WEFT_ALL_GATHER:
        return weft_cost__collective(k, n, bytes, b, out) +
               weft_cost__collective(k, m, bytes * n, a, in);
    case WEFT_SEND_ROWS: /* to all experts alike */
    case WEFT_RETURN_ROWS:
    case WEFT_ALL_TO_ALL:
        return (m - 1) * (a + bytes / all * in) + (all - m) * (b + bytes / all * out);
    case WEFT_BARRIER:
        return weft_cost__collective(k, m, 0, a, 0) +
               weft_cost__collective(k, n, 0, b, 0);
    case WEFT_SHIFT: return b + bytes * out;
    }
    return 0;
}

static bool timed(const weft_cost_fabric *f, const char *work, int n, double bytes,
                  double *out)
{
    if (!f->timed || !weft_cost_timed_link(f->timed, f->link, work, n, bytes, out))
        return false;
    *out *= f->slow;
    return true;
}

double weft_cost_group_seconds(const weft_cost_fabric *f, weft_cost_group g,
                               weft_collective k, double bytes)
{
    if (g.n < 2) return 0;
    if (k == WEFT_SEND_ROWS || k == WEFT_RETURN_ROWS) k = WEFT_ALL_TO_ALL;
    int    in = inside(f, g), n_domain = (g.n + in - 1) / in;
    double s;
    if (n_domain < 2 && timed(f, weft_collective_name(k), g.n, bytes, &s)) return s;
    if (n_domain < 2 && k == WEFT_ALL_TO_ALL &&
        !f->levels) /* to all at once, by a switch */
        return ceil(log2(g.n)) * f->in.alpha_s +
               (double)(g.n - 1) / g.n * bytes / inner_Bps(&f->in, g.n);
    if (n_domain < 2)
        return weft_cost__collective(k, g.n, bytes, inner_alpha(&f->in, g.n),
                                     1 / inner_Bps(&f->in, g.n));
    if (f->levels) return two_levels(f, k, g.n, in, n_domain, bytes);
    double out = outer_Bps(f, n_domain);
    if (k == WEFT_ALL_TO_ALL) {
        double local = (double)(in - 1) / g.n * bytes / f->in.Bps;
        double far   = (double)(g.n - in) / g.n * bytes / out;
        return ceil(log2(in)) * f->in.alpha_s + (n_domain - 1) * f->out.alpha_s +
               fmax(local, far);
    }
    double steps = ceil(log2(g.n)), far = fmin(steps, ceil(log2(n_domain)));
    bool   tree  = k == WEFT_ALL_REDUCE || k == WEFT_BARRIER || k == WEFT_BROADCAST;
    double alpha = ((steps - far) * f->in.alpha_s + far * f->out.alpha_s) / steps;
    if (!tree) alpha = (g.n - 1) * f->out.alpha_s / steps; /* once round the ring */
    double Bps = in > 1 ? fmin(inner_Bps(&f->in, in), in * out) : out;
    return weft_cost__collective(k, g.n, bytes, alpha, 1 / Bps);
}

int weft_cost_port_node(const weft_cost_fabric *f)
{
    return f->node > 0 ? f->node : f->domain;
}

static double wire_seconds(const weft_cost_wire *w, double bytes)
{
    if (w->send_Bps > 0) return w->send_s + bytes / w->send_Bps;
    return w->alpha_s + bytes / inner_Bps(w, 2);
}

double weft_cost_near_seconds(const weft_cost_fabric *f, double bytes)
{
    double s;
    return timed(f, "send", 0, bytes, &s) ? s : wire_seconds(&f->in, bytes);
}

double weft_cost_far_seconds(const weft_cost_fabric *from, int n_from,
                             const weft_cost_fabric *to, int n_to, double bytes)
{
    if (!(from->ports_Bps > 0 && to->ports_Bps > 0))
        return fmax(wire_seconds(&from->out, bytes), wire_seconds(&to->out, bytes));
    double alpha = fmax(from->out.alpha_s, to->out.alpha_s);
    double Bps   = fmin(weft_cost_port_share(from->port_Bps, from->ports_Bps, n_from),
                        weft_cost_port_share(to->port_Bps, to->ports_Bps, n_to));
    return alpha + bytes / Bps;
}

double weft_cost_send_seconds(const weft_cost_fabric *f, weft_cost_group g, double bytes)
{
    int n = weft_cost_port_node(f);
    if (g.n < 2) return 0;
    if (inside(f, g) == g.n) return weft_cost_near_seconds(f, bytes);
    if (g.stride < n) n = g.stride;
    return weft_cost_far_seconds(f, n, f, n, bytes);
}

void weft_cost_slower_end(weft_cost_fabric *f, const weft_cost_fabric *other)
{
    double alpha_s = fmax(f->out.alpha_s, other->out.alpha_s);
    if (other->out.Bps < f->out.Bps) f->out = other->out;
    f->out.alpha_s = alpha_s;
}

double weft_cost_group_sent(int n, weft_collective k, double bytes)
{
    if (n < 2) return 0;
    switch (k) {
    case WEFT_ALL_REDUCE: return 2.0 * (n - 1) / n * bytes;
    case WEFT_ALL_GATHER: return (n - 1) * bytes;
    case WEFT_REDUCE_SCATTER:
    case WEFT_SEND_ROWS: /* to all experts alike */
    case WEFT_RETURN_ROWS:
    case WEFT_ALL_TO_ALL: return (n - 1.0) / n * bytes;
    case WEFT_BROADCAST:
    case WEFT_SHIFT: return bytes;
    case WEFT_BARRIER: break;
    }
    return 0;
}
