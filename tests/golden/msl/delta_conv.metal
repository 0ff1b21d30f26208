// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
    uint size2;
    uint size3;
    uint size4;
};

struct Params {
    uint n_head_k;
    uint n_head_v;
    uint dk;
    uint dv;
    uint first;
    uint n_token;
};
typedef float type_2[1];
struct type_3 {
    float inner[2048];
};
struct type_4 {
    float inner[16];
};
constant uint N_THREAD = 256u;
constant uint N_TOKEN = 8u;
constant uint DK_MAX = 256u;
constant float L2_EPS = 0.000001;
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

float convolve(
    uint t,
    uint channel,
    uint n_channel,
    constant Params& p,
    device type_2 const& qkv,
    device type_2 const& taps,
    device type_2 const& conv_state,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_4 seen = {};
    uint j = 0u;
    uint j_1 = 0u;
    float sum = 0.0;
    uint j_2 = 0u;
    if (t >= 3u) {
        bool loop_init = true;
        while(true) {
            if (!loop_init) {
                uint _e29 = j;
                j = _e29 + 1u;
            }
            loop_init = false;
            uint _e11 = j;
            if (_e11 < N_CONV) {
            } else {
                break;
            }
            {
                uint _e14 = j;
                uint _e19 = p.first;
                uint _e21 = j;
                float _e27 = qkv[((((_e19 + t) + _e21) - 3u) * n_channel) + channel];
                seen.inner[_e14] = _e27;
            }
        }
    } else {
        bool loop_init_1 = true;
        while(true) {
            if (!loop_init_1) {
                uint _e63 = j_1;
                j_1 = _e63 + 1u;
            }
            loop_init_1 = false;
            uint _e33 = j_1;
            if (_e33 < N_CONV) {
            } else {
                break;
            }
            {
                uint _e36 = j_1;
                if ((t + _e36) < 3u) {
                    uint _e39 = j_1;
                    uint _e42 = j_1;
                    float _e47 = conv_state[((t + _e42) * n_channel) + channel];
                    seen.inner[_e39] = _e47;
                } else {
                    uint _e48 = j_1;
                    uint _e53 = p.first;
                    uint _e55 = j_1;
                    float _e61 = qkv[((((_e53 + t) + _e55) - 3u) * n_channel) + channel];
                    seen.inner[_e48] = _e61;
                }
            }
        }
    }
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e84 = j_2;
            j_2 = _e84 + 1u;
        }
        loop_init_2 = false;
        uint _e69 = j_2;
        if (_e69 < N_CONV) {
        } else {
            break;
        }
        {
            uint _e73 = j_2;
            float _e77 = taps[(_e73 * n_channel) + channel];
            uint _e78 = j_2;
            float _e80 = seen.inner[_e78];
            float _e81 = sum;
            sum = metal::fma(_e77, _e80, _e81);
        }
    }
    float _e86 = sum;
    float _e87 = silu(_e86);
    return _e87;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, uint lane [[thread_index_in_simdgroup]]
, uint n_lane [[threads_per_simdgroup]]
, constant Params& p [[buffer(0)]]
, device type_2 const& qkv [[buffer(1)]]
, device type_2 const& taps [[buffer(2)]]
, device type_2 const& conv_state [[buffer(3)]]
, device type_2& mixed [[buffer(4)]]
, threadgroup type_3& rows
, constant _mslBufferSizes& _buffer_sizes [[buffer(5)]]
) {
    uint i = {};
    uint i_1 = {};
    float square = {};
    uint dim = {};
    uint dim_1 = {};
    uint _e6 = p.n_head_k;
    uint _e9 = p.dk;
    uint n_key = _e6 * _e9;
    uint _e15 = p.n_head_v;
    uint _e18 = p.dv;
    uint n_channel_1 = (2u * n_key) + (_e15 * _e18);
    uint first = group.y * N_TOKEN;
    uint _e27 = p.n_token;
    uint n = metal::min(N_TOKEN, _e27 - first);
    uint _e34 = p.n_head_k;
    if (group.x >= (2u * _e34)) {
        uint _e43 = p.n_head_k;
        uint _e48 = p.dv;
        uint start = (2u * n_key) + ((group.x - (2u * _e43)) * _e48);
        i = thread_;
        bool loop_init_3 = true;
        while(true) {
            if (!loop_init_3) {
                uint _e75 = i;
                i = _e75 + N_THREAD;
            }
            loop_init_3 = false;
            uint _e52 = i;
            uint _e55 = p.dv;
            if (_e52 < (n * _e55)) {
            } else {
                break;
            }
            {
                uint _e58 = i;
                uint _e61 = p.dv;
                uint channel_1 = start + (_e58 % _e61);
                uint _e64 = i;
                uint _e67 = p.dv;
                uint t_1 = first + (_e64 / _e67);
                float _e74 = convolve(t_1, channel_1, n_channel_1, p, qkv, taps, conv_state, _buffer_sizes);
                mixed[(t_1 * n_channel_1) + channel_1] = _e74;
            }
        }
        return;
    }
    uint _e81 = p.dk;
    uint start_1 = group.x * _e81;
    uint _e85 = p.dk;
    uint _e91 = p.n_head_k;
    float unit = (group.x < _e91) ? metal::rsqrt(static_cast<float>(_e85)) : 1.0;
    i_1 = thread_ / n_lane;
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e158 = i_1;
            i_1 = _e158 + (N_THREAD / n_lane);
        }
        loop_init_4 = false;
        uint _e97 = i_1;
        if (_e97 < N_TOKEN) {
        } else {
            break;
        }
        {
            uint _e100 = i_1;
            uint t_2 = first + metal::min(_e100, n - 1u);
            square = 0.0;
            dim = lane;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e125 = dim;
                    dim = _e125 + n_lane;
                }
                loop_init_5 = false;
                uint _e108 = dim;
                uint _e111 = p.dk;
                if (_e108 < _e111) {
                } else {
                    break;
                }
                {
                    uint _e113 = dim;
                    float _e115 = convolve(t_2, start_1 + _e113, n_channel_1, p, qkv, taps, conv_state, _buffer_sizes);
                    uint _e117 = i_1;
                    uint _e120 = dim;
                    rows.inner[(_e117 * DK_MAX) + _e120] = _e115;
                    float _e123 = square;
                    square = metal::fma(_e115, _e115, _e123);
                }
            }
            float _e127 = square;
            float unnamed = metal::simd_sum(_e127);
            float scale = metal::rsqrt(unnamed + L2_EPS) * unit;
            dim_1 = lane;
            bool loop_init_6 = true;
            while(true) {
                if (!loop_init_6) {
                    uint _e156 = dim_1;
                    dim_1 = _e156 + n_lane;
                }
                loop_init_6 = false;
                uint _e134 = dim_1;
                uint _e137 = p.dk;
                if (_e134 < _e137) {
                } else {
                    break;
                }
                {
                    uint _e139 = i_1;
                    if (_e139 < n) {
                        uint _e144 = dim_1;
                        uint _e148 = i_1;
                        uint _e151 = dim_1;
                        float _e154 = rows.inner[(_e148 * DK_MAX) + _e151];
                        mixed[((t_2 * n_channel_1) + start_1) + _e144] = _e154 * scale;
                    }
                }
            }
        }
    }
    return;
}
