// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size4;
    uint size5;
    uint size6;
    uint size7;
    uint size8;
    uint size9;
    uint size10;
    uint size11;
};

struct type_1 {
    float inner[256];
};
struct type_3 {
    float inner[1024];
};
struct type_4 {
    uint inner[32];
};
struct Params {
    uint n_head;
    uint n_head_kv;
    uint head_dim;
    uint q_stride;
    uint n_pair;
    uint angles_at;
    uint first;
    uint pos;
    uint n_code;
    uint n_word;
    float eps;
};
typedef uint type_6[1];
typedef float type_7[1];
struct Turn {
    float value;
    float other;
    float value_share;
    float other_share;
};
struct type_10 {
    Turn inner[4];
};
constant uint N_THREAD = 256u;
constant uint F16_ = 0u;
constant uint BF16_ = 1u;
constant uint F32_ = 2u;
constant uint Q8_ = 3u;
constant uint HEAD_DIM_MAX = 1024u;
constant uint FORMAT = 0u;
constant uint N_OWN = 1u;

float workgroup_sum(
    float value_1,
    uint thread_1,
    uint lane_1,
    uint n_lane_1,
    threadgroup type_1& partial_sums
) {
    float some = 0.0;
    uint i_1 = {};
    float unnamed = metal::simd_sum(value_1);
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

uint to_f16_(
    float value_2
) {
    bool local_2 = {};
    bool local_3 = {};
    uint bits = as_type<uint>(value_2);
    uint sign = (bits >> 16u) & 32768u;
    uint size = bits & 2147483647u;
    if (size > 2139095040u) {
        return (sign | 32256u) | ((size >> 13u) & 1023u);
    }
    if (size >= 1199562752u) {
        return sign | 31743u;
    }
    if (size >= 947912704u) {
        uint rounded = ((size - 939524096u) + 4095u) + ((size >> 13u) & 1u);
        return sign | (rounded >> 13u);
    }
    uint shift = 126u - (size >> 23u);
    if (shift > 24u) {
        return sign;
    }
    uint mantissa = (size & 8388607u) | 8388608u;
    uint whole = mantissa >> shift;
    uint rest = mantissa & ((1u << shift) - 1u);
    uint half_ = 1u << (shift - 1u);
    if (!((rest > half_))) {
        if (rest == half_) {
            local_3 = (whole & 1u) == 1u;
        } else {
            local_3 = false;
        }
        bool _e67 = local_3;
        local_2 = _e67;
    } else {
        local_2 = true;
    }
    bool is_up = local_2;
    return sign | (whole + (is_up ? 1u : 0u));
}

uint to_bf16_(
    float value_3
) {
    uint bits_1 = as_type<uint>(value_3);
    if ((bits_1 & 2147483647u) > 2139095040u) {
        return (bits_1 >> 16u) | 64u;
    }
    return ((bits_1 + 32767u) + ((bits_1 >> 16u) & 1u)) >> 16u;
}

float divide(
    float a,
    float b
) {
    float near = a / b;
    return metal::fma(metal::fma(-(near), b, a), 1.0 / b, near);
}

uint scale_of(
    uint group_1,
    threadgroup type_3& head_row
) {
    uint largest = 0u;
    uint i_2 = 0u;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e21 = i_2;
            i_2 = _e21 + 1u;
        }
        loop_init_1 = false;
        uint _e5 = i_2;
        if (_e5 < 32u) {
        } else {
            break;
        }
        {
            uint _e8 = largest;
            uint _e12 = i_2;
            float _e15 = head_row.inner[(group_1 * 32u) + _e12];
            largest = metal::max(_e8, as_type<uint>(_e15) & 2147483647u);
        }
    }
    uint _e23 = largest;
    if (_e23 >= 2139095040u) {
        return 32704u;
    }
    uint _e27 = largest;
    float _e30 = divide(as_type<float>(_e27), 127.0);
    uint bits_2 = as_type<uint>(_e30);
    return (bits_2 >> 16u) + (((bits_2 & 65535u) != 0u) ? 1u : 0u);
}

int naga_f2i32(float value) {
    return static_cast<int>(metal::clamp(value, -2147483600.0, 2147483500.0));
}

uint to_q8_(
    float value_4,
    uint scale
) {
    bool local_4 = {};
    if (!((scale == 0u))) {
        local_4 = scale == 32704u;
    } else {
        local_4 = true;
    }
    bool _e10 = local_4;
    if (_e10) {
        return 0u;
    }
    float _e15 = divide(value_4, as_type<float>(scale << 16u));
    float code = metal::rint(_e15);
    return as_type<uint>(naga_f2i32(metal::clamp(code, -127.0, 127.0))) & 255u;
}

void prepare_scales(
    uint head_dim,
    uint thread_2,
    threadgroup type_3& head_row,
    threadgroup type_4& scales
) {
    if (false) {
        if ((thread_2 * 32u) < head_dim) {
            uint _e12 = scale_of(thread_2, head_row);
            scales.inner[thread_2] = _e12;
        }
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        return;
    } else {
        return;
    }
}

