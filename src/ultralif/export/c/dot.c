
/* v[0] * w[0] + v[1] * w[1], added to a sum; a pair is loaded as one word if one instruction can multiply it. */
#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP && !defined(MODEL_PORTABLE)
#include <arm_acle.h>
typedef int16x2_t pair;
static pair take(const int16_t *v)
{
    pair a;
    __builtin_memcpy(&a, v, 4);
    return a;
}
static int32_t dot(pair v, const int16_t *w, int32_t sum)
{
    return __smlad(v, take(w), sum);
}
#else
typedef const int16_t *pair;
static pair take(const int16_t *v)
{
    return v;
}
static int32_t dot(pair v, const int16_t *w, int32_t sum)
{
    return sum + v[0] * w[0] + v[1] * w[1];
}
#endif
