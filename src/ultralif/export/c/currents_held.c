        ${kind} *now = s->now_$l + (y * $out_width + x) * $channels_out;
        if (!s->known[0]) { /* the input's first time step; its currents then stay the same */
            int32_t best[$padded_out];
$largest            for (c = 0; c < $channels_out; c++)
                now[c] = ($kind)($current);
        }
