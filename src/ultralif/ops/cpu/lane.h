/* Included by kernels.c for each type: constants, spike and reset of one lane, and the functions that Python calls. */

/* The tensors that Python passes; NULL for constants that are numbers and for tensors that a call does not need. */
typedef struct {
    const void *current;
    const REAL *state, *constants[CONSTANTS];
    void *out; /* of the forward pass */
    REAL *last;
    const void *g_out;
    const REAL *g_last, *spikes; /* spikes: those of the forward pass, contiguous, if the membrane follows from them */
    void *g_current; /* of the backward pass; g_constants is [4, longest], one row of entries each */
    REAL *g_state, *g_constants;
} NAME(Tensors);

/* Constants of a few lanes. eps is in units of log 2, and k = 1 / eps; after is what a spike
 * adds to the membrane: V = P (1 - s) + after s, or P + after s; or where it saturates. */
typedef struct {
    const REAL *eps, *k, *leak, *log_leak, *threshold, *extra, *steep, *after;
} NAME(Lanes);

enum { NAME(FIELDS) = sizeof(NAME(Lanes)) / sizeof(REAL *) };

/* A call: numbers, constants side by side for a width of lanes, sums for their gradients, for each part of the work. */
typedef struct {
    const Rule *rule;
    const NAME(Tensors) *t;
    int64_t width, row; /* row: elements of one time step */
    REAL *constants;    /* [FIELDS, width] */
    double *sums;       /* [parts, CONSTANTS, width] */
    REAL strength, decay, edge, shift;
    REAL wiped, subtracted; /* 1 where a spike wipes the membrane, 1 where it subtracts the threshold, or 0 */
    REAL low, high, clips;  /* a soft spike's range; 1 if it is clipped to that range, else 0 */
    int64_t longest;        /* of the constants */
    int64_t items, size;    /* number of work items; memory that a thread needs */
    int64_t parts, next, failed; /* parts of the work, a thread each; the next one; whether one ran out of memory */
} NAME(Call);

/* b if either is NaN; in this form it is one instruction. */
INLINE REAL NAME(larger)(REAL a, REAL b) { return a > b ? a : b; }
INLINE REAL NAME(smaller)(REAL a, REAL b) { return a < b ? a : b; }
/* NaN if either is. */
INLINE REAL NAME(largest)(REAL a, REAL b) { return a > b || a != a ? a : b; }
INLINE REAL NAME(within)(REAL x, REAL edge) { return NAME(smaller)(edge, NAME(larger)(-edge, x)); }

/* exp2(x), or 0 where it is negligible. */
INLINE REAL NAME(exp2_or_0)(REAL x, REAL edge)
{
    REAL y = NAME(exp2)(NAME(larger)(-edge, x));
    return x < -edge ? 0 : y;
}

/* exp2(x), or infinity where a number divided by it is negligible. */
INLINE REAL NAME(exp2_or_inf)(REAL x, REAL edge)
{
    REAL y = NAME(exp2)(NAME(within)(x, edge));
    return x > edge ? (REAL)__builtin_inf() : y;
}

/* weight / (weight + exp2(x)): the sigmoid of -x for a weight of 1. */
INLINE REAL NAME(sigmoid)(REAL weight, REAL x, REAL edge)
{
    return weight / (weight + NAME(exp2_or_inf)(x, edge));
}

INLINE REAL NAME(arctan)(REAL x)
{
    REAL size = x < 0 ? -x : x, u = size > 1 ? 1 / size : size;
    u /= 1 + NAME(root)(1 + u * u); /* half of the angle, */
    u /= 1 + NAME(root)(1 + u * u); /* and half of that */
    REAL s = u * u, q = 0;
    for (int i = 21; i >= 1; i -= 2)
        q = 1 / (REAL)i - q * s;
    REAL angle = 4 * u * q;
    angle = size > 1 ? (REAL)1.5707963267948966 - angle : angle;
    return x < 0 ? -angle : angle;
}

