// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
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
};

struct Params {
    uint n_head_k;
    uint n_head_v;
    uint dk;
    uint dv;
    uint token;
    float eps;
    uint n_tile;
};
typedef metal::atomic_uint type_3[1];
typedef float type_4[1];
struct type_6 {
    metal::float4 inner[64];
};
struct type_7 {
    float inner[1024];
};
struct type_9 {
    metal::float2 inner[512];
};
struct type_10 {
    float inner[16];
};
struct type_12 {
    float inner[32];
};
constant uint N_OWN = 32u;
constant uint DK_MAX = 256u;
constant uint DV_MAX = 1024u;
constant float L2_EPS = 0.000001;
constant uint ARRIVED_AT = 16u;
constant uint N_THREAD = 512u;
constant uint COLUMNS = 128u;
constant uint N_CONV = 4u;

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

uint out_head(
    uint head,
    uint n_head_v,
    uint n_tile
) {
    return ((head % n_tile) * (n_head_v / n_tile)) + (head / n_tile);
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

uint channel_of(
    uint head_1,
    uint i_11,
    constant Params& p
) {
    uint _e4 = p.n_head_v;
    uint _e7 = p.n_head_k;
    uint key_head = head_1 / (_e4 / _e7);
    uint _e13 = p.dk;
    if (i_11 < (2u * _e13)) {
        uint _e19 = p.n_head_k;
        uint _e22 = p.dk;
        uint _e28 = p.dk;
        uint _e32 = p.dk;
        uint _e36 = p.dk;
        return ((((i_11 >= _e22) ? _e19 : 0u) + key_head) * _e28) + ((i_11 >= _e36) ? (i_11 - _e32) : i_11);
    }
    uint _e43 = p.n_head_k;
    uint _e47 = p.dk;
    uint _e51 = p.dv;
    uint _e58 = p.dk;
    return ((((2u * _e43) * _e47) + (head_1 * _e51)) + i_11) - (2u * _e58);
}

type_10 window_of(
    uint channel,
    constant Params& p,
    device type_4 const& qkv,
    device type_4 const& conv_state,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_10 window = {};
    uint j = 0u;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e19 = j;
            j = _e19 + 1u;
        }
        loop_init = false;
        uint _e4 = j;
        if ((_e4 + 1u) < N_CONV) {
        } else {
            break;
        }
        {
            uint _e9 = j;
            uint _e12 = j;
            uint _e13 = n_channel(p);
            float _e17 = conv_state[(_e12 * _e13) + channel];
            window.inner[_e9] = _e17;
        }
    }
    uint _e29 = p.token;
    uint _e30 = n_channel(p);
    float _e34 = qkv[(_e29 * _e30) + channel];
    window.inner[3u] = _e34;
    type_10 _e35 = window;
    return _e35;
}

float convolve(
    uint channel_1,
    type_10 window_1,
    constant Params& p,
    device type_4 const& taps,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_10 seen = {};
    float sum = 0.0;
    uint j_1 = 0u;
    seen = window_1;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e23 = j_1;
            j_1 = _e23 + 1u;
        }
        loop_init_1 = false;
        uint _e7 = j_1;
        if (_e7 < N_CONV) {
        } else {
            break;
        }
        {
            uint _e11 = j_1;
            uint _e12 = n_channel(p);
            float _e16 = taps[(_e11 * _e12) + channel_1];
            uint _e17 = j_1;
            float _e19 = seen.inner[_e17];
            float _e20 = sum;
            sum = metal::fma(_e16, _e19, _e20);
        }
    }
    float _e25 = sum;
    float _e26 = silu(_e25);
    return _e26;
}

void shift(
    uint channel_2,
    type_10 window_2,
    constant Params& p,
    device type_4& conv_state,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_10 seen_1 = {};
    uint j_2 = 0u;
    seen_1 = window_2;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e22 = j_2;
            j_2 = _e22 + 1u;
        }
        loop_init_2 = false;
        uint _e5 = j_2;
        if ((_e5 + 1u) < N_CONV) {
        } else {
            break;
        }
        {
            uint _e11 = j_2;
            uint _e12 = n_channel(p);
            uint _e16 = j_2;
            float _e20 = seen_1.inner[_e16 + 1u];
            conv_state[(_e11 * _e12) + channel_2] = _e20;
        }
    }
    return;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(512)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, uint lane [[thread_index_in_simdgroup]]
