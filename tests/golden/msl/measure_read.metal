// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
    uint size2;
};

struct Params {
    uint at;
    uint n;
};
typedef metal::uint4 type_2[1];

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, constant Params& p [[buffer(0)]]
, device type_2 const& w4_ [[buffer(1)]]
, device type_2& to [[buffer(2)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(3)]]
) {
    metal::uint4 sum = metal::uint4(0u);
    uint i = {};
    uint first = (((group.y * n_group.x) + group.x) * 1024u) + thread_;
    i = first;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e33 = i;
            i = _e33 + 256u;
        }
        loop_init = false;
        uint _e15 = i;
        uint _e20 = p.n;
        if (_e15 < metal::min(first + 1024u, _e20)) {
        } else {
            break;
        }
        {
            metal::uint4 _e23 = sum;
            uint _e27 = p.at;
            uint _e28 = i;
            metal::uint4 _e31 = w4_[_e27 + _e28];
            sum = _e23 ^ _e31;
        }
    }
    metal::uint4 _e36 = sum;
    if (metal::all(_e36 == metal::uint4(2654435769u))) {
        metal::uint4 _e43 = sum;
        to[0] = _e43;
        return;
    } else {
        return;
    }
}
