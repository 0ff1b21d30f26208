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
    float inner[64];
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
    uint pos;
    uint n_code;
    uint n_word;
    float eps;
};
typedef uint type_6[1];
typedef float type_7[1];
constant uint F16_ = 0u;
constant uint BF16_ = 1u;
constant uint F32_ = 2u;
constant uint Q8_ = 3u;
constant uint HEAD_DIM_MAX = 1024u;
constant uint FORMAT = 0u;

float workgroup_sum(
    float value_1,
    uint thread_1,
    uint lane_1,
    uint n_lane_1,
    threadgroup type_1& partial_sums
) {
    float total = 0.0;
    uint i_3 = 0u;
    float unnamed = metal::simd_sum(value_1);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (lane_1 == 0u) {
        partial_sums.inner[thread_1 / n_lane_1] = unnamed;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e25 = i_3;
            i_3 = _e25 + 1u;
        }
        loop_init = false;
        uint _e14 = i_3;
        if (_e14 < (256u / n_lane_1)) {
        } else {
            break;
        }
        {
            float _e18 = total;
            uint _e20 = i_3;
            float _e22 = partial_sums.inner[_e20];
            total = _e18 + _e22;
        }
    }
    float _e27 = total;
    return _e27;
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
    uint i_4 = 0u;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e21 = i_4;
            i_4 = _e21 + 1u;
        }
        loop_init_1 = false;
        uint _e5 = i_4;
        if (_e5 < 32u) {
        } else {
            break;
        }
        {
            uint _e8 = largest;
            uint _e12 = i_4;
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
    uint i_5 = 0u;
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
                uint _e84 = i_5;
                i_5 = _e84 + 1u;
            }
            loop_init_2 = false;
            uint _e61 = i_5;
            if (_e61 < 4u) {
            } else {
                break;
            }
            {
                uint _e64 = word;
                uint _e68 = i_5;
                float _e71 = head_row.inner[(4u * w_1) + _e68];
                uint _e76 = scales.inner[w_1 / 8u];
                uint _e77 = to_q8_(_e71, _e76);
                uint _e79 = i_5;
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
    float sum = 0.0;
    uint i = {};
    float value = {};
    bool local_1 = {};
    uint i_1 = {};
    uint j = {};
    uint i_2 = {};
    uint w = {};
    uint t = group.y;
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
    uint _e37 = p.n_head_kv;
    uint kv_row = (t * _e37) + head;
    uint _e42 = p.head_dim;
    uint _e46 = p.n_head;
    uint _e51 = p.q_stride;
    uint start = is_q ? (((t * _e46) + head) * _e51) : (kv_row * _e42);
    i = thread_;
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e90 = i;
            i = _e90 + 256u;
        }
        loop_init_3 = false;
        uint _e57 = i;
        if (_e57 < HEAD_DIM_MAX) {
        } else {
            break;
        }
        {
            value = 0.0;
            uint _e62 = i;
            uint _e65 = p.head_dim;
            if (_e62 < _e65) {
                if (is_q) {
                    uint _e68 = i;
                    float _e71 = q[start + _e68];
                    value = _e71;
                } else {
                    if (is_k) {
                        uint _e73 = i;
                        float _e76 = k[start + _e73];
                        value = _e76;
                    } else {
                        uint _e78 = i;
                        float _e81 = v[start + _e78];
                        value = _e81;
                    }
                }
            }
            float _e82 = value;
            float _e83 = value;
            float _e84 = sum;
            sum = metal::fma(_e82, _e83, _e84);
            uint _e87 = i;
            float _e89 = value;
            head_row.inner[_e87] = _e89;
        }
    }
    float _e93 = sum;
    float _e94 = workgroup_sum(_e93, thread_, lane, n_lane, partial_sums);
    uint _e97 = p.head_dim;
    float mean = _e94 / static_cast<float>(_e97);
    float _e102 = p.eps;
    float scale_1 = metal::rsqrt(mean + _e102);
    if (!(is_q)) {
        local_1 = is_k;
    } else {
        local_1 = true;
    }
    bool _e109 = local_1;
    if (_e109) {
        i_1 = thread_;
        bool loop_init_4 = true;
        while(true) {
            if (!loop_init_4) {
                uint _e131 = i_1;
                i_1 = _e131 + 256u;
            }
            loop_init_4 = false;
            uint _e111 = i_1;
            uint _e114 = p.head_dim;
            if (_e111 < _e114) {
            } else {
                break;
            }
            {
                uint _e117 = i_1;
                float _e119 = head_row.inner[_e117];
                uint _e121 = i_1;
                float _e123 = k_weight[_e121];
                uint _e125 = i_1;
                float _e127 = q_weight[_e125];
                head_row.inner[_e117] = _e119 * (scale_1 * (is_q ? _e127 : _e123));
            }
        }
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        j = thread_;
        bool loop_init_5 = true;
        while(true) {
            if (!loop_init_5) {
                uint _e192 = j;
                j = _e192 + 256u;
            }
            loop_init_5 = false;
            uint _e135 = j;
            uint _e138 = p.n_pair;
            if (_e135 < _e138) {
            } else {
                break;
            }
            {
                uint _e142 = p.angles_at;
                uint _e147 = p.n_pair;
                uint _e150 = j;
                uint angle = (_e142 + ((2u * t) * _e147)) + _e150;
                uint _e154 = args[angle];
                float cosine = as_type<float>(_e154);
                uint _e159 = p.n_pair;
                uint _e162 = args[angle + _e159];
                float sine = as_type<float>(_e162);
                uint _e165 = j;
                float a_1 = head_row.inner[_e165];
                uint _e169 = j;
                uint _e172 = p.n_pair;
                float b_1 = head_row.inner[_e169 + _e172];
                uint _e177 = j;
                head_row.inner[_e177] = (a_1 * cosine) - (b_1 * sine);
                uint _e183 = j;
                uint _e186 = p.n_pair;
                head_row.inner[_e183 + _e186] = (b_1 * cosine) + (a_1 * sine);
            }
        }
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        i_2 = thread_;
        bool loop_init_6 = true;
        while(true) {
            if (!loop_init_6) {
                uint _e217 = i_2;
                i_2 = _e217 + 256u;
            }
            loop_init_6 = false;
            uint _e196 = i_2;
            uint _e199 = p.head_dim;
            if (_e196 < _e199) {
            } else {
                break;
            }
            {
                if (is_q) {
                    uint _e202 = i_2;
                    uint _e206 = i_2;
                    float _e208 = head_row.inner[_e206];
                    q[start + _e202] = _e208;
                } else {
                    uint _e210 = i_2;
                    uint _e214 = i_2;
                    float _e216 = head_row.inner[_e214];
                    k[start + _e210] = _e216;
                }
            }
        }
    }
    if (is_q) {
        return;
    }
    uint _e222 = p.head_dim;
    prepare_scales(_e222, thread_, head_row, scales);
    uint _e225 = p.pos;
    uint _e229 = p.n_head_kv;
    uint _e234 = p.n_word;
    uint at = (((_e225 + t) * _e229) + head) * _e234;
    w = thread_;
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e258 = w;
            w = _e258 + 256u;
        }
        loop_init_7 = false;
        uint _e237 = w;
        uint _e240 = p.n_word;
        if (_e237 < _e240) {
        } else {
            break;
        }
        {
            uint _e242 = w;
            uint _e245 = p.n_code;
            uint _e248 = p.head_dim;
            uint _e249 = stored_word(_e242, _e245, _e248, head_row, scales);
            if (is_k) {
                uint _e251 = w;
                keys[at + _e251] = _e249;
            } else {
                uint _e255 = w;
                values[at + _e255] = _e249;
            }
        }
    }
    return;
}
