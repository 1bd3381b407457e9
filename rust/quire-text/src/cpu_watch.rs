//! Stops grammar work that has taken its share of CPU time. Threads cannot be killed, but the
//! grammar library looks at a cancellation handle in its loops.

use llguidance::CancellationHandle;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often running work is looked at, so by how much it may go over its limit.
const PERIOD: Duration = Duration::from_millis(5);

/// The CPU time of one thread, readable by others while that thread lives.
#[derive(Clone, Copy)]
struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    #[cfg(target_os = "linux")]
    fn of_this_thread() -> ThreadClock {
        let mut id = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: both arguments are valid; an error leaves `id`, which then reads as the watching
        // thread's own time: the work would go unwatched, and still be measured when it ends.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut id) };
        ThreadClock(id)
    }

    /// Elsewhere one thread cannot read another's CPU time; wall time is the nearest.
    #[cfg(not(target_os = "linux"))]
    fn of_this_thread() -> ThreadClock {
        ThreadClock(libc::CLOCK_MONOTONIC)
    }

    fn now(self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is valid for writing.
        unsafe { libc::clock_gettime(self.0, &mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

struct Running {
    number: u64,
    clock: ThreadClock,
    deadline: Duration,
    cancel: CancellationHandle,
}

#[derive(Default)]
struct State {
    running: Vec<Running>,
    last_number: u64,
    asleep: bool,
    stopping: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut state = self.lock();
        while !state.stopping {
            for work in state.running.iter().filter(|work| work.clock.now() >= work.deadline) {
                work.cancel.cancel();
            }
            state.asleep = state.running.is_empty();
            state = if state.asleep {
                self.wake.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let woken = self.wake.wait_timeout(state, PERIOD);
                woken.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

/// One thread that cancels what runs for too long; it sleeps while nothing does.
pub struct CpuWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl CpuWatch {
    pub fn start() -> std::io::Result<CpuWatch> {
        let shared = Arc::new(Shared::default());
        let watched = shared.clone();
        let thread = std::thread::Builder::new()
            .name("grammar-watch".into())
            .spawn(move || watched.watch())?;
        Ok(CpuWatch { shared, thread: Some(thread) })
    }

    /// Runs `work` on this thread and returns the CPU time it took; cancels `cancel` once that
    /// exceeds `limit`.
    pub fn run<T>(
        &self,
        limit: Duration,
        cancel: CancellationHandle,
        work: impl FnOnce() -> T,
    ) -> (T, Duration) {
        let clock = ThreadClock::of_this_thread();
        let start = clock.now();
        let _entry = self.enter(Running { number: 0, clock, deadline: start + limit, cancel });
        let result = work();
        (result, clock.now().saturating_sub(start))
    }

    fn enter(&self, mut work: Running) -> Entry<'_> {
        let mut state = self.shared.lock();
        state.last_number += 1;
        work.number = state.last_number;
        let number = work.number;
        state.running.push(work);
        if std::mem::take(&mut state.asleep) {
            self.shared.wake.notify_one();
        }
        Entry { watch: self, number }
    }
}

impl Drop for CpuWatch {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Work under watch, until it is dropped (also by a panic).
struct Entry<'a> {
    watch: &'a CpuWatch,
    number: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.watch.shared.lock().running.retain(|work| work.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llguidance::api::TopLevelGrammar;
    use llguidance::{Matcher, ParserFactory};
    use std::time::Instant;
    use toktrie::{ApproximateTokEnv, InferenceCapabilities};

    fn handle() -> CancellationHandle {
        let env = ApproximateTokEnv::single_byte_env();
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &[]).unwrap();
        let parser = factory.create_parser(TopLevelGrammar::from_lark("start: \"x\"".into()));
        Matcher::new(parser).into_cancellable().cancellation_handle().unwrap()
    }

    #[test]
    fn work_that_uses_its_cpu_time_up_is_cancelled_soon_after() {
        let watch = CpuWatch::start().unwrap();
        let cancel = handle();
        let limit = Duration::from_millis(20);
        let ((), spent) = watch.run(limit, cancel.clone(), || while !cancel.is_cancelled() {});
        assert!(spent >= limit, "{spent:?}");
        assert!(spent < Duration::from_secs(120), "{spent:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn waiting_costs_nothing_and_is_not_cancelled() {
        let watch = CpuWatch::start().unwrap();
        let cancel = handle();
        let limit = Duration::from_millis(20);
        let sleep = || std::thread::sleep(Duration::from_millis(200));
        let ((), spent) = watch.run(limit, cancel.clone(), sleep);
        assert!(spent < limit, "{spent:?}");
        assert!(!cancel.is_cancelled());
    }

    #[test]
    fn finished_work_is_forgotten_and_the_thread_ends() {
        let watch = CpuWatch::start().unwrap();
        let cancel = handle();
        for _ in 0..100 {
            watch.run(Duration::from_millis(1), cancel.clone(), || ());
        }
        assert!(watch.shared.lock().running.is_empty());
        let start = Instant::now();
        drop(watch);
        assert!(start.elapsed() < Duration::from_secs(120));
        assert!(!cancel.is_cancelled());
    }
}
