/* Included by lane.h: neurons on a ring.
 *
 * A short ring is one tile. A long one is cut into tiles with a halo at both ends, where the outermost neurons lack a
 * neighbour. The error moves inwards by one neuron in each step, so the halo is as wide as the number of steps that a
 * tile is integrated for, and twice as wide where these steps are also differentiated.
 *
 * Neurons with the same constants share exponentials: with E = exp2(k V), P = I + eps log2(E_left + E + E_right), and
 * the gradient for V is E (R_left + R + R_right) where R is the gradient for P over that sum. Where E would
 * overflow or underflow, and where neurons differ, the maximum of the three terms is factored out first.
 */
typedef struct {
    int64_t first, n, halo, own; /* first lane (below 0: before the ring's); lanes; those of a halo; those in between */
} NAME(Tile);

/* The trace of one step for its derivative, a row each. */
typedef struct {
    REAL *v, *p, *gate;
    REAL *a, *b; /* E and 1 / sum if exponentials are shared, else the shares of left and right neighbour */
    REAL *c;     /* log2(sum), or the entropy of the shares in bits */
} NAME(Rows);

enum { NAME(ROWS) = sizeof(NAME(Rows)) / sizeof(REAL *) };
enum { NAME(WHOLE) = 2048, NAME(PART) = 1024, NAME(SPAN) = 32 }; /* longest ring in one tile; sizes of other tiles */

/* The tiles of a ring, and the memory for its numbers. */
typedef struct {
    int64_t tiles, own, halo, span, spans, n;
    int64_t at, lane, share; /* the ring's first element in a time step, its first lane, and its part of the work */
    REAL *state, *after, *grad, *g_after, *mean;  /* of the whole ring; a state and the next, a gradient and the one before */
    REAL *notes;                                  /* states at the start of every span */
    REAL *v, *spikes, *x, *g, *gx, *sums, *part; /* of a tile; part: its mean */
    REAL *mine;                                   /* 1 inside, 0 in the halo */
    REAL *here, *left, *right;                    /* of a tile, with one more lane at both ends */
    REAL *shown, *ratios;                         /* of the whole ring, too, if spikes are given */
    REAL *constants, *trace;
} NAME(Ring);

static NAME(Ring) NAME(cut)(const NAME(Call) *c, REAL **room)
{
    const int64_t ring = c->rule->ring, time = c->rule->time, backward = c->t->g_current != 0;
    NAME(Ring) r = { .tiles = ring > NAME(WHOLE) ? (ring + NAME(PART) - 1) / NAME(PART) : 1 };
    r.own = (ring + r.tiles - 1) / r.tiles;
    r.span = r.tiles > 1 ? NAME(SPAN) : (3 << 20) / (NAME(ROWS) * ring * (int64_t)sizeof(REAL));
    r.span = r.span < 4 ? 4 : r.span > time ? time : r.span;
    r.spans = (time + r.span - 1) / r.span;
    r.halo = r.tiles > 1 ? r.span << backward : 0;
    r.n = (r.own + 2 * r.halo + 15) / 16 * 16;
    REAL **whole[] = { &r.state, &r.after, &r.grad, &r.g_after, &r.mean };
    for (int i = 0; i < 5; i++)
        *whole[i] = NAME(take)(room, ring);
    REAL **tile[] = { &r.v, &r.spikes, &r.x, &r.g, &r.gx, &r.part, &r.mine };
    for (int i = 0; i < 7; i++)
        *tile[i] = NAME(take)(room, r.n);
    REAL **open[] = { &r.here, &r.left, &r.right };
    for (int i = 0; i < 3; i++)
        *open[i] = NAME(take)(room, r.n + 32) + 16;
    if (c->t->spikes) {
        r.shown = NAME(take)(room, ring + 32) + 16;
        r.ratios = NAME(take)(room, ring + 32) + 16;
    }
    r.constants = NAME(take)(room, NAME(FIELDS) * r.n);
    r.sums = NAME(take)(room, CONSTANTS * r.n);
    r.notes = NAME(take)(room, backward ? r.spans * ring : 0);
    r.trace = NAME(take)(room, backward ? r.span * NAME(ROWS) * r.n : 0);
    return r;
}

static int64_t NAME(ring_room)(const NAME(Call) *c)
{
    REAL start[1], *room = start;
    NAME(cut)(c, &room);
    return room - start;
}

