// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
};

typedef uint type_1[1];

[[max_total_threads_per_threadgroup(1)]] kernel void main_(
  device type_1& n_pass [[buffer(1)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(2)]]
) {
    uint _e4 = n_pass[0];
    n_pass[0] = _e4 + 1u;
    return;
}
