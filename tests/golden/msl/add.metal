// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
    uint size2;
    uint size3;
};

struct Params {
    uint n;
};
typedef uint type_1[1];
typedef float type_3[1];

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, constant Params& p [[buffer(0)]]
, device type_1 const& control [[buffer(1)]]
, device type_3& x [[buffer(2)]]
, device type_3 const& y [[buffer(3)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(4)]]
) {
    bool local = {};
    uint i = (((group.y * n_group.x) + group.x) * 256u) + thread_;
    uint _e13 = control[0];
    if (!((_e13 != 0u))) {
        uint _e21 = p.n;
        local = i >= _e21;
    } else {
        local = true;
    }
    bool _e24 = local;
    if (_e24) {
        return;
    }
    float _e29 = x[i];
    float _e32 = y[i];
    x[i] = _e29 + _e32;
    return;
}
