// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size1;
    uint size2;
    uint size6;
    uint size7;
};

typedef uint type_3[1];
struct type_7 {
    metal::float4 inner[2];
};
typedef float type_9[1];
typedef metal::float4 type_10[1];
struct type_11 {
    metal::float4 inner[512];
};
struct type_12 {
    metal::float4 inner[512];
};
struct Place {
    uint row;
    uint quad_;
};
struct Load {
    type_7 w;
    metal::float4x4 x;
};
struct type_14 {
    metal::float4 inner[16];
};
struct Tile {
    uint row;
    uint token;
    uint n_token;
    uint record_at;
    uint pairs_at;
    uint first_pair;
};
struct Params {
    uint jobs_at;
    uint rows;
    uint cols;
    uint codes;
    uint scales;
    uint biases;
    uint up_codes;
    uint up_scales;
    uint up_biases;
};
constant uint CHUNK = 32u;
constant uint RUNS = 1u;
constant bool SCALED = true;
constant bool BIASED = true;
constant uint TILE_ROWS = 128u;
constant uint TILE_COLS = 16u;
constant uint BITS = 4u;
constant uint GROUP = 64u;
constant uint HALF = 0u;
constant uint N_ROW = 8u;
constant uint N_QUAD = 2u;
constant uint TILE_TOKENS = 128u;
constant uint BLOCK = 16u;
constant uint N_TOKEN_THREAD = 16u;
constant uint TILE_QUADS = 32u;
constant uint X_FOURS = 512u;
constant uint STEP = 0u;

float half_of(
    uint bits
) {
    uint sign = (bits & 32768u) << 16u;
    uint rest = (bits & 32767u) << 13u;
    if (rest < 8388608u) {
        float small = as_type<float>(rest | 947912704u) - as_type<float>(947912704u);
        return as_type<float>(as_type<uint>(small) | sign);
    }
    return as_type<float>((rest + 939524096u) | sign);
}

metal::uint3 row_at(
    metal::uint3 planes,
    uint row,
    uint cols
) {
    uint groups = row * (cols / GROUP);
    return metal::uint3(planes.x + (row * ((cols / 32u) * BITS)), (2u * planes.y) + groups, (2u * planes.z) + groups);
}

metal::float4 in_place(
    metal::uint4 codes,
    metal::uint4 place
) {
    metal::uint4 exponent = (metal::uint4(150u) - place) << metal::uint4(23u);
    return as_type<metal::float4>(codes | exponent) - as_type<metal::float4>(exponent);
}

metal::float4 four(
    uint word
) {
    if (true) {
        metal::uint4 place_2 = metal::uint4(0u, 4u, 8u, 12u);
        metal::float4 _e35 = in_place(metal::uint4(word) & metal::uint4(15u, 240u, 3840u, 61440u), place_2);
        return _e35;
    }
    uint high_1 = word >> 8u;
    metal::uint4 place_3 = metal::uint4(0u, 4u, 0u, 4u);
    metal::float4 _e58 = in_place(metal::uint4(word, word, high_1, high_1) & metal::uint4(15u, 240u, 15u, 240u), place_3);
    return _e58;
}

type_7 codes8_(
    metal::uint3 row_1,
    uint col,
    uint n,
    device type_3 const& w_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint low = {};
    uint high = 0u;
    uint byte = (col / 8u) * BITS;
    uint at_3 = row_1.x + (byte / 4u);
    uint shift = 8u * (byte % 4u);
    uint _e17 = w_1[at_3];
    low = _e17 >> shift;
    if (32u < (shift + 32u)) {
        uint next = w_1[at_3 + 1u];
        high = next >> shift;
        if (shift != 0u) {
            uint _e37 = low;
            low = _e37 | (next << (32u - shift));
        }
    }
    if (false) {
        uint _e46 = low;
        metal::float4 _e47 = four(_e46);
        uint _e48 = high;
        metal::float4 _e49 = four(_e48);
        return type_7 {{_e47, _e49}};
    }
    uint _e57 = low;
    metal::float4 _e58 = four(_e57);
    uint _e59 = low;
    uint _e61 = high;
    metal::float4 _e66 = four((_e59 >> 16u) | (_e61 << 16u));
    return type_7 {{_e58, _e66}};
}

