//! How keys and values of the context are stored, number by number.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

use crate::AttentionShape;

/// Positions by which a cache of keys and values grows.
pub const KV_PAGE: usize = 256;
/// Neighbouring numbers of a head that share a scale in [`KvFormat::Q8`].
pub(crate) const KV_GROUP: usize = 32;
/// Bytes of a scale: bf16.
pub(crate) const SCALE_BYTES: usize = 2;
/// Most bytes of the codes of a group.
pub(crate) const GROUP_BYTES_MAX: usize = 4 * KV_GROUP;

/// How keys and values are stored. What is read back is an f32 again; attention computes in f32 whatever the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvFormat {
    /// IEEE half: 11 bits, magnitudes up to 65504. Larger ones, infinities too, become ±65504.
    #[default]
    F16,
    /// The upper half of an f32: 8 bits, its full range.
    Bf16,
    /// As computed.
    F32,
    /// 8-bit codes -127..=127 of 32 neighbouring numbers of a head, times a bf16 scale: the smallest that is at least
    /// their largest magnitude / 127. The error is at most half a scale. A NaN or an infinity makes all 32 NaN.
    Q8,
}

impl KvFormat {
    /// All formats.
    pub const ALL: [KvFormat; 4] = [KvFormat::F16, KvFormat::Bf16, KvFormat::F32, KvFormat::Q8];

    /// Its name, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            KvFormat::F16 => "f16",
            KvFormat::Bf16 => "bf16",
            KvFormat::F32 => "f32",
            KvFormat::Q8 => "q8",
        }
    }

    /// Bytes of `head_dim` numbers of one head: their codes, then the scales of each 32 numbers if there are any.
    pub fn row_bytes(self, head_dim: usize) -> usize {
        head_dim * self.code_bytes() + self.scale_bytes(head_dim)
    }

    /// Bytes of the keys and values of one position: for each key/value head its key, then its value.
    pub fn position_bytes(self, shape: AttentionShape) -> usize {
        2 * shape.n_head_kv * self.row_bytes(shape.head_dim)
    }

    /// Memory that the keys and values of `n_pos` positions of one layer take: whole pages, of heads whose width is
    /// rounded up to 32 numbers.
    pub fn memory_bytes(self, shape: AttentionShape, n_pos: usize) -> usize {
        let shape = AttentionShape { head_dim: shape.head_dim.next_multiple_of(KV_GROUP), ..shape };
        n_pos.next_multiple_of(KV_PAGE) * self.position_bytes(shape)
    }

    /// Stores one head's numbers; `out` has [`Self::row_bytes`].
    pub fn encode_row(self, row: &[f32], out: &mut [u8]) {
        let (codes, scales) = out.split_at_mut(row.len() * self.code_bytes());
        let groups = codes.chunks_mut(KV_GROUP * self.code_bytes());
        for (g, (x, codes)) in row.chunks(KV_GROUP).zip(groups).enumerate() {
            let scale = self.encode_group(x, codes);
            if self == KvFormat::Q8 {
                scales[g * SCALE_BYTES..][..SCALE_BYTES].copy_from_slice(&scale);
            }
        }
    }

    /// Reads one head's numbers back.
    pub fn decode_row(self, bytes: &[u8], row: &mut [f32]) {
        let (codes, scales) = bytes.split_at(row.len() * self.code_bytes());
        for (i, (x, code)) in row.iter_mut().zip(codes.chunks_exact(self.code_bytes())).enumerate() {
            *x = match (self, code) {
                (KvFormat::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
                (KvFormat::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
                (KvFormat::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
                (KvFormat::Q8, &[code]) => {
                    let at = i / KV_GROUP * SCALE_BYTES;
                    (code as i8) as f32 * bf16::from_le_bytes([scales[at], scales[at + 1]]).to_f32()
                }
                _ => unreachable!("codes have the format's bytes"),
            };
        }
    }

    /// Bytes of a number without its scale.
    pub(crate) fn code_bytes(self) -> usize {
        match self {
            KvFormat::F32 => 4,
            KvFormat::F16 | KvFormat::Bf16 => 2,
            KvFormat::Q8 => 1,
        }
    }

    /// Bytes of the scales of `n` numbers.
    pub(crate) fn scale_bytes(self, n: usize) -> usize {
        if self == KvFormat::Q8 { n.div_ceil(KV_GROUP) * SCALE_BYTES } else { 0 }
    }

    /// Stores up to 32 numbers; the scale if the format has one.
    pub(crate) fn encode_group(self, x: &[f32], codes: &mut [u8]) -> [u8; SCALE_BYTES] {
        match self {
            KvFormat::F16 => {
                for (x, code) in x.iter().zip(codes.as_chunks_mut().0) {
                    *code = f16::from_f32(x.clamp(-65504.0, 65504.0)).to_le_bytes();
                }
            }
            KvFormat::Bf16 => {
                for (x, code) in x.iter().zip(codes.as_chunks_mut().0) {
                    *code = bf16::from_f32(*x).to_le_bytes();
                }
            }
            KvFormat::F32 => {
                for (x, code) in x.iter().zip(codes.as_chunks_mut().0) {
                    *code = x.to_le_bytes();
                }
            }
            KvFormat::Q8 => return encode_q8(x, codes),
        }
        [0; SCALE_BYTES]
    }
}

impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KvFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = KvFormat::ALL.into_iter().find(|format| format.name() == text);
        known.ok_or_else(|| format!("'{text}' is none of f16, bf16, f32, q8"))
    }
}

