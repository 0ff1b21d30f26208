//! `--split 70,33,1x47`: in which pieces tokens are fed.

/// Lengths of the pieces.
///
/// # Errors
/// Not of this form, or the pieces are not `n_id` tokens together.
pub(super) fn parse(text: &str, n_id: usize) -> Result<Vec<usize>, String> {
    let mut pieces = Vec::new();
    let mut sum = 0usize;
    for part in text.split(',') {
        let (len, n) = part.split_once('x').unwrap_or((part, "1"));
        let number = |text: &str| text.trim().parse().ok().filter(|&n: &usize| 0 < n);
        let (Some(len), Some(n)) = (number(len), number(n)) else {
            return Err(format!("--split: '{part}' is not a length, nor LENGTHxTIMES"));
        };
        let piece_sum = len.checked_mul(n).and_then(|more| more.checked_add(sum));
        // Checked before the list is made: it may be as long as somebody types it.
        sum = piece_sum
            .filter(|&sum| sum <= n_id)
            .ok_or_else(|| format!("--split: more than the {n_id} tokens there are"))?;
        pieces.extend(std::iter::repeat_n(len, n));
    }
    if sum == n_id { Ok(pieces) } else { Err(format!("--split: {sum} tokens, there are {n_id}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another split than the one that was asked for would be compared.
    #[test]
    fn splits_are_read_as_written() {
        assert_eq!(parse("3", 3), Ok(vec![3]));
        assert_eq!(parse("70,33,1x47", 150).unwrap().len(), 49);
        assert_eq!(parse("2, 1x2 ,3", 7), Ok(vec![2, 1, 1, 3]));
        for bad in
            ["", "0", "x", "1x", "1x0", "-1", "3,,1", "2x2x2", "99999999999x99999999999", "1x1000000", "2"]
        {
            assert!(parse(bad, 3).is_err(), "{bad}");
        }
    }
}
