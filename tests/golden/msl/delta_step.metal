// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size2;
    uint size3;
    uint size4;
    uint size5;
    uint size6;
    uint size7;
    uint size8;
    uint size9;
    uint size10;
    uint size11;
    uint size12;
    uint size13;
};

struct type_1 {
    float inner[64];
};
struct Params {
    uint n_head_k;
    uint n_head_v;
    uint dk;
    uint dv;
    uint n_conv;
    uint token;
    float eps;
};
typedef metal::atomic_uint type_4[1];
typedef float type_5[1];
struct type_7 {
    metal::float2 inner[256];
};
struct type_8 {
    float inner[1024];
};
constant uint N_OWN = 64u;
constant uint DK_MAX = 256u;
constant uint DV_MAX = 1024u;
constant float L2_EPS = 0.000001;
constant uint ARRIVED_AT = 16u;
constant uint COLUMNS = 256u;

float workgroup_sum(
    float value,
    uint thread_1,
    uint lane_1,
    uint n_lane_1,
    threadgroup type_1& partial_sums
) {
    float total = 0.0;
    uint i_7 = 0u;
    float unnamed = metal::simd_sum(value);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (lane_1 == 0u) {
        partial_sums.inner[thread_1 / n_lane_1] = unnamed;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e25 = i_7;
            i_7 = _e25 + 1u;
        }
        loop_init = false;
        uint _e14 = i_7;
        if (_e14 < (256u / n_lane_1)) {
        } else {
            break;
        }
        {
            float _e18 = total;
            uint _e20 = i_7;
            float _e22 = partial_sums.inner[_e20];
            total = _e18 + _e22;
        }
    }
    float _e27 = total;
    return _e27;
}

float sigmoid(
    float x
) {
    return 1.0 / (1.0 + metal::exp(-(metal::clamp(x, -87.0, 87.0))));
}

float silu(
    float x_1
) {
    float _e1 = sigmoid(x_1);
    return (x_1 > -87.0) ? (x_1 * _e1) : 0.0;
}

float softplus(
    float x_2
) {
    float series = 0.06666667;
    float y = metal::exp(-(metal::min(metal::abs(x_2), 87.0)));
    float z_1 = y / (2.0 + y);
    float square_1 = z_1 * z_1;
    float _e12 = series;
    series = metal::fma(_e12, square_1, 0.07692308);
    float _e15 = series;
    series = metal::fma(_e15, square_1, 0.09090909);
    float _e18 = series;
    series = metal::fma(_e18, square_1, 0.11111111);
    float _e21 = series;
    series = metal::fma(_e21, square_1, 0.14285715);
    float _e24 = series;
    series = metal::fma(_e24, square_1, 0.2);
    float _e27 = series;
    series = metal::fma(_e27, square_1, 0.33333334);
    float _e30 = series;
    series = metal::fma(_e30, square_1, 1.0);
    float _e35 = series;
    return metal::fma(2.0 * z_1, _e35, metal::max(x_2, 0.0));
}

float decay_of(
    float x_3
) {
    float series_1 = 0.0001984127;
    float small = metal::max(x_3, -0.25);
    float _e5 = series_1;
    series_1 = metal::fma(_e5, small, 0.0013888889);
    float _e8 = series_1;
    series_1 = metal::fma(_e8, small, 0.008333334);
    float _e11 = series_1;
    series_1 = metal::fma(_e11, small, 0.041666668);
    float _e14 = series_1;
    series_1 = metal::fma(_e14, small, 0.16666667);
    float _e17 = series_1;
    series_1 = metal::fma(_e17, small, 0.5);
    float _e20 = series_1;
    series_1 = metal::fma(_e20, small, 1.0);
    float _e23 = series_1;
    series_1 = metal::fma(_e23, small, 1.0);
    float _e27 = series_1;
    return (x_3 > -0.25) ? _e27 : metal::exp(x_3);
}

uint n_channel(
    constant Params& p
) {
    uint _e3 = p.n_head_k;
    uint _e7 = p.dk;
    uint _e11 = p.n_head_v;
    uint _e14 = p.dv;
    return ((2u * _e3) * _e7) + (_e11 * _e14);
}