uint stored_word(
    uint w_1,
    uint n_code,
    uint head_dim_1,
    threadgroup type_3& head_row,
    threadgroup type_4& scales
) {
    uint word = 0u;
    uint i_3 = 0u;
    if (false) {
        float _e10 = head_row.inner[w_1];
        return as_type<uint>(_e10);
    }
    if (true) {
        float _e21 = head_row.inner[2u * w_1];
        uint _e22 = to_f16_(_e21);
        float _e29 = head_row.inner[(2u * w_1) + 1u];
        uint _e30 = to_f16_(_e29);
        return _e22 | (_e30 << 16u);
    }
    if (false) {
        float _e43 = head_row.inner[2u * w_1];
        uint _e44 = to_bf16_(_e43);
        float _e51 = head_row.inner[(2u * w_1) + 1u];
        uint _e52 = to_bf16_(_e51);
        return _e44 | (_e52 << 16u);
    }
    if (w_1 < n_code) {
        bool loop_init_2 = true;
        while(true) {
            if (!loop_init_2) {
                uint _e84 = i_3;
                i_3 = _e84 + 1u;
            }
            loop_init_2 = false;
            uint _e61 = i_3;
            if (_e61 < 4u) {
            } else {
                break;
            }
            {
                uint _e64 = word;
                uint _e68 = i_3;
                float _e71 = head_row.inner[(4u * w_1) + _e68];
                uint _e76 = scales.inner[w_1 / 8u];
                uint _e77 = to_q8_(_e71, _e76);
                uint _e79 = i_3;
                word = _e64 | (_e77 << (8u * _e79));
            }
        }
        uint _e86 = word;
        return _e86;
    }
    uint n_group = (head_dim_1 + 31u) / 32u;
    uint group_2 = 2u * (w_1 - n_code);
    uint _e99 = scales.inner[metal::min(group_2, 31u)];
    uint low = (group_2 < n_group) ? _e99 : 0u;
    uint _e109 = scales.inner[metal::min(group_2 + 1u, 31u)];
    uint high = ((group_2 + 1u) < n_group) ? _e109 : 0u;
    return low | (high << 16u);
}

uint other_of(
    uint i_4,
    constant Params& p
) {
    uint _e4 = p.n_pair;
    if (i_4 >= (2u * _e4)) {
        return i_4;
    }
    uint _e9 = p.n_pair;
    uint _e13 = p.n_pair;
    uint _e17 = p.n_pair;
    return (i_4 < _e17) ? (i_4 + _e13) : (i_4 - _e9);
}

