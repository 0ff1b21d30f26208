// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size1;
    uint size2;
    uint size3;
    uint size7;
};

typedef uint type_2[1];
typedef metal::uint4 type_4[1];
struct type_5 {
    uint inner[8];
};
struct Chunk {
    type_5 words;
};
struct type_9 {
    metal::float4 inner[2];
};
typedef float type_11[1];
typedef metal::float4 type_12[1];
struct type_13 {
    metal::float4 inner[512];
};
struct type_14 {
    metal::float4 inner[512];
};
struct Place {
    uint row;
    uint quad_;
};
struct Load {
    type_9 w;
    metal::float4x4 x;
};
struct type_16 {
    metal::float4 inner[16];
};
struct Tile {
    uint row;
    uint token;
    uint n_token;
};
struct Params {
    uint rows;
    uint cols;
    uint first;
    uint n_token;
    uint stride;
    uint at;
    uint codes;
    uint scales;
    uint biases;
};
constant uint CHUNK = 8u;
constant uint RUNS = 1u;
constant bool SCALED = false;
constant bool BIASED = false;
constant uint TILE_ROWS = 128u;
constant uint TILE_COLS = 16u;
constant uint KIND = 2u;
constant uint N_ROW = 8u;
constant uint N_QUAD = 2u;
constant uint TILE_TOKENS = 128u;
constant uint BLOCK = 16u;
constant uint N_TOKEN_THREAD = 16u;
constant uint TILE_QUADS = 32u;
constant uint X_FOURS = 512u;

metal::uint3 row_at(
    metal::uint3 planes,
    uint row,
    uint cols
) {
    return metal::uint3((planes.x * 2u) + (row * cols), 0u, 0u);
}

Chunk load_chunk(
    metal::uint3 row_1,
    uint chunk,
    uint n,
    device type_2 const& w_1,
    device type_4 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunk c = {};
    bool local = {};
    uint i = 0u;
    uint i_1 = 0u;
    uint bits = {};
    uint at_2 = row_1.x + (chunk * CHUNK);
    if ((at_2 % 8u) == 0u) {
        local = CHUNK <= n;
    } else {
        local = false;
    }
    bool _e27 = local;
    if (_e27) {
        bool loop_init = true;
        while(true) {
            if (!loop_init) {
                uint _e73 = i;
                i = _e73 + 1u;
            }
            loop_init = false;
            uint _e30 = i;
            if (_e30 < 1u) {
            } else {
                break;
            }
            {
                uint _e38 = i;
                metal::uint4 words = w4_[(at_2 / 8u) + _e38];
                uint _e44 = i;
                c.words.inner[4u * _e44] = words.x;
                uint _e50 = i;
                c.words.inner[(4u * _e50) + 1u] = words.y;
                uint _e58 = i;
                c.words.inner[(4u * _e58) + 2u] = words.z;
                uint _e66 = i;
                c.words.inner[(4u * _e66) + 3u] = words.w;
            }
        }
        Chunk _e75 = c;
        return _e75;
    }
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e116 = i_1;
            i_1 = _e116 + 1u;
        }
        loop_init_1 = false;
        uint _e78 = i_1;
        if (_e78 < CHUNK) {
        } else {
            break;
        }
        {
            bits = 0u;
            uint _e83 = i_1;
            if (_e83 < n) {
                uint _e86 = i_1;
                uint _e90 = w_1[(at_2 + _e86) / 2u];
                bits = _e90;
                if (true) {
                    uint _e93 = bits;
                    uint _e95 = i_1;
                    bits = (_e93 >> (16u * ((at_2 + _e95) % 2u))) & 65535u;
                }
            }
            uint _e104 = i_1;
            uint _e107 = c.words.inner[_e104 / 2u];
            uint _e108 = bits;
            uint _e110 = i_1;
            c.words.inner[_e104 / 2u] = _e107 | (_e108 << (16u * (_e110 % 2u)));
        }
    }
    Chunk _e118 = c;
    return _e118;
}

