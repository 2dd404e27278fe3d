//! Whether the connection that a link is on still answers.
//!
//! A connection can be dead without either transport knowing, for minutes on TCP, while its peer has long come by
//! another one. A link on it would keep what is queued until it expires. But a link where nothing comes back may as well
//! have a slow receiver, whose handlers hold every credit; so silence alone proves nothing, and the connection is asked.
//!
//! **State.** When anything was last heard, whether a question is on its way, and whether the last one went unanswered.
//!
//! **Transitions.** After [`Silence::new`]'s time without a word, while the link has work, the connection is asked to
//! open a substream of a protocol that nobody speaks. A refusal is an answer, made by the connection itself: no handler
//! can delay it. None in the same time makes the link *silent*; so does a channel that cannot be opened for want of an
//! answer. Whatever is heard makes it sound again, and the next question is due after the same time.
//!
//! **Failures.** A machine that stops for twice the time is taken for dead. Then its link moves if there is another
//! connection, which costs what is in flight; else nothing happens to it but that the peer is dialled again.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

#[derive(Debug)]
pub(crate) struct Silence {
    after: Duration,
    heard: Duration,
    asked: bool,
    silent: bool,
}

impl Silence {
    /// A link that has work from `now` on and is asked after `after` without a word.
    pub(crate) const fn new(after: Duration, now: Duration) -> Self {
        Self { after, heard: now, asked: false, silent: false }
    }

    /// Something was heard, or the link has work again after it had none.
    pub(crate) const fn heard(&mut self, now: Duration) {
        (self.heard, self.silent) = (now, false);
    }

    /// How long until a question is due; zero if it is now. `None` while one is on its way.
    pub(crate) fn due(&self, now: Duration) -> Option<Duration> {
        (!self.asked).then(|| self.heard.saturating_add(self.after).saturating_sub(now))
    }

    /// A question is on its way.
    pub(crate) const fn asked(&mut self) {
        self.asked = true;
    }

    /// The question was answered.
    pub(crate) const fn answered(&mut self, now: Duration) {
        self.asked = false;
        self.heard(now);
    }

    /// The question failed otherwise: that says nothing, and another is due in time.
    pub(crate) const fn failed(&mut self, now: Duration) {
        (self.asked, self.heard) = (false, now);
    }

    /// The question went unanswered. Whether the link is silent now, for which the behaviour is to look.
    pub(crate) fn unanswered(&mut self, now: Duration) -> bool {
        self.asked = false;
        self.unopened(now)
    }

    /// A channel was not opened for want of an answer. Whether the link is silent now.
    pub(crate) fn unopened(&mut self, now: Duration) -> bool {
        let silent = now >= self.heard.saturating_add(self.after);
        if silent {
            (self.silent, self.heard) = (true, now);
        }
        silent
    }

    pub(crate) const fn is_silent(&self) -> bool {
        self.silent
    }
}

/// What a link's task and the behaviour say to each other about it.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    silent: AtomicBool,
    leave: AtomicBool,
}

impl Standing {
    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::Release);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// There is another connection: the link is to end if it is still silent.
    pub(crate) fn leave(&self) {
        self.leave.store(true, Ordering::Release);
    }

    /// Whether it is to, asked once.
    pub(crate) fn is_to_leave(&self) -> bool {
        self.leave.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_link_is_asked_only_after_a_silence_and_is_silent_only_after_another() {
        let mut silence = Silence::new(AFTER, at(100));
        assert_eq!(silence.due(at(103)), Some(at(7)));
        silence.heard(at(105));
        assert_eq!((silence.due(at(114)), silence.due(at(115))), (Some(at(1)), Some(at(0))));
        silence.asked();
        assert_eq!(silence.due(at(200)), None, "one question at a time");
        assert!(!silence.is_silent());
        assert!(silence.unanswered(at(125)) && silence.is_silent());
        assert_eq!(silence.due(at(125)), Some(AFTER), "and it is asked again");
        silence.heard(at(126));
        assert!(!silence.is_silent(), "a word is enough");
    }

    #[test]
    fn an_answer_is_a_word_and_a_slow_receiver_is_never_silent() {
        let mut silence = Silence::new(AFTER, at(0));
        let mut now = 0;
        for _ in 0..100 {
            now += silence.due(at(now)).unwrap().as_secs();
            silence.asked();
            silence.answered(at(now + 1));
            assert!(!silence.is_silent());
        }
        assert!(now >= 1_000);
    }

    #[test]
    fn a_word_while_a_question_is_on_its_way_outweighs_that_it_went_unanswered() {
        let mut silence = Silence::new(AFTER, at(0));
        silence.asked();
        silence.heard(at(19));
        assert!(!silence.unanswered(at(20)) && !silence.is_silent());
        assert!(!silence.unopened(at(28)), "nor does a channel that fails early say anything");
        assert!(silence.unopened(at(29)) && silence.is_silent());
        silence.asked();
        silence.failed(at(31));
        assert_eq!(silence.due(at(31)), Some(AFTER));
    }

    #[test]
    fn a_link_is_told_to_leave_once() {
        let standing = Standing::default();
        standing.set_silent(true);
        assert!(standing.is_silent() && !standing.is_to_leave());
        standing.leave();
        assert!(standing.is_to_leave() && !standing.is_to_leave());
    }
}
