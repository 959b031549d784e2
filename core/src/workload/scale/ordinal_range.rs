//! Which ordinals should have a pod: the lowest ones that are not reserved. A reserved ordinal does not count, so the
//! next higher one is used instead.

use std::collections::BTreeSet;
use std::ops::Range;

/// Ordinals of a range that are not reserved.
#[derive(Clone)]
pub(crate) struct OrdinalRange<'a> {
    range: Range<i64>,
    reserved: &'a BTreeSet<i64>,
}

impl<'a> OrdinalRange<'a> {
    /// The first `count` ordinals that are not reserved, counted from `start`.
    pub(crate) fn first(count: i64, start: i64, reserved: &'a BTreeSet<i64>) -> Self {
        let mut end = start + count;
        for ordinal in reserved.range(start..) {
            if *ordinal >= end {
                break;
            }
            end += 1;
        }
        Self { range: start..end, reserved }
    }

    /// The ordinal after the last one.
    pub(crate) fn end(&self) -> i64 {
        self.range.end
    }

    /// The number of ordinals that are not reserved.
    pub(crate) fn len(&self) -> i64 {
        let Range { start, end } = self.range;
        let reserved = if start < end { self.reserved.range(start..end).count() } else { 0 };
        (end - start).max(0) - reserved as i64
    }

    /// Whether an ordinal is in the range and not reserved.
    pub(crate) fn contains(&self, ordinal: i64) -> bool {
        self.range.contains(&ordinal) && !self.reserved.contains(&ordinal)
    }

    /// The part of the range below an ordinal.
    pub(crate) fn below(&self, ordinal: i64) -> Self {
        Self { range: self.range.start..ordinal.min(self.range.end), reserved: self.reserved }
    }

    /// The part of the range from an ordinal on.
    pub(crate) fn starting_at(&self, ordinal: i64) -> Self {
        Self { range: ordinal.max(self.range.start)..self.range.end, reserved: self.reserved }
    }

    /// All ordinals that are not reserved, lowest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + use<'a> {
        let reserved = self.reserved;
        let ordinals = self.range.clone();
        ordinals.filter(move |ordinal| !reserved.contains(ordinal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ordinals_are_skipped_and_not_counted() {
        for (count, start, reserved, expected) in [
            (3, 0, &[][..], &[0, 1, 2][..]),
            (3, 0, &[1], &[0, 2, 3]),
            (3, 0, &[0], &[1, 2, 3]),
            (3, 0, &[2], &[0, 1, 3]),
            // A reserved ordinal above the range matters only if lower reserved ordinals extend the range to it.
            (3, 0, &[3], &[0, 1, 2]),
            (3, 0, &[1, 3], &[0, 2, 4]),
            (3, 0, &[0, 1, 2], &[3, 4, 5]),
            (2, 5, &[0, 4, 5, 7], &[6, 8]),
            (0, 0, &[0], &[]),
        ] {
            let reserved: BTreeSet<i64> = reserved.iter().copied().collect();
            let range = OrdinalRange::first(count, start, &reserved);
            let ordinals: Vec<i64> = range.iter().collect();
            assert_eq!(ordinals, expected, "{count} from {start} without {reserved:?}");
            let is_contained = |ordinal: &i64| range.contains(*ordinal);
            let contained: Vec<i64> = (start - 1..range.end() + 2).filter(is_contained).collect();
            assert_eq!(contained, expected);
        }
    }

    #[test]
    fn a_range_is_split_at_an_ordinal() {
        let reserved = BTreeSet::from([1, 4]);
        let range = OrdinalRange::first(4, 0, &reserved);
        let all = |range: OrdinalRange| range.iter().collect::<Vec<i64>>();
        assert_eq!(all(range.clone()), [0, 2, 3, 5]);
        assert_eq!(all(range.below(3)), [0, 2]);
        assert_eq!(all(range.below(9)), [0, 2, 3, 5]);
        assert_eq!(all(range.starting_at(3)), [3, 5]);
        assert_eq!(all(range.starting_at(9)), [0; 0]);
        let lengths = [range.len(), range.below(3).len(), range.starting_at(9).len()];
        assert_eq!(lengths, [4, 2, 0]);
    }

    #[test]
    fn a_huge_range_takes_no_time() {
        let reserved = BTreeSet::from([1]);
        let range = OrdinalRange::first(i64::from(i32::MAX), 0, &reserved);
        assert_eq!(range.end(), i64::from(i32::MAX) + 1);
        assert_eq!(range.iter().next_back(), Some(i64::from(i32::MAX)));
    }
}