metal::float4 chunk4_(
    Chunk c_1,
    uint k
) {
    if (false) {
        uint at_3 = 4u * k;
        return as_type<metal::float4>(metal::uint4(c_1.words.inner[at_3], c_1.words.inner[at_3 + 1u], c_1.words.inner[at_3 + 2u], c_1.words.inner[at_3 + 3u]));
    }
    uint low = c_1.words.inner[2u * k];
    uint high = c_1.words.inner[(2u * k) + 1u];
    if (false) {
        return metal::float4(float2(as_type<half2>(low)), float2(as_type<half2>(high)));
    }
    return as_type<metal::float4>(metal::uint4(low << 16u, low & 4294901760u, high << 16u, high & 4294901760u));
}

type_9 codes8_(
    metal::uint3 row_2,
    uint col,
    uint n_1,
    device type_2 const& w_1,
    device type_4 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunk _e5 = load_chunk(row_2, col / CHUNK, n_1, w_1, w4_, _buffer_sizes);
    metal::float4 _e7 = chunk4_(_e5, 0u);
    metal::float4 _e9 = chunk4_(_e5, 1u);
    return type_9 {{_e7, _e9}};
}

metal::float2 scale_bias(
    metal::uint3 row_3,
    uint col_1
) {
    return metal::float2(1.0, 0.0);
}

Place place(
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
    uint n_2,
    device type_11 const& x_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::float4 four = {};
    float _e4 = x_1[at];
    four = metal::float4(_e4, 0.0, 0.0, 0.0);
    if (1u < n_2) {
        float _e17 = x_1[at + 1u];
        four.y = _e17;
    }
    if (2u < n_2) {
        float _e25 = x_1[at + 2u];
        four.z = _e25;
    }
    if (3u < n_2) {
        float _e33 = x_1[at + 3u];
        four.w = _e33;
    }
    metal::float4 _e34 = four;
    return _e34;
}

Load load(
    metal::uint3 row_4,
    metal::uint4 tokens,
    uint col_2,
    uint cols_1,
    uint thread_4,
    device type_2 const& w_1,
    device type_4 const& w4_,
    device type_11 const& x_1,
    device type_12 const& x4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Load part = {};
    bool local_1 = {};
    uint w_col = col_2 + ((thread_4 % 2u) * 8u);
    if (w_col < cols_1) {
        type_9 _e14 = codes8_(row_4, w_col, cols_1 - w_col, w_1, w4_, _buffer_sizes);
        part.w = _e14;
        if (SCALED) {
            metal::float2 _e16 = scale_bias(row_4, w_col);
            metal::float4 _e23 = part.w.inner[0];
            part.w.inner[0] = metal::fma(metal::float4(_e16.x), _e23, metal::float4(_e16.y));
            metal::float4 _e33 = part.w.inner[1];
            part.w.inner[1] = metal::fma(metal::float4(_e16.x), _e33, metal::float4(_e16.y));
        }
    }
    uint x_col = col_2 + ((thread_4 % 4u) * 4u);
    uint _e42 = loaded_quad(thread_4);
    if (_e42 < TILE_QUADS) {
        local_1 = x_col < cols_1;
    } else {
        local_1 = false;
    }
    bool _e49 = local_1;
    if (_e49) {
        metal::uint4 at_4 = (tokens * cols_1) + metal::uint4(x_col);
        if ((cols_1 % 4u) == 0u) {
            metal::float4 _e63 = x4_[at_4.x / 4u];
            metal::float4 _e69 = x4_[at_4.y / 4u];
            metal::float4 _e75 = x4_[at_4.z / 4u];
            metal::float4 _e81 = x4_[at_4.w / 4u];
            part.x = metal::transpose(metal::float4x4(_e63, _e69, _e75, _e81));
        } else {
            uint n_3 = cols_1 - x_col;
            metal::float4 _e87 = x_ragged(at_4.x, n_3, x_1, _buffer_sizes);
            metal::float4 _e89 = x_ragged(at_4.y, n_3, x_1, _buffer_sizes);
            metal::float4 _e91 = x_ragged(at_4.z, n_3, x_1, _buffer_sizes);
            metal::float4 _e93 = x_ragged(at_4.w, n_3, x_1, _buffer_sizes);
            part.x = metal::transpose(metal::float4x4(_e87, _e89, _e91, _e93));
        }
    }
    Load _e96 = part;
    return _e96;
}

uint token_turn(
    uint four_1
) {
    return (2u * four_1) % 8u;
}

