//! Which instruction sets there are, and which this CPU has.

use std::fmt;

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
use super::generic::Generic;
#[cfg(target_arch = "aarch64")]
use super::neon::Neon;
use super::simd::Kernel;

/// An instruction set that the CPU kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// What every CPU of the architecture has.
    Generic,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and DQ.
    Avx512,
    /// 64-bit Arm.
    Neon,
}

impl Isa {
    /// All of them, the slowest first.
    pub const ALL: [Isa; 4] = [Isa::Generic, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// The best that this CPU has.
    pub fn detect() -> Isa {
        let best = Isa::ALL.into_iter().rev().find(|isa| isa.is_available());
        best.expect("the generic set is always there")
    }

    /// Whether this CPU has it.
    pub fn is_available(self) -> bool {
        Token::new(self).is_some()
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Generic => "generic",
            Isa::Avx2 => "AVX2",
            Isa::Avx512 => "AVX-512",
            Isa::Neon => "NEON",
        })
    }
}

/// An instruction set that this CPU was seen to have.
#[derive(Clone, Copy)]
pub(super) enum Token {
    Generic(Generic),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl Token {
    pub(super) fn new(isa: Isa) -> Option<Self> {
        match isa {
            Isa::Generic => Some(Token::Generic(Generic)),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::detect().map(Token::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Avx512::detect().map(Token::Avx512),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => Neon::detect().map(Token::Neon),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    pub(super) fn isa(self) -> Isa {
        match self {
            Token::Generic(_) => Isa::Generic,
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(_) => Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(_) => Isa::Avx512,
            #[cfg(target_arch = "aarch64")]
            Token::Neon(_) => Isa::Neon,
        }
    }

    /// Runs the kernel as compiled for this instruction set.
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Token::Generic(s) => kernel.run(s),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(s) => s.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(s) => s.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Token::Neon(s) => s.run(kernel),
        }
    }
}
