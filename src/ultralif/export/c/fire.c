
static void fire_$l(model_state *s, uint32_t i, int32_t v)
{$delayed$floor
    if (v > threshold_$l[$threshold_at]) {$reset
        COUNT(spikes, 1);
        push_$l(s, i);
    }$ceiling
    s->v_$l[i] = (model_membrane)v;
}

#define decay_$l(v, i) $decay