INLINE NAME(Rows) NAME(rows)(const NAME(Ring) *r, int64_t t)
{
    REAL *row = r->trace + t * NAME(ROWS) * r->n;
    return (NAME(Rows)){ row, row + r->n, row + 2 * r->n, row + 3 * r->n, row + 4 * r->n, row + 5 * r->n };
}

/* The part of a row of the ring that a tile sees: in place, or gathered if it wraps around an end. */
static const REAL *NAME(view)(const NAME(Call) *c, const NAME(Tile) *tile, const REAL *row, REAL *room)
{
    const int64_t ring = c->rule->ring;
    if (tile->first >= 0 && tile->first + tile->n <= ring)
        return row + tile->first;
    for (int64_t j = 0, n; j < tile->n; j += n) {
        const int64_t at = (tile->first + j + ring) % ring;
        n = tile->n - j < ring - at ? tile->n - j : ring - at;
        memcpy(room + j, row + at, n * sizeof(REAL));
    }
    return room;
}

/* The same for step t of a tensor. */
static const REAL *NAME(view_step)(const NAME(Call) *c, const NAME(Tile) *tile, const void *x, Strides by, int64_t t,
                                   int64_t at, REAL *room)
{
    const int64_t ring = c->rule->ring;
    if (tile->first >= 0 && tile->first + tile->n <= ring)
        return NAME(fetch)(c, x, by, t, at + tile->first, tile->n, c->rule->type == SAME && NAME(dense)(c, by), room);
    for (int64_t j = 0, n; j < tile->n; j += n) {
        const int64_t first = (tile->first + j + ring) % ring;
        n = tile->n - j < ring - first ? tile->n - j : ring - first;
        NAME(fetch)(c, x, by, t, at + first, n, 0, room + j);
    }
    return room;
}

/* Give the first and the last lane their neighbours; in a part of a ring, any number will do. */
INLINE void NAME(close)(REAL *w, const NAME(Tile) *tile)
{
    w[-1] = w[tile->halo ? 0 : tile->n - 1];
    w[tile->n] = w[tile->halo ? tile->n - 1 : 0];
}

/* The value that a neuron shows to its neighbours: its membrane, or the exponential of its membrane. */
INLINE REAL NAME(shown)(const NAME(Call) *c, NAME(Lanes) l, int64_t i, REAL w, const int shared)
{
    return shared ? NAME(exp2_or_0)(NAME(smaller)(c->edge, w * l.k[i] - c->shift), c->edge) : w;
}

/* The log-sum-exp of three neighbours, as base + eps log2(weight), and the values that the derivative needs. */
typedef struct {
    REAL base, weight, log_weight, a, b, c;
} NAME(Coupled);

INLINE NAME(Coupled) NAME(couple)(const NAME(Call) *c, REAL left, REAL own, REAL right, REAL eps, REAL k,
                                  const int membrane, const int shared)
{
    if (shared) {
        REAL weight = left + own + right, log_weight = NAME(log2)(weight);
        return (NAME(Coupled)){ 0, weight, log_weight, own, 1 / weight, log_weight };
    }
    if (membrane == MAX) {
        REAL top = NAME(largest)(NAME(largest)(left, own), right);
        REAL whole = 1 / ((REAL)(left == top) + (REAL)(own == top) + (REAL)(right == top));
        return (NAME(Coupled)){ top, 1, 0, left == top ? whole : 0, right == top ? whole : 0, 0 };
    }
    REAL top = NAME(larger)(NAME(larger)(left, own), right);
    REAL a = left == top ? 0 : (left - top) * k, b = right == top ? 0 : (right - top) * k; /* infinite ones too */
    REAL m = own == top ? 0 : (own - top) * k;
    REAL ea = NAME(exp2_or_0)(a, c->edge), eb = NAME(exp2_or_0)(b, c->edge), em = NAME(exp2_or_0)(m, c->edge);
    REAL weight = ea + em + eb, log_weight = NAME(log2)(weight), whole = 1 / weight;
    REAL mean = ea * NAME(larger)(-c->edge, a) + em * NAME(larger)(-c->edge, m) + eb * NAME(larger)(-c->edge, b);
    return (NAME(Coupled)){ top - eps * c->shift, weight,     log_weight,
                            ea * whole,           eb * whole, log_weight - c->shift - mean * whole };
}

