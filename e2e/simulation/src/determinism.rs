//! What is not decided by the seed of a simulation otherwise: random numbers and the time.
//!
//! Hash maps, `tokio::select!`, jitter and UIDs take their randomness from `getrandom`, and `Timestamp::now` its time
//! from `clock_gettime`. This program defines both functions itself, which the linker prefers to those of the C library
//! (the standard library documents this use). Before [`enter`] they are the system's. This is also why the simulation
//! is a program of its own: no program that serves users may contain this file.
#![allow(
    unsafe_code,
    reason = "functions of the C library can only be replaced with unsafe code"
)]

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// 2026-01-05, a Monday, at midnight.
const EPOCH: u64 = 1_767_571_200;

static ENTERED: AtomicBool = AtomicBool::new(false);
static RANDOM: AtomicU64 = AtomicU64::new(0);
static START: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// Set while the clock of the runtime is read, which may itself ask for the time.
    static READING: Cell<bool> = const { Cell::new(false) };
    static LAST: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Makes all random numbers of this process follow from the seed. Must be called before anything else uses them, by a
/// process that simulates nothing else afterwards.
pub fn enter(seed: u64) {
    RANDOM.store(seed, Ordering::Relaxed);
    ENTERED.store(true, Ordering::Relaxed);
}

/// Makes the time that of the current runtime, whose clock must be paused.
pub fn follow_runtime() {
    let _ = START.set(Instant::now());
}

/// Returns the simulated time since the start.
pub fn elapsed() -> Duration {
    let Some(start) = START.get() else {
        return Duration::ZERO;
    };
    let is_nested = READING.replace(true);
    if is_nested || tokio::runtime::Handle::try_current().is_err() {
        READING.set(is_nested);
        return LAST.get();
    }
    let elapsed = Instant::now().duration_since(*start);
    READING.set(false);
    LAST.set(elapsed);
    elapsed
}

/// A sequence of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Returns the sequence of a seed and a purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, hash))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Returns a number below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns a duration between the two.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        least + Duration::from_millis(self.below(span))
    }
}

fn mixed(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// The `getrandom` of this program.
///
/// # Safety
///
/// As for the function of the C library: `buffer` must be valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(
    buffer: *mut c_void,
    length: libc::size_t,
    flags: c_uint,
) -> libc::ssize_t {
    if !ENTERED.load(Ordering::Relaxed) {
        // SAFETY: the arguments are those of the system call, and the caller vouches for the buffer.
        let written = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return libc::ssize_t::try_from(written).unwrap_or(-1);
    }
    if length == 0 {
        return 0;
    }
    // SAFETY: the caller vouches for the buffer, which nothing else refers to during the call.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        let state = RANDOM.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        chunk.copy_from_slice(&mixed(state).to_ne_bytes()[..chunk.len()]);
    }
    libc::ssize_t::try_from(length).unwrap_or(-1)
}

/// The `clock_gettime` of this program.
///
/// # Safety
///
/// As for the function of the C library: `time` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    if !ENTERED.load(Ordering::Relaxed) {
        // SAFETY: the arguments are those of the system call, and the caller vouches for the pointer.
        let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
        return c_int::try_from(result).unwrap_or(-1);
    }
    let now = Duration::from_secs(EPOCH) + elapsed();
    let value = libc::timespec {
        tv_sec: libc::time_t::try_from(now.as_secs()).unwrap_or_default(),
        tv_nsec: libc::c_long::from(i32::try_from(now.subsec_nanos()).unwrap_or_default()),
    };
    // SAFETY: the caller vouches for the pointer.
    unsafe { time.write(value) };
    0
}
