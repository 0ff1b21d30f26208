//! Weight files that come while they are packed, one after the other, and go when they have been used.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ConvertError;
use crate::work::Unit;

/// Brings the weight files of a checkpoint of which only headers are here.
pub trait WeightSource: Sync {
    /// The files that will be needed, in this order; at most `n_live` of them at the same time.
    ///
    /// # Errors
    /// There is no room for them.
    fn plan(&self, names: &[String], n_live: usize) -> Result<(), ConvertError>;

    /// Returns when all of a file is there. Called on several threads.
    ///
    /// # Errors
    /// The file will not come.
    fn need(&self, name: &str) -> Result<(), ConvertError>;

    /// A file will not be read any more.
    fn done(&self, name: &str);
}

/// Which units need which files.
pub(crate) struct Arrivals<'a> {
    source: &'a dyn WeightSource,
    names: Vec<String>,
    /// By unit, in the order in which they are made: indices of its files.
    files: Vec<Vec<usize>>,
    /// By file: units that still need it. They are written by one thread and made by others.
    n_left: Vec<AtomicUsize>,
}

impl<'a> Arrivals<'a> {
    /// Brings `units` into an order in which each file is needed for a short time, and announces the files. `files_of`
    /// gives the indices of a unit's files in `names`.
    pub(crate) fn new(
        source: &'a dyn WeightSource,
        names: &[String],
        units: &mut [&Unit],
        files_of: &dyn Fn(&Unit) -> Vec<usize>,
    ) -> Result<Self, ConvertError> {
        // Units of two files come before those of the later one alone: then the earlier file can go.
        units.sort_by_key(|unit| {
            let files = files_of(unit);
            (files.iter().max().copied(), files.iter().min().copied())
        });
        let files: Vec<Vec<usize>> = units.iter().map(|unit| files_of(unit)).collect();
        let mut n_left = vec![0; names.len()];
        files.iter().flatten().for_each(|&file| n_left[file] += 1);
        let mut order: Vec<usize> = Vec::new();
        for &file in files.iter().flatten() {
            if !order.contains(&file) {
                order.push(file);
            }
        }
        let planned: Vec<String> = order.iter().map(|&file| names[file].clone()).collect();
        source.plan(&planned, n_live_max(&files, &n_left))?;
        let n_left = n_left.into_iter().map(AtomicUsize::new).collect();
        Ok(Self { source, names: names.to_vec(), files, n_left })
    }

    /// Waits for the files of unit `i`.
    pub(crate) fn need(&self, i: usize) -> Result<(), ConvertError> {
        self.files[i].iter().try_for_each(|&file| self.source.need(&self.names[file]))
    }

    /// Unit `i` has been written: files that no other unit needs may go.
    pub(crate) fn done(&self, i: usize) {
        for &file in &self.files[i] {
            if self.n_left[file].fetch_sub(1, Ordering::Relaxed) == 1 {
                self.source.done(&self.names[file]);
            }
        }
    }
}

/// Most files that are needed at the same time, when units are made one by one in order.
fn n_live_max(files: &[Vec<usize>], n_unit: &[usize]) -> usize {
    let (mut n_left, mut n_live, mut n_live_max) = (n_unit.to_vec(), 0usize, 0);
    for unit in files {
        n_live += unit.iter().filter(|&&file| n_left[file] == n_unit[file]).count();
        n_live_max = n_live_max.max(n_live);
        for &file in unit {
            n_left[file] -= 1;
            n_live -= usize::from(n_left[file] == 0);
        }
    }
    n_live_max
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More files would be asked for at a time than the disk has room for, or fewer than a unit needs.
    #[test]
    fn files_that_are_needed_together_are_counted() {
        let check = |files: &[&[usize]], expected: usize| {
            let files: Vec<Vec<usize>> = files.iter().map(|unit| unit.to_vec()).collect();
            let mut n_unit = vec![0; 4];
            files.iter().flatten().for_each(|&file| n_unit[file] += 1);
            assert_eq!(n_live_max(&files, &n_unit), expected, "{files:?}");
        };
        check(&[], 0);
        check(&[&[0], &[0], &[1], &[2]], 1);
        check(&[&[0], &[0, 1], &[1], &[1, 2]], 2);
        check(&[&[0], &[1], &[2], &[0, 3]], 2);
    }
}
