//! Matrices of random bytes: formats that nothing here converts numbers to.

use std::sync::Arc;

use half::f16;
use quant::{Block, Buffer, Format, Matrix};

use crate::common::Random;

impl Random {
    /// Random codes, and scales that make the largest numbers about `2 / sqrt(cols)`.
    pub(crate) fn stored(&mut self, format: Format, rows: usize, cols: usize) -> Matrix {
        let mut buffer = Buffer::zeroed(format.matrix_bytes(rows, cols)).unwrap();
        buffer.iter_mut().for_each(|byte| *byte = self.next() as u8);
        let largest = 2.0 / (cols as f32).sqrt();
        let [codes, scales, biases] = format.planes(rows, cols);
        match format {
            Format::AffineF16 { bits, .. } => {
                let scale = largest / (1u32 << bits) as f32;
                self.halves(&mut buffer[scales], scale);
                self.halves(&mut buffer[biases], largest / 2.0);
            }
            Format::Mxfp4 => self.exponents(&mut buffer[scales], 1, largest / 6.0),
            // E4M3: sign, four bits of exponent from 2⁻⁷ on, three of mantissa.
            Format::Nvfp4 => {
                let exponent = ((largest / 6.0).log2().round() as i32 + 7).max(1) as u8;
                buffer[scales].iter_mut().for_each(|scale| *scale = *scale & 0x87 | exponent << 3);
            }
            Format::Block(block) => self.blocks(block, &mut buffer[codes], largest),
            other => panic!("{other} is made of numbers"),
        }
        Matrix::new(format, rows, cols, Arc::new(buffer), 0).unwrap()
    }

    /// Halves of about `size`, of both signs.
    fn halves(&mut self, bytes: &mut [u8], size: f32) {
        for half in bytes.chunks_exact_mut(2) {
            half.copy_from_slice(&self.half(size).to_le_bytes());
        }
    }

    fn half(&mut self, size: f32) -> f16 {
        let sign = if self.below(2) == 0 { size } else { -size };
        f16::from_f32(sign * (0.75 + 0.25 * self.unit()))
    }

    /// E8M0 scales of about `size`, one every `step` bytes.
    fn exponents(&mut self, bytes: &mut [u8], step: usize, size: f32) {
        for byte in bytes.iter_mut().step_by(step) {
            *byte = (127 + size.log2().round() as i32) as u8 - self.below(2) as u8;
        }
    }

    fn blocks(&mut self, block: Block, bytes: &mut [u8], largest: f32) {
        // Where the halves of a block are, and how many times them its numbers are at most.
        let (places, most): (&[usize], f32) = match block {
            Block::Q4_0 => (&[0], 8.0),
            Block::Q4_1 => (&[0, 2], 16.0),
            Block::Q5_0 => (&[0], 16.0),
            Block::Q5_1 => (&[0, 2], 32.0),
            Block::Q8_0 => (&[0], 128.0),
            Block::Q2K => (&[80, 82], 15.0 * 3.0),
            Block::Q3K => (&[108], 32.0 * 4.0),
            Block::Q4K => (&[0, 2], 63.0 * 15.0),
            Block::Q5K => (&[0, 2], 63.0 * 31.0),
            Block::Q6K => (&[208], 128.0 * 32.0),
            Block::Iq4Nl => (&[0], 127.0),
            Block::Iq4Xs => (&[0], 32.0 * 127.0),
            Block::Mxfp4 => return self.exponents(bytes, block.bytes(), largest / 6.0),
            Block::Iq1S => (&[0], 15.0 * 1.125),
            Block::Iq1M => (&[], 15.0 * 1.125),
            Block::Iq2Xxs | Block::Iq2Xs | Block::Iq2S => (&[0], 43.0 * 3.875),
            Block::Iq3Xxs => (&[0], 62.0 * 7.75),
            Block::Iq3S => (&[0], 15.0 * 31.0),
        };
        for bytes in bytes.chunks_exact_mut(block.bytes()) {
            for &at in places {
                self.halves(&mut bytes[at..at + 2], largest / most);
            }
            if block == Block::Iq1M {
                // Four bits of the half on top of each of four words.
                let d = self.half(largest / most).to_bits();
                for i in 0..4 {
                    bytes[49 + 2 * i] = bytes[49 + 2 * i] & 15 | ((d >> (4 * i) & 15) as u8) << 4;
                }
            }
        }
    }
}