float number_of(
    uint word_1,
    uint index
) {
    if (false) {
        float _e15 = half_of(((index % 2u) == 1u) ? (word_1 >> 16u) : (word_1 & 65535u));
        return _e15;
    }
    return as_type<float>(((index % 2u) == 1u) ? (word_1 & 4294901760u) : (word_1 << 16u));
}

metal::float2 scale_bias(
    metal::uint3 row_2,
    uint col_1,
    device type_3 const& w_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::uint2 group_2 = row_2.yz + metal::uint2(col_1 / GROUP);
    uint _e12 = w_1[group_2.x / 2u];
    float _e14 = number_of(_e12, group_2.x);
    uint _e20 = w_1[group_2.y / 2u];
    float _e22 = number_of(_e20, group_2.y);
    return metal::float2(_e14, _e22);
}

Place place_1(
    uint thread_1
) {
    uint block = thread_1 / 32u;
    return Place {(thread_1 % 8u) + (8u * (block % 2u)), ((thread_1 / 8u) % 4u) + (4u * (block / 2u))};
}

uint loaded_row(
    uint thread_2
) {
    return thread_2 / 2u;
}

uint loaded_quad(
    uint thread_3
) {
    return thread_3 / 4u;
}

metal::float4 x_ragged(
    uint at,
    uint n_1,
    device type_9 const& x_2,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::float4 four_1 = {};
    float _e4 = x_2[at];
    four_1 = metal::float4(_e4, 0.0, 0.0, 0.0);
    if (1u < n_1) {
        float _e17 = x_2[at + 1u];
        four_1.y = _e17;
    }
    if (2u < n_1) {
        float _e25 = x_2[at + 2u];
        four_1.z = _e25;
    }
    if (3u < n_1) {
        float _e33 = x_2[at + 3u];
        four_1.w = _e33;
    }
    metal::float4 _e34 = four_1;
    return _e34;
}

Load load(
    metal::uint3 row_3,
    metal::uint4 tokens,
    uint col_2,
    uint cols_1,
    uint thread_4,
    device type_3 const& w_1,
    device type_9 const& x_2,
    device type_10 const& x4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Load part = {};
    bool local = {};
    uint w_col = col_2 + ((thread_4 % 2u) * 8u);
    if (w_col < cols_1) {
        type_7 _e14 = codes8_(row_3, w_col, cols_1 - w_col, w_1, _buffer_sizes);
        part.w = _e14;
        if (SCALED) {
            metal::float2 _e16 = scale_bias(row_3, w_col, w_1, _buffer_sizes);
            metal::float4 _e23 = part.w.inner[0];
            part.w.inner[0] = metal::fma(metal::float4(_e16.x), _e23, metal::float4(_e16.y));
            metal::float4 _e33 = part.w.inner[1];
            part.w.inner[1] = metal::fma(metal::float4(_e16.x), _e33, metal::float4(_e16.y));
        }
    }
    uint x_col = col_2 + ((thread_4 % 4u) * 4u);
    uint _e42 = loaded_quad(thread_4);
    if (_e42 < TILE_QUADS) {
        local = x_col < cols_1;
    } else {
        local = false;
    }
    bool _e49 = local;
    if (_e49) {
        metal::uint4 at_4 = (tokens * cols_1) + metal::uint4(x_col);
        if ((cols_1 % 4u) == 0u) {
            metal::float4 _e63 = x4_[at_4.x / 4u];
            metal::float4 _e69 = x4_[at_4.y / 4u];
            metal::float4 _e75 = x4_[at_4.z / 4u];
            metal::float4 _e81 = x4_[at_4.w / 4u];
            part.x = metal::transpose(metal::float4x4(_e63, _e69, _e75, _e81));
        } else {
            uint n_2 = cols_1 - x_col;
            metal::float4 _e87 = x_ragged(at_4.x, n_2, x_2, _buffer_sizes);
            metal::float4 _e89 = x_ragged(at_4.y, n_2, x_2, _buffer_sizes);
            metal::float4 _e91 = x_ragged(at_4.z, n_2, x_2, _buffer_sizes);
            metal::float4 _e93 = x_ragged(at_4.w, n_2, x_2, _buffer_sizes);
            part.x = metal::transpose(metal::float4x4(_e87, _e89, _e91, _e93));
        }
    }
    Load _e96 = part;
    return _e96;
}

