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
    /// The same with AVX-VNNI: sums of four products of bytes.
    Avx2Vnni,
    /// x86-64 with AVX-512 F, BW, VL and DQ.
    Avx512,
    /// The same with AVX-512 VNNI and VBMI.
    Avx512Vnni,
    /// 64-bit Arm.
    Neon,
    /// The same with the dot products of dotprod and i8mm.
    NeonDot,
}

impl Isa {
    /// All of them, the slowest first.
    pub const ALL: [Isa; 7] =
        [Isa::Generic, Isa::Neon, Isa::NeonDot, Isa::Avx2, Isa::Avx2Vnni, Isa::Avx512, Isa::Avx512Vnni];

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
            Isa::Avx2Vnni => "AVX2 with VNNI",
            Isa::Avx512 => "AVX-512",
            Isa::Avx512Vnni => "AVX-512 with VNNI",
            Isa::Neon => "NEON",
            Isa::NeonDot => "NEON with dot products",
        })
    }
}

/// An instruction set that this CPU was seen to have.
#[derive(Clone, Copy)]
pub(super) enum Token {
    Generic(Generic),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2<false>),
    #[cfg(target_arch = "x86_64")]
    Avx2Vnni(Avx2<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512<false>),
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Avx512<true>),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon<false>),
    #[cfg(target_arch = "aarch64")]
    NeonDot(Neon<true>),
}

impl Token {
    pub(super) fn new(isa: Isa) -> Option<Self> {
        match isa {
            Isa::Generic => Some(Token::Generic(Generic)),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::<false>::detect().map(Token::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Vnni => Avx2::<true>::detect().map(Token::Avx2Vnni),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Avx512::<false>::detect().map(Token::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => Avx512::<true>::detect().map(Token::Avx512Vnni),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => Neon::<false>::detect().map(Token::Neon),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDot => Neon::<true>::detect().map(Token::NeonDot),
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
            Token::Avx2Vnni(_) => Isa::Avx2Vnni,
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(_) => Isa::Avx512,
            #[cfg(target_arch = "x86_64")]
            Token::Avx512Vnni(_) => Isa::Avx512Vnni,
            #[cfg(target_arch = "aarch64")]
            Token::Neon(_) => Isa::Neon,
            #[cfg(target_arch = "aarch64")]
            Token::NeonDot(_) => Isa::NeonDot,
        }
    }

    /// Runs the kernel as compiled for this instruction set, without what only [`Token::run_int`] uses.
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Token::Generic(s) => kernel.run(s),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2(s) => s.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx2Vnni(s) => s.base().run(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512(s) => s.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512Vnni(s) => s.base().run(kernel),
            #[cfg(target_arch = "aarch64")]
            Token::Neon(s) => s.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Token::NeonDot(s) => s.base().run(kernel),
        }
    }

    /// Runs a kernel that works on bytes: those profit from instructions that the others have no use for.
    pub(super) fn run_int<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Token::Avx2Vnni(s) => s.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Token::Avx512Vnni(s) => s.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Token::NeonDot(s) => s.run(kernel),
            other => other.run(kernel),
        }
    }
}
