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
    uint d;
    float eps;
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
, device type_3 const& x [[buffer(1)]]
, device type_3 const& weight [[buffer(2)]]
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
    uint _e16 = p.d;
    uint start = row * _e16;
    i = thread_;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e33 = i;
            i = _e33 + 256u;
        }
        loop_init_1 = false;
        uint _e21 = i;
        uint _e24 = p.d;
        if (_e21 < _e24) {
        } else {
            break;
        }
        {
            uint _e27 = i;
            float value_1 = x[start + _e27];
            float _e31 = sum;
            sum = metal::fma(value_1, value_1, _e31);
        }
    }
    float _e36 = sum;
    float _e37 = workgroup_sum(_e36, thread_, lane, n_lane, partial_sums);
    uint _e40 = p.d;
    float mean = _e37 / static_cast<float>(_e40);
    float _e45 = p.eps;
    float scale = metal::rsqrt(mean + _e45);
    i_1 = thread_;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e69 = i_1;
            i_1 = _e69 + 256u;
        }
        loop_init_2 = false;
        uint _e49 = i_1;
        uint _e52 = p.d;
        if (_e49 < _e52) {
        } else {
            break;
        }
        {
            uint _e55 = i_1;
            uint _e59 = i_1;
            float _e62 = x[start + _e59];
            uint _e64 = i_1;
            float _e66 = weight[_e64];
            out[start + _e55] = _e62 * (scale * _e66);
        }
    }
    return;
}