, uint n_lane [[threads_per_simdgroup]]
, constant Params& p [[buffer(0)]]
, device type_3& control [[buffer(1)]]
, device type_4 const& qkv [[buffer(2)]]
, device type_4 const& b [[buffer(3)]]
, device type_4 const& a [[buffer(4)]]
, device type_4 const& z [[buffer(5)]]
, device type_4 const& taps [[buffer(6)]]
, device type_4 const& log_decay [[buffer(7)]]
, device type_4 const& dt_bias [[buffer(8)]]
, device type_4 const& norm [[buffer(9)]]
, device type_4& conv_state [[buffer(10)]]
, device type_4& state [[buffer(11)]]
, device type_4& out [[buffer(12)]]
, threadgroup uint& n_arrived
, threadgroup type_6& q_row
, threadgroup type_6& k_row
, threadgroup type_7& v_row
, threadgroup type_7& o_row
, threadgroup type_7& gate_row
, threadgroup type_9& parts
, constant _mslBufferSizes& _buffer_sizes [[buffer(13)]]
) {
    type_12 own = {};
    uint i = 0u;
    uint i_1 = {};
    uint i_2 = {};
    uint i_3 = {};
    uint arrived = 0u;
    bool local = {};
    float q_square = 0.0;
    float k_square = 0.0;
    float product = 0.0;
    uint i_4 = {};
    uint first = 0u;
    uint i_5 = {};
    metal::float2 sums = {};
    uint i_6 = {};
    uint part = {};
    bool local_1 = {};
    bool local_2 = {};
    uint i_7 = {};
    uint r = {};
    float square = 0.0;
    uint i_8 = {};
    uint i_9 = {};
    bool local_3 = {};
    uint i_10 = {};
    uint head_2 = group.x;
    uint first_row = (thread_ / COLUMNS) * N_OWN;
    uint _e12 = p.dk;
    uint _e16 = p.dv;
    uint _e22 = p.dv;
    uint first_at = ((head_2 * _e12) * _e16) + metal::min(thread_ % COLUMNS, _e22 - 1u);
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
    uint _e55 = metal::atomic_load_explicit(&control[0], metal::memory_order_relaxed);
    bool is_live = _e55 == 0u;
    uint _e60 = p.token;
    uint _e63 = p.n_head_v;
    uint gate = (_e60 * _e63) + head_2;
    float _e68 = b[gate];
    float _e69 = sigmoid(_e68);
    float _e72 = log_decay[head_2];
    float _e76 = a[gate];
    float _e79 = dt_bias[head_2];
    float _e81 = softplus(_e76 + _e79);
    float _e83 = decay_of(-(_e72) * _e81);
    uint _e86 = p.n_head_v;
    uint _e89 = p.n_head_k;
    uint n_value = _e86 / _e89;
    uint key_head_1 = head_2 / n_value;
    uint _e94 = p.dv;
    uint z_at = gate * _e94;
    uint _e98 = p.token;
    uint _e101 = p.n_head_v;
    uint _e105 = p.n_head_v;
    uint _e108 = p.n_tile;
    uint _e109 = out_head(head_2, _e105, _e108);
    uint _e113 = p.dv;
    uint out_at = ((_e98 * _e101) + _e109) * _e113;
    i_1 = thread_;
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e135 = i_1;
            i_1 = _e135 + N_THREAD;
        }
        loop_init_4 = false;
        uint _e116 = i_1;
        uint _e119 = p.dv;
        if (_e116 < _e119) {
        } else {
            break;
        }
        {
            uint _e122 = i_1;
            uint _e125 = i_1;
            float _e127 = norm[_e125];
            uint _e129 = i_1;
            float _e132 = z[z_at + _e129];
            float _e133 = silu(_e132);
            gate_row.inner[_e122] = _e127 * _e133;
        }
    }
    i_2 = thread_;
    bool loop_init_5 = true;
    while(true) {
        if (!loop_init_5) {
            uint _e201 = i_2;
            i_2 = _e201 + N_THREAD;
        }
        loop_init_5 = false;
        uint _e139 = i_2;
        uint _e143 = p.dk;
        uint _e147 = p.dv;
        if (_e139 < ((2u * _e143) + _e147)) {
        } else {
            break;
        }
        {
            uint _e150 = i_2;
            uint _e151 = channel_of(head_2, _e150, p);
            type_10 _e152 = window_of(_e151, p, qkv, conv_state, _buffer_sizes);
            float _e153 = convolve(_e151, _e152, p, taps, _buffer_sizes);
            uint _e154 = i_2;
            uint _e157 = p.dk;
            if (_e154 < _e157) {
                uint _e160 = i_2;
                uint _e164 = i_2;
                q_row.inner[_e160 / 4u][_e164 % 4u] = _e153;
            } else {
                uint _e168 = i_2;
                uint _e172 = p.dk;
                if (_e168 < (2u * _e172)) {
                    uint _e176 = i_2;
                    uint _e179 = p.dk;
                    uint _e184 = i_2;
                    uint _e187 = p.dk;
                    k_row.inner[(_e176 - _e179) / 4u][(_e184 - _e187) % 4u] = _e153;
                } else {
                    uint _e193 = i_2;
                    uint _e197 = p.dk;
                    v_row.inner[_e193 - (2u * _e197)] = _e153;
                    if (is_live) {
                        shift(_e151, _e152, p, conv_state, _buffer_sizes);
                    }
                }
            }
        }
    }
    uint _e206 = p.dk;
    i_3 = _e206 + thread_;
    bool loop_init_6 = true;
    while(true) {
        if (!loop_init_6) {
            uint _e232 = i_3;
            i_3 = _e232 + N_THREAD;
        }
        loop_init_6 = false;
        uint _e209 = i_3;
        if (_e209 < DK_MAX) {
        } else {
            break;
        }
        {
            uint _e213 = i_3;
            uint _e217 = i_3;
            q_row.inner[_e213 / 4u][_e217 % 4u] = 0.0;
            uint _e223 = i_3;
            uint _e227 = i_3;
            k_row.inner[_e223 / 4u][_e227 % 4u] = 0.0;
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (thread_ == 0u) {
        local = is_live;
    } else {
        local = false;
    }
    bool _e242 = local;
    if (_e242) {
        uint _e248 = metal::atomic_fetch_add_explicit(&control[ARRIVED_AT + key_head_1], 1u, metal::memory_order_relaxed);
        arrived = _e248 + 1u;
    }
    i_4 = lane;
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e284 = i_4;
            i_4 = _e284 + n_lane;
        }
        loop_init_7 = false;
        uint _e258 = i_4;
        uint _e261 = p.dk;
        if (_e258 < ((_e261 + 3u) / 4u)) {
        } else {
            break;
        }
        {
            uint _e268 = i_4;
            metal::float4 q_four = q_row.inner[_e268];
            uint _e272 = i_4;
            metal::float4 k_four = k_row.inner[_e272];
            float _e275 = q_square;
            q_square = _e275 + metal::dot(q_four, q_four);
            float _e278 = k_square;
            k_square = _e278 + metal::dot(k_four, k_four);
            float _e281 = product;
            product = _e281 + metal::dot(k_four, q_four);
        }
    }
    float _e286 = q_square;
    float unnamed = metal::simd_sum(_e286);
    uint _e293 = p.dk;
    float q_scale = metal::rsqrt(unnamed + L2_EPS) * metal::rsqrt(static_cast<float>(_e293));
    float _e297 = k_square;
    float unnamed_1 = metal::simd_sum(_e297);
    float k_scale = metal::rsqrt(unnamed_1 + L2_EPS);
    float _e302 = product;
    float unnamed_2 = metal::simd_sum(_e302);
    float kq = (unnamed_2 * k_scale) * q_scale;
    bool loop_init_8 = true;
    while(true) {
        if (!loop_init_8) {
            uint _e551 = first;
            first = _e551 + COLUMNS;
        }
        loop_init_8 = false;
        uint _e308 = first;
        uint _e311 = p.dv;
        if (_e308 < _e311) {
        } else {
            break;
        }
        {
            uint _e313 = first;
            uint column = _e313 + (thread_ % COLUMNS);
            uint _e319 = p.dk;
            uint _e323 = p.dv;
            uint _e327 = p.dv;
            uint at = ((head_2 * _e319) * _e323) + metal::min(column, _e327 - 1u);
            uint _e332 = first;
            if (_e332 > 0u) {
                i_5 = 0u;
                bool loop_init_9 = true;
                while(true) {
                    if (!loop_init_9) {
                        uint _e359 = i_5;
                        i_5 = _e359 + 1u;
                    }
                    loop_init_9 = false;
                    uint _e337 = i_5;
                    if (_e337 < N_OWN) {
                    } else {
                        break;
                    }
                    {
                        uint _e340 = i_5;
                        uint _e343 = i_5;
                        uint _e347 = p.dk;
                        uint _e353 = p.dv;
                        float _e357 = state[at + (metal::min(first_row + _e343, _e347 - 1u) * _e353)];
                        own.inner[_e340] = _e357;
                    }
                }
            }
            sums = metal::float2(0.0);
            i_6 = 0u;
            bool loop_init_10 = true;
            while(true) {
                if (!loop_init_10) {
                    uint _e425 = i_6;
                    i_6 = _e425 + 4u;
                }
                loop_init_10 = false;
                uint _e366 = i_6;
                if (_e366 < N_OWN) {
                } else {
                    break;
                }
                {
                    uint _e370 = i_6;
                    metal::float4 k_four_1 = k_row.inner[(first_row + _e370) / 4u];
                    uint _e377 = i_6;
                    metal::float4 q_four_1 = q_row.inner[(first_row + _e377) / 4u];
                    uint _e386 = i_6;
                    float _e388 = own.inner[_e386];
                    metal::float2 _e390 = sums;
                    sums = metal::fma(metal::float2(k_four_1.x, q_four_1.x), metal::float2(_e388), _e390);
                    uint _e395 = i_6;
                    float _e399 = own.inner[_e395 + 1u];
                    metal::float2 _e401 = sums;
                    sums = metal::fma(metal::float2(k_four_1.y, q_four_1.y), metal::float2(_e399), _e401);
                    uint _e406 = i_6;
                    float _e410 = own.inner[_e406 + 2u];
                    metal::float2 _e412 = sums;
                    sums = metal::fma(metal::float2(k_four_1.z, q_four_1.z), metal::float2(_e410), _e412);
                    uint _e417 = i_6;
                    float _e421 = own.inner[_e417 + 3u];
                    metal::float2 _e423 = sums;
                    sums = metal::fma(metal::float2(k_four_1.w, q_four_1.w), metal::float2(_e421), _e423);
                }
            }
            metal::float2 _e430 = sums;
            parts.inner[thread_] = _e430;
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            metal::float2 _e435 = parts.inner[thread_ % COLUMNS];
            sums = _e435;
            part = 1u;
            bool loop_init_11 = true;
            while(true) {
                if (!loop_init_11) {
                    uint _e457 = part;
                    part = _e457 + 1u;
                }
                loop_init_11 = false;
                uint _e438 = part;
                if (_e438 < 4u) {
                } else {
                    break;
                }
                {
                    metal::float2 _e445 = sums;
                    uint _e447 = part;
                    metal::float2 _e454 = parts.inner[(_e447 * COLUMNS) + (thread_ % COLUMNS)];
                    sums = _e445 + _e454;
                }
            }
            uint _e462 = p.dv;
            float _e467 = v_row.inner[metal::min(column, _e462 - 1u)];
            float _e469 = sums.x;
            float d = _e69 * (_e467 - (_e83 * (k_scale * _e469)));
            uint _e476 = p.dv;
            if (column < _e476) {
                local_1 = thread_ < COLUMNS;
            } else {
                local_1 = false;
            }
            bool _e483 = local_1;
            if (_e483) {
                float _e487 = sums.y;
                o_row.inner[column] = metal::fma(_e83, q_scale * _e487, kq * d);
            }
            uint _e493 = p.dv;
            if (column < _e493) {
                local_2 = is_live;
            } else {
                local_2 = false;
            }
            bool _e498 = local_2;
            if (_e498) {
                i_7 = 0u;
                bool loop_init_12 = true;
                while(true) {
                    if (!loop_init_12) {
                        uint _e548 = i_7;
                        i_7 = _e548 + 4u;
                    }
                    loop_init_12 = false;
                    uint _e501 = i_7;
                    if (_e501 < N_OWN) {
                    } else {
                        break;
                    }
                    {
                        uint _e505 = i_7;
                        metal::float4 k_four_2 = k_row.inner[(first_row + _e505) / 4u];
                        r = 0u;
                        bool loop_init_13 = true;
                        while(true) {
                            if (!loop_init_13) {
                                uint _e546 = r;
                                r = _e546 + 1u;
                            }
                            loop_init_13 = false;
                            uint _e513 = r;
                            if (_e513 < 4u) {
                            } else {
                                break;
                            }
                            {
                                uint _e516 = i_7;
                                uint _e518 = r;
                                uint _e522 = p.dk;
                                if (((first_row + _e516) + _e518) < _e522) {
                                    uint _e525 = i_7;
                                    uint _e527 = r;
                                    uint _e531 = p.dv;
                                    uint _e535 = r;
                                    uint _e538 = i_7;
                                    uint _e539 = r;
                                    float _e542 = own.inner[_e538 + _e539];
                                    state[at + (((first_row + _e525) + _e527) * _e531)] = metal::fma(k_four_2[_e535], k_scale * d, _e83 * _e542);
                                }
                            }
                        }
                    }
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        }
    }
    i_8 = lane;
    bool loop_init_14 = true;
    while(true) {
        if (!loop_init_14) {
            uint _e572 = i_8;
            i_8 = _e572 + n_lane;
        }
        loop_init_14 = false;
        uint _e557 = i_8;
        uint _e560 = p.dv;
        if (_e557 < _e560) {
        } else {
            break;
        }
        {
            uint _e563 = i_8;
            float _e565 = o_row.inner[_e563];
            uint _e567 = i_8;
            float _e569 = o_row.inner[_e567];
            float _e570 = square;
            square = metal::fma(_e565, _e569, _e570);
        }
    }
    float _e574 = square;
    float unnamed_3 = metal::simd_sum(_e574);
    uint _e578 = p.dv;
    float mean = unnamed_3 / static_cast<float>(_e578);
    float _e583 = p.eps;
    float scale = metal::rsqrt(mean + _e583);
    i_9 = thread_;
    bool loop_init_15 = true;
    while(true) {
        if (!loop_init_15) {
            uint _e610 = i_9;
            i_9 = _e610 + N_THREAD;
        }
        loop_init_15 = false;
        uint _e587 = i_9;
        uint _e590 = p.dv;
        if (_e587 < _e590) {
            local_3 = is_live;
        } else {
            local_3 = false;
        }
        bool _e595 = local_3;
        if (_e595) {
        } else {
            break;
        }
        {
            uint _e597 = i_9;
            uint _e601 = i_9;
            float _e603 = o_row.inner[_e601];
            uint _e606 = i_9;
            float _e608 = gate_row.inner[_e606];
            out[out_at + _e597] = (_e603 * scale) * _e608;
        }
    }
    if (thread_ == 0u) {
        uint _e616 = arrived;
        n_arrived = _e616;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint unnamed_4 = n_arrived;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (unnamed_4 == n_value) {
        i_10 = thread_;
        bool loop_init_16 = true;
        while(true) {
            if (!loop_init_16) {
                uint _e631 = i_10;
                i_10 = _e631 + N_THREAD;
            }
            loop_init_16 = false;
            uint _e621 = i_10;
            uint _e625 = p.dk;
            if (_e621 < (2u * _e625)) {
            } else {
                break;
            }
            {
                uint _e628 = i_10;
                uint _e629 = channel_of(head_2, _e628, p);
                type_10 _e630 = window_of(_e629, p, qkv, conv_state, _buffer_sizes);
                shift(_e629, _e630, p, conv_state, _buffer_sizes);
            }
        }
        if (thread_ == 0u) {
            metal::atomic_store_explicit(&control[ARRIVED_AT + key_head_1], 0u, metal::memory_order_relaxed);
            return;
        } else {
            return;
        }
    } else {
        return;
    }
}
