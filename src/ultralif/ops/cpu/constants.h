/* Included by kernels.c: learned constants, as in constants.py. Each is a function of a raw parameter, clamped and
 * optionally inverted. */

typedef struct {
    double low, high;
    int64_t length; /* number of entries */
    double number;  /* the value of a constant without a tensor */
    int32_t form, inverse; /* form GIVEN: the constant itself, in place of a raw parameter */
} Constant;

static double exp_double(double x)
{
    const double y = x * 1.4426950408889634;
    return x != x ? x : exp2_double(y > 1020 ? 1020 : y < -1020 ? -1020 : y);
}

/* The function of a raw parameter before it is clamped, and its derivative. */
static double function_of(const Constant *constant, double raw, double *slope)
{
    const double small = exp_double(raw > 0 ? -raw : raw), logistic = (raw > 0 ? 1 : small) / (1 + small);
    switch (constant->form) {
    case EXP:
        return *slope = exp_double(raw);
    case LOGISTIC:
        *slope = logistic * (1 - logistic);
        return logistic;
    case SOFTPLUS:
        *slope = logistic;
        return (raw > 0 ? raw : 0) + 0.69314718055994531 * log2_1p_double(small) + 0 * raw;
    default:
        *slope = 1;
        return raw;
    }
}

static double clamped(const Constant *constant, double x)
{
    return x < constant->low ? constant->low : x > constant->high ? constant->high : x;
}

static double decode(const Constant *constant, double raw)
{
    double slope, value = clamped(constant, function_of(constant, raw, &slope));
    return constant->inverse ? 1 / value : value;
}

/* The gradient for the raw parameter, from that for the constant. Outside the bounds it is kept only if a descent step
 * leads back inside. */
static double pull(const Constant *constant, double raw, double g)
{
    double slope, x = function_of(constant, raw, &slope), value = clamped(constant, x);
    if (constant->inverse)
        g *= -1 / (value * value);
    const int alive = g > 0 ? !(x <= constant->low) : !(x >= constant->high);
    return alive ? g * slope : 0;
}
