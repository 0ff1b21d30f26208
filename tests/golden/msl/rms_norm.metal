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
    float inner[256];
};
struct Params {
    uint d;
    float eps;
    uint n_row;
};
typedef float type_4[1];
struct type_5 {
    float inner[8];
};
constant uint N_THREAD = 512u;
constant uint N_OWN = 4u;

float workgroup_sum(
    float value,
    uint thread_1,
    uint lane_1,
    uint n_lane_1,
    threadgroup type_1& partial_sums
) {
    float some = 0.0;
    uint i_1 = {};
    float unnamed = metal::simd_sum(value);
    if (lane_1 == 0u) {
        partial_sums.inner[thread_1 / n_lane_1] = unnamed;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    i_1 = lane_1;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e23 = i_1;
            i_1 = _e23 + n_lane_1;
        }
        loop_init = false;
        uint _e13 = i_1;
        if (_e13 < (N_THREAD / n_lane_1)) {
        } else {
            break;
        }
        {
            float _e17 = some;
            uint _e19 = i_1;
            float _e21 = partial_sums.inner[_e19];
            some = _e17 + _e21;
        }
    }
    float _e25 = some;
    float unnamed_1 = metal::simd_sum(_e25);
    return unnamed_1;
}

bool is_row(
    uint row,
    constant Params& p
) {
    uint _e3 = p.n_row;
    return row < _e3;
}

bool is_live(
) {
    return true;
}

type_5 numbers(
    uint row_1,
    uint first_1,
    constant Params& p,
    device type_4 const& x,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_5 own_1 = {};
    uint o_3 = 0u;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e29 = o_3;
            o_3 = _e29 + 1u;
        }
        loop_init_1 = false;
        uint _e5 = o_3;
        if (_e5 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e8 = o_3;
            uint _e13 = p.d;
            uint _e15 = o_3;
            uint _e21 = p.d;
            float _e27 = x[(row_1 * _e13) + metal::min(first_1 + (_e15 * N_THREAD), _e21 - 1u)];
            own_1.inner[_e8] = _e27;
        }
    }
    type_5 _e31 = own_1;
    return _e31;
}

void keep(
    uint row_2,
    uint i_2,
    float value_1
) {
    return;
}

float kept(
    uint row_3,
    uint i_3,
    constant Params& p,
    device type_4 const& x,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e5 = p.d;
    float _e9 = x[(row_3 * _e5) + i_3];
    return _e9;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(512)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, uint lane [[thread_index_in_simdgroup]]
, uint n_lane [[threads_per_simdgroup]]
, threadgroup type_1& partial_sums
, constant Params& p [[buffer(0)]]
, device type_4 const& weight [[buffer(2)]]
, device type_4 const& x [[buffer(1)]]
, device type_4& h [[buffer(3)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(4)]]
) {
    type_5 weights = {};
    uint o = 0u;
    type_5 own = {};
    float sum = 0.0;
    uint first = {};
    uint o_1 = {};
    uint o_2 = 0u;
    bool local = {};
    uint i = {};
    bool local_1 = {};
    uint row_4 = (group.y * n_group.x) + group.x;
    bool _e10 = is_row(row_4, p);
    if (!(_e10)) {
        return;
    }
    bool _e12 = is_live();
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e35 = o;
            o = _e35 + 1u;
        }
        loop_init_2 = false;
        uint _e16 = o;
        if (_e16 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e19 = o;
            uint _e22 = o;
            uint _e28 = p.d;
            float _e33 = weight[metal::min(thread_ + (_e22 * N_THREAD), _e28 - 1u)];
            weights.inner[_e19] = _e33;
        }
    }
    first = thread_;
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e76 = first;
            first = _e76 + 2048u;
        }
        loop_init_3 = false;
        uint _e41 = first;
        uint _e44 = p.d;
        if (_e41 < _e44) {
        } else {
            break;
        }
        {
            uint _e46 = first;
            type_5 _e47 = numbers(row_4, _e46, p, x, _buffer_sizes);
            own = _e47;
            o_1 = 0u;
            bool loop_init_4 = true;
            while(true) {
                if (!loop_init_4) {
                    uint _e74 = o_1;
                    o_1 = _e74 + 1u;
                }
                loop_init_4 = false;
                uint _e50 = o_1;
                if (_e50 < N_OWN) {
                } else {
                    break;
                }
                {
                    uint _e53 = first;
                    uint _e54 = o_1;
                    uint i_4 = _e53 + (_e54 * N_THREAD);
                    uint _e60 = p.d;
                    if (i_4 < _e60) {
                        if (_e12) {
                            uint _e62 = o_1;
                            float _e64 = own.inner[_e62];
                            keep(row_4, i_4, _e64);
                        }
                        uint _e65 = o_1;
                        float _e67 = own.inner[_e65];
                        uint _e68 = o_1;
                        float _e70 = own.inner[_e68];
                        float _e71 = sum;
                        sum = metal::fma(_e67, _e70, _e71);
                    }
                }
            }
        }
    }
    float _e83 = sum;
    float _e84 = workgroup_sum(_e83, thread_, lane, n_lane, partial_sums);
    uint _e87 = p.d;
    float mean = _e84 / static_cast<float>(_e87);
    float _e92 = p.eps;
    float scale = metal::rsqrt(mean + _e92);
    uint _e97 = p.d;
    if (_e97 <= 2048u) {
        bool loop_init_5 = true;
        while(true) {
            if (!loop_init_5) {
                uint _e137 = o_2;
                o_2 = _e137 + 1u;
            }
            loop_init_5 = false;
            uint _e106 = o_2;
            if (_e106 < N_OWN) {
            } else {
                break;
            }
            {
                uint _e109 = o_2;
                uint i_5 = thread_ + (_e109 * N_THREAD);
                uint _e115 = p.d;
                if (i_5 < _e115) {
                    local = _e12;
                } else {
                    local = false;
                }
                bool _e120 = local;
                if (_e120) {
                    uint _e124 = p.d;
                    uint _e128 = o_2;
                    float _e130 = own.inner[_e128];
                    uint _e131 = o_2;
                    float _e133 = weights.inner[_e131];
                    h[(row_4 * _e124) + i_5] = _e130 * (scale * _e133);
                }
            }
        }
        return;
    }
    i = thread_;
    bool loop_init_6 = true;
    while(true) {
        if (!loop_init_6) {
            uint _e165 = i;
            i = _e165 + N_THREAD;
        }
        loop_init_6 = false;
        uint _e140 = i;
        uint _e143 = p.d;
        if (_e140 < _e143) {
            local_1 = _e12;
        } else {
            local_1 = false;
        }
        bool _e148 = local_1;
        if (_e148) {
        } else {
            break;
        }
        {
            uint _e152 = p.d;
            uint _e154 = i;
            uint _e157 = i;
            float _e158 = kept(row_4, _e157, p, x, _buffer_sizes);
            uint _e160 = i;
            float _e162 = weight[_e160];
            h[(row_4 * _e152) + _e154] = _e158 * (scale * _e162);
        }
    }
    return;
}
