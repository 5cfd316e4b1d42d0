//! A port of Go's `sort.Sort`.
//!
//! The order of mapping keys is not transitive: `a01` comes before `a0a`, that before `a1`, and that before `a01`.
//! Rust's sort panics on such an order. This one takes the same steps as Go's, so it has the same output for every
//! order, and it always terminates.
//!
//! It is a pattern-defeating quicksort: short ranges by insertion, a pivot by medians, a heap sort once the pivots
//! were bad too often.

/// Maximum length of a range that is sorted by insertion.
const LONGEST_INSERTION: usize = 12;
/// Minimum length at which the pivot is a median of medians, and a nearly sorted range is repaired.
const SHORTEST_NINTHER: usize = 50;
/// Maximum number of out-of-order pairs to repair before a range counts as unsorted.
const MOST_REPAIRS: usize = 5;
/// Number of swaps that shows a descending range: every comparison for a median of medians swapped its pair.
const ALL_DESCENDING: usize = 12;

/// Sorts `items` by `less`, which need not be a consistent order.
pub(super) fn sort<T>(items: &mut [T], less: impl Fn(&T, &T) -> bool) {
    let length = items.len();
    if length < 2 {
        return;
    }
    let bad_pivots = bits(length);
    Sorter { items, less }.quicksort(0, length, bad_pivots);
}

/// Returns the number of bits of the number.
fn bits(number: usize) -> u32 {
    usize::BITS - number.leading_zeros()
}

struct Sorter<'a, T, F> {
    items: &'a mut [T],
    less: F,
}

/// The order of the range, as detected while choosing a pivot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hint {
    Ascending,
    Descending,
    Unknown,
}