/* One step; return whether a sum came close to overflow or underflow. */
INLINE int NAME(ring_advance)(const NAME(Call) *c, const NAME(Ring) *r, NAME(Lanes) l, int64_t n,
                              const REAL *restrict x, REAL *restrict v, REAL *restrict spikes, const NAME(Rows) *rows,
                              const int membrane, const int soft, const int shared)
{
    const REAL *restrict here = r->here;
    int far = 0;
    _Pragma("omp simd reduction(| : far)") for (int64_t j = 0; j < n; j++) {
        const int64_t i = shared ? 0 : j; /* all lanes share the constants of one */
        const REAL limit = l.threshold[i];
        NAME(Coupled) w = NAME(couple)(c, here[j - 1], here[j], here[j + 1], l.eps[i], l.k[i], membrane, shared);
        REAL base = w.base + x[j];
        REAL p = membrane == MAX ? base : base + l.eps[i] * w.log_weight + 0 * w.weight; /* log2 turns NaN into a number */
        REAL gate = soft || rows ? NAME(gate)(c->edge, base, w.weight, limit, l.k[i], SIGMOID) : 0;
        REAL spike = soft ? gate : NAME(hard_spike)(p, limit);
        if (rows) {
            rows->a[j] = w.a;
            rows->b[j] = w.b;
            rows->c[j] = w.c;
            rows->p[j] = p;
            rows->gate[j] = gate;
        }
        if (!rows)
            spikes[j] = spike;
        v[j] = p * (1 - c->wiped * spike) + l.after[i] * spike;
        if (shared)
            far |= (w.log_weight > 60) | (w.log_weight < -60);
    }
    return far;
}

/* One step back, from gs and gv to gx and the gradient of V before the step. Identical neurons share
 * one sum for each constant; others have one each. */
INLINE void NAME(ring_backward)(const NAME(Call) *c, const NAME(Ring) *r, NAME(Lanes) l, const NAME(Tile) *tile,
                               const NAME(Rows) rows, const REAL *restrict gs, REAL *restrict gv, REAL *restrict gx,
                               const int membrane, const int soft, const int shared, const int halo)
{
    REAL *restrict left = r->left, *restrict right = r->right;
    REAL *restrict eps = r->sums + EPS * r->n, *restrict leak = r->sums + LEAK * r->n;
    REAL *restrict threshold = r->sums + THRESHOLD * r->n;
    const REAL *restrict mine = r->mine;
    REAL all_eps = 0, all_leak = 0, all_threshold = 0;
    _Pragma("omp simd reduction(+ : all_eps, all_threshold)") for (int64_t j = 0; j < tile->n; j++) {
        const int64_t i = shared ? 0 : j;
        REAL p = rows.p[j], limit = l.threshold[i];
        NAME(FiredBack) f = NAME(fire_backward)(c, gs[j], gv[j], p, p, rows.gate[j], limit, l.k[i], 0, l.steep[i],
                                                l.after[i], membrane, soft, SIGMOID);
        REAL g = f.back + f.g, to_limit = f.back + c->subtracted * gv[j] * f.spike;
        REAL to_eps = -f.back * (p - limit) * l.k[i];
        if (membrane == LSE)
            to_eps += g * rows.c[j];
        gx[j] = g;
        if (shared) {
            left[j] = g * rows.b[j];
            const REAL own = halo ? mine[j] : 1;
            all_eps += own * to_eps;
            all_threshold -= own * to_limit;
        } else {
            left[j] = g * rows.a[j];
            right[j] = g * rows.b[j];
            gv[j] = g - left[j] - right[j]; /* its own share */
            eps[j] += to_eps;
            threshold[j] -= to_limit;
        }
    }
    NAME(close)(left, tile);
    if (!shared)
        NAME(close)(right, tile);
    _Pragma("omp simd reduction(+ : all_eps, all_leak)") for (int64_t j = 0; j < tile->n; j++) {
        const int64_t i = shared ? 0 : j;
        const REAL own = halo ? mine[j] : 1;
        REAL v = rows.v[j], back;
        if (shared) {
            back = rows.a[j] * (left[j - 1] + left[j] + left[j + 1]);
            all_eps -= own * (back * NAME(larger)(-(REAL)3e38, v * l.leak[i]) * l.k[i]); /* not 0 times infinity */
        } else {
            back = left[j + 1] + gv[j] + right[j - 1];
        }
        if (shared)
            all_leak += own * back * v;
        else
            leak[j] += back * v;
        gv[j] = back * l.leak[i];
    }
    eps[tile->halo] += shared ? all_eps : 0;
    leak[tile->halo] += shared ? all_leak : 0;
    threshold[tile->halo] += shared ? all_threshold : 0;
}