uint token_turn(
    uint four_2
) {
    return (2u * four_2) % 8u;
}

void store(
    Load part_1,
    uint thread_5,
    threadgroup type_11& w_tile,
    threadgroup type_12& x_tile
) {
    uint _e2 = loaded_row(thread_5);
    uint first = (thread_5 % 2u) * 2u;
    uint turn = (_e2 / 2u) % 4u;
    w_tile.inner[(_e2 * 4u) + (first ^ turn)] = part_1.w.inner[0];
    w_tile.inner[(_e2 * 4u) + ((first + 1u) ^ turn)] = part_1.w.inner[1];
    uint _e29 = loaded_quad(thread_5);
    if (_e29 < TILE_QUADS) {
        uint four_4 = thread_5 % 4u;
        uint _e38 = token_turn(four_4);
        uint at_5 = ((four_4 * 4u) * TILE_QUADS) + (_e29 ^ _e38);
        x_tile.inner[at_5] = part_1.x[0];
        x_tile.inner[at_5 + TILE_QUADS] = part_1.x[1];
        x_tile.inner[at_5 + 64u] = part_1.x[2];
        x_tile.inner[at_5 + 96u] = part_1.x[3];
        return;
    } else {
        return;
    }
}

metal::float4 add4_(
    metal::float4 sum,
    metal::float4 w,
    metal::float4x4 x
) {
    metal::float4 a_2 = metal::fma(metal::float4(w.x), x[0], sum);
    metal::float4 b_2 = metal::fma(metal::float4(w.y), x[1], a_2);
    metal::float4 c = metal::fma(metal::float4(w.z), x[2], b_2);
    return metal::fma(metal::float4(w.w), x[3], c);
}

metal::float4x4 x_columns(
    uint at_1,
    threadgroup type_12& x_tile
) {
    metal::float4 _e3 = x_tile.inner[at_1];
    metal::float4 _e8 = x_tile.inner[at_1 + TILE_QUADS];
    metal::float4 _e16 = x_tile.inner[at_1 + 64u];
    metal::float4 _e24 = x_tile.inner[at_1 + 96u];
    return metal::float4x4(_e3, _e8, _e16, _e24);
}