impl<T, F: Fn(&T, &T) -> bool> Sorter<'_, T, F> {
    fn less(&self, a: usize, b: usize) -> bool {
        (self.less)(&self.items[a], &self.items[b])
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
    }

    fn quicksort(&mut self, mut from: usize, mut to: usize, mut bad_pivots: u32) {
        let (mut balanced, mut partitioned) = (true, true);
        loop {
            let length = to - from;
            if length <= LONGEST_INSERTION {
                return self.insertion(from, to);
            }
            if bad_pivots == 0 {
                return self.heap(from, to);
            }
            if !balanced {
                self.scatter(from, to);
                bad_pivots -= 1;
            }
            let (mut pivot, mut hint) = self.pivot(from, to);
            if hint == Hint::Descending {
                self.items[from..to].reverse();
                pivot = (to - 1) - (pivot - from);
                hint = Hint::Ascending;
            }
            let looks_sorted = balanced && partitioned && hint == Hint::Ascending;
            if looks_sorted && self.repair(from, to) {
                return;
            }
            // The element before the range is not less than the pivot, so the range starts with elements equal to it.
            if from > 0 && !self.less(from - 1, pivot) {
                from = self.split_equal(from, to, pivot);
                continue;
            }
            let middle;
            (middle, partitioned) = self.split(from, to, pivot);
            let (left, right) = (middle - from, to - middle);
            balanced = left.min(right) >= length / 8;
            if left < right {
                self.quicksort(from, middle, bad_pivots);
                from = middle + 1;
            } else {
                self.quicksort(middle + 1, to, bad_pivots);
                to = middle;
            }
        }
    }

    fn insertion(&mut self, from: usize, to: usize) {
        for start in from + 1..to {
            let mut at = start;
            while at > from && self.less(at, at - 1) {
                self.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    fn heap(&mut self, from: usize, to: usize) {
        let length = to - from;
        for root in (0..=(length - 1) / 2).rev() {
            self.sift_down(root, length, from);
        }
        for end in (0..length).rev() {
            self.swap(from, from + end);
            self.sift_down(0, end, from);
        }
    }

    fn sift_down(&mut self, mut root: usize, end: usize, from: usize) {
        loop {
            let mut child = 2 * root + 1;
            if child >= end {
                return;
            }
            if child + 1 < end && self.less(from + child, from + child + 1) {
                child += 1;
            }
            if !self.less(from + root, from + child) {
                return;
            }
            self.swap(from + root, from + child);
            root = child;
        }
    }

    /// Moves three elements to pseudo-random positions that depend only on the length.
    fn scatter(&mut self, from: usize, to: usize) {
        let length = to - from;
        let mut state = length as u64;
        let mask = (1u64 << bits(length)) - 1;
        let middle = from + (length / 4) * 2;
        for at in middle - 1..=middle + 1 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let mut other = usize::try_from(state & mask).unwrap_or(0);
            if other >= length {
                other -= length;
            }
            self.swap(at, from + other);
        }
    }

    fn pivot(&self, from: usize, to: usize) -> (usize, Hint) {
        let length = to - from;
        let quarter = length / 4;
        let mut swaps = 0;
        let mut candidates = [from + quarter, from + quarter * 2, from + quarter * 3];
        if length >= SHORTEST_NINTHER {
            for candidate in &mut candidates {
                *candidate = self.median([*candidate - 1, *candidate, *candidate + 1], &mut swaps);
            }
        }
        let pivot = self.median(candidates, &mut swaps);
        let hint = match swaps {
            0 => Hint::Ascending,
            ALL_DESCENDING => Hint::Descending,
            _ => Hint::Unknown,
        };
        (pivot, hint)
    }

    fn median(&self, [mut a, mut b, mut c]: [usize; 3], swaps: &mut usize) -> usize {
        let mut order = |low: &mut usize, high: &mut usize| {
            if self.less(*high, *low) {
                *swaps += 1;
                std::mem::swap(low, high);
            }
        };
        order(&mut a, &mut b);
        order(&mut b, &mut c);
        order(&mut a, &mut b);
        b
    }

    /// Swaps a few out-of-order pairs; returns whether the range is sorted afterwards.
    fn repair(&mut self, from: usize, to: usize) -> bool {
        let mut at = from + 1;
        for _ in 0..MOST_REPAIRS {
            while at < to && !self.less(at, at - 1) {
                at += 1;
            }
            if at == to {
                return true;
            }
            if to - from < SHORTEST_NINTHER {
                return false;
            }
            self.swap(at, at - 1);
            if at - from >= 2 {
                let mut low = at - 1;
                while low >= 1 && self.less(low, low - 1) {
                    self.swap(low, low - 1);
                    low -= 1;
                }
            }
            if to - at >= 2 {
                let mut high = at + 1;
                while high < to && self.less(high, high - 1) {
                    self.swap(high, high - 1);
                    high += 1;
                }
            }
        }
        false
    }

    /// Moves elements less than the pivot before it. Returns the pivot's position and whether the range was already
    /// partitioned.
    fn split(&mut self, from: usize, to: usize, pivot: usize) -> (usize, bool) {
        self.swap(from, pivot);
        let (mut low, mut high) = (from + 1, to - 1);
        let mut moved = false;
        loop {
            while low <= high && self.less(low, from) {
                low += 1;
            }
            while low <= high && !self.less(high, from) {
                high -= 1;
            }
            if low > high {
                break;
            }
            self.swap(low, high);
            low += 1;
            high -= 1;
            moved = true;
        }
        self.swap(high, from);
        (high, !moved)
    }

    /// Moves elements equal to the pivot to the start. Returns the position of the first greater element.
    fn split_equal(&mut self, from: usize, to: usize, pivot: usize) -> usize {
        self.swap(from, pivot);
        let (mut low, mut high) = (from + 1, to - 1);
        loop {
            while low <= high && !self.less(from, low) {
                low += 1;
            }
            while low <= high && self.less(from, high) {
                high -= 1;
            }
            if low > high {
                return low;
            }
            self.swap(low, high);
            low += 1;
            high -= 1;
        }
    }
}
