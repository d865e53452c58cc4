
/* Compute an address once, and load two words at once; compilers like to do either for each word. */
#ifdef __GNUC__
#define ONCE(address) __asm__("" : "+r"(address))
#define BOTH(a, b) __asm__("" : "+r"(a), "+r"(b))
#else
#define ONCE(address) ((void)0)
#define BOTH(a, b) ((void)0)
#endif

/* Spikes of one place of a map, and the weights of its tap: so many words for each channel. A tap without a first
   spike ends a list. */
typedef struct {
    const $index *first, *last;
    const uint32_t *weight;
} tap;