type_14 tile_sums(
    metal::uint3 row_4,
    metal::uint4 tokens_1,
    uint cols_2,
    uint thread_6,
    device type_3 const& w_1,
    device type_9 const& x_2,
    device type_10 const& x4_,
    threadgroup type_11& w_tile,
    threadgroup type_12& x_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_14 sums = {};
    Load part_2 = {};
    uint col_3 = 0u;
    uint four_3 = {};
    metal::float4x4 y = {};
    Place _e5 = place_1(thread_6);
    uint turn_1 = (_e5.row / 2u) % 4u;
    Load _e16 = load(row_4, tokens_1, 0u, cols_2, thread_6, w_1, x_2, x4_, _buffer_sizes);
    part_2 = _e16;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e199 = col_3;
            col_3 = _e199 + TILE_COLS;
        }
        loop_init = false;
        uint _e20 = col_3;
        if (_e20 < cols_2) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            Load _e22 = part_2;
            store(_e22, thread_6, w_tile, x_tile);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e23 = col_3;
            if ((_e23 + TILE_COLS) < cols_2) {
                uint _e27 = col_3;
                Load _e30 = load(row_4, tokens_1, _e27 + TILE_COLS, cols_2, thread_6, w_1, x_2, x4_, _buffer_sizes);
                part_2 = _e30;
            }
            four_3 = 0u;
            bool loop_init_1 = true;
            while(true) {
                if (!loop_init_1) {
                    uint _e197 = four_3;
                    four_3 = _e197 + 1u;
                }
                loop_init_1 = false;
                uint _e33 = four_3;
                if (_e33 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e39 = four_3;
                    uint w_at = (_e5.row * 4u) + (_e39 ^ turn_1);
                    uint _e42 = four_3;
                    uint _e48 = four_3;
                    uint _e49 = token_turn(_e48);
                    uint x_at = ((_e42 * 4u) * TILE_QUADS) + (_e5.quad_ ^ _e49);
                    metal::float4x4 _e52 = x_columns(x_at, x_tile);
                    y = _e52;
                    if (true) {
                        metal::float4x4 _e60 = x_columns(x_at + N_TOKEN_THREAD, x_tile);
                        y = _e60;
                    }
                    metal::float4 w0_ = w_tile.inner[w_at];
                    metal::float4 w1_ = w_tile.inner[w_at + 64u];
                    metal::float4 _e70 = sums.inner[0];
                    metal::float4 _e71 = add4_(_e70, w0_, _e52);
                    sums.inner[0] = _e71;
                    metal::float4 _e74 = sums.inner[2];
                    metal::float4 _e75 = add4_(_e74, w1_, _e52);
                    sums.inner[2] = _e75;
                    if (true) {
                        metal::float4 _e82 = sums.inner[1];
                        metal::float4x4 _e83 = y;
                        metal::float4 _e84 = add4_(_e82, w0_, _e83);
                        sums.inner[1] = _e84;
                        metal::float4 _e87 = sums.inner[3];
                        metal::float4x4 _e88 = y;
                        metal::float4 _e89 = add4_(_e87, w1_, _e88);
                        sums.inner[3] = _e89;
                    }
                    if (true) {
                        metal::float4 w2_ = w_tile.inner[w_at + 128u];
                        metal::float4 w3_ = w_tile.inner[w_at + 192u];
                        metal::float4 _e108 = sums.inner[4];
                        metal::float4 _e109 = add4_(_e108, w2_, _e52);
                        sums.inner[4] = _e109;
                        metal::float4 _e112 = sums.inner[6];
                        metal::float4 _e113 = add4_(_e112, w3_, _e52);
                        sums.inner[6] = _e113;
                        if (true) {
                            metal::float4 _e120 = sums.inner[5];
                            metal::float4x4 _e121 = y;
                            metal::float4 _e122 = add4_(_e120, w2_, _e121);
                            sums.inner[5] = _e122;
                            metal::float4 _e125 = sums.inner[7];
                            metal::float4x4 _e126 = y;
                            metal::float4 _e127 = add4_(_e125, w3_, _e126);
                            sums.inner[7] = _e127;
                        }
                    }
                    if (true) {
                        metal::float4 w4_ = w_tile.inner[w_at + 256u];
                        metal::float4 w5_ = w_tile.inner[w_at + 320u];
                        metal::float4 w6_ = w_tile.inner[w_at + 384u];
                        metal::float4 w7_ = w_tile.inner[w_at + 448u];
                        metal::float4 _e158 = sums.inner[8];
                        metal::float4 _e159 = add4_(_e158, w4_, _e52);
                        sums.inner[8] = _e159;
                        metal::float4 _e162 = sums.inner[10];
                        metal::float4 _e163 = add4_(_e162, w5_, _e52);
                        sums.inner[10] = _e163;
                        metal::float4 _e166 = sums.inner[12];
                        metal::float4 _e167 = add4_(_e166, w6_, _e52);
                        sums.inner[12] = _e167;
                        metal::float4 _e170 = sums.inner[14];
                        metal::float4 _e171 = add4_(_e170, w7_, _e52);
                        sums.inner[14] = _e171;
                        if (true) {
                            metal::float4 _e178 = sums.inner[9];
                            metal::float4x4 _e179 = y;
                            metal::float4 _e180 = add4_(_e178, w4_, _e179);
                            sums.inner[9] = _e180;
                            metal::float4 _e183 = sums.inner[11];
                            metal::float4x4 _e184 = y;
                            metal::float4 _e185 = add4_(_e183, w5_, _e184);
                            sums.inner[11] = _e185;
                            metal::float4 _e188 = sums.inner[13];
                            metal::float4x4 _e189 = y;
                            metal::float4 _e190 = add4_(_e188, w6_, _e189);
                            sums.inner[13] = _e190;
                            metal::float4 _e193 = sums.inner[15];
                            metal::float4x4 _e194 = y;
                            metal::float4 _e195 = add4_(_e193, w7_, _e194);
                            sums.inner[15] = _e195;
                        }
                    }
                }
            }
        }
    }
    type_14 _e202 = sums;
    return _e202;
}

