
/* A weight of 4 bits: a byte holds two of them, each plus 8, and the first one in its lower half. */
#define WEIGHT(row, i) ((int32_t)((row)[(i) >> 1] >> ((i) & 1) * 4 & 15) - 8)
