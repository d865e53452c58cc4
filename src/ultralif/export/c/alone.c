
/* A function of its own, whose sums stay in registers; or a copy for each caller, with its constants. */
#ifdef __GNUC__
#define ALONE __attribute__((noinline))
#define INLINE inline __attribute__((always_inline))
#else
#define ALONE
#define INLINE
#endif
