
static void fire_$l(model_state *s, uint16_t i, int32_t v)
{$floor
    if (v > threshold_$l[i]) {
        v = reset_$l[i];
        COUNT(spikes, 1);
$emit
    }
    s->v_$l[i] = (model_membrane)v;
}

#define decay_$l(v, i) $decay
