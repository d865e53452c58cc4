
/* A function of its own, whose sums stay in registers. */
#ifdef __GNUC__
#define ALONE __attribute__((noinline))
#else
#define ALONE
#endif
