//! Sizes as people type and read them.

use std::fmt;
use std::str::FromStr;

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// Suffixes with their factors, longest first so that `kib` is not taken for `b`.
const UNITS: [(&str, u64); 9] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("'{text}' is not a size (examples: 6GiB, 1.5GB, 512MiB, 1048576)");
        let lower = text.trim().to_ascii_lowercase();
        let unit = UNITS.iter().find_map(|&(suffix, factor)| Some((lower.strip_suffix(suffix)?, factor)));
        let (number, factor) = unit.unwrap_or((&lower, 1));
        let number = number.trim();
        // f64 also reads "inf", "nan" and "1e9": none of them is a size.
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(refuse());
        }
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Size).ok_or_else(refuse);
        }
        let bytes = number.parse::<f64>().map_err(|_| refuse())? * factor as f64;
        if bytes < u64::MAX as f64 { Ok(Size(bytes.round() as u64)) } else { Err(refuse()) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..0x400 => write!(f, "{} B", self.0),
            0x400..0x10_0000 => write!(f, "{:.1} KiB", bytes / f64::from(1 << 10)),
            0x10_0000..0x4000_0000 => write!(f, "{:.1} MiB", bytes / f64::from(1 << 20)),
            _ => write!(f, "{:.2} GiB", bytes / f64::from(1 << 30)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--memory` would mean something else than what was typed.
    #[test]
    fn sizes_are_read() {
        let cases: [(&str, u64); 13] = [
            ("0", 0),
            ("1048576", 1 << 20),
            ("10B", 10),
            ("6GiB", 6 << 30),
            ("6gib", 6 << 30),
            (" 6 GiB ", 6 << 30),
            ("1.5GB", 1_500_000_000),
            ("0.5KiB", 512),
            ("7kB", 7_000),
            ("100MiB", 100 << 20),
            ("100MB", 100_000_000),
            ("2TiB", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    /// Nonsense would become a number.
    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "GiB",
            "6G",
            "six",
            "-1",
            "-1GiB",
            "1e9",
            "inf",
            "nan",
            "1.2.3",
            "6GiBs",
            "18446744073709551616",
            "99999999TiB",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    /// A size would be shown with the wrong unit.
    #[test]
    fn sizes_are_shown() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (100 << 20, "100.0 MiB"),
            (6 << 30, "6.00 GiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
