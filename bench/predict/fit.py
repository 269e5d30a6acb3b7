#!/usr/bin/env python3
"""Fits the constants of src/planning/cost to measured steps, by running the C code itself.

  fit.py --lib build/libweft.so --data ../shared/validation                 fit and show the errors
  fit.py ... --write src/planning/cost/fitted.def                                      also write the constants
  fit.py ... --leave-out [--clean]                                            each source left out in turn
  fit.py ... --show                                                           errors of the built-in constants

A constant is default + a deviation of its kind; both have Gaussian priors around the defaults of
src/planning/cost/*_terms.def, so a kind with few rows stays near the default and a kind without any gets it.
Values cannot leave the physical limits of the term tables.  Needs numpy.
"""
import argparse, csv, ctypes, glob, hashlib, math, os, sys, tempfile
import numpy as np

FAMILY = ["device", "link", "engine"]

# (family, term): standard deviation of log(value) for the default, for one kind.  What is not here is not
# fitted.  Links are pinned: bandwidth and exposed share are degenerate, so only the share moves freely.
PRIOR = {
    ("device", "efficiency"): (0.03, 0.14), ("device", "efficiency_f8"): (0.05, 0.25),
    ("device", "efficiency_f4"): (0.1, 0.3), ("device", "half_size"): (0.05, 0.15),
    ("device", "attention"): (0.05, 0.10), ("device", "stream"): (0.03, 0.05),
    ("link", "share"): (0.03, 0.15), ("link", "decay"): (0.2, 0.3), ("link", "alpha_s"): (0.1, 0.2),
    ("engine", "host_op_s"): (0.1, 0.7), ("engine", "host_coll_s"): (0.1, 0.5),
    ("engine", "host_moe_s"): (0.1, 1.2), ("engine", "micro_s"): (0.1, 0.8), ("engine", "step_s"): (0.1, 1.2),
    ("engine", "stream"): (0.08, 0.4), ("engine", "loss"): (0.1, 0.6), ("engine", "cast"): (0.1, 0.8),
    ("engine", "eager"): (0, 0.3), ("engine", "rowwise"): (0.1, 0.8),
    ("engine", "tp_exposed"): (0.05, 0.4), ("engine", "tp_overlap"): (0.1, 0.4),
    ("engine", "cp_exposed"): (0.2, 0.6), ("engine", "ep_exposed"): (0.2, 1),
    ("engine", "pp_exposed"): (0.1, 0.8), ("engine", "dp_exposed"): (0.1, 0.8),
    ("engine", "dp_exposed_pp"): (0.1, 0.8), ("engine", "dp_cover"): (0.05, 0.5), ("engine", "zero_exposed"): (0.1, 0.8), ("engine", "gather_exposed"): (0.1, 1.2),
    ("engine", "gather_share"): (0.1, 1.5), ("engine", "dp_overlap"): (0.2, 0.3),
    ("engine", "optimizer"): (0.1, 0.4), ("engine", "bubble"): (0.03, 0.10),
    ("engine", "product"): (0.02, 0.06), ("engine", "attention"): (0.05, 0.15),
    ("engine", "dp_calls"): (0, 0.5), ("engine", "stall_s"): (0, 0.5), ("engine", "stall_base_s"): (0, 0.3), ("engine", "crowd_s"): (0, 0.3), ("engine", "wide_s"): (0, 0.3), ("engine", "dp_calls_pp"): (0, 0.3),
}
# Measured on a device of the same cores: a kind's own deviation stays this small.
TIGHT = {("h100", "efficiency"): 0.05, ("h100", "efficiency_f8"): 0.05, ("h100", "half_size"): 0.03,
         ("h100", "attention"): 0.05, ("h100", "stream"): 0.02}
# Measured: not fitted (constants.def says by whom).
PINNED = {("link", "nvlink2"), ("link", "nvlink3")}
# Set by hand and kept when their source is left out; chosen with its errors in sight (README.md).
KNOWN = PINNED | {("link", "pcie"), ("link", "ethernet")}
# How an engine works, and no fit can tell better: it waits for each of its tensor-parallel sums.
FIXED = {("megatron-deepspeed", "tp_exposed")}
# How an engine works rather than how fast it is: read from its documentation, so known of one that is left out.
MEASURED = {("deepspeed-megatron-1", "host_op_s"), ("deepspeed-megatron-1", "host_coll_s"), ("nemo", "tp_exposed"), ("megatron-bridge", "tp_exposed"),
            ("megatron-bridge-26.06", "tp_exposed")}