float convolve(
    uint channel,
    constant Params& p,
    device type_5 const& qkv,
    device type_5 const& taps,
    device type_5 const& conv_state,
    constant _mslBufferSizes& _buffer_sizes
) {
    float sum = 0.0;
    uint j = 0u;
    uint _e1 = n_channel(p);
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e28 = j;
            j = _e28 + 1u;
        }
        loop_init_1 = false;
        uint _e6 = j;
        uint _e11 = p.n_conv;
        if ((_e6 + 1u) < _e11) {
        } else {
            break;
        }
        {
            uint _e14 = j;
            float _e18 = taps[(_e14 * _e1) + channel];
            uint _e20 = j;
            float _e24 = conv_state[(_e20 * _e1) + channel];
            float _e25 = sum;
            sum = metal::fma(_e18, _e24, _e25);
        }
    }
    uint _e33 = p.n_conv;
    float _e39 = taps[((_e33 - 1u) * _e1) + channel];
    uint _e43 = p.token;
    float _e47 = qkv[(_e43 * _e1) + channel];
    float _e48 = sum;
    float _e50 = silu(metal::fma(_e39, _e47, _e48));
    return _e50;
}

void shift(
    uint channel_1,
    constant Params& p,
    device type_5 const& qkv,
    device type_5& conv_state,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint j_1 = 0u;
    uint _e1 = n_channel(p);
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e45 = j_1;
            j_1 = _e45 + 1u;
        }
        loop_init_2 = false;
        uint _e4 = j_1;
        uint _e9 = p.n_conv;
        if ((_e4 + 1u) < _e9) {
        } else {
            break;
        }
        {
            uint _e11 = j_1;
            uint _e16 = p.n_conv;
            if ((_e11 + 2u) < _e16) {
                uint _e19 = j_1;
                uint _e24 = j_1;
                float _e30 = conv_state[((_e24 + 1u) * _e1) + channel_1];
                conv_state[(_e19 * _e1) + channel_1] = _e30;
            } else {
                uint _e32 = j_1;
                uint _e39 = p.token;
                float _e43 = qkv[(_e39 * _e1) + channel_1];
                conv_state[(_e32 * _e1) + channel_1] = _e43;
            }
        }
    }
    return;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, uint lane [[thread_index_in_simdgroup]]
