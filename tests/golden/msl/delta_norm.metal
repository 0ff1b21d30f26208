// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size2;
    uint size3;
    uint size4;
};

struct type_1 {
    float inner[64];
};
struct Params {
    uint dv;
    float eps;
    uint first;
    uint n_row;
};
typedef float type_3[1];

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
    float z_1 = y / (2.0 + y);
    float square = z_1 * z_1;
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
, device type_3 const& z [[buffer(1)]]
, device type_3 const& norm [[buffer(2)]]
, device type_3& out [[buffer(3)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(4)]]
) {
    float sum = 0.0;
    uint i = {};
    uint i_1 = {};
    uint row = (group.y * n_group.x) + group.x;
    uint _e12 = p.n_row;
    if (row >= _e12) {
        return;
    }
    uint _e16 = p.first;
    uint _e20 = p.dv;
    uint start = (_e16 + row) * _e20;
    i = thread_;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e37 = i;
            i = _e37 + 256u;
        }
        loop_init_1 = false;
        uint _e25 = i;
        uint _e28 = p.dv;
        if (_e25 < _e28) {
        } else {
            break;
        }
        {
            uint _e31 = i;
            float value_1 = out[start + _e31];
            float _e35 = sum;
            sum = metal::fma(value_1, value_1, _e35);
        }
    }
    float _e40 = sum;
    float _e41 = workgroup_sum(_e40, thread_, lane, n_lane, partial_sums);
    uint _e44 = p.dv;
    float mean = _e41 / static_cast<float>(_e44);
    float _e49 = p.eps;
    float scale = metal::rsqrt(mean + _e49);
    i_1 = thread_;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e80 = i_1;
            i_1 = _e80 + 256u;
        }
        loop_init_2 = false;
        uint _e53 = i_1;
        uint _e56 = p.dv;
        if (_e53 < _e56) {
        } else {
            break;
        }
        {
            uint _e59 = i_1;
            uint _e63 = i_1;
            float _e66 = out[start + _e63];
            uint _e68 = i_1;
            float _e70 = norm[_e68];
            uint _e74 = i_1;
            float _e77 = z[start + _e74];
            float _e78 = silu(_e77);
            out[start + _e59] = (_e66 * (scale * _e70)) * _e78;
        }
    }
    return;
}
