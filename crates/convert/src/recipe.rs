//! Mixed bits: more where an error costs more.

use std::fmt;
use std::str::FromStr;

use store::{ExpertPart, Role};

use crate::ConvertError;
use crate::options::Kind;

/// Which roles and layers get how many bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recipe {
    /// Experts of 2 bits, their down of 3.
    Small,
    /// Experts of 3 bits, their down of 4.
    Balanced,
    /// Experts of 4 bits, their down of 5.
    Best,
}

impl Recipe {
    /// All, the smallest first.
    pub const ALL: [Recipe; 3] = [Recipe::Small, Recipe::Balanced, Recipe::Best];

    /// Bits of a matrix; `is_edge`: it is in the first or the last layer, whose experts get one more. What
    /// is read for every token is a small part of a model.
    pub(crate) fn bits(self, kind: Kind, is_edge: bool) -> u8 {
        use Role::*;
        let (gate_up, dense, tables) = match self {
            Recipe::Small => (2, 4, 6),
            Recipe::Balanced => (3, 6, 8),
            Recipe::Best => (4, 8, 8),
        };
        match kind {
            Kind::Expert(ExpertPart::Gate | ExpertPart::Up) => gate_up + u8::from(is_edge),
            Kind::Expert(ExpertPart::Down) => gate_up + 1 + u8::from(is_edge),
            Kind::Dense(Embed | LmHead) => tables,
            Kind::Dense(Router | SharedExpertGate | LinearA | LinearB) => 8,
            Kind::Dense(_) => dense,
        }
    }
}

impl FromStr for Recipe {
    type Err = ConvertError;

    fn from_str(text: &str) -> Result<Self, ConvertError> {
        Recipe::ALL
            .into_iter()
            .find(|recipe| recipe.to_string() == text)
            .ok_or_else(|| ConvertError::Options(format!("recipe '{text}' is none of small, balanced, best")))
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Recipe::Small => "small",
            Recipe::Balanced => "balanced",
            Recipe::Best => "best",
        })
    }
}

#[cfg(test)]
mod tests {
    use quant::Format;

    use super::*;

    /// Bits that no format has, a recipe that is smaller somewhere than the one before it, a router that is cut.
    #[test]
    fn recipes_grow() {
        for kind in Kind::all() {
            for is_edge in [false, true] {
                let bits = Recipe::ALL.map(|recipe| recipe.bits(kind, is_edge));
                assert!(bits.iter().all(|bits| Format::AFFINE_BITS.contains(bits)), "{kind} {bits:?}");
                assert!(bits.is_sorted(), "{kind} {bits:?}");
            }
        }
        let [small, _, best] = Recipe::ALL;
        assert_eq!(small.bits(Kind::Dense(Role::Router), false), 8);
        assert_eq!(small.bits(Kind::Expert(ExpertPart::Gate), false), 2);
        assert_eq!(small.bits(Kind::Expert(ExpertPart::Down), true), 4);
        assert_eq!(best.bits(Kind::Expert(ExpertPart::Down), true), 6);
        for recipe in Recipe::ALL {
            assert_eq!(recipe.to_string().parse::<Recipe>().unwrap(), recipe);
        }
        assert!("tiny".parse::<Recipe>().unwrap_err().to_string().contains("small, balanced, best"));
    }
}