metal::float2 angle_of(
    uint t,
    uint i_5,
    constant Params& p,
    device type_6 const& args,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e5 = p.n_pair;
    bool is_turned = i_5 < (2u * _e5);
    uint _e10 = p.n_pair;
    bool is_low = i_5 < _e10;
    uint _e14 = p.angles_at;
    uint _e19 = p.n_pair;
    uint _e25 = p.n_pair;
    uint at = (_e14 + ((2u * t) * _e19)) + (is_turned ? (is_low ? i_5 : (i_5 - _e25)) : 0u);
    uint _e32 = args[at];
    float cosine = as_type<float>(_e32);
    uint _e37 = p.n_pair;
    uint _e40 = args[at + _e37];
    float sine = as_type<float>(_e40);
    return is_turned ? metal::float2(cosine, is_low ? -(sine) : sine) : metal::float2(1.0, 0.0);
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, uint lane [[thread_index_in_simdgroup]]
, uint n_lane [[threads_per_simdgroup]]
, threadgroup type_1& partial_sums
, threadgroup type_3& head_row
, threadgroup type_4& scales
, constant Params& p [[buffer(0)]]
, device type_6 const& args [[buffer(1)]]
, device type_7& q [[buffer(2)]]
, device type_7& k [[buffer(3)]]
, device type_7 const& v [[buffer(4)]]
, device type_7 const& q_weight [[buffer(5)]]
, device type_7 const& k_weight [[buffer(6)]]
, device type_6& keys [[buffer(7)]]
, device type_6& values [[buffer(8)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(9)]]
) {
    bool local = {};
    type_10 turns = {};
    uint o = 0u;
    float sum = 0.0;
    uint o_1 = 0u;
    uint o_2 = 0u;
    float value = {};
    bool local_1 = {};
    uint i = {};
    uint w = {};
    uint t_1 = group.y;
    uint _e8 = p.n_head;
    bool is_q = group.x < _e8;
    if (!(is_q)) {
        uint _e16 = p.n_head;
        uint _e19 = p.n_head_kv;
        local = group.x < (_e16 + _e19);
    } else {
        local = false;
    }
    bool is_k = local;
    uint _e27 = p.n_head;
    uint _e31 = p.n_head_kv;
    uint head = is_q ? group.x : ((group.x - _e27) % _e31);
    uint _e37 = p.first;
    uint row = _e37 + t_1;
    uint _e41 = p.n_head_kv;
    uint kv_row = (row * _e41) + head;
    uint _e46 = p.head_dim;
    uint _e50 = p.n_head;
    uint _e55 = p.q_stride;
    uint start = is_q ? (((row * _e50) + head) * _e55) : (kv_row * _e46);
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e129 = o;
            o = _e129 + 1u;
        }
        loop_init_3 = false;
        uint _e61 = o;
        if (_e61 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e64 = o;
            uint _e70 = p.head_dim;
            uint i_6 = metal::min(thread_ + (_e64 * N_THREAD), _e70 - 1u);
            uint _e74 = other_of(i_6, p);
            metal::float2 _e75 = angle_of(t_1, i_6, p, args, _buffer_sizes);
            if (is_q) {
                uint _e76 = o;
                float _e81 = q[start + i_6];
                float _e85 = q[start + _e74];
                float _e89 = q_weight[i_6];
                float _e94 = q_weight[_e74];
                turns.inner[_e76] = Turn {_e81, _e85, _e75.x * _e89, _e75.y * _e94};
            } else {
                if (is_k) {
                    uint _e97 = o;
                    float _e102 = k[start + i_6];
                    float _e106 = k[start + _e74];
                    float _e110 = k_weight[i_6];
                    float _e115 = k_weight[_e74];
                    turns.inner[_e97] = Turn {_e102, _e106, _e75.x * _e110, _e75.y * _e115};
                } else {
                    uint _e118 = o;
                    float _e123 = v[start + i_6];
                    turns.inner[_e118] = Turn {_e123, 0.0, 1.0, 0.0};
                }
            }
        }
    }
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e157 = o_1;
            o_1 = _e157 + 1u;
        }
        loop_init_4 = false;
        uint _e135 = o_1;
        if (_e135 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e138 = o_1;
            uint _e144 = p.head_dim;
            if ((thread_ + (_e138 * N_THREAD)) < _e144) {
                uint _e146 = o_1;
                float _e149 = turns.inner[_e146].value;
                uint _e150 = o_1;
                float _e153 = turns.inner[_e150].value;
                float _e154 = sum;
                sum = metal::fma(_e149, _e153, _e154);
            }
        }
    }
    float _e159 = sum;
    float _e160 = workgroup_sum(_e159, thread_, lane, n_lane, partial_sums);
    uint _e163 = p.head_dim;
    float mean = _e160 / static_cast<float>(_e163);
    float _e168 = p.eps;
    float scale_1 = metal::rsqrt(mean + _e168);
    bool loop_init_5 = true;
    while(true) {
        if (!loop_init_5) {
            uint _e214 = o_2;
            o_2 = _e214 + 1u;
        }
        loop_init_5 = false;
        uint _e173 = o_2;
        if (_e173 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e176 = o_2;
            uint i_7 = thread_ + (_e176 * N_THREAD);
            uint _e182 = p.head_dim;
            if (i_7 < _e182) {
                uint _e184 = o_2;
                Turn turn = turns.inner[_e184];
                value = turn.value;
                if (!(is_q)) {
                    local_1 = is_k;
                } else {
                    local_1 = true;
                }
                bool _e193 = local_1;
                if (_e193) {
                    float _e194 = value;
                    value = metal::fma(_e194 * scale_1, turn.value_share, (turn.other * scale_1) * turn.other_share);
                }
                if (is_q) {
                    float _e205 = value;
                    q[start + i_7] = _e205;
                } else {
                    float _e208 = value;
                    head_row.inner[i_7] = _e208;
                }
                if (is_k) {
                    float _e212 = value;
                    k[start + i_7] = _e212;
                }
            }
        }
    }
    if (is_q) {
        return;
    }
    uint _e218 = p.head_dim;
    i = _e218 + thread_;
    bool loop_init_6 = true;
    while(true) {
        if (!loop_init_6) {
            uint _e236 = i;
            i = _e236 + N_THREAD;
        }
        loop_init_6 = false;
        uint _e221 = i;
        uint _e224 = p.head_dim;
        if (_e221 < (((_e224 + 31u) / 32u) * 32u)) {
        } else {
            break;
        }
        {
            uint _e233 = i;
            head_row.inner[_e233] = 0.0;
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint _e241 = p.head_dim;
    prepare_scales(_e241, thread_, head_row, scales);
    uint _e244 = p.pos;
    uint _e248 = p.n_head_kv;
    uint _e253 = p.n_word;
    uint at_1 = (((_e244 + t_1) * _e248) + head) * _e253;
    w = thread_;
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e277 = w;
            w = _e277 + N_THREAD;
        }
        loop_init_7 = false;
        uint _e256 = w;
        uint _e259 = p.n_word;
        if (_e256 < _e259) {
        } else {
            break;
        }
        {
            uint _e261 = w;
            uint _e264 = p.n_code;
            uint _e267 = p.head_dim;
            uint _e268 = stored_word(_e261, _e264, _e267, head_row, scales);
            if (is_k) {
                uint _e270 = w;
                keys[at_1 + _e270] = _e268;
            } else {
                uint _e274 = w;
                values[at_1 + _e274] = _e268;
            }
        }
    }
    return;
}