uint hidden_row(
    uint tile_row
) {
    return ((tile_row / 32u) * BLOCK) + (tile_row % BLOCK);
}

float silu(
    float x_1
) {
    return x_1 / (1.0 + metal::exp(metal::min(-(x_1), 80.0)));
}

void put_one(
    uint at_2,
    float sum_1,
    device type_9& out,
    constant _mslBufferSizes& _buffer_sizes
) {
    if (false) {
        float _e10 = out[at_2];
        float _e11 = silu(_e10);
        out[at_2] = _e11 * sum_1;
        return;
    }
    out[at_2] = sum_1;
    return;
}

void put(
    Tile tile,
    uint tile_row_1,
    uint tile_token,
    float a,
    float b,
    constant Params& p,
    device type_9& out,
    device type_3 const& jobs,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint row_out = {};
    uint token = tile.token + tile_token;
    if (tile.n_token <= token) {
        return;
    }
    if (true) {
        uint _e14 = hidden_row(tile_row_1);
        uint row_6 = tile.row + _e14;
        uint _e18 = p.rows;
        if (row_6 < _e18) {
            uint _e25 = p.rows;
            float _e29 = silu(a);
            out[((tile.first_pair + token) * _e25) + row_6] = _e29 * b;
        }
        return;
    }
    row_out = tile.first_pair + token;
    if (false) {
        uint _e46 = jobs[(tile.pairs_at + (2u * token)) + 1u];
        row_out = _e46;
    }
    uint row_7 = tile.row + tile_row_1;
    uint _e49 = row_out;
    uint _e52 = p.rows;
    uint at_6 = (_e49 * _e52) + row_7;
    uint _e57 = p.rows;
    if (row_7 < _e57) {
        put_one(at_6, a, out, _buffer_sizes);
    }
    uint _e63 = p.rows;
    if ((row_7 + BLOCK) < _e63) {
        put_one(at_6 + BLOCK, b, out, _buffer_sizes);
        return;
    } else {
        return;
    }
}

void put4_(
    Tile tile_1,
    Place here,
    uint i,
    metal::float4 a_1,
    metal::float4 b_1,
    constant Params& p,
    device type_9& out,
    device type_3 const& jobs,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint row_8 = ((2u * i) * BLOCK) + here.row;
    uint token_1 = 4u * here.quad_;
    put(tile_1, row_8, token_1, a_1.x, b_1.x, p, out, jobs, _buffer_sizes);
    put(tile_1, row_8, token_1 + 1u, a_1.y, b_1.y, p, out, jobs, _buffer_sizes);
    put(tile_1, row_8, token_1 + 2u, a_1.z, b_1.z, p, out, jobs, _buffer_sizes);
    put(tile_1, row_8, token_1 + 3u, a_1.w, b_1.w, p, out, jobs, _buffer_sizes);
    return;
}

Tile open(
    metal::uint3 group_1,
    constant Params& p,
    device type_3 const& jobs,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e3 = p.jobs_at;
    uint job = _e3 + (group_1.z * 4u);
    uint token_2 = group_1.y * TILE_TOKENS;
    uint _e25 = jobs[job + 2u];
    uint _e28 = jobs[job];
    uint _e33 = jobs[job + 1u];
    uint _e38 = jobs[job + 3u];
    return Tile {group_1.x * 64u, token_2, _e25, _e28, _e33, _e38};
}