/* Each kind of neuron has its own functions, whose loops have no branches. */
#define KIND(membrane, soft, shared) (((membrane) * 2 + (soft)) * 2 + (shared))
#define NAMED(f, membrane, soft, shared) NAME(f##_ring_##membrane##_##soft##_##shared)
#define KINDS(AS) AS(LSE, 0, 0) AS(LSE, 0, 1) AS(LSE, 1, 0) AS(LSE, 1, 1) AS(MAX, 0, 0)

#define AS(membrane, soft, shared)                                                                                     \
    APART NAMED(go, membrane, soft, shared)(const NAME(Call) *c, const NAME(Ring) *r, NAME(Lanes) l, int64_t n,        \
                                            const REAL *x, REAL *v, REAL *spikes, const NAME(Rows) *rows, int *far)    \
    {                                                                                                                  \
        const NAME(Rows) traced = rows ? *rows : (NAME(Rows)){ 0 };                                                    \
        *far = rows ? NAME(ring_advance)(c, r, l, n, x, v, spikes, &traced, membrane, soft, shared)                    \
                    : NAME(ring_advance)(c, r, l, n, x, v, spikes, 0, membrane, soft, shared);                         \
    }                                                                                                                  \
    APART NAMED(back, membrane, soft, shared)(const NAME(Call) *c, const NAME(Ring) *r, NAME(Lanes) l,                 \
                                              const NAME(Tile) *tile, const NAME(Rows) rows, const REAL *gs, REAL *gx) \
    {                                                                                                                  \
        if (tile->halo)                                                                                                \
            NAME(ring_backward)(c, r, l, tile, rows, gs, r->v, gx, membrane, soft, shared, 1);                         \
        else                                                                                                           \
            NAME(ring_backward)(c, r, l, tile, rows, gs, r->v, gx, membrane, soft, shared, 0);                         \
    }
KINDS(AS)
#undef AS

/* Write the values that some neurons of a tile show after the leak. */
static void NAME(show)(const NAME(Call) *c, const NAME(Ring) *r, NAME(Lanes) l, int64_t first, int64_t end,
                       const REAL *restrict v, const int shared)
{
    REAL *restrict here = r->here;
    if (shared)
        SIMD for (int64_t j = first; j < end; j++)
            here[j] = NAME(shown)(c, l, 0, v[j] * l.leak[0], 1);
    else
        SIMD for (int64_t j = first; j < end; j++)
            here[j] = v[j] * l.leak[j];
}

/* Integrate a tile for some steps; return 0 if the exponentials left their range. */
static int NAME(advance_tile)(const NAME(Call) *c, NAME(Ring) *r, const NAME(Tile) *tile, NAME(Lanes) l, int64_t from,
                              int64_t steps, const int traced, const int out, const int shared)
{
    const Rule *rule = c->rule;
    const int64_t own = r->at + tile->first + tile->halo; /* its first element in a time step, excluding the halo */
    REAL *v = traced ? NAME(rows)(r, 0).v : r->v;
    const REAL *start = NAME(view)(c, tile, r->state, v);
    if (start != v)
        memcpy(v, start, tile->n * sizeof(REAL));
    memset(r->part, 0, tile->n * sizeof(REAL));
    for (int64_t t = from; t < from + steps; t++) {
        const NAME(Rows) rows = NAME(rows)(r, traced ? t - from : 0);
        const REAL *x = NAME(view_step)(c, tile, c->t->current, rule->current, t, r->at, r->x);
        void *to = out && !rule->rate
                       ? (void *)NAME(element)(c, c->t->out, t * c->row + own)
                       : 0;
        const int direct = to && !tile->halo && rule->type == SAME;
        REAL *spikes = direct ? to : r->spikes;
        int far = 0;
        for (int64_t i = 0; i < tile->n; i += LANES) {
            const int64_t end = i + LANES < tile->n ? i + LANES : tile->n;
            if (t + 1 < rule->time && NAME(dense)(c, rule->current))
                NAME(expect)(c, NAME(element)(c, c->t->current, (t + 1) * rule->current.time + own + i), end - i, 0);
            if (t + 1 < rule->time && to)
                NAME(expect)(c, NAME(element)(c, to, c->row + i), end - i, 1);
            NAME(show)(c, r, l, i, end, v, shared);
        }
        v = traced && t + 1 < from + steps ? NAME(rows)(r, t + 1 - from).v : r->v;
        NAME(close)(r->here, tile);
#define AS(membrane, soft, shared)                                                                                     \
    case KIND(membrane, soft, shared):                                                                                 \
        NAMED(go, membrane, soft, shared)(c, r, l, tile->n, x, v, spikes, traced ? &rows : 0, &far);                   \
        break;
        switch (KIND(rule->membrane, rule->soft, shared)) { KINDS(AS) }
#undef AS
        if (far)
            return 0;
        if (to && !direct)
            NAME(narrow)(rule->type, to, spikes + tile->halo, tile->own);
        for (int64_t j = 0; out && rule->rate && j < tile->n; j++)
            r->part[j] += spikes[j];
    }
    memcpy(r->after + tile->first + tile->halo, r->v + tile->halo, tile->own * sizeof(REAL));
    for (int64_t j = tile->halo; out && rule->rate && j < tile->halo + tile->own; j++)
        r->mean[tile->first + j] += r->part[j];
    return 1;
}