fn encode_q8(x: &[f32], codes: &mut [u8]) -> [u8; SCALE_BYTES] {
    let largest = x.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let is_finite = x.iter().all(|x| x.is_finite());
    let scale = if is_finite { bf16_above(largest / 127.0) } else { bf16::NAN };
    let step = scale.to_f32();
    for (x, code) in x.iter().zip(codes) {
        // The conversion saturates, and makes 0 of 0/0 and of NaN.
        *code = ((x / step).round_ties_even().clamp(-127.0, 127.0) as i8) as u8;
    }
    scale.to_le_bytes()
}

/// The smallest bf16 that is not below `x`, which is neither negative nor near the largest f32.
fn bf16_above(x: f32) -> bf16 {
    let bits = x.to_bits();
    bf16::from_bits((bits >> 16) as u16 + u16::from(bits & 0xffff != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes back from a row.
    fn round_trip(format: KvFormat, row: &[f32]) -> Vec<f32> {
        let mut bytes = vec![0; format.row_bytes(row.len())];
        format.encode_row(row, &mut bytes);
        let mut back = vec![0.0; row.len()];
        format.decode_row(&bytes, &mut back);
        back
    }

    #[test]
    fn numbers_come_back_within_the_format_s_precision() {
        // Breaks if a code, a scale or a group's border is wrong. Bounds: half a unit in the last place, relative to
        // the number or, for q8, half a step relative to the group's largest.
        for magnitude in [1e-30, 1e-5, 1.0, 300.0, 6e4] {
            let row: Vec<f32> = (0..70).map(|i| ((i * 37 % 71) as f32 / 35.0 - 1.0) * magnitude).collect();
            for format in KvFormat::ALL {
                for (i, (x, y)) in row.iter().zip(round_trip(format, &row)).enumerate() {
                    let group = &row[i / KV_GROUP * KV_GROUP..row.len().min((i / KV_GROUP + 1) * KV_GROUP)];
                    let largest = group.iter().fold(0.0, |a: f32, x| a.max(x.abs()));
                    let bound = match format {
                        // Numbers below 6.1e-5 are multiples of 6e-8.
                        KvFormat::F16 => (x.abs() / 2048.0).max(3e-8),
                        KvFormat::Bf16 => x.abs() / 256.0,
                        KvFormat::F32 => 0.0,
                        KvFormat::Q8 => largest / 127.0 * (0.5 + 1.0 / 128.0),
                    };
                    assert!((x - y).abs() <= bound, "{format}, number {i}: {x:e} came back as {y:e}");
                }
            }
        }
    }

    #[test]
    fn extremes_are_as_documented() {
        // Breaks if an overflow becomes infinite, or a NaN becomes a number that nobody notices.
        let big = [1e30, -1e30, f32::INFINITY, 65_519.0];
        assert_eq!(round_trip(KvFormat::F16, &big), [65504.0, -65504.0, 65504.0, 65504.0]);
        let most = round_trip(KvFormat::Q8, &[f32::MAX, -f32::MAX / 2.0]);
        assert!(most.iter().all(|x| x.is_finite()), "{most:?}");
        for format in KvFormat::ALL {
            assert_eq!(round_trip(format, &[0.0; 33]), [0.0; 33], "{format}");
            let mut row = [1.0; 40];
            row[3] = f32::NAN;
            let back = round_trip(format, &row);
            assert!(back[3].is_nan() && (back[39] - 1.0).abs() < 0.01, "{format}: {back:?}");
        }
        assert!(round_trip(KvFormat::Q8, &[f32::INFINITY, 1.0]).iter().all(|x| x.is_nan()));
    }
}
