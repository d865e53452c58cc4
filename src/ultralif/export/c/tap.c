
/* Compute an address once; compilers like to do it for each word. */
#ifdef __GNUC__
#define ONCE(address) __asm__("" : "+r"(address))
#else
#define ONCE(address) ((void)0)
#endif

/* Spikes of one place of a map, and the weights of its tap: so many words for each channel. */
typedef struct {
    const $index *first, *last;
    const uint32_t *weight;
} tap;
