// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size7;
    uint size9;
    uint size11;
    uint size12;
    uint size13;
    uint size14;
};

struct type_1 {
    float inner[256];
};
struct type_4 {
    metal::uint4 inner[256];
};
struct type_5 {
    uint inner[1024];
};
struct type_6 {
    float inner[1024];
};
struct Choice {
    float largest;
    bool is_finite;
    char _pad2[3];
    float sum;
};
typedef float type_8[1];
typedef uint type_9[1];
struct Params {
    uint n_expert;
    uint k;
    uint renormalise;
    uint forced_at;
    uint layer;
    uint table_at;
    uint pairs_at;
    uint chosen_at;
};
struct type_10 {
    uint inner[4];
};
constant uint N_THREAD = 256u;
constant uint N_EXPERT_MAX = 1024u;
constant uint N_OWN = 4u;
constant uint GROUP = 32u;
constant uint BAD_KEY = 4294967295u;
constant uint MISSING = 4294967295u;

float workgroup_sum(
    float value,
    uint thread_1,
    uint lane_1,
    uint n_lane_1,
    threadgroup type_1& partial_sums
) {
    float some = 0.0;
    uint i = {};
    float unnamed = metal::simd_sum(value);
    if (lane_1 == 0u) {
        partial_sums.inner[thread_1 / n_lane_1] = unnamed;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    i = lane_1;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e23 = i;
            i = _e23 + n_lane_1;
        }
        loop_init = false;
        uint _e13 = i;
        if (_e13 < (N_THREAD / n_lane_1)) {
        } else {
            break;
        }
        {
            float _e17 = some;
            uint _e19 = i;
            float _e21 = partial_sums.inner[_e19];
            some = _e17 + _e21;
        }
    }
    float _e25 = some;
    float unnamed_1 = metal::simd_sum(_e25);
    return unnamed_1;
}

uint key_of(
    float logit
) {
    uint bits = as_type<uint>(logit);
    uint size = bits & 2147483647u;
    if (size >= 2139095040u) {
        return BAD_KEY;
    }
    return (bits > 2147483648u) ? ~(bits) : (2147483648u | size);
}

float logit_of(
    uint key
) {
    return as_type<float>(((key & 2147483648u) != 0u) ? (key & 2147483647u) : ~(key));
}

uint n_better(
    metal::uint4 four,
    uint first,
    uint key_1,
    uint i_1
) {
    metal::bool4 is_before = metal::uint4(first, first + 1u, first + 2u, first + 3u) < metal::uint4(i_1);
    metal::bool4 is_better = metal::select(four > metal::uint4(key_1), four >= metal::uint4(key_1), is_before);
    metal::uint4 counts = metal::select(metal::uint4(0u), metal::uint4(1u), is_better);
    return ((counts.x + counts.y) + counts.z) + counts.w;
}

float logit_1(
    uint expert,
    device type_8 const& logits,
    constant _mslBufferSizes& _buffer_sizes
) {
    float _e3 = logits[expert];
    return _e3;
}

void take_note(
    uint expert_1,
    threadgroup type_5& records,
    device type_9 const& table,
    constant Params& p,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e6 = p.table_at;
    uint _e9 = table[_e6 + expert_1];
    records.inner[expert_1] = _e9;
    return;
}