STRUCTURE = {"split_by_cost", "max_chunks", "vocab_pad", "selective", "grad_bytes", "pp_whole", "max_micro", "mem_limit", "older_kernels", "mem_weight", "accumulate"}
# Defaults are what frameworks count (and what aux/korthikanti_memory.csv shows); only kinds with rows move.
# --clean: what stood before starting values were moved by hand with errors of steps in sight.
BEFORE = {("engine", "default", "gather_exposed"): 0.25, ("engine", "default", "gather_share"): 0.7,
          ("engine", "default", "optimizer"): 1.3, ("device", "t4", "efficiency"): None,
          ("device", "a100", "efficiency"): 0.88, ("device", "a100", "half_size"): None,
          ("link", "pcie", "share"): None, ("link", "ethernet", "share"): None,
          ("engine", "nemo", "tp_exposed"): None, ("engine", "megatron-bridge", "tp_exposed"): None,
          ("engine", "megatron-bridge-26.06", "tp_exposed"): None,
          ("engine", "megatron-deepspeed", "pp_exposed"): None, ("engine", "deepspeed-megatron-1", "pp_exposed"): None}
DOCUMENTED = {"split_by_cost", "max_chunks", "vocab_pad", "selective", "grad_bytes", "pp_whole", "accumulate"}
MEASURED_APART = {("link", "nvlink2"), ("link", "nvlink3"), ("device", "h100")}
MEMORY = {("engine", t): (1e-3, p) for t, p in {
    "mem_fixed": 0.5, "mem_spare": 0.05, "mem_weight": 0.4, "mem_state": 0.15, "mem_keep": 0.15, "mem_norm": 0.6,
    "mem_logit": 0.4}.items()}
MEMORY["engine", "mem_whole"] = (0, 0.7)  # of one engine


class Library:
    """The C side: constants by number, a table of rows predicted at once."""

    def __init__(self, path, table, hardware, fitted=False):
        lib = self.lib = ctypes.CDLL(path)
        lib.weft_cost_kind_name.restype = lib.weft_error_text.restype = ctypes.c_char_p
        lib.weft_cost_value.restype = ctypes.c_double
        lib.weft_cost_put.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_double]
        lib.weft_cost_term_at.restype = ctypes.c_void_p
        self.c, self.b = ctypes.c_void_p(), ctypes.c_void_p()
        make = lib.weft_cost_constants_create if fitted else lib.weft_cost_constants_unfitted
        self.check(make(ctypes.byref(self.c)))
        self.check(lib.weft_estimate_batch_load(table.encode(), hardware.encode(), ctypes.byref(self.b)))
        self.term, self.kind = {}, {}

        class Term(ctypes.Structure):
            _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double), ("low", ctypes.c_double),
                        ("high", ctypes.c_double), ("unit", ctypes.c_char_p), ("about", ctypes.c_char_p)]
        for f, name in enumerate(FAMILY):
            for i in range(lib.weft_cost_n_term(f)):
                t = ctypes.cast(lib.weft_cost_term_at(f, i), ctypes.POINTER(Term)).contents
                self.term[name, t.name.decode()] = (f, i, t.value, t.low, t.high)
            self.kind[name] = [lib.weft_cost_kind_name(self.c, f, k).decode()
                               for k in range(lib.weft_cost_n_kind(self.c, f))]

    def check(self, status):
        if status:
            sys.exit("weft: " + self.lib.weft_error_text().decode())

    def value(self, family, kind, term):
        f, i = self.term[family, term][:2]
        own = ctypes.c_bool()
        v = self.lib.weft_cost_value(self.c, f, self.kind[family].index(kind), i, ctypes.byref(own))
        return v, own.value

    def put(self, family, kind, term, v):
        f, i = self.term[family, term][:2]
        self.lib.weft_cost_put(self.c, f, self.kind[family].index(kind), i, v)

    def forget(self, data, rows):
        """What constants.def and fitted.def say of engines and links that are not among rows."""
        seen = {("engine", self.kind_of("engine", data.row[i]["framework"])) for i in rows}
        for net in (data.net[i] for i in rows if data.net[i]):
            seen |= {("link", self.kind_of("link", net[k])) for k in ("intra_kind", "inter_kind")}
        for (family, term) in self.term:
            for kind in self.kind[family][1:]:
                if family != "device" and (family, kind) not in seen and (family, kind) not in KNOWN \
                        and term not in STRUCTURE and (kind, term) not in MEASURED:
                    self.put(family, kind, term, float("nan"))

    def forget_all(self, data, rows):
        """--clean: all that is said of kinds without rows, but what an engine's documentation says and what was measured
        apart from steps; and the values that were moved by hand are what they were."""
        seen = set(MEASURED_APART)
        for i in rows:
            seen |= {("engine", self.kind_of("engine", data.row[i]["framework"])), ("device", self.kind_of("device", data.row[i]["hw"]))}
            if data.net[i]:
                seen |= {("link", self.kind_of("link", data.net[i][k])) for k in ("intra_kind", "inter_kind")}
        for (family, kind, term), v in BEFORE.items():
            self.put(family, kind, term, float("nan") if v is None else v)
        for (family, term) in self.term:
            for kind in self.kind[family][1:]:
                if (family, kind) not in seen and term not in DOCUMENTED:
                    self.put(family, kind, term, float("nan"))

    def run(self, rows):
        rows = np.ascontiguousarray(rows, dtype=np.int32)
        out = np.empty((len(rows), 6))
        self.lib.weft_estimate_batch_run(self.b, self.c, rows.ctypes.data_as(ctypes.c_void_p), len(rows),
                                         out.ctypes.data_as(ctypes.c_void_p))
        return out

    def kind_of(self, family, name):
        return self.kind[family][self.lib.weft_cost_kind_of(self.c, FAMILY.index(family), name.encode())]


