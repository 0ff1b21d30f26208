//! How many bits each role gets: the defaults, the overrides, and what happens where a format does not fit.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use quant::Format;
use store::{ExpertPart, Role};

use crate::{ConvertError, Imatrix, Recipe};

/// Bits of a weight, or the number format that the checkpoint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Each tensor keeps its own.
    Source,
    /// FP8 as published: E4M3 with a scale for every 128 rows and columns.
    Fp8,
    /// Quantised to this many bits: 2, 3, 4, 5, 6 or 8.
    N(u8),
}

impl FromStr for Bits {
    type Err = ConvertError;

    fn from_str(text: &str) -> Result<Self, ConvertError> {
        let number = text.parse().ok().filter(|n| Format::AFFINE_BITS.contains(n));
        match (text, number) {
            ("source", _) => Ok(Bits::Source),
            ("fp8", _) => Ok(Bits::Fp8),
            (_, Some(n)) => Ok(Bits::N(n)),
            _ => {
                Err(ConvertError::Options(format!("bits '{text}' is none of source, fp8, 8, 6, 5, 4, 3, 2")))
            }
        }
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bits::Source => f.write_str("source"),
            Bits::Fp8 => f.write_str("fp8"),
            Bits::N(n) => n.fmt(f),
        }
    }
}

/// How numbers become codes of few bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Quantiser {
    /// The range of a group, cut into equal steps: the bytes that MLX makes.
    #[default]
    MinMax,
    /// Up to 4 bits: the scale, bias and codes with the least error that a search finds.
    Search,
}

impl FromStr for Quantiser {
    type Err = ConvertError;

    fn from_str(text: &str) -> Result<Self, ConvertError> {
        match text {
            "minmax" => Ok(Quantiser::MinMax),
            "search" => Ok(Quantiser::Search),
            _ => Err(ConvertError::Options(format!("quantiser '{text}' is none of minmax, search"))),
        }
    }
}

impl fmt::Display for Quantiser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantiser::MinMax => "minmax",
            Quantiser::Search => "search",
        })
    }
}

/// Most bits that are searched for: with more, the range is as good.
const SEARCHED_BITS_MAX: u8 = 4;

/// One weight matrix kind, as options address it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Dense(Role),
    Expert(ExpertPart),
}

impl Kind {
    /// All that can be quantised.
    pub(crate) fn all() -> impl Iterator<Item = Kind> {
        let roles = Role::ALL.into_iter().filter(|role| !role.is_f32()).map(Kind::Dense);
        ExpertPart::ALL.into_iter().map(Kind::Expert).chain(roles)
    }
}

/// The name that options have.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Dense(role) => role.fmt(f),
            Kind::Expert(part) => write!(f, "expert_{part}"),
        }
    }
}

/// Roles that an override is for: one role by its snake_case name, one expert matrix, or a group.
///
/// Groups: `experts` (all three matrices), `attention` (q, k, v, o), `linear` (qkv, z, out; the small and
/// sensitive `linear_a` and `linear_b` only by name), `shared` (gate, up, down of the shared expert).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleSelector {
    name: String,
    kinds: Vec<Kind>,
}

const GROUPS: [(&str, &[Kind]); 4] = {
    use ExpertPart::{Down, Gate, Up};
    use Kind::{Dense, Expert};
    [
        ("experts", &[Expert(Gate), Expert(Up), Expert(Down)]),
        ("attention", &[Dense(Role::AttnQ), Dense(Role::AttnK), Dense(Role::AttnV), Dense(Role::AttnO)]),
        ("linear", &[Dense(Role::LinearQkv), Dense(Role::LinearZ), Dense(Role::LinearOut)]),
        ("shared", &[Dense(Role::SharedGate), Dense(Role::SharedUp), Dense(Role::SharedDown)]),
    ]
};

impl FromStr for RoleSelector {
    type Err = ConvertError;

