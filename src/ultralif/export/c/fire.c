
static void fire_$l(model_state *s, uint32_t i, int32_t v)
{$rise$delayed$floor
    if (v > threshold_$l[$threshold_at]$risen) {$reset
        COUNT(spikes, 1);$jump
        push_$l(s, i);
    }$ceiling
    s->v_$l[i] = (model_membrane)v;
}

#define decay_$l(v, i) $decay
