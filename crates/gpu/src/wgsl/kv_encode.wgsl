// One head's numbers as they are stored: codes, then for q8 the scales of each 32 numbers. The bits are those of
// `KvFormat::encode_row`, but that numbers below 1e-36 may become 0 in q8.

const F16: u32 = 0u;
const BF16: u32 = 1u;
const F32: u32 = 2u;
const Q8: u32 = 3u;
override FORMAT: u32;

const HEAD_DIM_MAX: u32 = 1024u;

// The numbers, and zeros behind them.
var<workgroup> head_row: array<f32, HEAD_DIM_MAX>;
// bf16
var<workgroup> scales: array<u32, 32>;

// Rounds to nearest even; what is too large becomes the largest.
fn to_f16(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if size > 0x7f800000u {
        return sign | 0x7e00u | ((size >> 13u) & 0x3ffu);
    }
    if size >= 0x477fe000u {
        return sign | 0x7bffu;
    }
    if size >= 0x38800000u {
        let rounded = size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u);
        return sign | (rounded >> 13u);
    }
    // Multiples of 2^-24.
    let shift = 126u - (size >> 23u);
    if shift > 24u {
        return sign;
    }
    let mantissa = (size & 0x7fffffu) | 0x800000u;
    let whole = mantissa >> shift;
    let rest = mantissa & ((1u << shift) - 1u);
    let half = 1u << (shift - 1u);
    let is_up = rest > half || (rest == half && (whole & 1u) == 1u);
    return sign | (whole + select(0u, 1u, is_up));
}

// Rounds to nearest even.
fn to_bf16(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

// a / b, rounded as the CPU does, where both are of moderate size.
fn divide(a: f32, b: f32) -> f32 {
    let near = a / b;
    return fma(fma(-near, b, a), 1.0 / b, near);
}

// The scale of 32 numbers.
fn scale_of(group: u32) -> u32 {
    var largest = 0u;
    for (var i = 0u; i < 32u; i++) {
        largest = max(largest, bitcast<u32>(head_row[group * 32u + i]) & 0x7fffffffu);
    }
    if largest >= 0x7f800000u {
        return 0x7fc0u;
    }
    let bits = bitcast<u32>(divide(bitcast<f32>(largest), 127.0));
    return (bits >> 16u) + select(0u, 1u, (bits & 0xffffu) != 0u);
}

fn to_q8(value: f32, scale: u32) -> u32 {
    if scale == 0u || scale == 0x7fc0u {
        return 0u;
    }
    let code = round(divide(value, bitcast<f32>(scale << 16u)));
    return bitcast<u32>(i32(clamp(code, -127.0, 127.0))) & 0xffu;
}

// Fills `scales`. All threads call it.
fn prepare_scales(head_dim: u32, thread: u32) {
    if FORMAT == Q8 {
        if thread * 32u < head_dim {
            scales[thread] = scale_of(thread);
        }
        workgroupBarrier();
    }
}

// Word w of the row; scales start at word n_code.
fn stored_word(w: u32, n_code: u32, head_dim: u32) -> u32 {
    if FORMAT == F32 {
        return bitcast<u32>(head_row[w]);
    }
    if FORMAT == F16 {
        return to_f16(head_row[2u * w]) | (to_f16(head_row[2u * w + 1u]) << 16u);
    }
    if FORMAT == BF16 {
        return to_bf16(head_row[2u * w]) | (to_bf16(head_row[2u * w + 1u]) << 16u);
    }
    if w < n_code {
        var word = 0u;
        for (var i = 0u; i < 4u; i++) {
            word |= to_q8(head_row[4u * w + i], scales[w / 8u]) << (8u * i);
        }
        return word;
    }
    let n_group = (head_dim + 31u) / 32u;
    let group = 2u * (w - n_code);
    let low = select(0u, scales[min(group, 31u)], group < n_group);
    let high = select(0u, scales[min(group + 1u, 31u)], group + 1u < n_group);
    return low | (high << 16u);
}