    fn from_str(name: &str) -> Result<Self, ConvertError> {
        let group = GROUPS.iter().find(|(n, _)| *n == name).map(|(_, kinds)| kinds.to_vec());
        let kind = || Kind::all().find(|kind| kind.to_string() == name).map(|kind| vec![kind]);
        if let Some(kinds) = group.or_else(kind) {
            return Ok(Self { name: name.to_owned(), kinds });
        }
        let is_known = Role::ALL.into_iter().any(|role| role.to_string() == name);
        let why = if is_known { "is always stored as F32" } else { "is unknown" };
        let groups = GROUPS.iter().map(|(group, _)| (*group).to_owned());
        let valid: Vec<String> = groups.chain(Kind::all().map(|kind| kind.to_string())).collect();
        Err(ConvertError::Options(format!("role '{name}' {why}; valid: {}", valid.join(", "))))
    }
}

impl fmt::Display for RoleSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What `pack` makes of the weights.
///
/// Defaults for a number of bits: routed experts, shared expert, attention and the wide linear-attention matrices
/// get it; `router`, `shared_expert_gate`, `embed`, `lm_head`, `linear_a` and `linear_b` get 8 bits (routing order
/// and decay are the first to suffer); norms, convolution, `A_log` and `dt_bias` are F32 always. With FP8 those get the
/// checkpoint's own format, as published. Later overrides win.
///
/// What the checkpoint has quantised already, and not to FP8, stays as it is unless that makes it smaller or an
/// override asks for it: more bits would not bring back what is lost.
///
/// A row that is not a multiple of `group` numbers: for experts, and where an override asked for it, an error; for
/// other roles 8 bits in groups of 32 if that fits, else the checkpoint's own format, with a note in the report.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// Bits of most weights.
    pub bits: Bits,
    /// Bits by role and layer, instead.
    pub recipe: Option<Recipe>,
    /// Numbers that share a scale: 32, 64 or 128.
    pub group: u8,
    /// Overrides by role.
    pub roles: Vec<(RoleSelector, Bits)>,
    /// How codes are chosen.
    pub quantiser: Quantiser,
    /// Which errors cost most, for [`Quantiser::Search`].
    pub imatrix: Option<Arc<Imatrix>>,
}

impl Default for PackOptions {
    fn default() -> Self {
        let (bits, quantiser) = (Bits::N(4), Quantiser::MinMax);
        Self { bits, recipe: None, group: 64, roles: Vec::new(), quantiser, imatrix: None }
    }
}

/// Bits of the roles that suffer first.
const CAREFUL_BITS: u8 = 8;

impl PackOptions {
    /// Parses an override: `lm_head=6`, `experts=3`, `attn_q=source`.
    ///
    /// # Errors
    /// Not of this form, or no such role or bits; names the valid ones.
    pub fn parse_role(text: &str) -> Result<(RoleSelector, Bits), ConvertError> {
        let (role, bits) = text.split_once('=').ok_or_else(|| {
            ConvertError::Options(format!("role override '{text}' is not of the form ROLE=BITS"))
        })?;
        Ok((role.trim().parse()?, bits.trim().parse()?))
    }

    /// Bits and group that exist, overrides that address something in a model with `kinds`.
    pub(crate) fn check(&self, kinds: &[Kind]) -> Result<(), ConvertError> {
        if !Format::AFFINE_GROUPS.contains(&self.group) {
            return Err(ConvertError::Options(format!("group {} is none of 32, 64, 128", self.group)));
        }
        if self.imatrix.is_some() && self.quantiser != Quantiser::Search {
            return Err(ConvertError::Options(
                "an importance matrix is for the quantiser 'search' only".into(),
            ));
        }
        for bits in self.roles.iter().map(|(_, bits)| *bits).chain([self.bits]) {
            bits.to_string().parse::<Bits>()?;
        }
        match self.roles.iter().find(|(selector, _)| !selector.kinds.iter().any(|k| kinds.contains(k))) {
            Some((selector, _)) => {
                Err(ConvertError::Options(format!("role override '{selector}': this model has none of it")))
            }
            None => Ok(()),
        }
    }

    /// Is a matrix of this format encoded by a search?
    pub(crate) fn searches(&self, format: Format) -> bool {
        let is_small = matches!(format, Format::Affine { bits, .. } if bits <= SEARCHED_BITS_MAX);
        is_small && self.quantiser == Quantiser::Search
    }

