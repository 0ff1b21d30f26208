// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
    uint size2;
};

struct Params {
    uint n_channel;
    uint n_conv;
    uint first;
    uint n_token;
};
typedef float type_2[1];

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, constant Params& p [[buffer(0)]]
, device type_2 const& qkv [[buffer(1)]]
, device type_2& conv_state [[buffer(2)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(3)]]
) {
    uint j = 0u;
    uint channel = (group.x * 256u) + thread_;
    uint _e8 = p.n_channel;
    if (channel >= _e8) {
        return;
    }
    uint _e12 = p.n_conv;
    uint n_old = _e12 - 1u;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e63 = j;
            j = _e63 + 1u;
        }
        loop_init = false;
        uint _e17 = j;
        if (_e17 < n_old) {
        } else {
            break;
        }
        {
            uint _e19 = j;
            uint _e22 = p.n_token;
            uint behind = _e19 + _e22;
            if (behind < n_old) {
                uint _e26 = j;
                uint _e29 = p.n_channel;
                uint _e36 = p.n_channel;
                float _e40 = conv_state[(behind * _e36) + channel];
                conv_state[(_e26 * _e29) + channel] = _e40;
            } else {
                uint _e42 = j;
                uint _e45 = p.n_channel;
                uint _e52 = p.first;
                uint _e57 = p.n_channel;
                float _e61 = qkv[(((_e52 + behind) - n_old) * _e57) + channel];
                conv_state[(_e42 * _e45) + channel] = _e61;
            }
        }
    }
    return;
}
