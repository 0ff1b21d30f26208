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
};

struct type_1 {
    float inner[64];
};
struct Params {
    uint d;
    float eps;
    uint n_row;
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
, device type_4& x [[buffer(2)]]
, device type_4 const& y [[buffer(3)]]
, device type_4 const& weight [[buffer(4)]]
, device type_4& h [[buffer(5)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(6)]]
) {
    bool local = {};
    float sum = 0.0;
    uint i = {};
    uint i_1 = {};
    uint row = (group.y * n_group.x) + group.x;
    uint _e12 = control[0];
    if (!((_e12 != 0u))) {
        uint _e20 = p.n_row;
        local = row >= _e20;
    } else {
        local = true;
    }
    bool _e23 = local;
    if (_e23) {
        return;
    }
    uint _e26 = p.d;
    uint start = row * _e26;
    i = thread_;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e53 = i;
            i = _e53 + 256u;
        }
        loop_init_1 = false;
        uint _e31 = i;
        uint _e34 = p.d;
        if (_e31 < _e34) {
        } else {
            break;
        }
        {
            uint _e37 = i;
            float _e40 = x[start + _e37];
            uint _e42 = i;
            float _e45 = y[start + _e42];
            float value_1 = _e40 + _e45;
            uint _e48 = i;
            x[start + _e48] = value_1;
            float _e51 = sum;
            sum = metal::fma(value_1, value_1, _e51);
        }
    }
    float _e56 = sum;
    float _e57 = workgroup_sum(_e56, thread_, lane, n_lane, partial_sums);
    uint _e60 = p.d;
    float mean = _e57 / static_cast<float>(_e60);
    float _e65 = p.eps;
    float scale = metal::rsqrt(mean + _e65);
    i_1 = thread_;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e89 = i_1;
            i_1 = _e89 + 256u;
        }
        loop_init_2 = false;
        uint _e69 = i_1;
        uint _e72 = p.d;
        if (_e69 < _e72) {
        } else {
            break;
        }
        {
            uint _e75 = i_1;
            uint _e79 = i_1;
            float _e82 = x[start + _e79];
            uint _e84 = i_1;
            float _e86 = weight[_e84];
            h[start + _e75] = _e82 * (scale * _e86);
        }
    }
    return;
}
