// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size2;
    uint size3;
    uint size4;
    uint size5;
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
    uint first;
    uint n_token;
};
typedef float type_3[1];
constant float L2_EPS = 0.000001;

float workgroup_sum(
    float value,
    uint thread_1,
    uint lane_1,
    uint n_lane_1,
    threadgroup type_1& partial_sums
) {
    float total = 0.0;
    uint i_1 = 0u;
    float unnamed = metal::simd_sum(value);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (lane_1 == 0u) {
        partial_sums.inner[thread_1 / n_lane_1] = unnamed;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e25 = i_1;
            i_1 = _e25 + 1u;
        }
        loop_init = false;
        uint _e14 = i_1;
        if (_e14 < (256u / n_lane_1)) {
        } else {
            break;
        }
        {
            float _e18 = total;
            uint _e20 = i_1;
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
    float z = y / (2.0 + y);
    float square = z * z;
    float _e12 = series;
    series = metal::fma(_e12, square, 0.07692308);
    float _e15 = series;
    series = metal::fma(_e15, square, 0.09090909);
    float _e18 = series;
    series = metal::fma(_e18, square, 0.11111111);
    float _e21 = series;
    series = metal::fma(_e21, square, 0.14285715);
    float _e24 = series;
    series = metal::fma(_e24, square, 0.2);
    float _e27 = series;
    series = metal::fma(_e27, square, 0.33333334);
    float _e30 = series;
    series = metal::fma(_e30, square, 1.0);
    float _e35 = series;
    return metal::fma(2.0 * z, _e35, metal::max(x_2, 0.0));
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

float convolve(
    uint t,
    uint channel,
    uint n_channel,
    constant Params& p,
    device type_3 const& qkv,
    device type_3 const& taps,
    device type_3 const& conv_state,
    constant _mslBufferSizes& _buffer_sizes
) {
    float sum = 0.0;
    uint j = 0u;
    float seen = {};
    uint _e5 = p.n_conv;
    uint n_old = _e5 - 1u;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e51 = j;
            j = _e51 + 1u;
        }
        loop_init_1 = false;
        uint _e12 = j;
        uint _e15 = p.n_conv;
        if (_e12 < _e15) {
        } else {
            break;
        }
        {
            seen = 0.0;
            uint _e19 = j;
            if ((t + _e19) < n_old) {
                uint _e23 = j;
                float _e28 = conv_state[((t + _e23) * n_channel) + channel];
                seen = _e28;
            } else {
                uint _e32 = p.first;
                uint _e34 = j;
                float _e40 = qkv[((((_e32 + t) + _e34) - n_old) * n_channel) + channel];
                seen = _e40;
            }
            uint _e42 = j;
            float _e46 = taps[(_e42 * n_channel) + channel];
            float _e47 = seen;
            float _e48 = sum;
            sum = metal::fma(_e46, _e47, _e48);
        }
    }
    float _e53 = sum;
    float _e54 = silu(_e53);
    return _e54;
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
, device type_3 const& qkv [[buffer(1)]]
, device type_3 const& taps [[buffer(2)]]
, device type_3 const& conv_state [[buffer(3)]]
, device type_3& mixed [[buffer(4)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(5)]]
) {
    uint i = {};
    float own = 0.0;
    uint _e6 = p.n_head_k;
    uint _e9 = p.dk;
    uint n_key = _e6 * _e9;
    uint _e15 = p.n_head_v;
    uint _e18 = p.dv;
    uint n_channel_1 = (2u * n_key) + (_e15 * _e18);
    uint t_1 = group.y;
    uint _e26 = p.n_head_k;
    if (group.x >= (2u * _e26)) {
        uint _e35 = p.n_head_k;
        uint _e40 = p.dv;
        uint start = (2u * n_key) + ((group.x - (2u * _e35)) * _e40);
        i = thread_;
        bool loop_init_2 = true;
        while(true) {
            if (!loop_init_2) {
                uint _e58 = i;
                i = _e58 + 256u;
            }
            loop_init_2 = false;
            uint _e44 = i;
            uint _e47 = p.dv;
            if (_e44 < _e47) {
            } else {
                break;
            }
            {
                uint _e52 = i;
                uint _e55 = i;
                float _e57 = convolve(t_1, start + _e55, n_channel_1, p, qkv, taps, conv_state, _buffer_sizes);
                mixed[((t_1 * n_channel_1) + start) + _e52] = _e57;
            }
        }
        return;
    }
    uint _e64 = p.dk;
    uint channel_1 = (group.x * _e64) + thread_;
    uint _e71 = p.dk;
    if (thread_ < _e71) {
        float _e73 = convolve(t_1, channel_1, n_channel_1, p, qkv, taps, conv_state, _buffer_sizes);
        own = _e73;
    }
    float _e74 = own;
    float _e75 = own;
    float _e77 = workgroup_sum(_e74 * _e75, thread_, lane, n_lane, partial_sums);
    uint _e80 = p.dk;
    uint _e86 = p.n_head_k;
    float scale = (group.x < _e86) ? metal::rsqrt(static_cast<float>(_e80)) : 1.0;
    uint _e92 = p.dk;
    if (thread_ < _e92) {
        float _e98 = own;
        mixed[(t_1 * n_channel_1) + channel_1] = _e98 * (metal::rsqrt(_e77 + L2_EPS) * scale);
        return;
    } else {
        return;
    }
}
