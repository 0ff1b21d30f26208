//! Which scales and numbers of stored bytes are not finite.

use crate::{Block, Format};

/// How a number or scale is stored.
#[derive(Clone, Copy)]
enum Kind {
    F32,
    F16,
    Bf16,
    E4m3,
    /// Too large where its numbers are infinite.
    E8m0,
    /// The top two of four words that each have four bits of a half on top.
    QuartersF16,
}

/// Numbers of one kind in a plane: the first is at byte `at`, and so on every `step` bytes.
#[derive(Clone, Copy)]
struct Field {
    kind: Kind,
    at: usize,
    step: usize,
}

impl Format {
    /// Where the first number of a piece of a plane is that is not finite, as byte of the piece: scales and biases, and
    /// codes that are floats. `plane` is 0 for codes, 1 for scales, 2 for biases, as in [`Format::planes`]; the piece
    /// is bytes `start ..` of it, and is cut at multiples of 8 or at the plane's end.
    pub fn first_not_finite(self, plane: usize, start: usize, piece: &[u8]) -> Option<usize> {
        self.fields(plane).into_iter().flatten().filter_map(|field| field.first_bad(start, piece)).min()
    }

    fn fields(self, plane: usize) -> [Option<Field>; 2] {
        let all = |kind| [Some(Field { kind, at: 0, step: kind.bytes() }), None];
        match (self, plane) {
            (Format::F32, 0) | (Format::Fp8F32, 1) => all(Kind::F32),
            (Format::F16, 0) | (Format::AffineF16 { .. }, 1 | 2) => all(Kind::F16),
            (Format::Bf16, 0) | (Format::Affine { .. }, 1 | 2) | (Format::Fp8, 1) => all(Kind::Bf16),
            (Format::Fp8 | Format::Fp8F32, 0) | (Format::Nvfp4, 1) => all(Kind::E4m3),
            (Format::Mxfp4, 1) => all(Kind::E8m0),
            (Format::Block(block), 0) => block.fields(),
            _ => [None; 2],
        }
    }
}

impl Block {
    fn fields(self) -> [Option<Field>; 2] {
        let field = |kind, at| Some(Field { kind, at, step: self.bytes() });
        match self {
            Block::Q4_1 | Block::Q5_1 | Block::Q4K | Block::Q5K => [field(Kind::F16, 0), field(Kind::F16, 2)],
            Block::Q2K => [field(Kind::F16, 80), field(Kind::F16, 82)],
            Block::Q3K => [field(Kind::F16, 108), None],
            Block::Q6K => [field(Kind::F16, 208), None],
            Block::Mxfp4 => [field(Kind::E8m0, 0), None],
            Block::Iq1M => [field(Kind::QuartersF16, 52), None],
            Block::Q4_0
            | Block::Q5_0
            | Block::Q8_0
            | Block::Iq4Nl
            | Block::Iq4Xs
            | Block::Iq1S
            | Block::Iq2Xxs
            | Block::Iq2Xs
            | Block::Iq2S
            | Block::Iq3Xxs
            | Block::Iq3S => [field(Kind::F16, 0), None],
        }
    }
}

impl Kind {
    const fn bytes(self) -> usize {
        match self {
            Kind::F32 | Kind::QuartersF16 => 4,
            Kind::F16 | Kind::Bf16 => 2,
            Kind::E4m3 | Kind::E8m0 => 1,
        }
    }
}

impl Field {
    fn first_bad(self, start: usize, piece: &[u8]) -> Option<usize> {
        let (at, step) = (self.at, self.step);
        // The first number that begins in the piece.
        let first = if start <= at { at - start } else { (step - (start - at) % step) % step };
        let numbers = piece.get(first..)?;
        // A constant number of bytes and steps lets the compiler do many at a time where they lie side by side.
        let bad = match (self.kind, step) {
            (Kind::F32, 4) => find::<4>(numbers, 4, |b| b[3] & 0x7f == 0x7f && b[2] & 0x80 == 0x80),
            (Kind::F16, 2) => find::<2>(numbers, 2, |b| b[1] & 0x7c == 0x7c),
            (Kind::Bf16, 2) => find::<2>(numbers, 2, |b| b[1] & 0x7f == 0x7f && b[0] & 0x80 == 0x80),
            (Kind::E4m3, 1) => find::<1>(numbers, 1, |b| b[0] & 0x7f == 0x7f),
            (Kind::F16, _) => find::<2>(numbers, step, |b| b[1] & 0x7c == 0x7c),
            // 6·2¹²⁵ is finite, 6·2¹²⁶ is not.
            (Kind::E8m0, _) => find::<1>(numbers, step, |b| 252 < b[0]),
            (Kind::QuartersF16, _) => {
                find::<4>(numbers, step, |b| b[1] & 0xc0 == 0xc0 && b[3] & 0x70 == 0x70)
            }
            (Kind::F32 | Kind::Bf16 | Kind::E4m3, _) => unreachable!("these lie side by side"),
        };
        Some(first + bad?)
    }
}

/// Byte of the first number that is bad, of `N` bytes every `step` bytes.
#[inline(always)]
fn find<const N: usize>(numbers: &[u8], step: usize, is_bad: impl Fn([u8; N]) -> bool) -> Option<usize> {
    let number = |chunk: &[u8]| chunk.get(..N).is_some_and(|b| is_bad(b.try_into().expect("N bytes")));
    Some(numbers.chunks(step).position(number)? * step)
}
