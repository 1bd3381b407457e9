//! Ends library code that has no limits of its own. All of Rust's memory comes from the allocator
//! below. A thread within an allowance gets no more than that, and nothing once its CPU time is up;
//! a library that is refused memory unwinds, as in a panic.

use crate::budget::{thread_ns, Cancellation};
use crate::error::{fail, TextResult};
use std::alloc::{set_alloc_error_hook, GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::Once;
use std::time::Duration;

/// Allocations and steps between two looks at the clock.
const LOOK_EVERY: u32 = 64;

#[derive(Clone, Copy)]
struct Allowance {
    bytes: usize, // left
    deadline_ns: i64,
    cancellation: Cancellation,
    calls: u32,
}

/// What an allowance was used up by.
#[derive(Clone, Copy)]
enum UsedUp {
    Memory,
    Time,
    Cancelled,
}

thread_local! {
    // Without destructors, so that the allocator may use them at any time.
    static ALLOWANCE: Cell<Option<Allowance>> = const { Cell::new(None) };
    static USED_UP: Cell<UsedUp> = const { Cell::new(UsedUp::Memory) };
}

pub struct Allocator;

impl Allocator {
    /// Takes so many bytes of the thread's allowance, if there is one; false if they are too many.
    fn take(bytes: usize) -> bool {
        #[cfg(test)]
        peak::add(bytes);
        let Some(mut allowance) = ALLOWANCE.get() else { return true };
        allowance.calls = allowance.calls.wrapping_add(1);
        let looks = allowance.calls % LOOK_EVERY == 0;
        let used_up = if bytes > allowance.bytes {
            Some(UsedUp::Memory)
        } else if looks && allowance.cancellation.is_cancelled() {
            Some(UsedUp::Cancelled)
        } else if looks && thread_ns() > allowance.deadline_ns {
            Some(UsedUp::Time)
        } else {
            None
        };
        if let Some(reason) = used_up {
            USED_UP.set(reason);
            return false;
        }
        allowance.bytes -= bytes;
        ALLOWANCE.set(Some(allowance));
        true
    }

    fn give_back(bytes: usize) {
        #[cfg(test)]
        peak::remove(bytes);
        if let Some(mut allowance) = ALLOWANCE.get() {
            allowance.bytes = allowance.bytes.saturating_add(bytes);
            ALLOWANCE.set(Some(allowance));
        }
    }
}

// SAFETY: all memory is the system allocator's, under the same layouts; refusing is allowed.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Allocator::take(layout.size()) {
            return std::ptr::null_mut();
        }
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !Allocator::take(layout.size()) {
            return std::ptr::null_mut();
        }
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Allocator::give_back(layout.size());
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !Allocator::take(size.saturating_sub(layout.size())) {
            return std::ptr::null_mut();
        }
        Allocator::give_back(layout.size().saturating_sub(size));
        #[cfg(test)]
        peak::resized(layout.size(), size);
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// The most memory that a thread holds at once, as the system's allocator cuts it.
#[cfg(test)]
pub mod peak {
    use std::cell::Cell;

    thread_local! {
        static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) }; // now, and at most
    }

    fn cut(bytes: usize) -> isize {
        if bytes == 0 {
            0
        } else {
            ((bytes + 8 + 15) & !15).max(32) as isize
        }
    }

    pub fn add(bytes: usize) {
        let (held, most) = HELD.get();
        let held = held + cut(bytes);
        HELD.set((held, most.max(held)));
    }

    pub fn remove(bytes: usize) {
        let (held, most) = HELD.get();
        HELD.set((held - cut(bytes), most));
    }

    /// After add() or remove() of the difference: block and copy are there for a moment.
    pub fn resized(old: usize, new: usize) {
        let (held, most) = HELD.get();
        let counted = if new > old { cut(new - old) } else { -cut(old - new) };
        let held = held - counted + cut(new);
        HELD.set((held - cut(old), most.max(held)));
    }

    pub fn held() -> isize {
        HELD.get().0
    }

    /// The most that is held while `body` runs, beyond what was held before.
    pub fn of<T>(body: impl FnOnce() -> T) -> (T, usize) {
        let before = HELD.get().0;
        HELD.set((before, before));
        let result = body();
        (result, (HELD.get().1 - before) as usize)
    }
}

/// What unwinds a thread whose allowance is used up.
struct Refused(UsedUp);

/// Memory was refused. Returning from here ends the process, as it should if memory has run out.
fn on_refusal(_: Layout) {
    // What the thread still has to do, such as this, is no longer limited.
    if ALLOWANCE.take().is_some() {
        resume_unwind(Box::new(Refused(USED_UP.get())));
    }
    eprintln!("quire: out of memory");
}

/// Ends the allowance, also when a panic passes.
struct End;
impl Drop for End {
    fn drop(&mut self) {
        ALLOWANCE.set(None);
    }
}

