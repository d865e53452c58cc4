
/* A 4-bit weight: a byte holds two, each plus 8, the first in its lower half. */
#define WEIGHT(row, i) ((int32_t)((row)[(i) >> 1] >> ((i) & 1) * 4 & 15) - 8)
