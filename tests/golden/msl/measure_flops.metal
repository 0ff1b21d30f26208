// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
};

struct Params {
    uint n_round;
    float factor;
};
typedef float type_2[1];

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 id [[thread_position_in_grid]]
, constant Params& p [[buffer(0)]]
, device type_2& out [[buffer(1)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(2)]]
) {
    metal::float4 a = {};
    metal::float4 b = {};
    metal::float4 c = {};
    metal::float4 d = {};
    uint i = 0u;
    float _e3 = p.factor;
    metal::float4 factor = metal::float4(_e3);
    a = metal::float4(static_cast<float>(id.x), 1.0, 2.0, 3.0);
    metal::float4 _e12 = a;
    b = _e12 + metal::float4(1.0);
    metal::float4 _e17 = a;
    c = _e17 + metal::float4(2.0);
    metal::float4 _e22 = a;
    d = _e22 + metal::float4(3.0);
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e67 = i;
            i = _e67 + 1u;
        }
        loop_init = false;
        uint _e29 = i;
        uint _e32 = p.n_round;
        if (_e29 < _e32) {
        } else {
            break;
        }
        {
            metal::float4 _e34 = a;
            a = metal::fma(_e34, factor, factor);
            metal::float4 _e36 = b;
            b = metal::fma(_e36, factor, factor);
            metal::float4 _e38 = c;
            c = metal::fma(_e38, factor, factor);
            metal::float4 _e40 = d;
            d = metal::fma(_e40, factor, factor);
            metal::float4 _e42 = a;
            a = metal::fma(_e42, factor, factor);
            metal::float4 _e44 = b;
            b = metal::fma(_e44, factor, factor);
            metal::float4 _e46 = c;
            c = metal::fma(_e46, factor, factor);
            metal::float4 _e48 = d;
            d = metal::fma(_e48, factor, factor);
            metal::float4 _e50 = a;
            a = metal::fma(_e50, factor, factor);
            metal::float4 _e52 = b;
            b = metal::fma(_e52, factor, factor);
            metal::float4 _e54 = c;
            c = metal::fma(_e54, factor, factor);
            metal::float4 _e56 = d;
            d = metal::fma(_e56, factor, factor);
            metal::float4 _e58 = a;
            a = metal::fma(_e58, factor, factor);
            metal::float4 _e60 = b;
            b = metal::fma(_e60, factor, factor);
            metal::float4 _e62 = c;
            c = metal::fma(_e62, factor, factor);
            metal::float4 _e64 = d;
            d = metal::fma(_e64, factor, factor);
        }
    }
    metal::float4 _e69 = a;
    metal::float4 _e70 = b;
    metal::float4 _e72 = c;
    metal::float4 _e74 = d;
    metal::float4 sum = ((_e69 + _e70) + _e72) + _e74;
    if ((((sum.x + sum.y) + sum.z) + sum.w) == -1.0) {
        out[0] = sum.x;
        return;
    } else {
        return;
    }
}