/* Walk back over a tile's trace. */
static void NAME(backward_tile)(const NAME(Call) *c, NAME(Ring) *r, const NAME(Tile) *tile, NAME(Lanes) l, int64_t from,
                               int64_t steps, const int shared)
{
    const Rule *rule = c->rule;
    const int64_t own = tile->first + tile->halo;
    const REAL *start = NAME(view)(c, tile, r->grad, r->v);
    if (start != r->v)
        memcpy(r->v, start, tile->n * sizeof(REAL));
    memset(r->sums, 0, CONSTANTS * r->n * sizeof(REAL));
    for (int64_t j = 0; j < tile->n; j++)
        r->mine[j] = j >= tile->halo && j < tile->halo + tile->own ? 1 : 0;
    for (int64_t t = from + steps - 1; t >= from; t--) {
        const REAL *gs = rule->rate || !c->t->g_out
                             ? NAME(view)(c, tile, r->mean, r->g)
                             : NAME(view_step)(c, tile, c->t->g_out, rule->grad, t, r->at, r->g);
        void *to = (void *)NAME(element)(c, c->t->g_current, t * c->row + r->at + own);
        const int direct = !tile->halo && rule->type == SAME;
        REAL *gx = direct ? to : r->gx;
        if (t > 0 && c->t->g_out && !rule->rate && NAME(dense)(c, rule->grad)) {
            const int64_t before = (t - 1) * rule->grad.time + r->at + own;
            NAME(expect)(c, NAME(element)(c, c->t->g_out, before), tile->own, 0);
        }
        const NAME(Rows) rows = NAME(rows)(r, t - from);
#define AS(membrane, soft, shared)                                                                                     \
    case KIND(membrane, soft, shared):                                                                                 \
        NAMED(back, membrane, soft, shared)(c, r, l, tile, rows, gs, gx);                                              \
        break;
        switch (KIND(rule->membrane, rule->soft, shared)) { KINDS(AS) }
#undef AS
        if (t > 0) /* apart from the other: many cache lines at once stall the processor */
            NAME(expect)(c, NAME(element)(c, to, -c->row), tile->own, 1);
        if (!direct)
            NAME(narrow)(rule->type, to, gx + tile->halo, tile->own);
    }
    memcpy(r->g_after + own, r->v + tile->halo, tile->own * sizeof(REAL));
    if (!c->sums)
        return;
    for (int64_t j = tile->halo; j < tile->halo + tile->own; j++)
        r->sums[EPS * r->n + j] *= (REAL)0.69314718055994531;
    for (int i = 0; i < CONSTANTS; i++)
        NAME(collect)(c, r->share, i, r->lane + own, r->sums + i * r->n + tile->halo, tile->own);
}
#undef KINDS
#undef NAMED
#undef KIND

/* Whether all neurons of a ring have the same constants. */
INLINE int NAME(like)(const NAME(Call) *c) { return c->longest <= c->rule->features / c->rule->ring; }

