
/* Stop compilers from computing an address for each word (ONCE) or loading two words one by one (BOTH). */
#ifdef __GNUC__
#define ONCE(address) __asm__("" : "+r"(address))
#define BOTH(a, b) __asm__("" : "+r"(a), "+r"(b))
#else
#define ONCE(address) ((void)0)
#define BOTH(a, b) ((void)0)
#endif

#if defined(__AVX2__) && defined(__GNUC__) && $bits == 8
/* On a PC, a tap is one spike's row of weights. Lists are copied at full capacity, so loops have a fixed length. */
#define PC
typedef $row tap;
#define TAPS(places, channels) ((places) * (channels))
#define END(t) ((void)(t))
#define GATHER(start, t, n, weight, next, sum) gather(start, t, n, 1, weight, next, sum)
static tap *add_tap(tap *t, const $index *spike, uint32_t n, uint32_t channels, const uint32_t *weight, uint32_t row)
{
    uint32_t i;
    (void)weight;
    for (i = 0; i < channels; i++)
        t[i] = (tap)(spike[i] + row);
    return t + n;
}
#else
/* The spikes at one position of a map, and the weights of its tap. A tap without a first spike ends a list. */
typedef struct {
    const $index *first, *last;
    const uint32_t *weight;
} tap;
#define TAPS(places, channels) ((places) + 1)
#define END(t) ((t)->first = 0)
#define GATHER(start, t, n, weight, next, sum) gather(start, t, n, next, sum)
static tap *add_tap(tap *t, const $index *spike, uint32_t n, uint32_t channels, const uint32_t *weight, uint32_t row)
{
    (void)channels;
    if (n == 0)
        return t;
    t->first = spike;
    t->last = spike + n;
    t->weight = weight + row * ${words}u;
    return t + 1;
}
#endif