class Data:
    """All rows of calibrate/, in the order of one temporary table."""

    def __init__(self, folder):
        self.row, names = [], None
        for path in sorted(glob.glob(os.path.join(folder, "calibrate", "*.csv"))):
            with open(path, newline="") as f:
                reader = csv.DictReader(f)
                names = names or reader.fieldnames
                self.row += list(reader)
        self.file = tempfile.NamedTemporaryFile("w", suffix=".csv", newline="")
        w = csv.DictWriter(self.file, names)
        w.writeheader()
        w.writerows(self.row)
        self.file.flush()
        net = {r["name"]: r for r in csv.DictReader(open(os.path.join(folder, "network.csv")))}
        self.net = [net.get(r["net"]) for r in self.row]
        self.good = np.array([r["status"] == "ok" and r["suspect"] != "1" and bool(r["step_s"]) for r in self.row])
        self.step = np.array([float(r["step_s"] or "nan") for r in self.row])
        self.mem = np.array([float(r["mem_bytes"] or "nan") for r in self.row])
        self.source = np.array([r["source"] for r in self.row])
        self.hash = np.array([int(hashlib.sha1(r["id"].encode()).hexdigest()[:8], 16) for r in self.row])

    def thin(self, rows, most):
        """At most so many rows of a source, chosen by their ids."""
        out = []
        for s in np.unique(self.source[rows]):
            mine = rows[self.source[rows] == s]
            out += list(mine[np.argsort(self.hash[mine])][:most])
        return np.array(sorted(out))


class Parameter:
    def __init__(self, lib, family, term, kind, sd, users):
        self.family, self.name, self.kind, self.users = family, term, kind, users
        self.low, self.high = lib.term[family, term][3:]
        self.log = self.low > 0 and self.high / self.low > 2.5
        value, self.stated = lib.value(family, kind, term)
        self.u0 = self.to_u(value)
        eps = 1e-4
        slope = (math.log(self.to_v(self.u0 + eps)) - math.log(max(self.to_v(self.u0 - eps), 1e-12))) / (2 * eps)
        self.sd = min(sd / max(slope, 1e-3), 6.0)

    def to_u(self, v):
        if self.log:
            s = math.log(v / self.low) / math.log(self.high / self.low) if v > 0 else 0
        else:
            s = (v - self.low) / (self.high - self.low)
        s = min(max(s, 0.03), 0.97)
        return math.log(s / (1 - s))

    def to_v(self, u):
        s = 1 / (1 + math.exp(-u))
        return self.low * (self.high / self.low) ** s if self.log else self.low + (self.high - self.low) * s