/* f(z), for z = (P - threshold) / eps and P = base + eps log2(weight). A sigmoid need not wait for the logarithm. */
INLINE REAL NAME(gate)(REAL edge, REAL base, REAL weight, REAL limit, REAL k, const int curve)
{
    REAL x = (limit - base) * k;
    if (curve == SIGMOID)
        return NAME(sigmoid)(weight, x, edge);
    REAL z = x * (REAL)-0.69314718055994531;
    if (curve == ATAN)
        return (REAL)0.5 + (REAL)0.31830988618379067 * NAME(arctan)((REAL)1.5707963267948966 * z);
    z = NAME(within)(z, 1);
    return (REAL)0.5 + z - (REAL)0.5 * z * (z < 0 ? -z : z);
}

/* f'(z) */
INLINE REAL NAME(slope)(REAL gate, REAL p, REAL limit, REAL k, const int curve)
{
    if (curve == SIGMOID)
        return gate * (1 - gate);
    REAL z = (p - limit) * k * (REAL)0.69314718055994531;
    if (curve == ATAN)
        return (REAL)0.5 / (1 + (REAL)2.4674011002723395 * z * z);
    REAL size = z < 0 ? -z : z;
    if (curve == SUPERSPIKE)
        return 1 / (k * (REAL)0.69314718055994531 * (1 + size) * (1 + size));
    return NAME(larger)(0, 1 - size);
}

/* The soft spike: the gate stretched to its height and clipped to its range. */
INLINE REAL NAME(stretched)(REAL gate, REAL extra) { return gate + extra * (gate - (REAL)0.5); }
INLINE REAL NAME(soft_spike)(const NAME(Call) *c, REAL gate, REAL extra, const int membrane)
{
    return membrane == ADD ? NAME(smaller)(c->high, NAME(larger)(c->low, NAME(stretched)(gate, extra))) : gate;
}

/* 1 above the threshold, 0 elsewhere; NaN shows that a network is broken. */
INLINE REAL NAME(hard_spike)(REAL p, REAL limit) { return p > limit ? (REAL)1 : p <= limit ? (REAL)0 : p - limit; }

typedef struct {
    REAL fed, back, spike, g; /* gradients for the spike, and for P through it; the spike; the gradient for P */
} NAME(FiredBack);

/* Back through spike and reset: u is the potential that determines the spike, p the one that is reset. */
INLINE NAME(FiredBack) NAME(fire_backward)(const NAME(Call) *c, REAL gs, REAL gv, REAL u, REAL p, REAL gate, REAL limit, REAL k,
                                  REAL extra, REAL steep, REAL after, const int membrane, const int soft,
                                  const int curve)
{
    NAME(FiredBack) f;
    f.spike = soft ? NAME(soft_spike)(c, gate, extra, membrane) : u > limit ? (REAL)1 : (REAL)0;
    f.fed = c->rule->detach ? gs : gs + gv * (after - c->wiped * p);
    if (membrane == ADD) /* a clipped curve rises between 0 and twice the threshold: test P, as the curve is rounded */
        f.fed = c->clips * u >= 0 && c->clips * (u - 2 * limit) <= 0 ? f.fed : 0;
    f.back = f.fed * (steep * NAME(slope)(gate, u, limit, k, curve)); /* a slope of 0 comes first: fed may be huge */
    f.g = gv * (1 - c->wiped * f.spike);
    return f;
}

/* Prefetch n numbers that a later step reads or writes: the processor cannot predict steps a whole layer apart. */
INLINE void NAME(expect)(const NAME(Call) *c, const void *x, int64_t n, const int write)
{
    for (int64_t j = 0; j < (n * (int64_t)sizeof(REAL)) >> (c->rule->type != SAME); j += 64)
        write ? __builtin_prefetch((const char *)x + j, 1) : __builtin_prefetch((const char *)x + j);
}

