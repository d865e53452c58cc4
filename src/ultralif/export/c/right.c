
/* x / 2^n, rounded down, also for negative x; this is one instruction if the compiler's >> keeps the sign. */
#define RIGHT(x, n) ((-1 >> 1) == -1 || (x) >= 0 ? (x) >> (n) : ~(~(x) >> (n)))