    /// The format of a matrix whose rows have `cols` numbers of format `source`, and a note if it is not the one
    /// that the options ask for; an error says why no format will do. It is not in the first or last layer.
    pub(crate) fn format(
        &self,
        kind: Kind,
        cols: usize,
        source: Format,
    ) -> Result<(Format, Option<String>), String> {
        self.format_at(kind, false, cols, source)
    }

    /// The same; `is_edge`: is it in the first or last layer?
    pub(crate) fn format_at(
        &self,
        kind: Kind,
        is_edge: bool,
        cols: usize,
        source: Format,
    ) -> Result<(Format, Option<String>), String> {
        let careful = match kind {
            Kind::Dense(role) if role.is_f32() => return Ok((Format::F32, None)),
            Kind::Dense(role) => is_careful(role),
            Kind::Expert(_) => false,
        };
        let chosen = self.roles.iter().rev().find(|(selector, _)| selector.kinds.contains(&kind));
        let recipe = self.recipe.map(|recipe| Bits::N(recipe.bits(kind, is_edge)));
        let bits = match (chosen.map(|(_, bits)| *bits).or(recipe), self.bits) {
            (Some(bits), _) => bits,
            (None, Bits::N(_)) if careful => Bits::N(CAREFUL_BITS),
            (None, Bits::Fp8) if careful => Bits::Source,
            (None, bits) => bits,
        };
        let wanted = match bits {
            Bits::Source => return Ok((source, None)),
            Bits::Fp8 if source == Format::Fp8F32 => source,
            Bits::Fp8 => Format::Fp8,
            Bits::N(bits) => Format::Affine { bits, group: self.group },
        };
        let is_larger = || wanted.check(1, cols).is_ok() && row_size(wanted, cols) >= row_size(source, cols);
        if chosen.is_none() && is_quantised(source) && source != wanted && is_larger() {
            return Ok((source, Some(format!("stays {source}: more bits would add nothing"))));
        }
        let Err(misfit) = wanted.check(1, cols) else { return Ok((wanted, None)) };
        if chosen.is_some() || matches!(kind, Kind::Expert(_)) {
            return Err(format!("{misfit}; try --group 32 or another --role override"));
        }
        let small = Format::Affine { bits: CAREFUL_BITS, group: 32 };
        let fallback = if small.check(1, cols).is_ok() { small } else { source };
        Ok((fallback, Some(format!("stored as {fallback}: {misfit}"))))
    }
}

/// Were numbers rounded to few bits? FP8 counts as an original: models are published in it.
pub(crate) fn is_quantised(format: Format) -> bool {
    !matches!(format, Format::F32 | Format::F16 | Format::Bf16 | Format::Fp8 | Format::Fp8F32)
}

/// Bytes of a row; a share of the scales that it has in common with others.
fn row_size(format: Format, cols: usize) -> f64 {
    let scales = format.scale_row_bytes(cols) as f64 / format.scale_rows() as f64;
    format.row_bytes(cols) as f64 + scales + format.bias_row_bytes(cols) as f64
}