/* Integrate all tiles for a span, and walk back over them if there is a trace. */
static void NAME(run_span)(const NAME(Call) *c, NAME(Ring) *r, int64_t span, const int traced, const int out)
{
    const int64_t from = span * r->span, left = c->rule->time - from, steps = left < r->span ? left : r->span;
    for (int64_t i = 0; i < r->tiles; i++) {
        const int64_t own = c->rule->ring - i * r->own < r->own ? c->rule->ring - i * r->own : r->own;
        const NAME(Tile) tile = { i * r->own - r->halo, own + 2 * r->halo, r->halo, own };
        NAME(Lanes) l;
        for (int j = 0; j < NAME(FIELDS); j++)
            ((const REAL **)&l)[j] =
                NAME(view)(c, &tile, c->constants + j * c->width + r->lane, r->constants + j * r->n);
        int shared = c->rule->membrane == LSE && NAME(like)(c);
        if (!NAME(advance_tile)(c, r, &tile, l, from, steps, traced, out, shared))
            NAME(advance_tile)(c, r, &tile, l, from, steps, traced, out, shared = 0);
        if (traced)
            NAME(backward_tile)(c, r, &tile, l, from, steps, shared);
    }
}

/* Differentiate a ring of identical neurons from its spikes; return 0 if that is not possible. */
static int NAME(run_told)(const NAME(Call) *c, const NAME(Ring) *r)
{
    const Rule *rule = c->rule;
    if (!NAME(like)(c) || !NAME(dense)(c, rule->current) || !NAME(dense)(c, rule->grad))
        return 0;
    NAME(Told) told = { .v = r->mean, .odds = r->after, .before = r->g_after, .gv = r->grad };
    told.shown = r->shown;
    told.ratios = r->ratios;
    NAME(Lanes) l;
    for (int j = 0; j < NAME(FIELDS); j++)
        ((const REAL **)&l)[j] = c->constants + j * c->width + r->lane;
    if (!NAME(backward_ring)(c, l, &told, r->at))
        return 0;
    if (c->t->g_state)
        memcpy(c->t->g_state + r->at, r->grad, rule->ring * sizeof(REAL));
    double *sums = c->sums ? c->sums + r->share * CONSTANTS * c->width + r->lane : 0;
    if (sums) {
        sums[EPS * c->width] += told.eps * 0.69314718055994531;
        sums[LEAK * c->width] += told.leak;
        sums[THRESHOLD * c->width] += told.threshold;
    }
    return 1;
}

static void NAME(run_ring)(const NAME(Call) *c, int64_t part, int64_t item, REAL *room)
{
    const int64_t ring = c->rule->ring;
    const size_t size = ring * sizeof(REAL);
    NAME(Ring) r = NAME(cut)(c, &room);
    r.share = part;
    r.at = item * ring;
    r.lane = r.at % c->rule->features % c->width;
    if (c->t->spikes && NAME(run_told)(c, &r))
        return;
    NAME(load)(r.state, c->t->state ? c->t->state + r.at : 0, ring);
    memset(r.mean, 0, size);
    for (int64_t i = 0; i < r.spans; i++) {
        if (c->t->g_current) {
            memcpy(r.notes + i * ring, r.state, size);
            if (i + 1 == r.spans)
                break;
        }
        NAME(run_span)(c, &r, i, 0, c->t->g_current == 0);
        memcpy(r.state, r.after, size);
    }
    if (!c->t->g_current) {
        for (int64_t j = 0; j < ring; j++)
            r.mean[j] /= (REAL)c->rule->time;
        if (c->rule->rate)
            NAME(narrow)(c->rule->type, (void *)NAME(element)(c, c->t->out, r.at), r.mean, ring);
        memcpy(c->t->last + r.at, r.state, size);
        return;
    }
    if (c->rule->rate && c->t->g_out)
        NAME(fetch)(c, c->t->g_out, c->rule->grad, 0, r.at, ring, 0, r.mean);
    for (int64_t j = 0; j < ring; j++)
        r.mean[j] /= (REAL)c->rule->time;
    NAME(load)(r.grad, c->t->g_last ? c->t->g_last + r.at : 0, ring);
    for (int64_t i = r.spans - 1; i >= 0; i--) {
        memcpy(r.state, r.notes + i * ring, size);
        NAME(run_span)(c, &r, i, 1, 0);
        memcpy(r.grad, r.g_after, size);
    }
    if (c->t->g_state)
        memcpy(c->t->g_state + r.at, r.grad, size);
}
