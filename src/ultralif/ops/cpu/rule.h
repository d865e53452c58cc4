/* Written by python src/ultralif/ops/rule.py from Rule and Form, which explain the words. */

enum { LSE, MAX, ADD };
enum { ZERO, SUBTRACT, NONE, SATURATE };
enum { SIGMOID, ATAN, TRIANGLE, SUPERSPIKE };
enum { GIVEN, VALUE, EXP, LOGISTIC, SOFTPLUS };

#define RULE_FIELDS int64_t ring; double v_reset, adapt_strength, adapt_decay; int32_t membrane, soft, reset, detach, delayed, curve, clipped, rate, centered, leaks, adapt, sharp;
