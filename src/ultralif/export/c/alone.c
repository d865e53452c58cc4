
/* Control inlining: ALONE keeps a function's sums in registers; INLINE copies it into each caller, with its constants. */
#ifdef __GNUC__
#define ALONE __attribute__((noinline))
#define INLINE inline __attribute__((always_inline))
#else
#define ALONE
#define INLINE
#endif
