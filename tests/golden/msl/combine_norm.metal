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
    float inner[256];
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
typedef uint type_4[1];
typedef float type_5[1];
struct Part {
    uint at;
    float weight;
};
struct type_6 {
    float inner[8];
};
struct type_7 {
    uint inner[8];
};
struct type_8 {
    Part inner[4];
};
struct type_10 {
    metal::float4 inner[8];
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
    uint t,
    constant Params& p
) {
    uint _e3 = p.n_token;
    return t < _e3;
}

bool is_live(
    device type_4 const& control,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e2 = control[0];
    return _e2 == 0u;
}

uint n_part(
    constant Params& p
) {
    uint _e2 = p.k;
    uint _e5 = p.has_shared;
    return _e2 + _e5;
}

float sigmoid(
    float x
) {
    return 1.0 / (1.0 + metal::exp(-(metal::clamp(x, -87.0, 87.0))));
}

Part part(
    uint t_1,
    uint j,
    constant Params& p,
    device type_4 const& weights_1,
    device type_5 const& shared_gate,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e4 = p.k;
    uint pair = (t_1 * _e4) + j;
    uint _e10 = p.weight_at;
    uint _e13 = p.k;
    uint _e17 = p.k;
    uint _e26 = p.weight_stride;
    uint _e30 = weights_1[_e10 + (((t_1 * _e13) + metal::min(j, metal::max(_e17, 1u) - 1u)) * _e26)];
    float own_2 = as_type<float>(_e30);
    float _e34 = shared_gate[t_1];
    float _e35 = sigmoid(_e34);
    uint _e38 = p.n_token;
    uint _e41 = p.k;
    uint _e46 = p.k;
    uint _e51 = p.d;
    uint _e55 = p.k;
    return Part {((j < _e46) ? pair : ((_e38 * _e41) + t_1)) * _e51, (j < _e55) ? own_2 : _e35};
}

type_6 numbers(
    uint t_2,
    uint first_1,
    constant Params& p,
    device type_5 const& x_1,
    device type_4 const& weights_1,
    device type_5 const& shared_gate,
    device type_5 const& routed,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_7 at = {};
    type_6 own_1 = {};
    uint o_3 = 0u;
    type_6 sums = {};
    uint j_1 = 0u;
    type_10 fours = {};
    uint o_4 = {};
    uint o_5 = {};
    uint o_6 = 0u;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e35 = o_3;
            o_3 = _e35 + 1u;
        }
        loop_init_1 = false;
        uint _e6 = o_3;
        if (_e6 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e9 = o_3;
            uint _e11 = o_3;
            uint _e17 = p.d;
            at.inner[_e9] = metal::min(first_1 + (_e11 * N_THREAD), _e17 - 1u);
            uint _e21 = o_3;
            uint _e26 = p.d;
            uint _e28 = o_3;
            uint _e30 = at.inner[_e28];
            float _e33 = x_1[(t_2 * _e26) + _e30];
            own_1.inner[_e21] = _e33;
        }
    }
    uint _e38 = n_part(p);
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e192 = j_1;
            j_1 = _e192 + 4u;
        }
        loop_init_2 = false;
        uint _e41 = j_1;
        if (_e41 < _e38) {
        } else {
            break;
        }
        {
            uint last = _e38 - 1u;
            uint _e45 = j_1;
            Part _e46 = part(t_2, _e45, p, weights_1, shared_gate, _buffer_sizes);
            uint _e47 = j_1;
            Part _e51 = part(t_2, metal::min(_e47 + 1u, last), p, weights_1, shared_gate, _buffer_sizes);
            uint _e52 = j_1;
            Part _e56 = part(t_2, metal::min(_e52 + 2u, last), p, weights_1, shared_gate, _buffer_sizes);
            uint _e57 = j_1;
            Part _e61 = part(t_2, metal::min(_e57 + 3u, last), p, weights_1, shared_gate, _buffer_sizes);
            type_8 parts = type_8 {{_e46, _e51, _e56, _e61}};
            fours = type_10 {};
            o_4 = 0u;
            bool loop_init_3 = true;
            while(true) {
                if (!loop_init_3) {
                    uint _e110 = o_4;
                    o_4 = _e110 + 1u;
                }
                loop_init_3 = false;
                uint _e67 = o_4;
                if (_e67 < N_OWN) {
                } else {
                    break;
                }
                {
                    uint _e70 = o_4;
                    uint _e75 = o_4;
                    uint _e77 = at.inner[_e75];
                    float _e80 = routed[parts.inner[0].at + _e77];
                    uint _e84 = o_4;
                    uint _e86 = at.inner[_e84];
                    float _e89 = routed[parts.inner[1].at + _e86];
                    uint _e93 = o_4;
                    uint _e95 = at.inner[_e93];
                    float _e98 = routed[parts.inner[2].at + _e95];
                    uint _e102 = o_4;
                    uint _e104 = at.inner[_e102];
                    float _e107 = routed[parts.inner[3].at + _e104];
                    fours.inner[_e70] = metal::float4(_e80, _e89, _e98, _e107);
                }
            }
            o_5 = 0u;
            bool loop_init_4 = true;
            while(true) {
                if (!loop_init_4) {
                    uint _e190 = o_5;
                    o_5 = _e190 + 1u;
                }
                loop_init_4 = false;
                uint _e114 = o_5;
                if (_e114 < N_OWN) {
                } else {
                    break;
                }
                {
                    uint _e117 = o_5;
                    uint _e121 = o_5;
                    float _e124 = fours.inner[_e121].x;
                    uint _e125 = o_5;
                    float _e127 = sums.inner[_e125];
                    sums.inner[_e117] = metal::fma(parts.inner[0].weight, _e124, _e127);
                    uint _e129 = o_5;
                    uint _e131 = o_5;
                    float _e133 = sums.inner[_e131];
                    uint _e136 = o_5;
                    float _e139 = fours.inner[_e136].y;
                    uint _e140 = o_5;
                    float _e142 = sums.inner[_e140];
                    uint _e144 = j_1;
                    sums.inner[_e129] = ((_e144 + 1u) < _e38) ? metal::fma(parts.inner[1].weight, _e139, _e142) : _e133;
                    uint _e149 = o_5;
                    uint _e151 = o_5;
                    float _e153 = sums.inner[_e151];
                    uint _e156 = o_5;
                    float _e159 = fours.inner[_e156].z;
                    uint _e160 = o_5;
                    float _e162 = sums.inner[_e160];
                    uint _e164 = j_1;
                    sums.inner[_e149] = ((_e164 + 2u) < _e38) ? metal::fma(parts.inner[2].weight, _e159, _e162) : _e153;
                    uint _e169 = o_5;
                    uint _e171 = o_5;
                    float _e173 = sums.inner[_e171];
                    uint _e176 = o_5;
                    float _e179 = fours.inner[_e176].w;
                    uint _e180 = o_5;
                    float _e182 = sums.inner[_e180];
                    uint _e184 = j_1;
                    sums.inner[_e169] = ((_e184 + 3u) < _e38) ? metal::fma(parts.inner[3].weight, _e179, _e182) : _e173;
                }
            }
        }
    }
    bool loop_init_5 = true;
    while(true) {
        if (!loop_init_5) {
            uint _e208 = o_6;
            o_6 = _e208 + 1u;
        }
        loop_init_5 = false;
        uint _e197 = o_6;
        if (_e197 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e200 = o_6;
            float _e202 = own_1.inner[_e200];
            uint _e203 = o_6;
            float _e205 = sums.inner[_e203];
            own_1.inner[_e200] = _e202 + _e205;
        }
    }
    type_6 _e210 = own_1;
    return _e210;
}