metal::uint3 weights(
    Tile tile_2,
    uint tile_row_2,
    constant Params& p
) {
    metal::uint3 planes_1 = {};
    uint row_5 = {};
    uint _e4 = p.codes;
    uint _e7 = p.scales;
    uint _e10 = p.biases;
    planes_1 = metal::uint3(_e4, _e7, _e10);
    row_5 = tile_2.row + tile_row_2;
    if (true) {
        uint _e21 = hidden_row(tile_row_2);
        row_5 = tile_2.row + _e21;
        if (((tile_row_2 / BLOCK) % 2u) == 1u) {
            uint _e31 = p.up_codes;
            uint _e34 = p.up_scales;
            uint _e37 = p.up_biases;
            planes_1 = metal::uint3(_e31, _e34, _e37);
        }
    }
    metal::uint3 _e40 = planes_1;
    uint _e43 = row_5;
    uint _e46 = p.rows;
    uint _e52 = p.cols;
    metal::uint3 _e53 = row_at(metal::uint3(tile_2.record_at) + _e40, metal::min(_e43, _e46 - 1u), _e52);
    return _e53;
}

uint input_row(
    Tile tile_3,
    uint tile_token_1,
    device type_3 const& jobs,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint token_3 = metal::min(tile_3.token + tile_token_1, tile_3.n_token - 1u);
    if (false) {
        return tile_3.first_pair + token_3;
    }
    uint _e20 = jobs[tile_3.pairs_at + (2u * token_3)];
    return _e20;
}

uint n_col(
    constant Params& p
) {
    uint _e2 = p.cols;
    return _e2;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, device type_3 const& w_1 [[buffer(1)]]
, device type_9 const& x_2 [[buffer(4)]]
, device type_10 const& x4_ [[buffer(5)]]
, threadgroup type_11& w_tile
, threadgroup type_12& x_tile
, constant Params& p [[buffer(0)]]
, device type_9& out [[buffer(7)]]
, device type_3 const& jobs [[buffer(6)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(8)]]
) {
    Tile _e2 = open(group, p, jobs, _buffer_sizes);
    if (_e2.n_token <= _e2.token) {
        return;
    }
    uint _e6 = loaded_row(thread_);
    metal::uint3 _e7 = weights(_e2, _e6, p);
    uint _e9 = loaded_quad(thread_);
    uint token_4 = 4u * metal::min(_e9, 31u);
    uint _e16 = input_row(_e2, token_4, jobs, _buffer_sizes);
    uint _e19 = input_row(_e2, token_4 + 1u, jobs, _buffer_sizes);
    uint _e22 = input_row(_e2, token_4 + 2u, jobs, _buffer_sizes);
    uint _e25 = input_row(_e2, token_4 + 3u, jobs, _buffer_sizes);
    metal::uint4 tokens_2 = metal::uint4(_e16, _e19, _e22, _e25);
    uint _e27 = n_col(p);
    type_14 _e28 = tile_sums(_e7, tokens_2, _e27, thread_, w_1, x_2, x4_, w_tile, x_tile, _buffer_sizes);
    Place _e29 = place_1(thread_);
    Place next_1 = Place {_e29.row, _e29.quad_ + N_TOKEN_THREAD};
    put4_(_e2, _e29, 0u, _e28.inner[0], _e28.inner[2], p, out, jobs, _buffer_sizes);
    if (true) {
        put4_(_e2, next_1, 0u, _e28.inner[1], _e28.inner[3], p, out, jobs, _buffer_sizes);
    }
    if (true) {
        put4_(_e2, _e29, 1u, _e28.inner[4], _e28.inner[6], p, out, jobs, _buffer_sizes);
        if (true) {
            put4_(_e2, next_1, 1u, _e28.inner[5], _e28.inner[7], p, out, jobs, _buffer_sizes);
        }
    }
    if (true) {
        put4_(_e2, _e29, 2u, _e28.inner[8], _e28.inner[10], p, out, jobs, _buffer_sizes);
        put4_(_e2, _e29, 3u, _e28.inner[12], _e28.inner[14], p, out, jobs, _buffer_sizes);
        if (true) {
            put4_(_e2, next_1, 2u, _e28.inner[9], _e28.inner[11], p, out, jobs, _buffer_sizes);
            put4_(_e2, next_1, 3u, _e28.inner[13], _e28.inner[15], p, out, jobs, _buffer_sizes);
            return;
        } else {
            return;
        }
    } else {
        return;
    }
}
