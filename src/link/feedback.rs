use std::{fmt::Debug, sync::Arc};

/// What passes back from who judges a frame to the transport that brought it. Every [`Arrival`](super::Arrival) of a
/// transport that has links carries its channel's.
///
/// Neither call waits for anything but a short lock.
pub trait Feedback: Debug + Send + Sync + 'static {
    /// Runs `admit`, which takes the frame's place in the order of admissions, unless the frame's channel was replaced:
    /// by the same channel opened again, or by a greater link (law L3.8). It is not replaced while `admit` runs, and
    /// whatever replaces it hands over its first frame only afterwards. So nothing of an earlier channel is admitted
    /// after anything of a later one.
    ///
    /// `false` if it was replaced; the frame is to be dropped then. `admit` must be short.
    fn unless_superseded(&self, admit: &mut dyn FnMut()) -> bool;

    /// Says that a frame was refused, under its stable name (law L13.3).
    fn refused(&self, reason: &'static str);
}

/// Runs `admit` as `feedback` allows, and always without one. `None` if the frame's channel was replaced.
pub(crate) fn unless_superseded<R>(feedback: Option<&Arc<dyn Feedback>>, admit: impl FnOnce() -> R) -> Option<R> {
    let Some(feedback) = feedback else { return Some(admit()) };
    let (mut admit, mut admitted) = (Some(admit), None);
    let allowed = feedback.unless_superseded(&mut || admitted = admit.take().map(|admit| admit()));
    admitted.filter(|_| allowed)
}