void keep(
    uint t_3,
    uint i_2,
    float value_1,
    constant Params& p,
    device type_5& x_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e6 = p.d;
    x_1[(t_3 * _e6) + i_2] = value_1;
    return;
}

float kept(
    uint t_4,
    uint i_3,
    constant Params& p,
    device type_5 const& x_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e5 = p.d;
    float _e9 = x_1[(t_4 * _e5) + i_3];
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
, device type_4 const& control [[buffer(1)]]
, device type_5 const& weight [[buffer(6)]]
, device type_5& x_1 [[buffer(2)]]
, device type_4 const& weights_1 [[buffer(4)]]
, device type_5 const& shared_gate [[buffer(5)]]
, device type_5 const& routed [[buffer(3)]]
, device type_5& h [[buffer(7)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(8)]]
) {
    type_6 weights = {};
    uint o = 0u;
    type_6 own = {};
    float sum = 0.0;
    uint first = {};
    uint o_1 = {};
    uint o_2 = 0u;
    bool local = {};
    uint i = {};
    bool local_1 = {};
    uint row = (group.y * n_group.x) + group.x;
    bool _e10 = is_row(row, p);
    if (!(_e10)) {
        return;
    }
    bool _e12 = is_live(control, _buffer_sizes);
    bool loop_init_6 = true;
    while(true) {
        if (!loop_init_6) {
            uint _e35 = o;
            o = _e35 + 1u;
        }
        loop_init_6 = false;
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
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e76 = first;
            first = _e76 + 2048u;
        }
        loop_init_7 = false;
        uint _e41 = first;
        uint _e44 = p.d;
        if (_e41 < _e44) {
        } else {
            break;
        }
        {
            uint _e46 = first;
            type_6 _e47 = numbers(row, _e46, p, x_1, weights_1, shared_gate, routed, _buffer_sizes);
            own = _e47;
            o_1 = 0u;
            bool loop_init_8 = true;
            while(true) {
                if (!loop_init_8) {
                    uint _e74 = o_1;
                    o_1 = _e74 + 1u;
                }
                loop_init_8 = false;
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
                            keep(row, i_4, _e64, p, x_1, _buffer_sizes);
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
        bool loop_init_9 = true;
        while(true) {
            if (!loop_init_9) {
                uint _e137 = o_2;
                o_2 = _e137 + 1u;
            }
            loop_init_9 = false;
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
                    h[(row * _e124) + i_5] = _e130 * (scale * _e133);
                }
            }
        }
        return;
    }
    i = thread_;
    bool loop_init_10 = true;
    while(true) {
        if (!loop_init_10) {
            uint _e165 = i;
            i = _e165 + N_THREAD;
        }
        loop_init_10 = false;
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
            float _e158 = kept(row, _e157, p, x_1, _buffer_sizes);
            uint _e160 = i;
            float _e162 = weight[_e160];
            h[(row * _e152) + _e154] = _e158 * (scale * _e162);
        }
    }
    return;
}
