/* Included by kernels.c for each type: constants, spike and reset of one lane, and the functions that Python calls. */

/* What Python hands over. Constants that are numbers, and whatever a call does not need, are NULL. */
typedef struct {
    const REAL *current, *state, *constants[CONSTANTS];
    REAL *out, *last; /* of the forward pass */
    const REAL *g_out, *g_last;
    REAL *g_current, *g_state, *g_constants; /* of the backward pass; g_constants is [4, longest] */
} NAME(Tensors);

/* Constants of a few lanes. eps is in units of log 2, and k = 1 / eps; factor and offset make V decay on a ring. */
typedef struct {
    const REAL *eps, *k, *leak, *log_leak, *threshold, *extra, *steep, *factor, *offset;
} NAME(Lanes);

enum { NAME(FIELDS) = sizeof(NAME(Lanes)) / sizeof(REAL *) };

/* A call: numbers, constants side by side for a width of lanes, sums for their gradients, for each part of the work. */
typedef struct {
    const Rule *rule;
    const NAME(Tensors) *t;
    int64_t width, row; /* row: elements of one time step */
    REAL *constants;    /* [FIELDS, width] */
    double *sums;       /* [parts, CONSTANTS, width] */
    REAL reset, through, reset_through, strength, decay, edge, shift;
    int64_t longest;    /* of the constants */
    int64_t items, size; /* of work; of the room that a thread needs */
    int64_t parts, next, failed; /* parts of the work, a thread each; the next one; whether a thread had no memory */
} NAME(Call);

/* b if one of them is NaN: written so, it is one instruction. */
INLINE REAL NAME(larger)(REAL a, REAL b) { return a > b ? a : b; }
/* NaN if one of them is. */
INLINE REAL NAME(largest)(REAL a, REAL b) { return a > b || a != a ? a : b; }
INLINE REAL NAME(smaller)(REAL a, REAL b) { return a < b ? a : b; }
INLINE REAL NAME(within)(REAL x, REAL edge) { return NAME(smaller)(edge, NAME(larger)(-edge, x)); }

typedef struct {
    REAL p, gate, spike, v;
} NAME(Fired);

/* Spike and reset at the potential P = base + eps log2(weight). sigmoid(z) need not wait for the logarithm. */
INLINE NAME(Fired) NAME(fire)(const NAME(Call) *c, NAME(Lanes) l, int64_t j, REAL base, REAL weight, REAL log_weight,
                              REAL limit, const int membrane, const int soft, const int traced)
{
    NAME(Fired) f = { .p = membrane == LSE ? base + l.eps[j] * log_weight : base };
    if (soft || traced)
        f.gate = weight / (weight + NAME(exp2)(NAME(within)((limit - base) * l.k[j], c->edge)));
    if (soft) {
        f.spike = membrane == ADD ? f.gate + l.extra[j] * (f.gate - (REAL)0.5) : f.gate;
        f.v = f.p + f.spike * (c->reset - f.p);
    } else {
        if (membrane == LSE)
            f.p += 0 * weight; /* log2 makes a number of NaN */
        f.spike = f.p > limit ? (REAL)1 : f.p <= limit ? (REAL)0 : (REAL)NAN; /* a broken network shows */
        f.v = f.p * (1 - f.spike) + c->reset * f.spike; /* of these, one is exact and the other 0 */
    }
    return f;
}

typedef struct {
    REAL fed, back, g; /* gradients for the spike, for P by way of the spike, and for P */
} NAME(Unfired);

INLINE NAME(Unfired) NAME(unfire)(const NAME(Call) *c, NAME(Lanes) l, int64_t j, REAL gs, REAL gv, REAL p, REAL gate,
                                  REAL limit, const int membrane, const int soft)
{
    REAL spike = soft ? (membrane == ADD ? gate + l.extra[j] * (gate - (REAL)0.5) : gate) : p > limit ? (REAL)1 : (REAL)0;
    NAME(Unfired) u = { .fed = gs + gv * (c->reset_through - c->through * p) };
    u.back = u.fed * l.steep[j] * (gate * (1 - gate));
    u.g = u.back + gv * (1 - spike);
    return u;
}

/* Ask for n values that a later step reads or writes: steps lie a layer apart, too far for the processor to foresee. */
INLINE void NAME(expect)(const REAL *x, int64_t n, const int write)
{
    for (int64_t j = 0; j < n; j += 64 / (int64_t)sizeof(REAL))
        write ? __builtin_prefetch(x + j, 1) : __builtin_prefetch(x + j);
}

/* Take n values from the room of a thread. */
INLINE REAL *NAME(take)(REAL **room, int64_t n)
{
    REAL *start = *room;
    *room += (n + 15) / 16 * 16;
    return start;
}

INLINE void NAME(load)(REAL *to, const REAL *from, int64_t n)
{
    if (from)
        memcpy(to, from, n * sizeof(REAL));
    else
        memset(to, 0, n * sizeof(REAL));
}