/* The address of element i of a tensor of the current's type. */
INLINE const void *NAME(element)(const NAME(Call) *c, const void *x, int64_t i)
{
    return (const char *)x + (i * (int64_t)sizeof(REAL) >> (c->rule->type != SAME));
}

/* Copy n numbers that are a stride apart to the membrane's type. */
static void NAME(widen)(int type, REAL *restrict to, const void *restrict from, int64_t stride, int64_t n)
{
    const uint16_t *restrict half = from;
    const REAL *restrict same = from;
    if (type == SAME && stride == 1)
        memcpy(to, from, n * sizeof(REAL));
    else if (type == BFLOAT16 && stride == 1)
        SIMD for (int64_t j = 0; j < n; j++)
            to[j] = (REAL)from_bfloat16(half[j]);
    else if (type == FLOAT16 && stride == 1)
        widen_float16((float *)to, half, n);
    else
        for (int64_t j = 0; j < n; j++)
            to[j] = type == SAME       ? same[j * stride]
                    : type == BFLOAT16 ? (REAL)from_bfloat16(half[j * stride])
                                       : (REAL)from_float16(half[j * stride]);
}

/* Copy n numbers back from the membrane's type to contiguous memory. */
static void NAME(narrow)(int type, void *restrict to, const REAL *restrict from, int64_t n)
{
    uint16_t *restrict half = to;
    if (type == SAME)
        memcpy(to, from, n * sizeof(REAL));
    else if (type == BFLOAT16)
        narrow_bfloat16(half, (const float *)from, n);
    else
        narrow_float16(half, (const float *)from, n);
}

/* Whether the numbers of a time step are contiguous. */
INLINE int NAME(dense)(const NAME(Call) *c, Strides by)
{
    return by.feature == 1 && (by.batch == c->rule->features || c->rule->batch == 1);
}

/* Read n numbers of step t, starting at element `at`: in place, or gathered in the room. */
static const REAL *NAME(fetch)(const NAME(Call) *c, const void *x, Strides by, int64_t t, int64_t at, int64_t n,
                               const int in_place, REAL *room)
{
    if (in_place)
        return (const REAL *)x + t * by.time + at;
    if (NAME(dense)(c, by)) {
        NAME(widen)(c->rule->type, room, NAME(element)(c, x, t * by.time + at), 1, n);
        return room;
    }
    for (int64_t j = 0, part; j < n; j += part) {
        const int64_t batch = (at + j) / c->rule->features, feature = (at + j) % c->rule->features;
        part = c->rule->features - feature < n - j ? c->rule->features - feature : n - j;
        const void *from = NAME(element)(c, x, t * by.time + batch * by.batch + feature * by.feature);
        NAME(widen)(c->rule->type, room + j, from, by.feature, part);
    }
    return room;
}

/* Take n values from a thread's room, plus one cache line: with arrays 4096 bytes apart, whose addresses
 * differ only in their upper bits, some processes were 40 % slower. */
INLINE REAL *NAME(take)(REAL **room, int64_t n)
{
    REAL *start = *room;
    *room += (n + 31) / 16 * 16;
    return start;
}

INLINE void NAME(load)(REAL *to, const REAL *from, int64_t n)
{
    if (from)
        memcpy(to, from, n * sizeof(REAL));
    else
        memset(to, 0, n * sizeof(REAL));
}