void store(
    Load part_1,
    uint thread_5,
    threadgroup type_13& w_tile,
    threadgroup type_14& x_tile
) {
    uint _e2 = loaded_row(thread_5);
    uint first = (thread_5 % 2u) * 2u;
    uint turn = (_e2 / 2u) % 4u;
    w_tile.inner[(_e2 * 4u) + (first ^ turn)] = part_1.w.inner[0];
    w_tile.inner[(_e2 * 4u) + ((first + 1u) ^ turn)] = part_1.w.inner[1];
    uint _e29 = loaded_quad(thread_5);
    if (_e29 < TILE_QUADS) {
        uint four_3 = thread_5 % 4u;
        uint _e38 = token_turn(four_3);
        uint at_5 = ((four_3 * 4u) * TILE_QUADS) + (_e29 ^ _e38);
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
    metal::float4 c_2 = metal::fma(metal::float4(w.z), x[2], b_2);
    return metal::fma(metal::float4(w.w), x[3], c_2);
}

metal::float4x4 x_columns(
    uint at_1,
    threadgroup type_14& x_tile
) {
    metal::float4 _e3 = x_tile.inner[at_1];
    metal::float4 _e8 = x_tile.inner[at_1 + TILE_QUADS];
    metal::float4 _e16 = x_tile.inner[at_1 + 64u];
    metal::float4 _e24 = x_tile.inner[at_1 + 96u];
    return metal::float4x4(_e3, _e8, _e16, _e24);
}

type_16 tile_sums(
    metal::uint3 row_5,
    metal::uint4 tokens_1,
    uint cols_2,
    uint thread_6,
    device type_2 const& w_1,
    device type_4 const& w4_,
    device type_11 const& x_1,
    device type_12 const& x4_,
    threadgroup type_13& w_tile,
    threadgroup type_14& x_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_16 sums = {};
    Load part_2 = {};
    uint col_3 = 0u;
    uint four_2 = {};
    metal::float4x4 y = {};
    Place _e5 = place(thread_6);
    uint turn_1 = (_e5.row / 2u) % 4u;
    Load _e16 = load(row_5, tokens_1, 0u, cols_2, thread_6, w_1, w4_, x_1, x4_, _buffer_sizes);
    part_2 = _e16;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e199 = col_3;
            col_3 = _e199 + TILE_COLS;
        }
        loop_init_2 = false;
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
                Load _e30 = load(row_5, tokens_1, _e27 + TILE_COLS, cols_2, thread_6, w_1, w4_, x_1, x4_, _buffer_sizes);
                part_2 = _e30;
            }
            four_2 = 0u;
            bool loop_init_3 = true;
            while(true) {
                if (!loop_init_3) {
                    uint _e197 = four_2;
                    four_2 = _e197 + 1u;
                }
                loop_init_3 = false;
                uint _e33 = four_2;
                if (_e33 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e39 = four_2;
                    uint w_at = (_e5.row * 4u) + (_e39 ^ turn_1);
                    uint _e42 = four_2;
                    uint _e48 = four_2;
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
                        metal::float4 w4_1 = w_tile.inner[w_at + 256u];
                        metal::float4 w5_ = w_tile.inner[w_at + 320u];
                        metal::float4 w6_ = w_tile.inner[w_at + 384u];
                        metal::float4 w7_ = w_tile.inner[w_at + 448u];
                        metal::float4 _e158 = sums.inner[8];
                        metal::float4 _e159 = add4_(_e158, w4_1, _e52);
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
                            metal::float4 _e180 = add4_(_e178, w4_1, _e179);
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
    type_16 _e202 = sums;
    return _e202;
}

void put(
    Tile tile,
    uint tile_row,
    uint tile_token,
    float a,
    float b,
    constant Params& p,
    device type_11& out,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint row_7 = tile.row + tile_row;
    uint token_1 = tile.token + tile_token;
    uint _e11 = p.n_token;
    if (token_1 < _e11) {
        uint _e15 = p.stride;
        uint _e19 = p.at;
        uint at_6 = ((token_1 * _e15) + _e19) + row_7;
        uint _e24 = p.rows;
        if (row_7 < _e24) {
            out[at_6] = a;
        }
        uint _e32 = p.rows;
        if ((row_7 + BLOCK) < _e32) {
            out[at_6 + BLOCK] = b;
            return;
        } else {
            return;
        }
    } else {
        return;
    }
}

void put4_(
    Tile tile_1,
    Place here,
    uint i_2,
    metal::float4 a_1,
    metal::float4 b_1,
    constant Params& p,
    device type_11& out,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint row_8 = ((2u * i_2) * BLOCK) + here.row;
    uint token_2 = 4u * here.quad_;
    put(tile_1, row_8, token_2, a_1.x, b_1.x, p, out, _buffer_sizes);
    put(tile_1, row_8, token_2 + 1u, a_1.y, b_1.y, p, out, _buffer_sizes);
    put(tile_1, row_8, token_2 + 2u, a_1.z, b_1.z, p, out, _buffer_sizes);
    put(tile_1, row_8, token_2 + 3u, a_1.w, b_1.w, p, out, _buffer_sizes);
    return;
}

Tile open(
    metal::uint3 group_1,
    constant Params& p
) {
    uint _e9 = p.n_token;
    return Tile {group_1.x * TILE_ROWS, group_1.y * TILE_TOKENS, _e9};
}

metal::uint3 weights(
    Tile tile_2,
    uint row_6,
    constant Params& p
) {
    uint _e4 = p.codes;
    uint _e7 = p.scales;
    uint _e10 = p.biases;
    uint _e16 = p.rows;
    uint _e22 = p.cols;
    metal::uint3 _e23 = row_at(metal::uint3(_e4, _e7, _e10), metal::min(tile_2.row + row_6, _e16 - 1u), _e22);
    return _e23;
}

uint input_row(
    Tile tile_3,
    uint token,
    constant Params& p
) {
    uint _e4 = p.first;
    uint _e9 = p.n_token;
    return _e4 + metal::min(tile_3.token + token, _e9 - 1u);
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
, device type_2 const& w_1 [[buffer(1)]]
, device type_4 const& w4_ [[buffer(3)]]
, device type_11 const& x_1 [[buffer(4)]]
, device type_12 const& x4_ [[buffer(5)]]
, threadgroup type_13& w_tile
, threadgroup type_14& x_tile
, constant Params& p [[buffer(0)]]
, device type_11& out [[buffer(6)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(7)]]
) {
    Tile _e2 = open(group, p);
    if (_e2.n_token <= _e2.token) {
        return;
    }
    uint _e6 = loaded_row(thread_);
    metal::uint3 _e7 = weights(_e2, _e6, p);
    uint _e9 = loaded_quad(thread_);
    uint token_3 = 4u * metal::min(_e9, 31u);
    uint _e16 = input_row(_e2, token_3, p);
    uint _e19 = input_row(_e2, token_3 + 1u, p);
    uint _e22 = input_row(_e2, token_3 + 2u, p);
    uint _e25 = input_row(_e2, token_3 + 3u, p);
    metal::uint4 tokens_2 = metal::uint4(_e16, _e19, _e22, _e25);
    uint _e27 = n_col(p);
    type_16 _e28 = tile_sums(_e7, tokens_2, _e27, thread_, w_1, w4_, x_1, x4_, w_tile, x_tile, _buffer_sizes);
    Place _e29 = place(thread_);
    Place next = Place {_e29.row, _e29.quad_ + N_TOKEN_THREAD};
    put4_(_e2, _e29, 0u, _e28.inner[0], _e28.inner[2], p, out, _buffer_sizes);
    if (true) {
        put4_(_e2, next, 0u, _e28.inner[1], _e28.inner[3], p, out, _buffer_sizes);
    }
    if (true) {
        put4_(_e2, _e29, 1u, _e28.inner[4], _e28.inner[6], p, out, _buffer_sizes);
        if (true) {
            put4_(_e2, next, 1u, _e28.inner[5], _e28.inner[7], p, out, _buffer_sizes);
        }
    }
    if (true) {
        put4_(_e2, _e29, 2u, _e28.inner[8], _e28.inner[10], p, out, _buffer_sizes);
        put4_(_e2, _e29, 3u, _e28.inner[12], _e28.inner[14], p, out, _buffer_sizes);
        if (true) {
            put4_(_e2, next, 2u, _e28.inner[9], _e28.inner[11], p, out, _buffer_sizes);
            put4_(_e2, next, 3u, _e28.inner[13], _e28.inner[15], p, out, _buffer_sizes);
            return;
        } else {
            return;
        }
    } else {
        return;
    }
}