class Fit:
    """Parameters: one for the default of each term, one deviation for each kind that rows use."""

    def __init__(self, lib, data, prior, rows, target, column):
        self.lib, self.data, self.rows, self.column = lib, data, rows, column
        self.target = np.log(target[rows])
        used = {"engine": {}, "device": {}, "link": {}}
        for at, i in enumerate(rows):
            r = data.row[i]
            used["engine"].setdefault(lib.kind_of("engine", r["framework"]), []).append(at)
            used["device"].setdefault(lib.kind_of("device", r["hw"]), []).append(at)
            net = data.net[i]
            for k in {lib.kind_of("link", net["intra_kind"]), lib.kind_of("link", net["inter_kind"])} if net else ():
                used["link"].setdefault(k, []).append(at)
        self.base, self.delta = [], []
        for (family, term), (sd_base, sd_kind) in prior.items():
            base = Parameter(lib, family, term, "default", max(sd_base, 1e-3), np.arange(len(rows)))
            base.free = sd_base > 0
            base.pos = len(self.base)
            self.base.append(base)
            for kind, users in used[family].items():
                if sd_base == 0 and not lib.value(family, kind, term)[1]:
                    continue  # a term of one engine's own
                if (family, kind) in PINNED or (kind, term) in FIXED:
                    continue
                if kind != "default" and sd_kind > 0:
                    few = min(1, (len(users) / 12) ** 0.5)  # what few rows carry stays where it is
                    sd = TIGHT.get((kind, term), sd_kind)
                    d = Parameter(lib, family, term, kind, sd * few, np.array(users))
                    d.base = base
                    d.free = True
                    self.delta.append(d)
        self.par = self.base + self.delta
        self.sd = np.array([p.sd for p in self.par])
        self.free = np.array([p.free for p in self.par])
        counts = {s: (data.source[rows] == s).sum() for s in np.unique(data.source[rows])}
        n = np.array([counts[data.source[i]] for i in rows], float)
        q = np.array([0.5 if data.row[i]["quality"] == "B" else 1.0 for i in rows])
        self.weight = q * n ** -0.5

    def apply(self, x, only=None):
        """x: deviations from the start, in u.  A kind's u: its own start + the default's shift + its own."""
        for at, p in enumerate(self.par if only is None else only):
            if not p.free:
                continue
            if p.kind == "default":
                v = p.to_v(p.u0 + x[p.pos])
            else:
                v = p.to_v(p.u0 + x[p.base.pos] + x[p.pos])
            self.lib.put(p.family, p.kind, p.name, v)

    def number(self):
        for at, p in enumerate(self.par):
            p.pos = at
        for p in self.base:
            p.kids = [d for d in self.delta if d.base is p]

    def residual(self, at=None):
        rows = self.rows if at is None else self.rows[at]
        y = self.lib.run(rows)[:, self.column]
        t = self.target if at is None else self.target[at]
        return np.log(np.maximum(y, 1e-9)) - t

    def solve(self, iterations=12, scale=0.05, soft=2.0, verbose=False):
        self.number()
        x, lam = np.zeros(len(self.par)), 1e-2
        self.apply(x)

        def loss(r, x):
            z = (r / (scale * soft)) ** 2
            return (self.weight * 2 * (np.sqrt(1 + z) - 1)).sum() * soft ** 2 + ((x / self.sd) ** 2).sum()
        r = self.residual()
        best = loss(r, x)
        for it in range(iterations):
            J = np.zeros((len(self.rows), len(self.par)))
            for p in self.par:
                if not p.free:
                    continue
                h = 0.02
                x[p.pos] += h
                touched = [p] + (p.kids if p.kind == "default" else [])
                self.apply(x, touched)
                J[p.users, p.pos] = (self.residual(p.users) - r[p.users]) / h
                x[p.pos] -= h
                self.apply(x, touched)
            w = self.weight / scale ** 2 / np.sqrt(1 + (r / (scale * soft)) ** 2)
            H = (J * w[:, None]).T @ J + np.diag(1 / self.sd ** 2)
            g = J.T @ (w * r) + x / self.sd ** 2
            for _ in range(6):
                step = np.linalg.solve(H + lam * np.diag(np.diag(H)), -g)
                step = np.clip(step, -1.5, 1.5) * self.free
                self.apply(x + step)
                r2 = self.residual()
                now = loss(r2, x + step)
                if now < best:
                    x, r, gain, best, lam = x + step, r2, best - now, now, lam / 4
                    break
                lam *= 5
            else:
                self.apply(x)
                break
            if verbose:
                print("  iteration %d: loss %.2f, mean |error| %.1f %%" %
                      (it, best, 100 * np.mean(np.abs(np.exp(r) - 1))), file=sys.stderr)
            if gain < 2e-4 * best:
                break
        self.x = x
        return self

    def values(self):
        for p in self.par:
            u = p.u0 + self.x[p.pos] + (0 if p.kind == "default" else self.x[p.base.pos])
            yield p, p.to_v(u)


