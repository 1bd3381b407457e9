//! The processor time that one request may spend on text, and whether anybody still waits for it.
//! C++ owns the counters (src/base/work_budget.h); long loops here check them as they go.

use crate::error::{fail, TextResult};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The memory layout of `quire::WorkBudget`.
#[repr(C)]
struct Counters {
    left_ns: AtomicI64,
    cancelled: AtomicBool,
}

/// Whether nobody waits for the work any more, for any thread.
#[derive(Clone, Copy)]
pub struct Cancellation(Option<&'static AtomicBool>);

impl Cancellation {
    #[cfg(test)]
    pub const NEVER: Cancellation = Cancellation(None);

    /// # Safety
    /// As for `Budget::from_address`.
    pub unsafe fn from_address(address: usize) -> Self {
        // SAFETY: the caller's promise.
        let counters = unsafe { (address as *const Counters).as_ref() };
        Cancellation(counters.map(|counters| &counters.cancelled))
    }

    #[cfg(test)]
    pub fn of(flag: &'static AtomicBool) -> Self {
        Cancellation(Some(flag))
    }

    pub fn is_cancelled(self) -> bool {
        self.0.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

/// One stage of the work, on one thread.
pub struct Budget {
    /// Static in name only: C++ keeps the counters until the call that uses them returns.
    counters: Option<&'static Counters>,
    /// The thread's processor time that is already subtracted.
    counted_ns: i64,
}

impl Budget {
    /// # Safety
    /// `address` is 0 (no limit) or that of a `quire::WorkBudget` that outlives the budget.
    pub unsafe fn from_address(address: usize) -> Self {
        // SAFETY: the caller's promise; both fields are atomics, so sharing them is sound.
        let counters = unsafe { (address as *const Counters).as_ref() };
        Budget { counters, counted_ns: thread_ns() }
    }

    /// The same counters for the thread that calls this.
    pub fn on_this_thread(&self) -> Self {
        Budget { counters: self.counters, counted_ns: thread_ns() }
    }

    /// Subtracts what this thread has spent; an error if that was too much or nobody waits.
    pub fn check(&mut self) -> TextResult<()> {
        let Some(counters) = self.counters else { return Ok(()) };
        if counters.cancelled.load(Ordering::Relaxed) {
            return fail("cancelled");
        }
        let now = thread_ns();
        let spent = now - self.counted_ns;
        self.counted_ns = now;
        if counters.left_ns.fetch_sub(spent, Ordering::Relaxed) < spent {
            return fail("the text takes more processor time than one request may spend");
        }
        Ok(())
    }
}

/// This thread's processor time.
pub fn thread_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
