//! The injected clock: wall time for liveness, monotonic time for ages, and the boot they belong to.

use std::{
    fmt::Debug,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Milliseconds since the Unix epoch.
pub type WallMs = u64;

/// The clock tolerance σ unless told otherwise: 3 s, in milliseconds. How far two honest clocks may differ.
pub const DEFAULT_SIGMA_MS: u64 = 3_000;

/// Names one boot of the machine. Monotonic readings compare only within one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId(pub [u8; 16]);

/// Where the crate reads time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The wall clock, in milliseconds since the Unix epoch. It may step either way between two readings.
    fn wall(&self) -> WallMs;

    /// Time since an arbitrary fixed instant of this boot (of this process where [`Clock::boot`] is `None`).
    /// It never goes back, and counts suspended time where the platform can.
    fn monotonic(&self) -> Duration;

    /// The boot that [`Clock::monotonic`] counts from, where the platform tells it apart from others and its
    /// readings compare between processes.
    fn boot(&self) -> Option<BootId>;
}

/// The machine's own clocks.
///
/// On Linux and Android the monotonic clock is `CLOCK_BOOTTIME` and the boot is the kernel's boot id, so ages
/// survive a restart of the process. Elsewhere the monotonic clock starts with the process and `boot` is `None`.
#[derive(Debug)]
pub struct SystemClock {
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    started: std::time::Instant,
    boot: Option<BootId>,
}

impl SystemClock {
    /// Reads the boot id once.
    pub fn new() -> Self {
        Self {
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            started: std::time::Instant::now(),
            boot: read_boot_id(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn wall(&self) -> WallMs {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .ok()
            .and_then(|since| u64::try_from(since.as_millis()).ok())
            .unwrap_or(0)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn monotonic(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn boot(&self) -> Option<BootId> {
        self.boot
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn read_boot_id() -> Option<BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mut id = [0; 16];
    let mut digits = text.bytes().filter(|byte| *byte != b'-').map_while(|byte| char::from(byte).to_digit(16));
    for byte in &mut id {
        let (high, low) = (digits.next()?, digits.next()?);
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(BootId(id))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn read_boot_id() -> Option<BootId> {
    None
}

/// A clock that moves only when told to: for tests and simulations.
///
/// ```
/// use admit_one::clock::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new(1_000);
/// clock.advance(Duration::from_millis(5));
/// clock.step_wall_to(400);
/// assert_eq!(clock.wall(), 400);
/// assert_eq!(clock.monotonic(), Duration::from_millis(5));
/// ```
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<Manual>,
}

#[derive(Debug, Clone, Copy)]
struct Manual {
    wall: WallMs,
    monotonic: Duration,
    boot: u128,
}

impl ManualClock {
    /// A clock whose wall reads `wall` and whose monotonic time starts at zero in its first boot.
    pub fn new(wall: WallMs) -> Self {
        Self { state: Mutex::new(Manual { wall, monotonic: Duration::ZERO, boot: 0 }) }
    }

    /// Passes `time` on both clocks.
    pub fn advance(&self, time: Duration) {
        let mut state = self.lock();
        state.monotonic += time;
        state.wall = state.wall.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    }

    /// Steps the wall clock, either way, while no monotonic time passes.
    pub fn step_wall_to(&self, wall: WallMs) {
        self.lock().wall = wall;
    }

    /// Starts another boot: a new boot id, and monotonic time from zero.
    pub fn reboot(&self) {
        let mut state = self.lock();
        state.boot += 1;
        state.monotonic = Duration::ZERO;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Manual> {
        // Every change is one assignment, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> WallMs {
        self.lock().wall
    }

    fn monotonic(&self) -> Duration {
        self.lock().monotonic
    }

    fn boot(&self) -> Option<BootId> {
        Some(BootId(self.lock().boot.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_clock_reads_this_century_and_never_goes_back() {
        let clock = SystemClock::new();
        assert!(clock.wall() > 1_700_000_000_000);
        let first = clock.monotonic();
        assert!(clock.monotonic() >= first);
        assert_eq!(clock.boot(), SystemClock::new().boot());
        assert!(clock.boot().is_some() == cfg!(any(target_os = "linux", target_os = "android")));
    }
}
