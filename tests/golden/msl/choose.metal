// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size5;
    uint size8;
    uint size9;
};

struct type_1 {
    float inner[64];
};
struct type_3 {
    uint inner[64];
};
struct type_4 {
    uint inner[1024];
};
struct Choice {
    float largest;
    bool is_finite;
    char _pad2[3];
    float sum;
};
typedef float type_7[1];
struct Params {
    uint n_token;
    uint n_expert;
    uint k;
    uint renormalise;
    uint forced_at;
};
typedef uint type_8[1];
struct type_9 {
    uint inner[4];
};
constant uint N_EXPERT_MAX = 1024u;
constant uint N_OWN = 4u;

float workgroup_sum(
    float value,
    uint thread_1,
    uint lane_1,
    uint n_lane_1,
    threadgroup type_1& partial_sums
) {
    float total = 0.0;
    uint i = 0u;
    float unnamed = metal::simd_sum(value);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (lane_1 == 0u) {
        partial_sums.inner[thread_1 / n_lane_1] = unnamed;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e25 = i;
            i = _e25 + 1u;
        }
        loop_init = false;
        uint _e14 = i;
        if (_e14 < (256u / n_lane_1)) {
        } else {
            break;
        }
        {
            float _e18 = total;
            uint _e20 = i;
            float _e22 = partial_sums.inner[_e20];
            total = _e18 + _e22;
        }
    }
    float _e27 = total;
    return _e27;
}

uint order_of(
    float logit
) {
    uint bits = as_type<uint>(logit);
    if ((bits & 2147483647u) == 0u) {
        return 2147483648u;
    }
    return metal::max(1u, ((bits & 2147483648u) != 0u) ? ~(bits) : (bits | 2147483648u));
}

float logit_1(
    uint expert,
    device type_7 const& logits,
    thread uint& token,
    constant Params& p,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e3 = token;
    uint _e6 = p.n_expert;
    float _e10 = logits[(_e3 * _e6) + expert];
    return _e10;
}

uint forced(
    uint j_1,
    thread uint& token,
    constant Params& p,
    device type_8 const& args,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e4 = p.forced_at;
    uint _e6 = token;
    uint _e9 = p.k;
    uint _e14 = args[(_e4 + (_e6 * _e9)) + j_1];
    return _e14;
}