/// A step of work that asks for no memory: the clock is looked at here, too.
pub fn step() {
    if !Allocator::take(0) {
        ALLOWANCE.set(None);
        resume_unwind(Box::new(Refused(USED_UP.get())));
    }
}

/// Runs `body` with so many bytes of memory and so much of this thread's CPU time, as long as it is
/// not cancelled. `what` is in the error if it wants more. Time and cancellation are noticed when
/// memory is asked for, and in step().
pub fn within<T>(
    what: &str,
    bytes: usize,
    time: Duration,
    cancellation: Cancellation,
    body: impl FnOnce() -> TextResult<T>,
) -> TextResult<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| set_alloc_error_hook(on_refusal));
    let end = End;
    let deadline_ns = thread_ns() + time.as_nanos() as i64;
    ALLOWANCE.set(Some(Allowance { bytes, deadline_ns, cancellation, calls: 0 }));
    let result = catch_unwind(AssertUnwindSafe(body));
    drop(end);
    match result {
        Ok(result) => result,
        Err(payload) => match payload.downcast_ref::<Refused>() {
            None => resume_unwind(payload),
            Some(Refused(UsedUp::Memory)) => {
                fail(format!("{what} takes more than {} MiB of memory", bytes >> 20))
            }
            Some(Refused(UsedUp::Time)) => {
                fail(format!("{what} takes more than {} ms of CPU time", time.as_millis()))
            }
            Some(Refused(UsedUp::Cancelled)) => fail("cancelled"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const MINUTE: Duration = Duration::from_secs(60);
    const NEVER: Cancellation = Cancellation::NEVER;

    fn grown(bytes: usize) -> TextResult<usize> {
        let mut text = String::new();
        while text.len() < bytes {
            text.push('x');
        }
        Ok(text.len())
    }

    #[test]
    fn memory_is_refused_beyond_the_allowance() {
        assert_eq!(within("it", 4 << 20, MINUTE, NEVER, || grown(1 << 20)).unwrap(), 1 << 20);
        let error = within("it", 1 << 20, MINUTE, NEVER, || grown(4 << 20)).unwrap_err().0;
        assert_eq!(error, "it takes more than 1 MiB of memory");
        // The thread goes on as before.
        assert_eq!(grown(4 << 20).unwrap(), 4 << 20);
    }

    #[test]
    fn memory_that_is_given_back_can_be_taken_again() {
        let body = || {
            for _ in 0..100 {
                grown(1 << 18)?;
            }
            Ok(())
        };
        within("it", 1 << 20, MINUTE, NEVER, body).unwrap();
    }

    #[test]
    fn time_ends_what_allocates() {
        let error =
            within("it", 1 << 20, Duration::from_millis(20), NEVER, || -> TextResult<()> {
                loop {
                    std::hint::black_box(Box::new(1));
                }
            });
        assert_eq!(error.unwrap_err().0, "it takes more than 20 ms of CPU time");
    }

    #[test]
    fn time_ends_what_counts_its_steps() {
        let error =
            within("it", 1 << 20, Duration::from_millis(20), NEVER, || -> TextResult<()> {
                loop {
                    step();
                }
            });
        assert_eq!(error.unwrap_err().0, "it takes more than 20 ms of CPU time");
        step(); // without an allowance it does nothing
    }

    #[test]
    fn work_ends_when_it_is_cancelled() {
        static GONE: AtomicBool = AtomicBool::new(false);
        let result =
            within("it", 1 << 20, MINUTE, Cancellation::of(&GONE), || -> TextResult<()> {
                for round in 0.. {
                    GONE.store(round > 1000, Ordering::Relaxed);
                    step();
                }
                Ok(())
            });
        assert_eq!(result.unwrap_err().0, "cancelled");
    }

    #[test]
    fn panics_and_errors_pass() {
        let panicked = std::panic::catch_unwind(|| {
            within::<()>("it", 1 << 20, MINUTE, NEVER, || resume_unwind(Box::new("other")))
        });
        assert_eq!(*panicked.unwrap_err().downcast_ref::<&str>().unwrap(), "other");
        assert!(ALLOWANCE.get().is_none());
        assert_eq!(
            within::<()>("it", 1 << 20, MINUTE, NEVER, || fail("own")).unwrap_err().0,
            "own"
        );
    }

    #[test]
    fn what_was_built_is_dropped() {
        struct Counted<'a>(&'a Cell<usize>);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.set(self.0.get() - 1);
            }
        }
        let alive = Cell::new(0);
        let result = within("it", 1 << 16, MINUTE, NEVER, || -> TextResult<()> {
            let mut all = Vec::new();
            loop {
                alive.set(alive.get() + 1);
                all.push(Box::new(Counted(&alive)));
            }
        });
        assert!(result.is_err());
        assert_eq!(alive.get(), 0);
    }
}