def errors(lib, data, rows, target, column):
    y = lib.run(rows)[:, column] / target[rows] - 1
    return {s: (np.mean(np.abs(y[data.source[rows] == s])) * 100, np.mean(y[data.source[rows] == s]) * 100,
                np.max(np.abs(y[data.source[rows] == s])) * 100)
            for s in np.unique(data.source[rows])}


def spreads(lib, data, rows, want=0.92, few=8, many=100):
    """The width of each engine's interval: so that it holds want of its rows.  Fewer than few rows: the default's; than
    many: not below 0.1, since rows of one or two sources say little about the next."""
    out = {}
    kinds = np.array([lib.kind_of("engine", data.row[i]["framework"]) for i in rows])
    for kind in np.unique(kinds):
        mine = rows[kinds == kind]
        if kind == "default" or len(mine) < few:
            continue
        for s in np.arange(0.05, 0.6, 0.005):
            lib.put("engine", kind, "spread", s)
            y = lib.run(mine)
            wide = np.sqrt(np.log(y[:, 4] / y[:, 0]) ** 2 - (1.645 * 0.1) ** 2)  # kinds that are not written yet count as unknown
            if np.mean(np.abs(np.log(data.step[mine] / y[:, 0])) <= wide) >= want:
                break
        out["engine", kind, "spread"] = s = max(s, 0.1) if len(mine) < many else s
        lib.put("engine", kind, "spread", s)
    return out


def write(path, fits, more):
    seen = dict(more)
    for f in fits:
        for p, v in f.values():
            base = seen.get((p.family, "default", p.name))
            if p.free and (p.kind == "default" or p.stated or abs(v / base - 1) > 0.01):
                seen[p.family, p.kind, p.name] = v
    with open(path, "w") as out:
        out.write("/* Written by bench/predict/fit.py from the measured steps of shared/validation/calibrate\n"
                  " * (SOURCES.md there names who measured them): a default and deviations from it, with priors.  Do\n"
                  " * not edit. */\n")
        for (family, kind, term), v in sorted(seen.items(), key=lambda k: (FAMILY.index(k[0][0]), k[0][1] != "default", k[0][1])):
            out.write('SET(%s, "%s", %s, %.4g)\n' % (family.upper(), kind, term, v))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--lib", required=True)
    ap.add_argument("--data", required=True)
    ap.add_argument("--write")
    ap.add_argument("--leave-out", nargs="?", const="all")
    ap.add_argument("--clean", action="store_true", help="with --leave-out: nothing that was set by hand with errors in sight")
    ap.add_argument("--show", action="store_true")
    ap.add_argument("--most", type=int, default=400, help="rows of a source to fit to")
    ap.add_argument("--scale", type=float, default=0.035, help="an error of this size weighs as one deviation of a prior")
    ap.add_argument("--iterations", type=int, default=12)
    a = ap.parse_args()
    data = Data(a.data)
    lib = Library(a.lib, data.file.name, a.data, fitted=a.show)
    good = np.where(data.good)[0]
    if a.leave_out:
        total = []
        names = sorted(set(data.source[good])) if a.leave_out == "all" else a.leave_out.split(",")
        for s in names:
            lib = Library(a.lib, data.file.name, a.data)
            rows = data.thin(good[data.source[good] != s], a.most)
            (lib.forget_all if a.clean else lib.forget)(data, rows)
            Fit(lib, data, PRIOR, rows, data.step, 0).solve(a.iterations, a.scale)
            e = errors(lib, data, good[data.source[good] == s], data.step, 0)[s]
            total.append(e[0])
            print("left out %-14s %6.1f %%  bias %+6.1f  max %6.1f" % ((s,) + e), flush=True)
        print("mean over sources %.1f %%" % np.mean(total))
        return
    fits = []
    if not a.show:
        fits.append(Fit(lib, data, PRIOR, data.thin(good, a.most), data.step, 0).solve(a.iterations, a.scale, verbose=True))
        mem = np.where(data.good & np.isfinite(data.mem))[0]
        fits.append(Fit(lib, data, MEMORY, mem, data.mem, 1).solve(a.iterations, verbose=True))
    e = errors(lib, data, good, data.step, 0)
    for s, v in e.items():
        print("fitted %-14s %6.1f %%  bias %+6.1f  max %6.1f" % ((s,) + v))
    print("mean over sources %.1f %%" % np.mean([v[0] for v in e.values()]))
    if a.write and fits:
        write(a.write, fits, spreads(lib, data, good))


if __name__ == "__main__":
    main()