/* Add n sums to those of a constant, from a lane on. */
INLINE void NAME(collect)(const NAME(Call) *c, int64_t part, int constant, int64_t lane, const REAL *sum, int64_t n)
{
    double *sums = c->sums + (part * CONSTANTS + constant) * c->width + lane;
    SIMD for (int64_t j = 0; j < n; j++)
        sums[j] += (double)sum[j];
}

#include "temporal.h"
#include "spatial.h"

/* Lay out the constants for every lane of the width. */
static void NAME(derive)(NAME(Call) *c)
{
    const Rule *rule = c->rule;
    for (int64_t j = 0; j < c->width; j++) {
        double value[CONSTANTS];
        for (int i = 0; i < CONSTANTS; i++) {
            const REAL *tensor = c->t->constants[i];
            value[i] = tensor ? (double)tensor[j * rule->lengths[i] / c->width] : rule->numbers[i];
        }
        const double eps = value[EPS] * 0.69314718055994531, log_leak = rule->membrane == ADD ? 0 : log(value[LEAK]);
        const double fields[] = { eps,
                                  1 / eps,
                                  value[LEAK],
                                  log_leak,
                                  value[THRESHOLD],
                                  value[AMPLITUDE] - 1,
                                  value[AMPLITUDE] / value[EPS],
                                  rule->leak_form == FACTOR ? value[LEAK] : 1,
                                  rule->leak_form == SHIFT ? log_leak : 0 };
        for (int i = 0; i < NAME(FIELDS); i++)
            c->constants[i * c->width + j] = (REAL)fields[i];
    }
}

/* Sum over the parts, and over the lanes that share a constant. */
static void NAME(reduce)(const NAME(Call) *c)
{
    const int64_t run = c->width / c->longest;
    for (int64_t i = 0; i < CONSTANTS * c->longest; i++) {
        double sum = 0;
        for (int64_t part = 0; part < c->parts; part++)
            for (int64_t j = 0; j < run; j++)
                sum += c->sums[part * CONSTANTS * c->width + i * run + j];
        c->t->g_constants[i] = (REAL)sum;
    }
}

/* A thread takes part after part, until there are none: which thread it is makes no difference to the sums. */
static void NAME(work)(void *call)
{
    NAME(Call) *c = call;
    REAL *room = aligned(c->size * sizeof(REAL));
    if (!room)
        __atomic_store_n(&c->failed, 1, __ATOMIC_RELAXED);
    for (int64_t part; room && (part = __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED)) < c->parts;)
        for (int64_t item = part * c->items / c->parts; item < (part + 1) * c->items / c->parts; item++)
            (c->rule->ring ? NAME(run_ring) : NAME(run_alone))(c, part, item, room);
    free(room);
}

/* Integrate, or differentiate if g_current is given; return 0, or 1 without memory. */
int NAME(integrate)(const Rule *rule, const NAME(Tensors) *t)
{
    NAME(Call) c = { .rule = rule, .t = t, .row = rule->batch * rule->features };
    c.reset = (REAL)rule->v_reset;
    c.through = (REAL)rule->through_reset;
    c.reset_through = c.reset * c.through;
    c.strength = (REAL)rule->adapt_strength;
    c.decay = (REAL)rule->adapt_decay;
    c.edge = NAME(EDGE);
    c.shift = rule->centered ? (REAL)1.5849625007211562 : (REAL)0; /* log2(3) */
    c.width = rule->features;
    c.longest = 1;
    for (int i = 0; i < CONSTANTS; i++)
        c.longest = rule->lengths[i] > c.longest ? rule->lengths[i] : c.longest;
    if (c.longest == 1)
        c.width = rule->ring ? rule->ring : LANES;
    c.items = rule->ring ? c.row / rule->ring : (c.row + LANES - 1) / LANES;
    const int64_t useful = 1 + rule->time * c.row / 16384;
    c.parts = rule->threads < c.items ? rule->threads : c.items;
    c.parts = !rule->parallel ? 1 : c.parts < useful ? c.parts : useful;
    c.constants = aligned(NAME(FIELDS) * c.width * sizeof(REAL));
    c.sums = t->g_constants ? calloc(c.parts * CONSTANTS * c.width, sizeof(double)) : 0;
    c.failed = !c.constants || (t->g_constants && !c.sums);
    if (!c.failed) {
        NAME(derive)(&c);
        c.size = rule->ring ? NAME(ring_room)(&c) : NAME(alone_room)(&c);
        c.parts > 1 ? rule->parallel(NAME(work), &c, (unsigned)c.parts, 0) : NAME(work)(&c);
    }
    if (!c.failed && c.sums)
        NAME(reduce)(&c);
    free(c.constants);
    free(c.sums);
    return c.failed != 0;
}