Choice choose_row(
    uint n_expert,
    uint k,
    bool renormalise,
    bool is_forced,
    uint thread_2,
    uint lane_2,
    uint n_lane_2,
    threadgroup type_1& partial_sums,
    threadgroup type_3& best_keys,
    threadgroup type_3& best_experts,
    threadgroup type_4& chosen_experts,
    threadgroup metal::atomic_uint& n_bad,
    device type_7 const& logits,
    thread uint& token,
    constant Params& p,
    device type_8 const& args,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_9 keys = {};
    uint i_1 = 0u;
    uint largest = 0u;
    uint j_2 = 0u;
    uint key = {};
    uint expert_1 = {};
    uint i_2 = {};
    uint i_3 = {};
    bool local = {};
    bool local_1 = {};
    uint i_4 = {};
    bool local_2 = {};
    uint j_3 = {};
    Choice choice = {};
    uint j_4 = 1u;
    uint j_5 = 0u;
    float sum = 0.0;
    uint expert_2 = {};
    if (thread_2 == 0u) {
        metal::atomic_store_explicit(&n_bad, 0u, metal::memory_order_relaxed);
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e38 = i_1;
            i_1 = _e38 + 1u;
        }
        loop_init_1 = false;
        uint _e14 = i_1;
        if (_e14 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e17 = i_1;
            uint expert_3 = thread_2 + (_e17 * 256u);
            uint _e21 = i_1;
            keys.inner[_e21] = 0u;
            if (expert_3 < n_expert) {
                float _e25 = logit_1(expert_3, logits, token, p, _buffer_sizes);
                uint _e26 = i_1;
                uint _e28 = order_of(_e25);
                keys.inner[_e26] = _e28;
                if ((as_type<uint>(_e25) & 2139095040u) == 2139095040u) {
                    uint _e36 = metal::atomic_fetch_add_explicit(&n_bad, 1u, metal::memory_order_relaxed);
                }
            }
        }
    }
    uint n_round = is_forced ? 1u : k;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e170 = j_2;
            j_2 = _e170 + 1u;
        }
        loop_init_2 = false;
        uint _e46 = j_2;
        if (_e46 < n_round) {
        } else {
            break;
        }
        {
            key = 0u;
            expert_1 = N_EXPERT_MAX;
            i_2 = 0u;
            bool loop_init_3 = true;
            while(true) {
                if (!loop_init_3) {
                    uint _e70 = i_2;
                    i_2 = _e70 + 1u;
                }
                loop_init_3 = false;
                uint _e54 = i_2;
                if (_e54 < N_OWN) {
                } else {
                    break;
                }
                {
                    uint _e57 = i_2;
                    uint _e59 = keys.inner[_e57];
                    uint _e60 = key;
                    if (_e59 > _e60) {
                        uint _e62 = i_2;
                        uint _e64 = keys.inner[_e62];
                        key = _e64;
                        uint _e65 = i_2;
                        expert_1 = thread_2 + (_e65 * 256u);
                    }
                }
            }
            uint _e72 = key;
            uint unnamed_1 = metal::simd_max(_e72);
            uint _e75 = expert_1;
            uint _e76 = key;
            uint unnamed_2 = metal::simd_min((_e76 == unnamed_1) ? _e75 : N_EXPERT_MAX);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            if (lane_2 == 0u) {
                best_keys.inner[thread_2 / n_lane_2] = unnamed_1;
                best_experts.inner[thread_2 / n_lane_2] = unnamed_2;
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            key = 0u;
            expert_1 = N_EXPERT_MAX;
            i_3 = 0u;
            bool loop_init_4 = true;
            while(true) {
                if (!loop_init_4) {
                    uint _e136 = i_3;
                    i_3 = _e136 + 1u;
                }
                loop_init_4 = false;
                uint _e92 = i_3;
                if (_e92 < (256u / n_lane_2)) {
                } else {
                    break;
                }
                {
                    uint _e97 = i_3;
                    uint _e99 = best_keys.inner[_e97];
                    uint _e100 = key;
                    if (!((_e99 > _e100))) {
                        uint _e106 = i_3;
                        uint _e108 = best_keys.inner[_e106];
                        uint _e109 = key;
                        if (_e108 == _e109) {
                            uint _e114 = i_3;
                            uint _e116 = best_experts.inner[_e114];
                            uint _e117 = expert_1;
                            local_1 = _e116 < _e117;
                        } else {
                            local_1 = false;
                        }
                        bool _e120 = local_1;
                        local = _e120;
                    } else {
                        local = true;
                    }
                    bool is_better = local;
                    uint _e123 = key;
                    uint _e125 = i_3;
                    uint _e127 = best_keys.inner[_e125];
                    key = is_better ? _e127 : _e123;
                    uint _e129 = expert_1;
                    uint _e131 = i_3;
                    uint _e133 = best_experts.inner[_e131];
                    expert_1 = is_better ? _e133 : _e129;
                }
            }
            uint _e138 = largest;
            uint _e139 = key;
            largest = metal::max(_e138, _e139);
            i_4 = 0u;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e156 = i_4;
                    i_4 = _e156 + 1u;
                }
                loop_init_5 = false;
                uint _e143 = i_4;
                if (_e143 < N_OWN) {
                } else {
                    break;
                }
                {
                    uint _e146 = i_4;
                    uint _e150 = expert_1;
                    if ((thread_2 + (_e146 * 256u)) == _e150) {
                        uint _e152 = i_4;
                        keys.inner[_e152] = 0u;
                    }
                }
            }
            if (thread_2 == 0u) {
                local_2 = !(is_forced);
            } else {
                local_2 = false;
            }
            bool _e164 = local_2;
            if (_e164) {
                uint _e166 = j_2;
                uint _e168 = expert_1;
                chosen_experts.inner[_e166] = _e168;
            }
        }
    }
    if (is_forced) {
        j_3 = thread_2;
        bool loop_init_6 = true;
        while(true) {
            if (!loop_init_6) {
                uint _e183 = j_3;
                j_3 = _e183 + 256u;
            }
            loop_init_6 = false;
            uint _e173 = j_3;
            if (_e173 < k) {
            } else {
                break;
            }
            {
                uint _e176 = j_3;
                uint _e178 = j_3;
                uint _e179 = forced(_e178, token, p, args, _buffer_sizes);
                chosen_experts.inner[_e176] = metal::min(_e179, n_expert - 1u);
            }
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint _e189 = metal::atomic_load_explicit(&n_bad, metal::memory_order_relaxed);
    choice.is_finite = _e189 == 0u;
    uint _e193 = largest;
    uint _e195 = largest;
    uint _e198 = largest;
    choice.largest = as_type<float>(((_e198 & 2147483648u) != 0u) ? (_e195 & 2147483647u) : ~(_e193));
    choice.sum = 0.0;
    if (renormalise) {
        if (is_forced) {
            uint _e210 = chosen_experts.inner[0];
            float _e211 = logit_1(_e210, logits, token, p, _buffer_sizes);
            choice.largest = _e211;
            bool loop_init_7 = true;
            while(true) {
                if (!loop_init_7) {
                    uint _e226 = j_4;
                    j_4 = _e226 + 1u;
                }
                loop_init_7 = false;
                uint _e214 = j_4;
                if (_e214 < k) {
                } else {
                    break;
                }
                {
                    float _e218 = choice.largest;
                    uint _e220 = j_4;
                    uint _e222 = chosen_experts.inner[_e220];
                    float _e223 = logit_1(_e222, logits, token, p, _buffer_sizes);
                    choice.largest = metal::max(_e218, _e223);
                }
            }
        }
        bool loop_init_8 = true;
        while(true) {
            if (!loop_init_8) {
                uint _e245 = j_5;
                j_5 = _e245 + 1u;
            }
            loop_init_8 = false;
            uint _e230 = j_5;
            if (_e230 < k) {
            } else {
                break;
            }
            {
                float _e233 = choice.sum;
                uint _e235 = j_5;
                uint _e237 = chosen_experts.inner[_e235];
                float _e238 = logit_1(_e237, logits, token, p, _buffer_sizes);
                float _e240 = choice.largest;
                choice.sum = _e233 + metal::exp(_e238 - _e240);
            }
        }
    } else {
        expert_2 = thread_2;
        bool loop_init_9 = true;
        while(true) {
            if (!loop_init_9) {
                uint _e260 = expert_2;
                expert_2 = _e260 + 256u;
            }
            loop_init_9 = false;
            uint _e250 = expert_2;
            if (_e250 < n_expert) {
            } else {
                break;
            }
            {
                float _e252 = sum;
                uint _e253 = expert_2;
                float _e254 = logit_1(_e253, logits, token, p, _buffer_sizes);
                float _e256 = choice.largest;
                sum = _e252 + metal::exp(_e254 - _e256);
            }
        }
        float _e264 = sum;
        float _e265 = workgroup_sum(_e264, thread_2, lane_2, n_lane_2, partial_sums);
        choice.sum = _e265;
    }
    Choice _e266 = choice;
    return _e266;
}

float weight_of(
    Choice choice_1,
    uint j_6,
    threadgroup type_4& chosen_experts,
    device type_7 const& logits,
    thread uint& token,
    constant Params& p,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e4 = chosen_experts.inner[j_6];
    float _e5 = logit_1(_e4, logits, token, p, _buffer_sizes);
    return metal::exp(_e5 - choice_1.largest) / choice_1.sum;
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
, threadgroup type_3& best_keys
, threadgroup type_3& best_experts
, threadgroup type_4& chosen_experts
, threadgroup metal::atomic_uint& n_bad
, device type_7 const& logits [[buffer(1)]]
, constant Params& p [[buffer(0)]]
, device type_8 const& args [[buffer(2)]]
, device type_8& routes [[buffer(3)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(4)]]
) {
    uint token = {};
    uint j = {};
    token = (group.y * n_group.x) + group.x;
    uint _e18 = p.n_token;
    if (((group.y * n_group.x) + group.x) >= _e18) {
        return;
    }
    uint _e22 = p.forced_at;
    bool is_forced_1 = _e22 != 4294967295u;
    uint _e27 = p.n_expert;
    uint _e30 = p.k;
    uint _e33 = p.renormalise;
    Choice _e36 = choose_row(_e27, _e30, _e33 != 0u, is_forced_1, thread_, lane, n_lane, partial_sums, best_keys, best_experts, chosen_experts, n_bad, logits, token, p, args, _buffer_sizes);
    j = thread_;
    bool loop_init_10 = true;
    while(true) {
        if (!loop_init_10) {
            uint _e74 = j;
            j = _e74 + 256u;
        }
        loop_init_10 = false;
        uint _e38 = j;
        uint _e41 = p.k;
        if (_e38 < _e41) {
        } else {
            break;
        }
        {
            uint _e45 = token;
            uint _e48 = p.k;
            uint _e50 = j;
            uint _e53 = j;
            float _e54 = weight_of(_e36, _e53, chosen_experts, logits, token, p, _buffer_sizes);
            routes[(_e45 * _e48) + _e50] = as_type<uint>(_e54);
            uint _e59 = p.n_token;
            uint _e61 = token;
            uint _e65 = p.k;
            uint _e67 = j;
            uint _e71 = j;
            uint _e73 = chosen_experts.inner[_e71];
            routes[((_e59 + _e61) * _e65) + _e67] = _e73;
        }
    }
    if (thread_ == 0u) {
        uint _e83 = p.n_token;
        uint _e87 = p.k;
        uint _e90 = token;
        routes[((2u * _e83) * _e87) + _e90] = _e36.is_finite ? 0u : 1u;
        return;
    } else {
        return;
    }
}