/* Add n sums to those of a constant, starting at a lane. */
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
    const int64_t differ = c->longest == 1 ? 1 : c->width; /* if 1, all lanes have the values of the first */
    for (int64_t j = 0; j < differ; j++) {
        double value[CONSTANTS];
        for (int i = 0; i < CONSTANTS; i++) {
            const REAL *tensor = c->t->constants[i];
            const Constant *constant = &rule->constants[i];
            value[i] = !tensor                   ? constant->number
                       : constant->form == GIVEN ? (double)tensor[j * constant->length / c->width]
                                                 : decode(constant, (double)tensor[j * constant->length / c->width]);
        }
        const double height = rule->reset == SATURATE ? 1 : value[AMPLITUDE];
        const double eps = value[EPS] * 0.69314718055994531, leak = value[LEAK];
        const double log_leak = leak > 0 ? log2_double(leak) * 0.69314718055994531 : -__builtin_inf();
        const double fields[] = { eps,
                                  1 / eps,
                                  leak,
                                  log_leak,
                                  value[THRESHOLD],
                                  height - 1,
                                  height / value[EPS],
                                  rule->reset == ZERO       ? rule->v_reset
                                  : rule->reset == SUBTRACT ? -value[THRESHOLD]
                                  : rule->reset == SATURATE ? value[AMPLITUDE]
                                                            : 0 };
        for (int i = 0; i < NAME(FIELDS); i++)
            c->constants[i * c->width + j] = (REAL)fields[i];
    }
    for (int i = 0; i < NAME(FIELDS); i++)
        for (int64_t j = differ; j < c->width; j++)
            c->constants[i * c->width + j] = c->constants[i * c->width];
}

/* Sum over the parts, and over the lanes that share an entry of a constant. */
static void NAME(reduce)(const NAME(Call) *c)
{
    for (int64_t i = 0; i < CONSTANTS; i++) {
        const Constant *constant = &c->rule->constants[i];
        const REAL *tensor = c->t->constants[i];
        const int64_t run = c->width / constant->length;
        for (int64_t entry = 0; tensor && entry < constant->length; entry++) {
            double sum = 0;
            for (int64_t part = 0; part < c->parts; part++)
                for (int64_t j = entry * run; j < (entry + 1) * run; j++)
                    sum += c->sums[(part * CONSTANTS + i) * c->width + j];
            c->t->g_constants[i * c->longest + entry] =
                (REAL)(constant->form == GIVEN ? sum : pull(constant, (double)tensor[entry], sum));
        }
    }
}

/* Each thread takes one part after another until none is left; which thread takes a part does not affect the sums. */
static void NAME(work)(void *call)
{
    NAME(Call) *c = call;
    REAL *room = aligned(c->size * sizeof(REAL));
    if (!room)
        __atomic_store_n(&c->failed, 1, __ATOMIC_RELAXED);
    for (int64_t part; room && (part = __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED)) < c->parts;)
        for (int64_t item = part * c->items / c->parts; item < (part + 1) * c->items / c->parts; item++)
            (c->rule->ring ? NAME(run_ring) : NAME(run_block))(c, part, item, room);
    free(room);
}

/* Integrate, or differentiate if g_current is given; return 0, or 1 if out of memory. */
int NAME(integrate)(const Rule *rule, const NAME(Tensors) *t)
{
    NAME(Call) c = { .rule = rule, .t = t, .row = rule->batch * rule->features };
    c.wiped = rule->reset == ZERO;
    c.subtracted = rule->reset == SUBTRACT;
    c.low = rule->clipped ? 0 : -(REAL)__builtin_inf();
    c.high = rule->clipped ? 1 : (REAL)__builtin_inf();
    c.clips = rule->clipped;
    c.strength = (REAL)rule->adapt_strength;
    c.decay = (REAL)rule->adapt_decay;
    c.edge = NAME(EDGE);
    c.shift = rule->centered ? (REAL)1.5849625007211562 : (REAL)0; /* log2(3) */
    c.width = rule->features;
    c.longest = 1;
    for (int i = 0; i < CONSTANTS; i++)
        c.longest = rule->constants[i].length > c.longest ? rule->constants[i].length : c.longest;
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
        c.size = rule->ring ? NAME(ring_room)(&c) : NAME(block_room)(&c);
        c.parts > 1 ? rule->parallel(NAME(work), &c, (unsigned)c.parts, 0) : NAME(work)(&c);
    }
    if (!c.failed && c.sums)
        NAME(reduce)(&c);
    free(c.constants);
    free(c.sums);
    return c.failed != 0;
}