uint forced(
    uint j_1,
    constant Params& p,
    device type_9 const& args,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e4 = p.forced_at;
    uint _e7 = args[_e4 + j_1];
    return _e7;
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
    threadgroup type_4& keys,
    threadgroup type_4& group_keys,
    threadgroup type_5& group_experts,
    threadgroup type_5& chosen_experts,
    threadgroup type_6& chosen_logits,
    threadgroup uint& best_key,
    device type_8 const& logits,
    threadgroup type_5& records,
    device type_9 const& table,
    constant Params& p,
    device type_9 const& args,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_10 own = {};
    uint o = 0u;
    uint j_2 = {};
    uint o_1 = 0u;
    uint rank = {};
    uint i_2 = {};
    uint at = {};
    uint rank_1 = {};
    uint i_3 = {};
    bool local_1 = {};
    Choice choice = {};
    uint j_3 = 1u;
    uint j_4 = 0u;
    float sum = 0.0;
    uint o_2 = 0u;
    uint n_group = ((n_expert + GROUP) - 1u) / GROUP;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e45 = o;
            o = _e45 + 1u;
        }
        loop_init_1 = false;
        uint _e16 = o;
        if (_e16 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e19 = o;
            uint expert_2 = thread_2 + (_e19 * N_THREAD);
            uint _e23 = o;
            own.inner[_e23] = 0u;
            if (expert_2 < n_expert) {
                uint _e27 = o;
                float _e29 = logit_1(expert_2, logits, _buffer_sizes);
                uint _e30 = key_of(_e29);
                own.inner[_e27] = _e30;
                take_note(expert_2, records, table, p, _buffer_sizes);
            }
            if (expert_2 < (n_group * GROUP)) {
                uint _e41 = o;
                uint _e43 = own.inner[_e41];
                keys.inner[expert_2 / 4u][expert_2 % 4u] = _e43;
            }
        }
    }
    if (is_forced) {
        j_2 = thread_2;
        bool loop_init_2 = true;
        while(true) {
            if (!loop_init_2) {
                uint _e62 = j_2;
                j_2 = _e62 + N_THREAD;
            }
            loop_init_2 = false;
            uint _e48 = j_2;
            if (_e48 < k) {
            } else {
                break;
            }
            {
                uint _e50 = j_2;
                uint _e51 = forced(_e50, p, args, _buffer_sizes);
                uint expert_3 = metal::min(_e51, n_expert - 1u);
                uint _e56 = j_2;
                chosen_experts.inner[_e56] = expert_3;
                uint _e59 = j_2;
                float _e61 = logit_1(expert_3, logits, _buffer_sizes);
                chosen_logits.inner[_e59] = _e61;
            }
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint n_best = metal::min(GROUP, is_forced ? 1u : k);
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e130 = o_1;
            o_1 = _e130 + 1u;
        }
        loop_init_3 = false;
        uint _e71 = o_1;
        if (_e71 < N_OWN) {
        } else {
            break;
        }
        {
            uint _e74 = o_1;
            uint expert_4 = thread_2 + (_e74 * N_THREAD);
            if (expert_4 < (n_group * GROUP)) {
                uint first_1 = (expert_4 / GROUP) * GROUP;
                rank = 0u;
                i_2 = 0u;
                bool loop_init_4 = true;
                while(true) {
                    if (!loop_init_4) {
                        uint _e107 = i_2;
                        i_2 = _e107 + 4u;
                    }
                    loop_init_4 = false;
                    uint _e89 = i_2;
                    if (_e89 < GROUP) {
                    } else {
                        break;
                    }
                    {
                        uint _e92 = rank;
                        uint _e94 = i_2;
                        metal::uint4 _e99 = keys.inner[(first_1 + _e94) / 4u];
                        uint _e100 = i_2;
                        uint _e102 = o_1;
                        uint _e104 = own.inner[_e102];
                        uint _e105 = n_better(_e99, first_1 + _e100, _e104, expert_4);
                        rank = _e92 + _e105;
                    }
                }
                uint _e110 = rank;
                if (_e110 < n_best) {
                    uint _e115 = rank;
                    uint at_1 = ((expert_4 / GROUP) * n_best) + _e115;
                    uint _e124 = o_1;
                    uint _e126 = own.inner[_e124];
                    group_keys.inner[at_1 / 4u][at_1 % 4u] = _e126;
                    group_experts.inner[at_1] = expert_4;
                }
            }
        }
    }
    uint n_left = n_group * n_best;
    uint behind = n_left + thread_2;
    if (behind < (((n_left + 3u) / 4u) * 4u)) {
        group_keys.inner[behind / 4u][behind % 4u] = 0u;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    at = thread_2;
    bool loop_init_5 = true;
    while(true) {
        if (!loop_init_5) {
            uint _e204 = at;
            at = _e204 + N_THREAD;
        }
        loop_init_5 = false;
        uint _e150 = at;
        if (_e150 < n_left) {
        } else {
            break;
        }
        {
            uint _e153 = at;
            uint _e157 = at;
            uint key_2 = group_keys.inner[_e153 / 4u][_e157 % 4u];
            rank_1 = 0u;
            i_3 = 0u;
            bool loop_init_6 = true;
            while(true) {
                if (!loop_init_6) {
                    uint _e179 = i_3;
                    i_3 = _e179 + 4u;
                }
                loop_init_6 = false;
                uint _e166 = i_3;
                if (_e166 < n_left) {
                } else {
                    break;
                }
                {
                    uint _e168 = rank_1;
                    uint _e170 = i_3;
                    metal::uint4 _e174 = group_keys.inner[_e170 / 4u];
                    uint _e175 = i_3;
                    uint _e176 = at;
                    uint _e177 = n_better(_e174, _e175, key_2, _e176);
                    rank_1 = _e168 + _e177;
                }
            }
            uint _e182 = rank_1;
            if (_e182 == 0u) {
                best_key = key_2;
            }
            uint _e186 = rank_1;
            if (_e186 < k) {
                local_1 = !(is_forced);
            } else {
                local_1 = false;
            }
            bool _e192 = local_1;
            if (_e192) {
                uint _e194 = rank_1;
                uint _e197 = at;
                uint _e199 = group_experts.inner[_e197];
                chosen_experts.inner[_e194] = _e199;
                uint _e201 = rank_1;
                float _e203 = logit_of(key_2);
                chosen_logits.inner[_e201] = _e203;
            }
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint _e210 = best_key;
    choice.is_finite = _e210 != BAD_KEY;
    uint _e215 = best_key;
    float _e216 = logit_of(_e215);
    choice.largest = _e216;
    choice.sum = 0.0;
    if (renormalise) {
        if (is_forced) {
            float _e222 = chosen_logits.inner[0];
            choice.largest = _e222;
            bool loop_init_7 = true;
            while(true) {
                if (!loop_init_7) {
                    uint _e236 = j_3;
                    j_3 = _e236 + 1u;
                }
                loop_init_7 = false;
                uint _e225 = j_3;
                if (_e225 < k) {
                } else {
                    break;
                }
                {
                    float _e229 = choice.largest;
                    uint _e231 = j_3;
                    float _e233 = chosen_logits.inner[_e231];
                    choice.largest = metal::max(_e229, _e233);
                }
            }
        }
        bool loop_init_8 = true;
        while(true) {
            if (!loop_init_8) {
                uint _e254 = j_4;
                j_4 = _e254 + 1u;
            }
            loop_init_8 = false;
            uint _e240 = j_4;
            if (_e240 < k) {
            } else {
                break;
            }
            {
                float _e243 = choice.sum;
                uint _e245 = j_4;
                float _e247 = chosen_logits.inner[_e245];
                float _e249 = choice.largest;
                choice.sum = _e243 + metal::exp(_e247 - _e249);
            }
        }
    } else {
        bool loop_init_9 = true;
        while(true) {
            if (!loop_init_9) {
                uint _e279 = o_2;
                o_2 = _e279 + 1u;
            }
            loop_init_9 = false;
            uint _e260 = o_2;
            if (_e260 < N_OWN) {
            } else {
                break;
            }
            {
                uint _e263 = o_2;
                if ((thread_2 + (_e263 * N_THREAD)) < n_expert) {
                    float _e268 = sum;
                    uint _e269 = o_2;
                    uint _e271 = own.inner[_e269];
                    float _e272 = logit_of(_e271);
                    float _e274 = choice.largest;
                    sum = _e268 + metal::exp(_e272 - _e274);
                }
            }
        }
        float _e282 = sum;
        float _e283 = workgroup_sum(_e282, thread_2, lane_2, n_lane_2, partial_sums);
        choice.sum = _e283;
    }
    Choice _e284 = choice;
    return _e284;
}

float weight_of(
    Choice choice_1,
    uint j_5,
    threadgroup type_6& chosen_logits
) {
    float _e4 = chosen_logits.inner[j_5];
    return metal::exp(_e4 - choice_1.largest) / choice_1.sum;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  uint thread_ [[thread_index_in_threadgroup]]
, uint lane [[thread_index_in_simdgroup]]
, uint n_lane [[threads_per_simdgroup]]
, threadgroup type_1& partial_sums
, threadgroup type_4& keys
, threadgroup type_4& group_keys
, threadgroup type_5& group_experts
, threadgroup type_5& chosen_experts
, threadgroup type_6& chosen_logits
, threadgroup uint& best_key
, device type_8 const& logits [[buffer(1)]]
, threadgroup type_5& records
, device type_9 const& table [[buffer(3)]]
, constant Params& p [[buffer(0)]]
, device type_9 const& args [[buffer(2)]]
, device type_9& control [[buffer(4)]]
, device type_9& pairs [[buffer(5)]]
, device type_9& chosen [[buffer(6)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(7)]]
) {
    uint j = {};
    bool local = {};
    uint _e5 = control[0];
    bool is_stopped = _e5 != 0u;
    uint _e10 = p.forced_at;
    bool is_forced_1 = _e10 != 4294967295u;
    uint _e15 = p.n_expert;
    uint _e18 = p.k;
    uint _e21 = p.renormalise;
    Choice _e24 = choose_row(_e15, _e18, _e21 != 0u, is_forced_1, thread_, lane, n_lane, partial_sums, keys, group_keys, group_experts, chosen_experts, chosen_logits, best_key, logits, records, table, p, args, _buffer_sizes);
    if (is_stopped) {
        return;
    }
    j = thread_;
    bool loop_init_10 = true;
    while(true) {
        if (!loop_init_10) {
            uint _e87 = j;
            j = _e87 + N_THREAD;
        }
        loop_init_10 = false;
        uint _e26 = j;
        uint _e29 = p.k;
        if (_e26 < _e29) {
        } else {
            break;
        }
        {
            uint _e32 = j;
            uint expert_5 = chosen_experts.inner[_e32];
            uint record_at = records.inner[expert_5];
            uint _e40 = p.pairs_at;
            uint _e42 = j;
            uint pair = _e40 + (4u * _e42);
            pairs[pair] = record_at;
            pairs[pair + 1u] = 0u;
            uint _e56 = j;
            pairs[pair + 2u] = _e56;
            uint _e61 = j;
            float _e62 = weight_of(_e24, _e61, chosen_logits);
            pairs[pair + 3u] = as_type<uint>(_e62);
            uint _e67 = p.chosen_at;
            uint _e68 = j;
            chosen[_e67 + _e68] = expert_5;
            if (!((record_at == MISSING))) {
                local = !(_e24.is_finite);
            } else {
                local = true;
            }
            bool _e79 = local;
            if (_e79) {
                uint _e84 = p.layer;
                control[0] = _e84 + 1u;
            }
        }
    }
    return;
}
