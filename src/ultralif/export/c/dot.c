
/* v[0] * w[0] + v[1] * w[1], added to a sum. */
#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP && !defined(MODEL_PORTABLE)
#include <arm_acle.h>
static int32_t pair(const int16_t *v, const int16_t *w, int32_t sum)
{
    int16x2_t a, b;
    __builtin_memcpy(&a, v, 4);
    __builtin_memcpy(&b, w, 4);
    return __smlad(a, b, sum);
}
#else
static int32_t pair(const int16_t *v, const int16_t *w, int32_t sum)
{
    return sum + v[0] * w[0] + v[1] * w[1];
}
#endif