fn is_careful(role: Role) -> bool {
    use Role::*;
    matches!(role, Router | SharedExpertGate | Embed | LmHead | LinearA | LinearB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_overrides_as_written() {
        // An option that is taken for something else, or an error that does not say what is valid.
        assert_eq!("source".parse::<Bits>().unwrap(), Bits::Source);
        assert_eq!("3".parse::<Bits>().unwrap(), Bits::N(3));
        for bad in ["7", "0", "16", "", "-4", "q4"] {
            let error = bad.parse::<Bits>().unwrap_err().to_string();
            assert!(error.contains("source, fp8, 8, 6, 5, 4, 3, 2"), "{error}");
        }
        assert_eq!(PackOptions::parse_role("lm_head=6").unwrap().1, Bits::N(6));
        for (bad, says) in [
            ("lm_head", "ROLE=BITS"),
            ("head=6", "valid: experts, attention"),
            ("final_norm=8", "always stored as F32"),
            ("experts=9", "none of source"),
        ] {
            let error = PackOptions::parse_role(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    #[test]
    fn what_is_quantised_already_is_not_made_larger() {
        // 4 bits blown up to 8, or quantised twice for nothing; a wish for fewer bits that is ignored.
        let affine = |bits, group| Format::Affine { bits, group };
        let f16 = Format::AffineF16 { bits: 4, group: 64 };
        let (embed, expert) = (Kind::Dense(Role::Embed), Kind::Expert(ExpertPart::Up));
        for (bits, kind, source, expected, has_note) in [
            ("8", expert, affine(4, 64), affine(4, 64), true),
            ("4", expert, affine(4, 64), affine(4, 64), false),
            ("4", expert, f16, f16, true),
            ("4", embed, affine(4, 64), affine(4, 64), true),
            ("4", embed, affine(8, 32), affine(8, 64), false),
            ("3", expert, affine(4, 64), affine(3, 64), false),
            ("4", expert, Format::Mxfp4, Format::Mxfp4, true),
            ("8", expert, Format::Fp8, affine(8, 64), false),
            ("fp8", expert, Format::Fp8, Format::Fp8, false),
            ("fp8", expert, Format::Fp8F32, Format::Fp8F32, false),
            ("fp8", expert, affine(4, 64), affine(4, 64), true),
            ("source", expert, Format::Nvfp4, Format::Nvfp4, false),
        ] {
            let options = PackOptions { bits: bits.parse().unwrap(), ..PackOptions::default() };
            let (got, note) = options.format(kind, 128, source).unwrap();
            assert_eq!(
                (got, note.is_some()),
                (expected, has_note),
                "{bits} {kind:?} from {source}: {note:?}"
            );
        }
        let roles = vec![PackOptions::parse_role("experts=8").unwrap()];
        let asked = PackOptions { roles, ..PackOptions::default() };
        assert_eq!(asked.format(expert, 128, affine(4, 64)).unwrap().0, affine(8, 64));
    }

    #[test]
    fn formats_of_roles() {
        // A router at 4 bits, a quantised norm, an override that does nothing, a misfit that goes unnoticed.
        let affine = |bits, group| Format::Affine { bits, group };
        let (dense, expert) = (Kind::Dense, Kind::Expert(ExpertPart::Down));
        let check = |options: &PackOptions, kind, cols, expected: Result<Format, ()>| {
            let got = options.format(kind, cols, Format::Bf16);
            assert_eq!(
                got.clone().map(|(format, _)| format).map_err(|_| ()),
                expected,
                "{kind:?} {cols} {got:?}"
            );
        };
        let two = PackOptions { bits: Bits::N(2), ..PackOptions::default() };
        check(&two, expert, 128, Ok(affine(2, 64)));
        check(&two, dense(Role::AttnQ), 128, Ok(affine(2, 64)));
        for role in
            [Role::Router, Role::SharedExpertGate, Role::Embed, Role::LmHead, Role::LinearA, Role::LinearB]
        {
            check(&two, dense(role), 128, Ok(affine(8, 64)));
        }
        for role in Role::ALL.into_iter().filter(|r| r.is_f32()) {
            check(&two, dense(role), 128, Ok(Format::F32));
        }
        check(&two, expert, 96, Err(()));
        check(&two, dense(Role::AttnO), 96, Ok(affine(8, 32)));
        check(&two, dense(Role::AttnO), 48, Ok(Format::Bf16));
        let source = PackOptions { bits: Bits::Source, ..PackOptions::default() };
        check(&source, expert, 48, Ok(Format::Bf16));
        check(&source, dense(Role::LinearNorm), 48, Ok(Format::F32));
        let fp8 = PackOptions { bits: Bits::Fp8, ..PackOptions::default() };
        check(&fp8, expert, 48, Ok(Format::Fp8));
        check(&fp8, dense(Role::Router), 48, Ok(Format::Bf16));
        let roles = ["experts=3", "expert_down=source", "router=4", "attn_o=4"];
        let roles = roles.iter().map(|r| PackOptions::parse_role(r).unwrap()).collect();
        let mixed = PackOptions { bits: Bits::N(8), roles, ..PackOptions::default() };
        check(&mixed, Kind::Expert(ExpertPart::Gate), 64, Ok(affine(3, 64)));
        check(&mixed, expert, 64, Ok(Format::Bf16));
        check(&mixed, dense(Role::Router), 64, Ok(affine(4, 64)));
        check(&mixed, dense(Role::AttnO), 96, Err(()));
    }
}