, uint n_lane [[threads_per_simdgroup]]
, threadgroup type_1& partial_sums
, constant Params& p [[buffer(0)]]
, device type_4& control [[buffer(1)]]
, device type_5 const& qkv [[buffer(2)]]
, device type_5 const& b [[buffer(3)]]
, device type_5 const& a [[buffer(4)]]
, device type_5 const& z [[buffer(5)]]
, device type_5 const& taps [[buffer(6)]]
, device type_5 const& log_decay [[buffer(7)]]
, device type_5 const& dt_bias [[buffer(8)]]
, device type_5 const& norm [[buffer(9)]]
, device type_5& conv_state [[buffer(10)]]
, device type_5& state [[buffer(11)]]
, device type_5& out [[buffer(12)]]
, threadgroup uint& control_word
, threadgroup uint& n_arrived
, threadgroup type_7& keys
, threadgroup type_8& v_row
, threadgroup type_8& o_row
, threadgroup type_7& parts
, constant _mslBufferSizes& _buffer_sizes [[buffer(13)]]
) {
    type_1 own = {};
    uint i = 0u;
    float q_own = 0.0;
    float k_own = 0.0;
    uint i_1 = {};
    uint first = 0u;
    uint i_2 = {};
    metal::float2 sums = {};
    uint i_3 = {};
    uint part = {};
    uint i_4 = {};
    float square = 0.0;
    uint i_5 = {};
    uint i_6 = {};
    uint head = group.x;
    uint first_row = (thread_ / COLUMNS) * N_OWN;
    uint _e12 = p.dk;
    uint _e16 = p.dv;
    uint _e22 = p.dv;
    uint first_at = ((head * _e12) * _e16) + metal::min(thread_ % COLUMNS, _e22 - 1u);
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e51 = i;
            i = _e51 + 1u;
        }
        loop_init_3 = false;
        uint _e29 = i;
        if (_e29 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e32 = i;
            uint _e35 = i;
            uint _e39 = p.dk;
            uint _e45 = p.dv;
            float _e49 = state[first_at + (metal::min(first_row + _e35, _e39 - 1u) * _e45)];
            own.inner[_e32] = _e49;
        }
    }
    if (thread_ == 0u) {
        uint _e58 = metal::atomic_load_explicit(&control[0], metal::memory_order_relaxed);
        control_word = _e58;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint unnamed_1 = control_word;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (unnamed_1 != 0u) {
        return;
    }
    uint _e65 = p.n_head_v;
    uint _e68 = p.n_head_k;
    uint n_value = _e65 / _e68;
    uint key_head = head / n_value;
    uint _e73 = p.dk;
    uint q_at = key_head * _e73;
    uint _e77 = p.n_head_k;
    uint _e81 = p.dk;
    uint k_at = (_e77 + key_head) * _e81;
    uint _e86 = p.n_head_k;
    uint _e90 = p.dk;
    uint _e94 = p.dv;
    uint v_at = ((2u * _e86) * _e90) + (head * _e94);
    uint _e103 = p.dk;
    if (thread_ < _e103) {
        float _e106 = convolve(q_at + thread_, p, qkv, taps, conv_state, _buffer_sizes);
        q_own = _e106;
        float _e108 = convolve(k_at + thread_, p, qkv, taps, conv_state, _buffer_sizes);
        k_own = _e108;
    }
    i_1 = thread_;
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e121 = i_1;
            i_1 = _e121 + 256u;
        }
        loop_init_4 = false;
        uint _e110 = i_1;
        uint _e113 = p.dv;
        if (_e110 < _e113) {
        } else {
            break;
        }
        {
            uint _e116 = i_1;
            uint _e118 = i_1;
            float _e120 = convolve(v_at + _e118, p, qkv, taps, conv_state, _buffer_sizes);
            v_row.inner[_e116] = _e120;
        }
    }
    float _e124 = q_own;
    float _e125 = q_own;
    float _e127 = workgroup_sum(_e124 * _e125, thread_, lane, n_lane, partial_sums);
    float _e128 = k_own;
    float _e129 = k_own;
    float _e131 = workgroup_sum(_e128 * _e129, thread_, lane, n_lane, partial_sums);
    float _e132 = q_own;
    uint _e138 = p.dk;
    q_own = _e132 * (metal::rsqrt(_e127 + L2_EPS) * metal::rsqrt(static_cast<float>(_e138)));
    float _e143 = k_own;
    k_own = _e143 * metal::rsqrt(_e131 + L2_EPS);
    float _e150 = k_own;
    float _e151 = q_own;
    keys.inner[thread_] = metal::float2(_e150, _e151);
    float _e153 = k_own;
    float _e154 = q_own;
    float _e156 = workgroup_sum(_e153 * _e154, thread_, lane, n_lane, partial_sums);
    uint _e159 = p.token;
    uint _e162 = p.n_head_v;
    uint gate = (_e159 * _e162) + head;
    float _e167 = b[gate];
    float _e168 = sigmoid(_e167);
    float _e171 = log_decay[head];
    float _e175 = a[gate];
    float _e178 = dt_bias[head];
    float _e180 = softplus(_e175 + _e178);
    float _e182 = decay_of(-(_e171) * _e180);
    bool loop_init_5 = true;
    while(true) {
        if (!loop_init_5) {
            uint _e350 = first;
            first = _e350 + COLUMNS;
        }
        loop_init_5 = false;
        uint _e185 = first;
        uint _e188 = p.dv;
        if (_e185 < _e188) {
        } else {
            break;
        }
        {
            uint _e190 = first;
            uint column = _e190 + (thread_ % COLUMNS);
            uint _e196 = p.dk;
            uint _e200 = p.dv;
            uint _e204 = p.dv;
            uint at = ((head * _e196) * _e200) + metal::min(column, _e204 - 1u);
            uint _e209 = first;
            if (_e209 > 0u) {
                i_2 = 0u;
                bool loop_init_6 = true;
                while(true) {
                    if (!loop_init_6) {
                        uint _e236 = i_2;
                        i_2 = _e236 + 1u;
                    }
                    loop_init_6 = false;
                    uint _e214 = i_2;
                    if (_e214 < N_OWN) {
                    } else {
                        break;
                    }
                    {
                        uint _e217 = i_2;
                        uint _e220 = i_2;
                        uint _e224 = p.dk;
                        uint _e230 = p.dv;
                        float _e234 = state[at + (metal::min(first_row + _e220, _e224 - 1u) * _e230)];
                        own.inner[_e217] = _e234;
                    }
                }
            }
            sums = metal::float2(0.0);
            i_3 = 0u;
            bool loop_init_7 = true;
            while(true) {
                if (!loop_init_7) {
                    uint _e258 = i_3;
                    i_3 = _e258 + 1u;
                }
                loop_init_7 = false;
                uint _e243 = i_3;
                if (_e243 < N_OWN) {
                } else {
                    break;
                }
                {
                    uint _e247 = i_3;
                    metal::float2 _e250 = keys.inner[first_row + _e247];
                    uint _e251 = i_3;
                    float _e253 = own.inner[_e251];
                    metal::float2 _e255 = sums;
                    sums = metal::fma(_e250, metal::float2(_e253), _e255);
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            metal::float2 _e262 = sums;
            parts.inner[thread_] = _e262;
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            metal::float2 _e267 = parts.inner[thread_ % COLUMNS];
            sums = _e267;
            part = 1u;
            bool loop_init_8 = true;
            while(true) {
                if (!loop_init_8) {
                    uint _e288 = part;
                    part = _e288 + 1u;
                }
                loop_init_8 = false;
                uint _e270 = part;
                if (_e270 < 1u) {
                } else {
                    break;
                }
                {
                    metal::float2 _e276 = sums;
                    uint _e278 = part;
                    metal::float2 _e285 = parts.inner[(_e278 * COLUMNS) + (thread_ % COLUMNS)];
                    sums = _e276 + _e285;
                }
            }
            uint _e293 = p.dv;
            float _e298 = v_row.inner[metal::min(column, _e293 - 1u)];
            float _e300 = sums.x;
            float d = _e168 * (_e298 - (_e182 * _e300));
            uint _e306 = p.dv;
            if (column < _e306) {
                if (thread_ < COLUMNS) {
                    float _e313 = sums.y;
                    o_row.inner[column] = metal::fma(_e182, _e313, _e156 * d);
                }
                i_4 = 0u;
                bool loop_init_9 = true;
                while(true) {
                    if (!loop_init_9) {
                        uint _e348 = i_4;
                        i_4 = _e348 + 1u;
                    }
                    loop_init_9 = false;
                    uint _e318 = i_4;
                    if (_e318 < N_OWN) {
                    } else {
                        break;
                    }
                    {
                        uint _e321 = i_4;
                        uint _e325 = p.dk;
                        if ((first_row + _e321) < _e325) {
                            uint _e328 = i_4;
                            uint _e332 = p.dv;
                            uint _e337 = i_4;
                            float _e341 = keys.inner[first_row + _e337].x;
                            uint _e342 = i_4;
                            float _e344 = own.inner[_e342];
                            state[at + ((first_row + _e328) * _e332)] = metal::fma(_e341, d, _e182 * _e344);
                        }
                    }
                }
            }
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    i_5 = thread_;
    bool loop_init_10 = true;
    while(true) {
        if (!loop_init_10) {
            uint _e371 = i_5;
            i_5 = _e371 + 256u;
        }
        loop_init_10 = false;
        uint _e356 = i_5;
        uint _e359 = p.dv;
        if (_e356 < _e359) {
        } else {
            break;
        }
        {
            uint _e362 = i_5;
            float _e364 = o_row.inner[_e362];
            uint _e366 = i_5;
            float _e368 = o_row.inner[_e366];
            float _e369 = square;
            square = metal::fma(_e364, _e368, _e369);
        }
    }
    float _e374 = square;
    float _e375 = workgroup_sum(_e374, thread_, lane, n_lane, partial_sums);
    uint _e378 = p.dv;
    float mean = _e375 / static_cast<float>(_e378);
    float _e383 = p.eps;
    float scale = metal::rsqrt(mean + _e383);
    uint _e388 = p.token;
    uint _e391 = p.n_head_v;
    uint _e396 = p.dv;
    uint row = ((_e388 * _e391) + head) * _e396;
    i_6 = thread_;
    bool loop_init_11 = true;
    while(true) {
        if (!loop_init_11) {
            uint _e427 = i_6;
            i_6 = _e427 + 256u;
        }
        loop_init_11 = false;
        uint _e399 = i_6;
        uint _e402 = p.dv;
        if (_e399 < _e402) {
        } else {
            break;
        }
        {
            uint _e405 = i_6;
            uint _e409 = i_6;
            float _e411 = o_row.inner[_e409];
            uint _e413 = i_6;
            float _e415 = norm[_e413];
            uint _e419 = i_6;
            float _e422 = z[row + _e419];
            float _e423 = silu(_e422);
            out[row + _e405] = (_e411 * (scale * _e415)) * _e423;
            uint _e425 = i_6;
            shift(v_at + _e425, p, qkv, conv_state, _buffer_sizes);
        }
    }
    if (thread_ == 0u) {
        uint _e438 = metal::atomic_fetch_add_explicit(&control[ARRIVED_AT + key_head], 1u, metal::memory_order_relaxed);
        n_arrived = _e438 + 1u;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint unnamed_2 = n_arrived;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (unnamed_2 == n_value) {
        uint _e446 = p.dk;
        if (thread_ < _e446) {
            shift(q_at + thread_, p, qkv, conv_state, _buffer_sizes);
            shift(k_at + thread_, p, qkv, conv_state, _buffer_sizes);
        }
        if (thread_ == 0u) {
            metal::atomic_store_explicit(&control[ARRIVED_AT + key_head], 0u, metal::memory_order_relaxed);
            return;
        } else {
            return;
        }
    } else {
        return;
    }
}
