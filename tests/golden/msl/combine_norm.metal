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
};

struct type_1 {
    float inner[64];
};
struct Params {
    uint n_token;
    uint k;
    uint d;
    uint weight_at;
    uint weight_stride;
    uint has_shared;
    float eps;
};
typedef uint type_3[1];
typedef float type_4[1];

float workgroup_sum(
    float value,
    uint thread_1,
    uint lane_1,
    uint n_lane_1,
    threadgroup type_1& partial_sums
) {
    float total = 0.0;
    uint i_2 = 0u;
    float unnamed = metal::simd_sum(value);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (lane_1 == 0u) {
        partial_sums.inner[thread_1 / n_lane_1] = unnamed;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e25 = i_2;
            i_2 = _e25 + 1u;
        }
        loop_init = false;
        uint _e14 = i_2;
        if (_e14 < (256u / n_lane_1)) {
        } else {
            break;
        }
        {
            float _e18 = total;
            uint _e20 = i_2;
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

float combined(
    uint t,
    uint i_3,
    constant Params& p,
    device type_4 const& x_4,
    device type_4 const& routed,
    device type_3 const& weights,
    device type_4 const& shared_gate,
    constant _mslBufferSizes& _buffer_sizes
) {
    float sum_1 = 0.0;
    uint j = 0u;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e40 = j;
            j = _e40 + 1u;
        }
        loop_init_1 = false;
        uint _e6 = j;
        uint _e9 = p.k;
        if (_e6 < _e9) {
        } else {
            break;
        }
        {
            uint _e13 = p.k;
            uint _e15 = j;
            uint pair = (t * _e13) + _e15;
            uint _e20 = p.weight_at;
            uint _e23 = p.weight_stride;
            uint _e27 = weights[_e20 + (pair * _e23)];
            float weight_1 = as_type<float>(_e27);
            uint _e32 = p.d;
            float _e36 = routed[(pair * _e32) + i_3];
            float _e37 = sum_1;
            sum_1 = metal::fma(weight_1, _e36, _e37);
        }
    }
    uint _e44 = p.has_shared;
    if (_e44 != 0u) {
        float _e49 = shared_gate[t];
        float _e50 = sigmoid(_e49);
        uint _e54 = p.n_token;
        uint _e57 = p.k;
        uint _e62 = p.d;
        float _e66 = routed[(((_e54 * _e57) + t) * _e62) + i_3];
        float _e67 = sum_1;
        sum_1 = metal::fma(_e50, _e66, _e67);
    }
    uint _e72 = p.d;
    float _e76 = x_4[(t * _e72) + i_3];
    float _e77 = sum_1;
    return _e76 + _e77;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, uint lane [[thread_index_in_simdgroup]]
, uint n_lane [[threads_per_simdgroup]]
, threadgroup type_1& partial_sums
, constant Params& p [[buffer(0)]]
, device type_3 const& control [[buffer(1)]]
, device type_4& x_4 [[buffer(2)]]
, device type_4 const& routed [[buffer(3)]]
, device type_3 const& weights [[buffer(4)]]
, device type_4 const& shared_gate [[buffer(5)]]
, device type_4 const& weight [[buffer(6)]]
, device type_4& h [[buffer(7)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(8)]]
) {
    bool local = {};
    float sum = 0.0;
    uint i = {};
    uint i_1 = {};
    uint t_1 = (group.y * n_group.x) + group.x;
    uint _e12 = control[0];
    if (!((_e12 != 0u))) {
        uint _e20 = p.n_token;
        local = t_1 >= _e20;
    } else {
        local = true;
    }
    bool _e23 = local;
    if (_e23) {
        return;
    }
    i = thread_;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e44 = i;
            i = _e44 + 256u;
        }
        loop_init_2 = false;
        uint _e27 = i;
        uint _e30 = p.d;
        if (_e27 < _e30) {
        } else {
            break;
        }
        {
            uint _e32 = i;
            float _e33 = combined(t_1, _e32, p, x_4, routed, weights, shared_gate, _buffer_sizes);
            uint _e37 = p.d;
            uint _e39 = i;
            x_4[(t_1 * _e37) + _e39] = _e33;
            float _e42 = sum;
            sum = metal::fma(_e33, _e33, _e42);
        }
    }
    float _e47 = sum;
    float _e48 = workgroup_sum(_e47, thread_, lane, n_lane, partial_sums);
    uint _e51 = p.d;
    float mean = _e48 / static_cast<float>(_e51);
    float _e56 = p.eps;
    float scale = metal::rsqrt(mean + _e56);
    i_1 = thread_;
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e88 = i_1;
            i_1 = _e88 + 256u;
        }
        loop_init_3 = false;
        uint _e60 = i_1;
        uint _e63 = p.d;
        if (_e60 < _e63) {
        } else {
            break;
        }
        {
            uint _e68 = p.d;
            uint _e70 = i_1;
            uint _e76 = p.d;
            uint _e78 = i_1;
            float _e81 = x_4[(t_1 * _e76) + _e78];
            uint _e83 = i_1;
            float _e85 = weight[_e83];
            h[(t_1 * _e68) + _e70] = _e81 * (scale * _e85);
        }
    }
    return;
}
